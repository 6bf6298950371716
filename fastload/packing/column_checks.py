"""What ``fastload verify`` checks of a field's own file: that it is the manifest's, and its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError
from fastload.packing.fetched import StoredShards
from fastload.packing.problems import Problem, Problems
from fastload.packing.record_checks import RecordChecks
from fastload.sample.schema import Field
from fastload.sample.values import row_count, wrong_rows
from fastload.shard.columns import column_wrong, open_column
from fastload.shard.index import HEADER, RECORD
from fastload.shard.manifest import Manifest, column_file

__all__ = ["ColumnChecks"]

_BYTES, _MOST = 32 << 20, 1 << 18  # bytes and samples of values of one width looked at in one go
_SAMPLES = 1024  # whose values differ in length


class ColumnChecks:
    """The checks of one field's file; each puts what it finds into ``found``.

    Args:
        folder: the dataset's.
        manifest: its manifest.
        number: where the field stands.
        field: whose values they are.
        key_of: a sample's key, for messages.
        found: the problems.
        stored: the shards, where they are in a store.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        number: int,
        field: Field,
        key_of: Callable[[int], str],
        found: Problems,
        stored: StoredShards | None = None,
    ) -> None:
        self._folder, self._manifest, self.field, self._found = folder, manifest, field, found
        self._key_of, self._stored = key_of, stored
        self._file = column_file(number, manifest.fields[number])
        self._column: Any = None
        #: The checks of a record field's records, once its file has been found to be whole.
        self.records: RecordChecks | None = None

    def open(self) -> None:
        """A file that is missing, damaged, or another than the manifest's."""
        path = self._folder / self._file.file
        try:
            column = open_column(path, self.field)
            column.verify()
            size = path.stat().st_size
        except FastloadError as error:
            self._found.add("", [Problem(f"field {self.field.name!r}: {error}", self._file.file)])
            return
        wrong = column_wrong(column, self._file, self._manifest.num_records)
        if size != self._file.size or wrong:
            reason = wrong or f"has {size} bytes, the manifest says {self._file.size}"
            self._found.add("", [Problem(f"field {self.field.name!r}: {reason}", self._file.file)])
            return
        self._column = column
        if self.field.storage == "record":
            header = np.fromfile(path, HEADER, 1)[0]
            at, count = int(header["data_offset"]), len(column)
            # Of the file, not of memory; every page has been checked.
            entries = np.memmap(path, RECORD, "r", at, count) if count else np.zeros(0, RECORD)
            self.records = RecordChecks(
                self._folder, self._manifest, entries, self._key_of, self._found, self.field, self._stored
            )

    def values(self) -> None:
        """Values that the field cannot hold."""
        if self._column is None or self.field.storage == "record":
            return
        if self.field.storage == "fixed" or self.field.kind.has_rows:
            wrong = self._wrong_numbers()
        else:
            wrong = self._wrong_objects()
        kind = f"a value that field {self.field.name!r} cannot hold"
        for sample, reason in wrong:
            self._found.add(kind, [Problem(reason, self._file.file, self._key_of(sample), sample)])

    def rows_of(self, leader: ColumnChecks) -> None:
        """Samples with another number of rows than the field has that these are of."""
        if self._column is None or leader._column is None:
            return
        kind = "rows that do not go with those of another field"
        for (start, data, ends), others in zip(self._chunks(), leader._chunks(), strict=True):
            found, wanted = _row_counts(self.field, data, ends), _row_counts(leader.field, *others[1:])
            for at in np.flatnonzero(found != wanted).tolist():
                reason = f"has {found[at]} rows of {self.field.name!r}, {wanted[at]} of {self.field.of!r}"
                problem = Problem(reason, self._file.file, self._key_of(start + at), start + at)
                self._found.add(kind, [problem])

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """First sample id, bytes and where each value's begin, of some samples at a time."""
        fixed = self.field.storage == "fixed"
        step = min(_MOST, max(1, _BYTES // self.field.item_bytes)) if fixed else _SAMPLES
        for start in range(0, len(self._column), step):
            ids = np.arange(start, min(start + step, len(self._column)))
            yield start, *self._column.gather(ids)

    def _wrong_numbers(self) -> Iterator[tuple[int, str]]:
        kind, width = self.field.kind, self.field.item_bytes
        empty = np.zeros((0, *kind.item_shape), kind.item_dtype)
        if not wrong_rows(kind, empty):
            return  # any numbers are legal
        for start, data, ends in self._chunks():
            rows = data.view(kind.item_dtype).reshape(-1, *kind.item_shape)
            for reason, wrong in wrong_rows(kind, rows):
                for row in np.flatnonzero(wrong).tolist():
                    at = int(np.searchsorted(ends, row * width, "right")) - 1
                    where = f" in row {row - int(ends[at]) // width}" if kind.has_rows else ""
                    found = data[row * width : (row + 1) * width].view(_shown(kind.item_dtype)).tolist()
                    yield start + at, f"field {self.field.name!r} {reason}. Found: {found}{where}"

    def _wrong_objects(self) -> Iterator[tuple[int, str]]:
        for start, data, ends in self._chunks():
            for at in range(len(ends) - 1):
                try:
                    self.field.check_bytes(data[ends[at] : ends[at + 1]].tobytes())
                except FastloadError as error:
                    yield start + at, str(error)


def _row_counts(
    field: Field, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    places = ends.tolist()
    counts = [row_count(field.kind, data[a:b].tobytes()) for a, b in pairwise(places)]
    return np.array(counts, np.int64)


def _shown(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a wrong value is shown: a bool's byte may be any."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype
