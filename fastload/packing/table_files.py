"""Tables as sources: CSV, JSONL, Parquet and Arrow files, folders of them, and their rows."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.files import walk
from fastload.packing.folders import splits_among
from fastload.packing.json_stream import array_elements
from fastload.packing.stored import StorePlace, TableFile
from fastload.packing.tables import is_beyond_floats
from fastload.sample.schema import Field
from fastload.shard.manifest import MANIFEST_NAME
from fastload.shard.suffixes import TABLES, TEXT_TABLES, is_image

if TYPE_CHECKING:
    from fastload.packing.arrow_rows import ArrowRows
    from fastload.packing.table_columns import Typed


# ---- The rows of CSV and JSONL tables ---------------------------------------------------------------
# CSV gives texts (None for an empty cell); the others give JSON's and Arrow's values. ``arrow_rows`` has
# those of Parquet and Arrow.

Row = dict[str, Any]
_BLOCK = 1024  # rows between two known offsets
_SUFFIXES = (*TEXT_TABLES, *TABLES)
_AT_ONCE = 1 << 20  # bytes hashed at a time


def table_suffix(path: Path) -> str | None:
    """Return the suffix of a file that is a table; None: it is no table."""
    suffix = path.suffix.lower()
    return suffix if suffix in _SUFFIXES else None


class TableReader(Protocol):
    """A table, which pickles and opens its file where it is read."""

    texts: bool  # values are CSV's
    json_texts: bool  # JSON values are texts

    @property
    def path(self) -> Path | None:
        """Its file, if it is one file on this machine."""

    @property
    def where(self) -> str:
        """Its name in messages."""

    @property
    def root(self) -> bytes:
        """The folder that relative paths in it start from."""

    def at(self, root: bytes) -> TableReader:
        """Return the same table with another ``root``."""

    @property
    def is_local(self) -> bool:
        """Whether the files that it names are on this machine."""

    @property
    def containers(self) -> tuple[Path, ...]:
        """Its files on this machine, if :meth:`digest` does not tell them from changed ones."""

    def names(self) -> list[str]:
        """Return the columns in order; for JSONL those of the rows walked so far."""

    def classes(self) -> dict[str, list[str]]:
        """Return class names by column, where the table has some."""

    def pictures(self) -> list[str]:
        """Return the columns that hold images, if the table says so."""

    def picture_lists(self) -> list[str]:
        """Return the columns that hold lists of images, if the table says so."""

    def objects(self) -> Mapping[str, Field]:
        """Return fields of objects, by their columns."""

    def types(self, left: Container[str]) -> Mapping[str, Typed]:
        """Return what the types of columns not ``left`` out say; nothing for formats without types.

        Raises:
            PackError: no field can hold a type; the message names the column.
        """

    def unsure(self) -> str:
        """Return the boxes' column whose format its values do not tell and that must be named; "": none."""

    def large(self) -> frozenset[str]:
        """Return the columns whose first values must suffice to tell what they hold."""

    def count(self) -> int | None:
        """Return how many rows there are; None: only a walk can tell."""

    def size(self) -> int:
        """Return the bytes of its files."""

    def digest(self) -> str:
        """Return what tells it from other tables."""

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the rows from number ``start`` on, with at least these columns.

        Raises:
            PackError: the table is damaged; the message names the place.
        """

    def paths(self, column: str) -> Iterator[Any]:
        """Yield a column's values, or lists of them; None where they name no file."""

    def row_bytes(self, columns: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        """Yield numbers of rows, in their order, about how many bytes each of those has in the table, and
        when the table's file was modified, if :meth:`digest` does not tell it from others; else 0."""


class _OneFile:
    """The common part of CSV, JSONL and JSON."""

    path: Path
    given_root: bytes
    is_local = True
    containers: tuple[Path, ...] = ()

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def root(self) -> bytes:
        return self.given_root or os.fsencode(self.path.parent)

    def at(self, root: bytes) -> Any:
        return replace(self, given_root=root)  # type: ignore[type-var]

    def classes(self) -> dict[str, list[str]]:
        return {}

    def pictures(self) -> list[str]:
        return []

    def picture_lists(self) -> list[str]:
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

    def row_bytes(self, columns: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        count = sum(1 for _ in self.walk())
        yield count, self.size() // max(count, 1), 0


def open_rows(path: Path) -> TableReader:
    """Open a table by its suffix, without reading rows.

    Raises:
        PackError: the file is no table, or has no columns.
    """
    suffix = table_suffix(path)
    if suffix == ".csv":
        return _Csv(path)
    if suffix == ".jsonl":
        return _Jsonl(path)
    if suffix == ".json":
        return _JsonArray(path)
    if suffix is not None:
        from fastload.packing.arrow_rows import ArrowRows

        status = path.stat()
        file = TableFile(str(path), status.st_size, str(path), mtime_ns=status.st_mtime_ns)
        return ArrowRows([file], str(path), os.fsencode(path.parent))
    raise PackError(f"{path} is not a table: a table's name ends with {', '.join(_SUFFIXES)}.")


class _Lines:
    """The lines of a file, and the offset of the next one."""

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
    given_root: bytes = b""
    _places: dict[int, int] = field(default_factory=dict)  # offset of every 1024th row walked so far

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
    """Parse a JSON number that has a fraction or an exponent."""
    if is_beyond_floats(text):
        raise ValueError(f"{text} is beyond float64; as a text, in quotes, it is kept")
    return float(text)


@dataclass
class _Jsonl(_OneFile):
    path: Path
    texts: bool = False
    json_texts: bool = False
    given_root: bytes = b""
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
            raise PackError(f"{self.path}, record {number + 1} is not an object: {line[:80]!r}.")
        self._names |= dict.fromkeys(row)
        return row


@dataclass
class _JsonArray(_Jsonl):
    """One list of objects, read as a stream."""

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Row]:
        number = max((number for number in self._places if number <= start), default=0)
        for element in array_elements(self.path, self._places.get(number, 0)):
            if element.place < 0:
                continue  # the list's beginning
            if number % _BLOCK == 0:
                self._places[number] = element.offset
            if number >= start:
                yield self._parsed(element.raw.decode("utf-8", "surrogateescape"), number)
            number += 1


# ---- Parquet and Arrow files as sets of samples, one per split --------------------------------------

_DEPTH = 4  # levels of folders below the given one
# train-00000-of-00004.parquet (datasets', perhaps with a hash), or 0000.parquet (the Hub's own)
_NUMBERED = re.compile(r"(?:(.+?)[-_])?(\d{5}-of-\d{5}(?:-[0-9a-f]{16})?|\d+)")
_UNNAMED = ("", "data", "dataset")  # before a number: the split is the folder's name
_ONE_SET = "Give the tables of one set: a folder of them alone, or a URL with * in its last part."
_NO_FOLDER = b"/dev/null"  # no relative path leads from it to a file


def table_sets(source: str | os.PathLike[str] | StorePlace) -> list[tuple[str, ArrowRows]]:
    """Return split ("": the only one) and rows of each set in a folder of tables or at a URL; none if it is
    something else.

    Raises:
        PackError: the tables are not one set.
        RemoteError: the store cannot be listed.
    """
    if isinstance(source, StorePlace):
        return _in_store(source)
    place = Path(source).absolute()
    if not is_dir(place) or exists(place / MANIFEST_NAME):
        return []
    names = _below(place)
    files = {}
    for name in names:
        status = (place / name).stat()
        full = str(place / name)
        files[name] = TableFile(full, status.st_size, full, mtime_ns=status.st_mtime_ns)
    return split_sets(str(place), files, os.fsencode(place))


def _below(place: Path) -> list[str]:
    """Return the tables below a folder; none if there is an image as well."""
    tables = []
    for folder, folders, names in walk(str(place)):
        below = os.path.relpath(folder, place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if below.count(os.sep) >= _DEPTH:
            folders.clear()
        if any(map(is_image, names)):
            return []
        tables += [os.path.normpath(os.path.join(below, name)) for name in names if _is_table(name)]
    return tables


def _is_table(name: str) -> bool:
    """Whether the name is a table's, and not that of a cache of ``datasets``."""
    last = name.rpartition("/")[2]
    return last.lower().endswith(TABLES) and not last.startswith((".", "cache-"))


def _in_store(place: StorePlace) -> list[tuple[str, ArrowRows]]:
    location, store, prefix = place.location, place.files.store, place.files.prefix
    commit = getattr(store, "commit", "")
    if place.kind in ("table", "yaml"):
        return []
    if place.kind == "tables" and not place.pattern:
        facts = store.head(location.path)
        if facts is None:
            raise PackError(f"{location} does not exist.")
        file = TableFile(str(location), facts.size, location.path, store, commit or facts.etag)
        return [("", _rows(str(location), [file], _NO_FOLDER))]
    if not place.pattern and any(is_image(name) for name, _ in place.names):
        return []
    files = {
        name: TableFile(str(store.root / (prefix + name)), size, prefix + name, store, commit)
        for name, size in place.names
        if _is_table(name) and (not place.pattern or fnmatchcase(prefix + name, place.pattern))
    }
    if not files and not place.pattern and location.scheme != "hf":
        return []
    if not files:
        raise PackError(f"{location} has no {' or '.join(TABLES)} files, and no images.")
    return split_sets(str(location), files, _NO_FOLDER)


def split_sets(where: str, files: Mapping[str, TableFile], root: bytes) -> list[tuple[str, ArrowRows]]:
    """Divide files, by their paths below what was given, into sets, one per split.

    Raises:
        PackError: the files are of several sets.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(files):
        groups.setdefault(_split_of(name), []).append(name)
    numbered = all("-of-" in name for name in files)
    if len(groups) > 1 and not numbered and not splits_among(list(groups), where, advice=_ONE_SET):
        groups = {"": sorted(files)}  # parts of one table, each with its own name
    for names in groups.values():
        folders = sorted({name.rpartition("/")[0] for name in names})
        if len(folders) > 1:
            raise PackError(
                f"{where} has tables of several sets, in the folders {', '.join(map(repr, folders))}. Give "
                "one of them."
            )
    return [
        (split if len(groups) > 1 else "", _rows(where, [files[name] for name in names], root))
        for split, names in groups.items()
    ]


def _split_of(name: str) -> str:
    """Return the split that a file's name says, or else its folder's name."""
    folder, _, last = name.rpartition("/")
    stem = last.rpartition(".")[0]
    match = _NUMBERED.fullmatch(stem)
    if match is None:
        return stem
    return (match[1] or "") if match[1] not in (None, *_UNNAMED) else folder.rpartition("/")[2]


def _rows(where: str, files: Sequence[TableFile], root: bytes) -> ArrowRows:
    from fastload.packing.arrow_rows import ArrowRows

    return ArrowRows(files, files[0].name if len(files) == 1 else where, root)
