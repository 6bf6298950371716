"""The index of a set, for counting: all of it, or of a very large set runs of entries spread over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

__all__ = ["IndexRuns"]

_WHOLE = 2_000_000  # a set of so many records is looked at whole, in a tenth of a second
_CHUNK = 1 << 16  # entries at a time then
_RUNS, _RUN = 256, 256  # of a larger one: runs, and entries in each


@dataclass(frozen=True)
class IndexRuns:
    """Which entries are looked at.

    Args:
        dataset: whose.
        every: all of them, however many there are.
        progress: called with the number of entries, before each run of them.
    """

    dataset: PackedFiles
    every: bool = True
    progress: Callable[[int], None] = lambda count: None

    @property
    def whole(self) -> bool:
        """Whether that is every entry."""
        return self.every or len(self.dataset) <= _WHOLE

    @property
    def looked(self) -> int:
        """How many they are."""
        return len(self.dataset) if self.whole else _RUNS * _RUN

    def places(self) -> Iterator[tuple[int, int]]:
        """First sample id and number of entries of each run."""
        count = len(self.dataset)
        if self.whole:
            yield from ((start, min(_CHUNK, count - start)) for start in range(0, count, _CHUNK))
        else:
            yield from ((i * (count - _RUN) // (_RUNS - 1), _RUN) for i in range(_RUNS))

    def entries(self) -> Iterator[npt.NDArray[np.void]]:
        """The runs, (n,) ``RECORD``."""
        for start, count in self.places():
            self.progress(count)
            if self.whole:
                yield self.dataset.records[start : start + count]
            else:  # one by one: only the pages that they lie on are read and checked
                found = [bytes(self.dataset.index.record(i)) for i in range(start, start + count)]
                yield np.frombuffer(b"".join(found), RECORD)

    def estimate(self, found: int) -> int:
        """How many of the whole set there are if there are ``found`` in what was looked at."""
        return found if self.whole else round(found * len(self.dataset) / self.looked)
