"""Batches of documents: several in a row, or each in a row of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from fastload.sample.layout import VALID
from fastload.sample.ragged import Ragged
from fastload.vlm.chat import IGNORED, LAYOUTS, Document
from fastload.vlm.positions import packed_positions

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Placed:
    """A sample's place in a pack.

    Attributes:
        sample: its id.
        document: its tokens; None if it could not be made: its place becomes padding.
        length: the tokens that the pack was planned with; None: as many as there are.
    """

    sample: int
    document: Document | None
    length: int | None = None

    def __len__(self) -> int:
        """Return the tokens of the place."""
        if self.length is not None:
            return self.length
        return 0 if self.document is None else len(self.document)


def packed_batch(
    packs: Sequence[Sequence[Placed]],
    tokens: int,
    pad: int,
    layout: str = "rows",
    types: str = "",
    mrope: bool = False,
) -> dict[str, Any]:
    """Return the batch of these packs.

    Models of transformers tell documents apart by ``position_ids`` alone, and only without
    ``attention_mask`` and without a cache: call ``model(..., use_cache=False)``. With a cache, which they
    make by default also when they train, documents see each other. ``config.use_cache``, which their
    Trainer sets, does not reach the text model of a vision-language model; gradient checkpointing makes no
    cache.

    Args:
        packs: the documents of each row, in order; a row without any is padding.
        tokens: length of a row.
        pad: the id that fills rows up.
        layout: "rows": (packs, tokens); "flat": (1, packs * tokens).
        types: the key under which documents' types go (``Frames.types``); "": nowhere.
        mrope: whether positions have rows and columns also where no document says so, as in padding alone.

    Returns:
        ``input_ids`` and ``labels``, (packs, tokens) int64; ``position_ids``, (packs, tokens), or (4, packs,
        tokens) of documents with rows and columns, from 0 for each document and for the padding behind;
        ``cu_seqlens``, (segments + 1,) int32, where documents begin and end in the flat batch, the padding
        of a row being a segment of its own; ``max_seqlen``, the longest of them; ``documents``, a Ragged
        with the ids of each row's samples, int64; ``valid``, (packs,) bool, whether a row has any.

    Raises:
        ValueError: a document is not as long as planned, a row is too short for its documents, or documents
            differ in how they count positions.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}. Found: {layout!r}.")
    _check(packs, tokens)
    lines = _lines([placed.document for pack in packs for placed in pack]) or 4 * mrope
    shape = (len(packs), tokens)
    ids, labels = np.full(shape, pad, dtype=np.int64), np.full(shape, IGNORED, dtype=np.int64)
    positions = np.empty((lines or 1, *shape), dtype=np.int64)
    kinds = np.zeros(shape, dtype=np.int64)
    ends = [0]
    for row, pack in enumerate(packs):
        at = 0
        for placed in pack:
            cut = slice(at, at + len(placed))
            document = placed.document
            if document is None:
                positions[:, row, cut] = np.arange(len(placed))
            else:
                ids[row, cut], labels[row, cut] = document.input_ids, document.labels
                positions[:, row, cut] = packed_positions(document.position_ids)
                if document.types is not None:
                    kinds[row, cut] = document.types
            at = cut.stop
            ends.append(row * tokens + at)
        if at < tokens:
            positions[:, row, at:] = np.arange(tokens - at)
            ends.append((row + 1) * tokens)
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions if lines else positions[0]}
    if types:
        batch[types] = kinds
    if layout == "flat":
        batch = {name: value.reshape(*value.shape[:-2], 1, -1) for name, value in batch.items()}
    ends = [end for number, end in enumerate(ends) if not number or end > ends[number - 1]]
    return {
        **{name: torch.from_numpy(value) for name, value in batch.items()},
        "cu_seqlens": torch.from_numpy(np.asarray(ends, dtype=np.int32)),
        "max_seqlen": int(np.diff(ends).max(initial=0)),
        **_samples(packs),
    }


