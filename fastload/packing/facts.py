"""Facts of a packed set for pack, info and verify: counts of records, classes, field values, entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.machine.paths import exists
from fastload.sample.fields import Image, Images, Label, Mask, words_of
from fastload.sample.schema import Field
from fastload.shard.codecs import CODECS, JPEG, NEEDS_FALLBACK, PROGRESSIVE, SIXTEEN_BIT
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import HEADER, RECORD

# ---- The index of a set, for counting ---------------------------------------------------------------
# A very large set is estimated from runs of entries spread over it.

_WHOLE = 2_000_000  # a set of at most this many records is looked at whole, in a tenth of a second
_CHUNK = 1 << 16  # entries at a time then
_RUNS, _RUN = 256, 256  # of a larger one: runs, and entries in each


@dataclass(frozen=True)
class IndexRuns:
    """The entries of an index that are looked at.

    Args:
        dataset: the dataset.
        every: whether to look at all entries, however many there are.
        progress: called with the number of entries before each run.
    """

    dataset: PackedFiles
    every: bool = True
    progress: Callable[[int], None] = lambda count: None

    @property
    def whole(self) -> bool:
        """Whether every entry is looked at."""
        return self.every or self.dataset.num_ids <= _WHOLE

    @property
    def looked(self) -> int:
        """The number of entries looked at."""
        return self.dataset.num_ids if self.whole else _RUNS * _RUN

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield first sample id and number of entries of each run."""
        count = self.dataset.num_ids
        if self.whole:
            yield from ((start, min(_CHUNK, count - start)) for start in range(0, count, _CHUNK))
        else:
            yield from ((i * (count - _RUN) // (_RUNS - 1), _RUN) for i in range(_RUNS))

    def entries(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield the runs, (n,) ``RECORD``."""
        for start, count in self.places():
            self.progress(count)
            if self.whole:
                yield self.dataset.records[start : start + count]
            else:  # entry by entry, so that only the pages that they lie on are read and checked
                entries = [bytes(self.dataset.index.record(i)) for i in range(start, start + count)]
                yield np.frombuffer(b"".join(entries), RECORD)

    def estimate(self, found: int) -> int:
        """Estimate how many the whole set has if ``found`` are in what was looked at."""
        return found if self.whole else round(found * self.dataset.num_ids / self.looked)


# ---- JPEGs with and without entry points ------------------------------------------------------------

_COMPONENTS = (1, 3)  # gray, YCbCr


@dataclass(frozen=True)
class EntryFacts:
    """Counts of records. A JPEG is of one kind: with entry points, progressive, unsuited or other."""

    records: int
    jpegs: int
    progressive: int  # cannot have entry points; --baseline makes them baseline
    unsuited: int  # CMYK, more than 8 bits per component, lossless, ...: cannot have entry points
    spacing: int | None  # pixels, 0: rows of MCUs, None: the dataset has no entries.fli
    with_entries: int
    bytes: int  # of entries.fli
    damaged: bool = False  # whether there is an entries.fli that cannot be used
    estimated: bool = False  # whether all but records, jpegs, spacing and bytes are estimated from a part

    @property
    def other(self) -> int:
        """JPEGs with restart markers (which serve as entry points), unusual subsampling, or damage."""
        if self.spacing is None:
            return 0
        return max(0, self.jpegs - self.progressive - self.unsuited - self.with_entries)


def entry_facts(dataset: PackedFiles, runs: IndexRuns | None = None) -> EntryFacts:
    """Return the facts of an opened dataset, from its index and ``entries.fli``, without reading a record.

    Args:
        runs: which entries are looked at; None: all of them.
    """
    runs = runs or IndexRuns(dataset)
    jpegs = progressive = unsuited = 0
    for records in runs.entries():
        of_jpegs = records[records["codec"] == JPEG]
        is_progressive = (of_jpegs["flags"] & PROGRESSIVE) != 0
        strange = (of_jpegs["flags"] & (SIXTEEN_BIT | NEEDS_FALLBACK)) != 0
        strange |= ~np.isin(of_jpegs["channels"], _COMPONENTS)
        jpegs += len(of_jpegs)
        progressive += int(np.count_nonzero(is_progressive))
        unsuited += int(np.count_nonzero(strange & ~is_progressive))
    if not runs.whole:
        jpegs = dataset.manifest.codecs.get("jpeg", 0)
    progressive, unsuited = runs.estimate(progressive), runs.estimate(unsuited)
    path, estimated = dataset.folder / dataset.manifest.entries_name, not runs.whole
    if dataset.entries is None:
        damaged = exists(path)
        return EntryFacts(dataset.num_ids, jpegs, progressive, unsuited, None, 0, 0, damaged, estimated)
    with_entries = runs.estimate(sum(int(np.count_nonzero(sizes)) for sizes in _sizes(path, runs)))
    size, spacing = path.stat().st_size, int(dataset.entries.spacing)
    kinds = (jpegs, progressive, unsuited)
    return EntryFacts(dataset.num_ids, *kinds, spacing, with_entries, size, estimated=estimated)


def _sizes(path: Path, runs: IndexRuns) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the bytes of the entry points of each record that is looked at, a run at a time."""
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        for start, count in runs.places():
            file.seek(int(header["table_offset"]) + 8 * start)
            yield np.diff(np.frombuffer(file.read(8 * (count + 1)), "<u8"))


# ---- Summary of records, whose memory does not grow with their number -------------------------------

_SIDES = 1 << 16


class Summary:
    """Counts of codecs and of records without a label, and a histogram of picture sides, from index
    entries."""

    def __init__(self) -> None:
        self.records = self.bytes = self.unlabelled = 0
        self._codecs = np.zeros(256, np.int64)
        self._sides = {"width": np.zeros(_SIDES, np.int64), "height": np.zeros(_SIDES, np.int64)}

    def add(self, records: npt.NDArray[np.void]) -> None:
        """Count more entries, (n,) ``RECORD``."""
        self.records += len(records)
        self.bytes += int(records["length"].sum(dtype=np.uint64))
        self.unlabelled += int(np.count_nonzero(records["label"] < 0))
        self._codecs += np.bincount(records["codec"][records["length"] > 0], minlength=256)
        for name, histogram in self._sides.items():
            histogram += np.bincount(records[name], minlength=_SIDES)

    @property
    def codecs(self) -> dict[str, int]:
        """The number of records of each codec, commonest first."""
        counts = {codec.name: int(self._codecs[codec.number]) for codec in CODECS}
        return dict(sorted(((n, c) for n, c in counts.items() if c), key=lambda item: -item[1]))

    def sides(self) -> dict[str, Any]:
        """Return smallest, median and largest width and height in pixels, of pictures whose size is known."""
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


# ---- Facts of fields, whose memory does not grow with the samples -----------------------------------

_BYTES = 16 << 20  # of values examined at a time
_MOST = 1 << 18  # samples examined at a time
_SAMPLES = 1024  # the same for values that differ in length
_DIFFERENT = 1 << 20  # classes counted separately


def field_facts(dataset: PackedFiles, runs: IndexRuns) -> list[dict[str, Any]]:
    """Return each field's name, kind and classes, where it is stored, and what its values are like.

    Args:
        runs: the samples that are looked at.
    """
    return [_facts(dataset, field, runs) for field in dataset.schema]


def _facts(dataset: PackedFiles, field: Field, runs: IndexRuns) -> dict[str, Any]:
    schema = dataset.schema
    facts: dict[str, Any] = {"name": field.name, "kind": words_of(field.kind)}
    if isinstance(field.kind, (Label, Mask)):
        facts["classes"] = len(field.kind.classes)
    if field in (schema.index_field, schema.label_field):
        is_label = field == schema.label_field
        facts["file"] = dataset.manifest.index_name
        counts: _Counts = _Labels() if is_label else _Pictures()
        for records in runs.entries():
            counts.add(records["label"] if is_label else records, None)
        return facts | counts.found()
    facts["file"] = dataset.columns.path(field.name).name
    counts = _counts_of(field)
    for data, ends in _values(dataset.columns[field.name], field, runs):
        counts.add(data, ends)
    return facts | counts.found()


def _values(
    column: _C.Column, field: Field, runs: IndexRuns
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield the values looked at, in the field's dtype, and where each one's bytes begin."""
    step = min(_MOST, max(1, _BYTES // field.item_bytes)) if field.storage == "fixed" else _SAMPLES
    is_record = field.storage in ("record", "records")
    for first, count in runs.places():
        for start in range(first, first + count, step):
            data, ends = column.gather(np.arange(start, min(start + step, first + count)))
            yield data.view(RECORD if is_record else field.item_dtype), ends


class _Counts(Protocol):
    """Counts of a field's values."""

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        """Count more values; ``ends``: where each sample's bytes begin."""

    def found(self) -> dict[str, Any]:
        """Return what the values are like."""


def _counts_of(field: Field) -> _Counts:
    if isinstance(field.kind, (Image, Mask)):
        return _Pictures()
    if isinstance(field.kind, Images):
        return _Lists()
    if isinstance(field.kind, Label):
        return _Labels()
    if field.storage == "fixed":
        return _Numbers(None)
    return _Numbers(field.item_bytes) if field.kind.has_rows else _Lengths("bytes", 1)


class _Pictures:
    def __init__(self) -> None:
        self._summary = Summary()

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        self._summary.add(values)

    def found(self) -> dict[str, Any]:
        summary = self._summary
        return {"bytes": summary.bytes, "codecs": summary.codecs, "sides": summary.sides()}


class _Lists:
    """Counts of lists of pictures."""

    def __init__(self) -> None:
        self._pictures, self._counts = _Pictures(), _Lengths("pictures", RECORD.itemsize)

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        self._pictures.add(values[values["length"] > 0], None)
        self._counts.add(values, ends)

    def found(self) -> dict[str, Any]:
        return {**self._counts.found(), **self._pictures.found()}


class _Labels:
    def __init__(self) -> None:
        self._none = 0
        self._seen: set[int] = set()
        self._numbers = _Numbers(None)

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        labels = values[values >= 0]
        self._none += len(values) - len(labels)
        self._numbers.add(labels, None)
        if len(self._seen) < _DIFFERENT:
            self._seen.update(np.unique(labels).tolist())

    def found(self) -> dict[str, Any]:
        return {"without": self._none, "different": len(self._seen), **self._numbers.found()}


class _Lengths:
    """Counts of the values' lengths, in units of ``width`` bytes."""

    def __init__(self, unit: str, width: int) -> None:
        self._unit, self._width = unit, width
        self._samples = self._total = self._none = 0
        self._least: int | None = None
        self._most = 0

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        assert ends is not None
        lengths = np.diff(ends) // self._width
        if not len(lengths):
            return
        self._samples += len(lengths)
        self._total += int(lengths.sum())
        self._none += int(np.count_nonzero(lengths == 0))
        least = int(lengths.min())
        self._least = least if self._least is None else min(self._least, least)
        self._most = max(self._most, int(lengths.max()))

    def found(self) -> dict[str, Any]:
        if not self._samples:
            return {}
        mean = round(self._total / self._samples, 3)
        sizes = {"total": self._total, "min": self._least, "mean": mean, "max": self._most}
        return {self._unit: sizes, "without": self._none}


class _Numbers:
    """Smallest and largest number, and counts of rows per sample."""

    def __init__(self, row_bytes: int | None) -> None:
        self._rows = None if row_bytes is None else _Lengths("rows", row_bytes)
        self._low: float | None = None
        self._high: float | None = None
        self._nan = 0

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        if self._rows is not None:
            self._rows.add(values, ends)
        if values.dtype.kind == "f":
            self._nan += int(np.count_nonzero(np.isnan(values)))
            values = values[~np.isnan(values)]
        if not values.size:
            return
        low, high = values.min().item(), values.max().item()
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def found(self) -> dict[str, Any]:
        facts = self._rows.found() if self._rows is not None else {}
        if self._low is not None and self._high is not None:
            facts |= {"min": _json_number(self._low), "max": _json_number(self._high)}
        return facts | ({"nan": self._nan} if self._nan else {})


def _json_number(value: float) -> float | str:
    """Return a number as a JSON value: JSON has no infinity."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
