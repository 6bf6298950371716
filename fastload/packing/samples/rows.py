"""The rows of a table, from any of them on: CSV, JSONL, and what arrow_rows has.

CSV gives texts (None for an empty cell), the others what JSON and Arrow say.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastload.errors import PackError
from fastload.packing.tables import is_beyond_floats
from fastload.sample.schema import Field
from fastload.shard.suffixes import TABLES, TEXT_TABLES

if TYPE_CHECKING:
    from fastload.packing.samples.arrow_types import Typed  # with pyarrow, which only tables need

__all__ = ["Row", "Rows", "open_rows", "table_suffix"]

Row = dict[str, Any]
_BLOCK = 1024  # rows from one known place to the next
_SUFFIXES = (*TEXT_TABLES, *TABLES)
_AT_ONCE = 1 << 20  # bytes hashed at a time


def table_suffix(path: Path) -> str | None:
    """The suffix of a file that is a table; None: it is none."""
    suffix = path.suffix.lower()
    return suffix if suffix in _SUFFIXES else None


class Rows(Protocol):
    """A table; pickles, and opens its file where it is read."""

    texts: bool  # values are CSV's
    json_texts: bool  # JSON is written as text

    @property
    def path(self) -> Path | None:
        """Its file, if it is one file of this machine."""

    @property
    def where(self) -> str:
        """What stands for it in messages."""

    @property
    def root(self) -> bytes:
        """The folder that relative paths in it start from."""

    @property
    def is_local(self) -> bool:
        """Whether the files that it names are on this machine."""

    def names(self) -> list[str]:
        """The columns, in their order; of JSONL those of the rows that have been walked."""

    def classes(self) -> dict[str, list[str]]:
        """Class names by column, where it has some."""

    def pictures(self) -> list[str]:
        """Columns that hold images, where it says so."""

    def objects(self) -> Mapping[str, Field]:
        """Fields of objects, by the columns that stand for them."""

    def types(self, left: Container[str]) -> Mapping[str, Typed]:
        """What the columns' types say, but for those that are ``left`` out; of formats without types nothing.

        Raises:
            PackError: a type that no field can hold, naming the column.
        """

    def unsure(self) -> str:
        """Which of these is of a form that its values do not tell, and that must be said; "": none."""

    def large(self) -> frozenset[str]:
        """Columns whose first values must do to tell what they hold."""

    def count(self) -> int | None:
        """How many rows there are; None: who wants to know walks them."""

    def size(self) -> int:
        """Bytes of its files."""

    def digest(self) -> str:
        """What tells it from other tables."""

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows from number ``start`` on, with these columns at least.

        Raises:
            PackError: a damaged table, naming the place.
        """

    def paths(self, column: str) -> Iterator[Any]:
        """What a column says of files."""


class _OneFile:
    """What CSV and JSONL have in common."""

    path: Path
    is_local = True

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def root(self) -> bytes:
        return os.fsencode(self.path.parent)

    def classes(self) -> dict[str, list[str]]:
        return {}

    def pictures(self) -> list[str]:
        return []

    def objects(self) -> Mapping[str, Field]:
        return {}

    def types(self, left: Container[str]) -> Mapping[str, Typed]:
        return {}

    def unsure(self) -> str:
        return ""

    def large(self) -> frozenset[str]:
        return frozenset()

    def count(self) -> int | None:
        return None

    def size(self) -> int:
        return self.path.stat().st_size

    def digest(self) -> str:
        hashed = hashlib.blake2b(digest_size=16)
        with open(self.path, "rb") as file:
            while part := file.read(_AT_ONCE):
                hashed.update(part)
        return hashed.hexdigest()

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        raise NotImplementedError

    def paths(self, column: str) -> Iterator[Any]:
        return (row.get(column) for row in self.walk())


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
    if suffix is not None:
        from fastload.packing.samples.arrow_rows import ArrowRows
        from fastload.packing.samples.table_file import TableFile

        status = path.stat()
        file = TableFile(str(path), status.st_size, str(path), None, str(status.st_mtime_ns))
        return ArrowRows([file], str(path), os.fsencode(path.parent))
    raise PackError(f"{path} is no table: a table's name ends with {', '.join(_SUFFIXES)}.")


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
class _Csv(_OneFile):
    path: Path
    texts: bool = True
    json_texts: bool = True
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

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
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


def _finite(text: str) -> float:
    """A number of JSON with a fraction or an exponent."""
    if is_beyond_floats(text):
        raise ValueError(f"{text} is beyond float64; as a text, in quotes, it is kept")
    return float(text)


@dataclass
class _Jsonl(_OneFile):
    path: Path
    texts: bool = False
    json_texts: bool = False
    _places: dict[int, int] = field(default_factory=dict)
    _names: dict[str, None] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(self._names)

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
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
            row = json.loads(line, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise PackError(f"{self.path}, record {number + 1}: {error}.") from None
        if not isinstance(row, dict):
            raise PackError(f"{self.path}, record {number + 1} is no object: {line[:80]!r}.")
        self._names |= dict.fromkeys(row)
        return row
