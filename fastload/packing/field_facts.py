"""What the fields of a packed dataset hold, in numbers; the memory does not grow with the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.packing.index_runs import IndexRuns
from fastload.packing.summary import Summary
from fastload.sample.fields import Image, Label, Mask, words_of
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

__all__ = ["field_facts"]

_BYTES = 16 << 20  # of values looked at in one go
_MOST = 1 << 18  # samples, too
_SAMPLES = 1024  # whose values differ in length
_DIFFERENT = 1 << 20  # classes that are told apart


def field_facts(dataset: PackedFiles, runs: IndexRuns) -> list[dict[str, Any]]:
    """Of each field its name, kind and classes, where it is stored, and what its values are like.

    Args:
        runs: which samples are looked at.
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
    """The values that are looked at, in the field's dtype, and where each one's bytes begin."""
    step = min(_MOST, max(1, _BYTES // field.item_bytes)) if field.storage == "fixed" else _SAMPLES
    is_record = field.storage == "record"
    for first, count in runs.places():
        for start in range(first, first + count, step):
            data, ends = column.gather(np.arange(start, min(start + step, first + count)))
            yield data.view(RECORD if is_record else field.item_dtype), ends


class _Counts(Protocol):
    """Takes values, and says what they are like."""

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        """More values, and where each sample's bytes begin."""

    def found(self) -> dict[str, Any]:
        """What they are like."""


def _counts_of(field: Field) -> _Counts:
    if isinstance(field.kind, (Image, Mask)):
        return _Pictures()
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


class _Labels:
    def __init__(self) -> None:
        self._none = 0
        self._seen: set[int] = set()
        self._numbers = _Numbers(None)

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64] | None) -> None:
        there = values[values >= 0]
        self._none += len(values) - len(there)
        self._numbers.add(there, None)
        if len(self._seen) < _DIFFERENT:
            self._seen.update(np.unique(there).tolist())

    def found(self) -> dict[str, Any]:
        return {"without": self._none, "different": len(self._seen), **self._numbers.found()}


class _Lengths:
    """How long the values are, in units of so many bytes."""

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
    """Smallest and largest number, and how many rows a sample has."""

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
    """A number as JSON can say it: it has no infinity."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