def padded_batch(
    documents: Sequence[Placed], pad: int, types: str = "", mrope: bool = False
) -> dict[str, Any]:
    """Return the batch of these documents, each in a row, filled up at the right to the longest; without any
    document rows have one token of padding.

    Args:
        documents: in order; one that could not be made is a row of padding.
        pad: the id that fills rows up.
        types, mrope: see :func:`packed_batch`.

    Returns:
        ``input_ids``, ``labels`` and ``attention_mask``, (documents, longest) int64; ``position_ids`` of that
        shape, or (3, documents, longest), 0 in the padding as ``get_rope_index`` has it; ``documents`` and
        ``valid`` as :func:`packed_batch` returns them.

    Raises:
        ValueError: a document is not as long as planned, or they differ in how they count positions.
    """
    made = [placed.document for placed in documents]
    for placed in documents:
        _check_length(placed)
    lines = 3 if _lines(made) or mrope else 0
    # A row without any token would fail in a model, and all ranks have to take the step.
    shape = (
        len(made),
        max((len(document) for document in made if document is not None), default=min(1, len(made))),
    )
    names = ("input_ids", "labels", "attention_mask")
    batch: dict[str, npt.NDArray[Any]] = {name: np.zeros(shape, dtype=np.int64) for name in names}
    batch["input_ids"][:], batch["labels"][:] = pad, IGNORED
    positions = np.zeros((lines or 1, *shape), dtype=np.int64)
    kinds = np.zeros(shape, dtype=np.int64)
    for row, document in enumerate(made):
        if document is None:
            continue
        cut = slice(len(document))
        batch["input_ids"][row, cut], batch["labels"][row, cut] = document.input_ids, document.labels
        batch["attention_mask"][row, cut] = 1
        positions[:, row, cut] = document.position_ids
        if document.types is not None:
            kinds[row, cut] = document.types
    batch["position_ids"] = positions if lines else positions[0]
    if types:
        batch[types] = kinds
    return {
        **{name: torch.from_numpy(value) for name, value in batch.items()},
        **_samples([[placed] for placed in documents]),
    }


def _samples(packs: Sequence[Sequence[Placed]]) -> Mapping[str, Any]:
    rows = [[placed.sample for placed in pack if placed.document is not None] for pack in packs]
    counts = np.asarray([len(row) for row in rows], dtype=np.int64)
    flat = np.asarray([sample for row in rows for sample in row], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return {
        "documents": Ragged.trusted(torch.from_numpy(flat), torch.from_numpy(offsets)),
        VALID: torch.from_numpy(counts > 0),
    }


def _lines(documents: Sequence[Document | None]) -> int:
    """Return how many rows packed positions have: 4, or 0 where they are a row alone."""
    found = {document.position_ids.ndim for document in documents if document is not None}
    if len(found) > 1:
        raise ValueError(
            "The documents of a batch must count positions alike. Found: some with rows and columns, some "
            "without. Make them by one Chat."
        )
    return 4 if found == {2} else 0


def _check(packs: Sequence[Sequence[Placed]], tokens: int) -> None:
    for row, pack in enumerate(packs):
        for placed in pack:
            _check_length(placed)
        used = sum(map(len, pack))
        if used > tokens:
            raise ValueError(
                f"Pack {row} has {used} tokens in {len(pack)} documents, samples "
                f"{', '.join(str(placed.sample) for placed in pack[:8])}; a row has {tokens}. Plan packs "
                "with the lengths of this Chat and these pictures."
            )


def _check_length(placed: Placed) -> None:
    if placed.document is not None and placed.length not in (None, len(placed.document)):
        raise ValueError(
            f"Sample {placed.sample} has {len(placed.document)} tokens, and {placed.length} were stored for "
            "it. Its conversation, its pictures, the tokenizer, the template or the rule of sizes changed. "
            "Count the lengths again."
        )
