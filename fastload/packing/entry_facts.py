"""How many JPEGs of a dataset have entry points, and why the others have none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload.machine.paths import exists
from fastload.packing.index_runs import IndexRuns
from fastload.shard.codecs import JPEG, NEEDS_FALLBACK, PROGRESSIVE, SIXTEEN_BIT
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import HEADER
from fastload.shard.manifest import ENTRIES_NAME

__all__ = ["EntryFacts", "entry_facts"]

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
    estimated: bool = False  # all but records, jpegs, spacing and bytes, from a part of the records

    @property
    def other(self) -> int:
        """JPEGs with restart markers, which serve as entry points, of a rare sampling, or damaged."""
        if self.spacing is None:
            return 0
        return max(0, self.jpegs - self.progressive - self.unsuited - self.with_entries)


def entry_facts(dataset: PackedFiles, runs: IndexRuns | None = None) -> EntryFacts:
    """The facts of an opened dataset, from its index and ``entries.fli``; no record is read.

    Args:
        runs: what is looked at of them; None: everything.
    """
    runs = runs or IndexRuns(dataset)
    jpegs = progressive = unsuited = 0
    for records in runs.entries():
        found = records[records["codec"] == JPEG]
        is_progressive = (found["flags"] & PROGRESSIVE) != 0
        strange = (found["flags"] & (SIXTEEN_BIT | NEEDS_FALLBACK)) != 0
        strange |= ~np.isin(found["channels"], _COMPONENTS)
        jpegs += len(found)
        progressive += int(np.count_nonzero(is_progressive))
        unsuited += int(np.count_nonzero(strange & ~is_progressive))
    if not runs.whole:
        jpegs = dataset.manifest.codecs.get("jpeg", 0)
    progressive, unsuited = runs.estimate(progressive), runs.estimate(unsuited)
    path, estimated = dataset.folder / ENTRIES_NAME, not runs.whole
    if dataset.entries is None:
        damaged = exists(path)
        return EntryFacts(len(dataset), jpegs, progressive, unsuited, None, 0, 0, damaged, estimated)
    with_entries = runs.estimate(sum(int(np.count_nonzero(sizes)) for sizes in _sizes(path, runs)))
    size, spacing = path.stat().st_size, int(dataset.entries.spacing)
    kinds = (jpegs, progressive, unsuited)
    return EntryFacts(len(dataset), *kinds, spacing, with_entries, size, estimated=estimated)


def _sizes(path: Path, runs: IndexRuns) -> Iterator[npt.NDArray[np.uint64]]:
    """Bytes of the entry points of each record that is looked at, a run at a time."""
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        for start, count in runs.places():
            file.seek(int(header["table_offset"]) + 8 * start)
            yield np.diff(np.frombuffer(file.read(8 * (count + 1)), "<u8"))
