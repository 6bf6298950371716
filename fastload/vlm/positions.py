"""Positions of a document's tokens: one for each, or three where pictures have rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


def plain_positions(length: int) -> Ints:
    """Return (length,) 0, 1, 2, ..."""
    return np.arange(length, dtype=np.int64)


def mrope_positions(length: int, begins: Sequence[int], grids: Sequence[tuple[int, int]]) -> Ints:
    """Return (3, length): time, row and column of each token, as Qwen2-VL, 2.5 and 3 count them for pictures.

    The tokens of a text count on in all three. A picture is one moment; its rows and columns count on from
    there, and the text behind it goes on after the longer side (``get_rope_index`` in transformers'
    ``modeling_qwen2_vl.py``).

    Args:
        length: tokens of the document.
        begins: where each picture's tokens begin, rising.
        grids: rows and columns of each picture's tokens, patches already merged.

    Raises:
        ValueError: pictures overlap or reach beyond the document.
    """
    positions = np.empty((3, length), dtype=np.int64)
    token = position = 0
    for begin, (rows, columns) in zip(begins, grids, strict=True):
        end = begin + rows * columns
        if begin < token or end > length:
            raise ValueError(
                f"A picture of {rows} x {columns} tokens must lie between token {token} and the document's "
                f"end at {length}. Found: {begin} to {end}. Give each picture's first token, in order."
            )
        positions[:, token:begin] = np.arange(position, position + begin - token)
        position += begin - token
        at = positions[:, begin:end].reshape(3, rows, columns)  # a copy: the slice has gaps between its rows
        at[0] = position
        at[1] = np.arange(position, position + rows)[:, None]
        at[2] = np.arange(position, position + columns)
        positions[:, begin:end] = at.reshape(3, -1)
        position += max(rows, columns)
        token = end
    positions[:, token:] = np.arange(position, position + length - token)
    return positions


def packed_positions(positions: Ints) -> Ints:
    """Return positions as they are in a row of several documents.

    Of (3, length) they are (4, length): the first row counts the document's tokens. It is what transformers
    tells documents apart by, as time, row and column do not rise by one at each token. Of (length,) they are
    the same.
    """
    if positions.ndim == 1:
        return positions
    return np.concatenate([np.arange(positions.shape[1], dtype=np.int64)[None], positions])
