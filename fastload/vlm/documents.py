"""A loader's documents: conversations and the sizes of their pictures, made into batches of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fastload.sample.layout import HOST, VALID, sizes_name
from fastload.vlm.chat import Chat
from fastload.vlm.grids import Ints, PictureGrids, by_sample
from fastload.vlm.packed import Placed, packed_batch, padded_batch

#: Keys of a batch, beside that of the types of tokens. ``pack_offsets`` is the loader's own.
KEYS = (
    "input_ids", "labels", "position_ids", "attention_mask", "cu_seqlens", "max_seqlen", "documents",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Made:
    """A batch's documents before its pictures are there.

    Attributes:
        placed: each sample's document; a place without a sample has none.
        cells: (pictures, 2) int64, rows and columns of each sample's pictures by the index.
        counts: (samples,) int64, the pictures of each.
        errors: by place, why a sample's pictures have no tokens; the loader says what becomes of it, because
            it cannot make their rows either.
        batch: of these documents.
    """

    placed: Sequence[Placed]
    cells: Ints
    counts: Ints
    errors: Mapping[int, ValueError]
    batch: Mapping[str, Any]


class Documents:
    """What a :class:`~fastload.vlm.chat.Chat` makes of a loader's batches.

    Args:
        chat: makes the documents.
        dataset: what is read.
        sampler: which samples each batch has; of packs, it says where each begins, and the tokens planned.
        grids: of the pictures; None: the loader delivers none.
        tokens: of a pack; None: each document is a row of its own.
        dropped: fields that are read for the documents' sake.
    """

    def __init__(
        self,
        chat: Chat,
        dataset: Any,
        sampler: Any,
        grids: PictureGrids | None,
        tokens: int | None,
        dropped: frozenset[str] = frozenset(),
    ) -> None:
        self.dropped = dropped
        self._chat = chat
        self._dataset = dataset
        self._sampler = sampler
        self._grids = grids
        self._tokens = tokens

    def make(self, key: Any, batch: Any) -> Made:
        """Make the documents of a batch's samples, in a text thread."""
        ids = batch.ids.tolist()
        planned = [None] * len(ids) if self._tokens is None else self._sampler.planned(*key).tolist()
        errors: dict[int, ValueError] = {}
        cells, lists, counts = self._pictures(ids, errors)
        placed = [
            Placed(sample, None, length or 0) if place in errors else self._placed(sample, grids, length)
            for place, (sample, grids, length) in enumerate(zip(ids, lists, planned, strict=True))
        ]
        return Made(placed, cells, counts, errors, self._batch(key, placed))

    def _pictures(
        self, ids: Sequence[int], errors: dict[int, ValueError]
    ) -> tuple[Ints, list[list[Sequence[int]]], Ints]:
        """Return rows and columns of all pictures, each sample's grids, and how many pictures it has."""
        counts = np.zeros(len(ids), np.int64)
        lists: list[list[Sequence[int]]] = [[] for _ in ids]
        cells: list[Ints] = [np.empty((0, 2), np.int64)]
        for place, sample in enumerate(ids if self._grids is not None else ()):
            if sample < 0:
                continue
            part, own = self._dataset.locate(sample)
            try:
                found, grids, number = self._grids.of(part, np.array([own]), np.array([sample]))  # type: ignore[union-attr]
            except ValueError as error:
                errors[place] = error
                continue
            cells.append(found)
            (lists[place],) = by_sample(grids, number)
            counts[place] = number[0]
        return np.concatenate(cells), lists, counts

    def _placed(self, sample: int, grids: Sequence[Sequence[int]], length: int | None) -> Placed:
        if sample < 0:
            return Placed(sample, None, 0)
        part, own = self._dataset.locate(sample)
        conversation = part.value(self._chat.turns, own)
        return Placed(sample, self._chat.document(conversation, grids, sample), length)

    def _batch(self, key: Any, placed: Sequence[Placed]) -> dict[str, Any]:
        chat = self._chat
        more = (chat.frames.types, chat.frames.mrope)
        if self._tokens is None:
            return padded_batch(placed, chat.pad, *more)
        packs = [placed[begin:end] for begin, end in pairwise(self._sampler.offsets(*key).tolist())]
        return packed_batch(packs, self._tokens, chat.pad, chat.layout, *more)

    def finish(self, key: Any, made: Made, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the documents of a batch whose pictures are there.

        A sample that was left out because a picture of it is bad has no document: its place is padding.

        Raises:
            ValueError: the pictures are not those that the index has.
        """
        host = batch.get(HOST, batch)
        there = host[VALID].numpy()
        for place, error in made.errors.items():
            if there[place]:
                raise error
        bad = ~there & np.array([one.document is not None for one in made.placed], bool)
        if self._grids is not None:
            self._check(made, host[sizes_name(self._grids.field)], bad)
        if not bad.any():
            return dict(made.batch)
        placed = [
            replace(one, document=None) if is_bad else one
            for one, is_bad in zip(made.placed, bad.tolist(), strict=True)
        ]
        return self._batch(key, placed)

    def _check(self, made: Made, facts: Any, bad: Any) -> None:
        """Compare the pictures that were delivered with those that have tokens."""
        counts = np.where(bad, 0, made.counts)
        cells = made.cells[~np.repeat(bad, made.counts)]
        found, delivered = np.diff(facts.offsets.numpy()), facts.values.numpy()[:, 1:3]
        if np.array_equal(found, counts) and np.array_equal(delivered, cells):
            return
        place = next(
            place
            for place, (own, other) in enumerate(
                zip(by_sample(delivered, found), by_sample(cells, counts), strict=True)
            )
            if own != other
        )
        assert self._grids is not None
        raise ValueError(
            f"Sample {made.placed[place].sample}: its pictures in {self._grids.field!r} have other rows than "
            "its tokens were made for: their sizes are not those in the index. Pack the set again."
        )
