"""The rows of a CSV, JSONL or Parquet table, from any of them on.

CSV gives texts (None for an empty cell), the others what JSON and Arrow say.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from fastload.errors import PackError

__all__ = ["Row", "Rows", "open_rows", "table_suffix"]

Row = dict[str, Any]
_BLOCK = 1024  # rows from one known place to the next
_SUFFIXES = (".csv", ".jsonl", ".parquet")


def table_suffix(path: Path) -> str | None:
    """The suffix of a file that is a table; None: it is none."""
    suffix = path.suffix.lower()
    return suffix if suffix in _SUFFIXES else None


class Rows(Protocol):
    """A table; pickles, and opens its file where it is read."""

    path: Path

    def names(self) -> list[str]:
        """The columns, in their order; of JSONL those of the rows that have been walked."""

    def walk(self, start: int = 0) -> Iterator[Row]:
        """The rows from number ``start`` on.

        Raises:
            PackError: a damaged table, naming the place.
        """


def open_rows(path: Path) -> Rows:
    """A table by its suffix; nothing of its rows is read yet.

    Raises:
        PackError: it is none, or has no columns.
    """
    suffix = table_suffix(path)
    if suffix == ".csv":
        return _Csv(path)
    if suffix == ".jsonl":
        return _Jsonl(path)
    if suffix == ".parquet":
        return _Parquet(path)
    raise PackError(f"{path} is no table: a table's name ends with .csv, .jsonl or .parquet.")


class _Lines:
    """The lines of a file, and where the next one begins."""

    def __init__(self, path: Path, offset: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed by close)
        self._file.seek(offset)
        self.offset = offset

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.offset += len(line)
            yield line.decode("utf-8", "surrogateescape")

    def close(self) -> None:
        self._file.close()


@dataclass
class _Csv:
    path: Path
    _places: dict[int, int] = field(default_factory=dict)  # where every 1024th row begins, once it was walked

    def names(self) -> list[str]:
        with open(self.path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            header = next(csv.reader(file), [])
        names = [name.strip() for name in header]
        if not names or len(set(names)) < len(names) or "" in names:
            raise PackError(
                f"{self.path}: the first line must name the columns, each its own. Found: {header}."
            )
        return names

    def walk(self, start: int = 0) -> Iterator[Row]:
        names = self.names()
        first = max((number for number in self._places if number <= start), default=-1)
        lines = _Lines(self.path, self._places.get(first, 0))
        try:
            reader = csv.reader(iter(lines))
            if first < 0:
                next(reader)
            number = max(first, 0)
            place = lines.offset
            for cells in self._checked(reader):
                if not cells:
                    place = lines.offset
                    continue
                if number % _BLOCK == 0:
                    self._places[number] = place
                if len(cells) != len(names):
                    raise PackError(f"{self.path}: record {number + 1} has {len(cells)} columns: {cells!r}.")
                if number >= start:
                    yield {name: cell or None for name, cell in zip(names, cells, strict=True)}
                number += 1
                place = lines.offset
        finally:
            lines.close()

    def _checked(self, reader: Any) -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise PackError(f"{self.path}, line {reader.line_num}: {error}.") from None


@dataclass
class _Jsonl:
    path: Path
    _places: dict[int, int] = field(default_factory=dict)
    _names: dict[str, None] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(self._names)

    def walk(self, start: int = 0) -> Iterator[Row]:
        number = max((number for number in self._places if number <= start), default=0)
        lines = _Lines(self.path, self._places.get(number, 0))
        try:
            place = lines.offset
            for line in lines:
                if line.strip():
                    if number % _BLOCK == 0:
                        self._places[number] = place
                    if number >= start:
                        yield self._parsed(line, number)
                    number += 1
                place = lines.offset
        finally:
            lines.close()

    def _parsed(self, line: str, number: int) -> Row:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PackError(f"{self.path}, record {number + 1}: {error!r}.") from None
        if not isinstance(row, dict):
            raise PackError(f"{self.path}, record {number + 1} is no object: {line[:80]!r}.")
        self._names |= dict.fromkeys(row)
        return row


@dataclass
class _Parquet:
    path: Path

    def names(self) -> list[str]:
        return list(self._file().schema_arrow.names)

    def walk(self, start: int = 0) -> Iterator[Row]:
        file = self._file()
        skipped = 0
        groups = list(range(file.metadata.num_row_groups))
        while groups and skipped + file.metadata.row_group(groups[0]).num_rows <= start:
            skipped += file.metadata.row_group(groups.pop(0)).num_rows
        try:
            for batch in file.iter_batches(batch_size=256, row_groups=groups):
                if skipped + len(batch) > start:
                    yield from batch.slice(max(start - skipped, 0)).to_pylist()
                skipped += len(batch)
        except (OSError, ValueError) as error:
            raise PackError(f"{self.path} cannot be read: {error}.") from error

    def classes(self) -> dict[str, list[str]]:
        """Class names by column, where HF ``datasets`` has written some."""
        try:
            metadata = self._file().schema_arrow.metadata or {}
            features = json.loads(metadata[b"huggingface"])["info"]["features"]
            return {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
        except (KeyError, ValueError, TypeError, AttributeError):
            return {}

    def _file(self) -> Any:
        try:
            import pyarrow.parquet as parquet

            return parquet.ParquetFile(self.path)
        except ImportError as error:
            raise PackError(
                f"Parquet needs pyarrow's parquet module ({error}): pip install pyarrow"
            ) from error
        except (OSError, ValueError) as error:
            raise PackError(f"{self.path} is not a whole Parquet file: {error}.") from error


def first_rows(rows: Rows, count: int) -> list[Row]:
    """The first so many rows."""
    return list(islice(rows.walk(), count))
