"""How many JPEGs of a dataset have entry points, and why the others have none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.pack.summary import CODECS, NEEDS_FALLBACK, PROGRESSIVE, SIXTEEN_BIT
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME
from fastload.shard.paged import HEADER

__all__ = ["EntryFacts", "entry_facts"]

_CHUNK = 1 << 16  # index entries at a time
_JPEG = CODECS.index("jpeg")
_COMPONENTS = (1, 3)  # gray, YCbCr


@dataclass(frozen=True)
class EntryFacts:
    """Counts of records. JPEGs are of one kind each: with entry points, progressive, unsuited or other."""

    records: int
    jpegs: int
    progressive: int  # cannot have entry points; --baseline makes them baseline
    unsuited: int  # CMYK, more than 8 bits a component, lossless, ...: cannot have entry points
    spacing: int | None  # pixels, 0: rows of MCUs, None: the dataset has no entries.fli
    with_entries: int
    bytes: int  # of entries.fli
    damaged: bool = False  # there is an entries.fli, and it is no use

    @property
    def other(self) -> int:
        """JPEGs with restart markers, which serve as entry points, of a rare sampling, or damaged."""
        if self.spacing is None:
            return 0
        return max(0, self.jpegs - self.progressive - self.unsuited - self.with_entries)


def entry_facts(dataset: PackedFiles) -> EntryFacts:
    """The facts of an opened dataset, from its index and ``entries.fli``; no record is read."""
    jpegs = progressive = unsuited = 0
    for start in range(0, len(dataset), _CHUNK):
        records = dataset.records[start : start + _CHUNK]
        found = records[records["codec"] == _JPEG]
        is_progressive = (found["flags"] & PROGRESSIVE) != 0
        strange = (found["flags"] & (SIXTEEN_BIT | NEEDS_FALLBACK)) != 0
        strange |= ~np.isin(found["channels"], _COMPONENTS)
        jpegs += len(found)
        progressive += int(np.count_nonzero(is_progressive))
        unsuited += int(np.count_nonzero(strange & ~is_progressive))
    if dataset.entries is None:
        damaged = (dataset.folder / ENTRIES_NAME).exists()
        return EntryFacts(len(dataset), jpegs, progressive, unsuited, None, 0, 0, damaged)
    with_entries = sum(int(np.count_nonzero(sizes)) for sizes in _sizes(dataset))
    size = (dataset.folder / ENTRIES_NAME).stat().st_size
    spacing = int(dataset.entries.spacing)
    return EntryFacts(len(dataset), jpegs, progressive, unsuited, spacing, with_entries, size)


def _sizes(dataset: PackedFiles) -> Iterator[npt.NDArray[np.uint64]]:
    """Bytes of each record's entry points, a chunk of records at a time."""
    with open(dataset.folder / ENTRIES_NAME, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        for start in range(0, len(dataset), _CHUNK):
            file.seek(int(header["table_offset"]) + 8 * start)
            count = min(_CHUNK, len(dataset) - start) + 1
            yield np.diff(np.frombuffer(file.read(8 * count), "<u8"))
