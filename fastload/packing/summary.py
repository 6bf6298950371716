"""What a packed dataset holds, in numbers; the memory does not grow with the records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.shard.codecs import CODECS

__all__ = ["Summary"]

_SIDES = 1 << 16


class Summary:
    """Counts of codecs and of records without a label, and a histogram of picture sides, fed with index
    entries."""

    def __init__(self) -> None:
        self.records = self.bytes = self.unlabelled = 0
        self._codecs = np.zeros(256, np.int64)
        self._sides = {"width": np.zeros(_SIDES, np.int64), "height": np.zeros(_SIDES, np.int64)}

    def add(self, records: npt.NDArray[np.void]) -> None:
        """More entries, (n,) ``RECORD``."""
        self.records += len(records)
        self.bytes += int(records["length"].sum(dtype=np.uint64))
        self.unlabelled += int(np.count_nonzero(records["label"] < 0))
        self._codecs += np.bincount(records["codec"], minlength=256)
        for name, histogram in self._sides.items():
            histogram += np.bincount(records[name], minlength=_SIDES)

    @property
    def codecs(self) -> dict[str, int]:
        """Records a codec, commonest first."""
        counts = {codec.name: int(self._codecs[codec.number]) for codec in CODECS}
        return dict(sorted(((n, c) for n, c in counts.items() if c), key=lambda item: -item[1]))

    def sides(self) -> dict[str, Any]:
        """Smallest, median and largest width and height in pixels, of the pictures whose size is known."""
        return {name: self._quantiles(histogram) for name, histogram in self._sides.items()}

    @staticmethod
    def _quantiles(histogram: npt.NDArray[np.int64]) -> dict[str, int] | None:
        known = histogram.copy()
        known[0] = 0
        total = int(known.sum())
        if not total:
            return None
        present = np.flatnonzero(known)
        median = int(np.searchsorted(np.cumsum(known), (total + 1) // 2))
        return {"min": int(present[0]), "median": median, "max": int(present[-1])}
