"""A sampler for trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["Passes"]

_PASSES = 64  # over the sample, in one epoch


class Passes(Sequence[int]):
    """Some sample ids again and again, each time in an order of its own."""

    def __init__(self, ids: Any) -> None:
        self._ids = np.asarray(ids, np.int64)

    def __len__(self) -> int:
        return _PASSES * len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return int(self._ids[index % len(self._ids)])

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng(0)
        for _ in range(_PASSES):
            yield from random.permutation(self._ids).tolist()
