"""Batches of packs and of single documents, against loops over tokens."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from fastload.sample.ragged import Ragged
from fastload.vlm.chat import IGNORED, Document
from fastload.vlm.packed import Placed, packed_batch, padded_batch
from fastload.vlm.positions import mrope_positions, plain_positions

PAD = 7


def document(draw: random.Random, mrope: bool, least: int = 1) -> Document:
    length = draw.randint(max(least, 6), 30) if mrope else draw.randint(least, 30)
    ids = np.array([draw.randint(10, 99) for _ in range(length)])
    labels = np.where(ids % 2, ids, IGNORED)
    positions = mrope_positions(length, [1], [(2, 2)]) if mrope else plain_positions(length)
    return Document(ids, labels, positions, (ids % 3 == 0).astype(np.int64))


def drawn(draw: random.Random, mrope: bool, rows: int) -> list[list[Placed]]:
    packs, sample = [], 0
    for row in range(rows):
        pack = []
        for _ in range(0 if row == 1 else draw.randint(1, 5)):
            made = document(draw, mrope)
            lost = draw.random() < 0.15
            pack.append(Placed(sample, None if lost else made, len(made)))
            sample += 1
        packs.append(pack)
    return packs


@pytest.mark.parametrize("mrope", [False, True])
@pytest.mark.parametrize("layout", ["rows", "flat"])
def test_packs(mrope: bool, layout: str) -> None:
    for seed in range(40):
        packs = drawn(random.Random(seed), mrope, 3)
        tokens = max(sum(map(len, pack)) for pack in packs) + seed % 3
        batch = packed_batch(packs, tokens, PAD, layout, "kinds")
        shape = (1, 3 * tokens) if layout == "flat" else (3, tokens)
        flat: dict[str, list[Any]] = {"input_ids": [], "labels": [], "kinds": [], "position_ids": []}
        ends = [0]
        for pack in packs:
            left = tokens
            for placed in [*pack, None]:
                made = None if placed is None else placed.document
                length = left if placed is None else len(placed)
                left -= length
                for token in range(length):
                    flat["input_ids"].append(PAD if made is None else int(made.input_ids[token]))
                    flat["labels"].append(IGNORED if made is None else int(made.labels[token]))
                    flat["kinds"].append(0 if made is None or made.types is None else int(made.types[token]))
                    three = [token] * 3 if made is None or not mrope else made.position_ids[:, token].tolist()
                    flat["position_ids"].append([token, *three] if mrope else token)
                if length:
                    ends.append(ends[-1] + length)
        for name in ("input_ids", "labels", "kinds"):
            assert batch[name].shape == shape
            assert batch[name].dtype == torch.int64
            assert batch[name].flatten().tolist() == flat[name]
        positions = batch["position_ids"]
        assert positions.shape == ((4, *shape) if mrope else shape)
        found = positions.flatten(1).T.tolist() if mrope else positions.flatten().tolist()
        assert found == flat["position_ids"]
        assert batch["cu_seqlens"].dtype == torch.int32
        assert batch["cu_seqlens"].tolist() == ends
        assert batch["max_seqlen"] == max(after - before for before, after in pairwise(ends))
        ids = [[placed.sample for placed in pack if placed.document is not None] for pack in packs]
        assert isinstance(batch["documents"], Ragged)
        assert [row.tolist() for row in batch["documents"]] == ids
        assert batch["valid"].tolist() == [bool(row) for row in ids]


@pytest.mark.parametrize("mrope", [False, True])
def test_documents_in_rows_of_their_own(mrope: bool) -> None:
    draw = random.Random(3)
    made = [document(draw, mrope) for _ in range(5)]
    places = [Placed(10 + number, each) for number, each in enumerate(made)]
    places[2] = Placed(12, None, 4)
    batch = padded_batch(places, PAD, "kinds")
    longest = max(len(each) for number, each in enumerate(made) if number != 2)
    assert set(batch) == {
        "input_ids", "labels", "attention_mask", "position_ids", "kinds", "documents", "valid",
    }  # fmt: skip
    for row, each in enumerate(made):
        length = 0 if row == 2 else len(each)
        assert batch["input_ids"][row].tolist() == [*each.input_ids[:length], *[PAD] * (longest - length)]
        assert batch["labels"][row].tolist() == [*each.labels[:length], *[IGNORED] * (longest - length)]
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (longest - length)
        positions = batch["position_ids"][..., row, :]
        assert positions[..., :length].tolist() == each.position_ids[..., :length].tolist()
        assert not positions[..., length:].any()
    assert batch["documents"].counts() == [1, 1, 0, 1, 1]
    assert batch["valid"].tolist() == [True, True, False, True, True]


def test_no_documents() -> None:
    batch = packed_batch([[], []], 4, PAD)
    assert batch["input_ids"].tolist() == [[PAD] * 4] * 2
    assert batch["cu_seqlens"].tolist() == [0, 4, 8]
    assert batch["valid"].tolist() == [False, False]
    assert padded_batch([], PAD)["input_ids"].shape == (0, 0)


def test_a_length_that_is_not_the_stored_one() -> None:
    made = document(random.Random(0), False, 20)
    place = Placed(41, made, len(made) + 1)
    message = (
        f"Sample 41 has {len(made)} tokens, and {len(made) + 1} were stored for it.*Count the lengths again"
    )
    with pytest.raises(ValueError, match=message):
        packed_batch([[place]], 64, PAD)
    with pytest.raises(ValueError, match=message):
        padded_batch([place], PAD)


def test_what_does_not_fit() -> None:
    draw = random.Random(0)
    made = document(draw, False, 20)
    with pytest.raises(
        ValueError, match=f"Pack 1 has {2 * len(made)} tokens in 2 documents, samples 4, 5; a row"
    ):
        packed_batch([[], [Placed(4, made), Placed(5, made)]], 2 * len(made) - 1, PAD)
    with pytest.raises(ValueError, match="layout must be one of rows, flat. Found: 'square'"):
        packed_batch([[Placed(4, made)]], 64, PAD, "square")
    mixed = [Placed(0, made), Placed(1, document(draw, True))]
    with pytest.raises(ValueError, match="must count positions alike"):
        padded_batch(mixed, PAD)
    with pytest.raises(ValueError, match="must count positions alike"):
        packed_batch([mixed], 99, PAD)


def test_rows_without_documents_have_a_token_of_padding() -> None:
    batch = padded_batch([Placed(3, None), Placed(4, None)], 7)
    assert batch["input_ids"].tolist() == [[7], [7]]
    assert batch["labels"].tolist() == [[-100], [-100]]
    assert batch["attention_mask"].tolist() == [[0], [0]]
    assert batch["valid"].tolist() == [False, False]
    assert padded_batch([], 7)["input_ids"].shape == (0, 0)
