"""Positions against a loop over tokens, as get_rope_index of transformers counts them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastload.vlm.positions import mrope_positions, packed_positions, plain_positions


def slow(texts: list[int], grids: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Token by token: a run of text before each picture, and one behind."""
    found, at = [], 0
    for number, run in enumerate(texts):
        for _ in range(run):
            found.append((at, at, at))
            at += 1
        if number < len(grids):
            rows, columns = grids[number]
            found += [(at, at + row, at + column) for row in range(rows) for column in range(columns)]
            at += max(rows, columns)
    return found


def test_rows_and_columns_of_pictures_count() -> None:
    draw = random.Random(0)
    for _ in range(300):
        grids = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(draw.randint(0, 6))]
        texts = [draw.choice([0, 1, 5, 30]) for _ in range(len(grids) + 1)]
        begins, at = [], 0
        for run, (rows, columns) in zip(texts, grids, strict=False):
            begins.append(at + run)
            at += run + rows * columns
        found = mrope_positions(at + texts[-1], begins, grids)
        assert found.dtype == np.int64
        assert [tuple(column) for column in found.T.tolist()] == slow(texts, grids)
        packed = packed_positions(found)
        assert packed.shape == (4, at + texts[-1])
        assert packed[0].tolist() == list(range(at + texts[-1]))
        assert np.array_equal(packed[1:], found)


def test_plain_positions() -> None:
    assert plain_positions(4).tolist() == [0, 1, 2, 3]
    assert packed_positions(plain_positions(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("begins", "length"), [([0, 3], 20), ([4], 7), ([5, 0], 20)])
def test_pictures_outside_of_the_document(begins: list[int], length: int) -> None:
    with pytest.raises(
        ValueError, match="A picture of 2 x 2 tokens must lie between.*Give each picture's first"
    ):
        mrope_positions(length, begins, [(2, 2)] * len(begins))
