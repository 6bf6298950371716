"""Lists of path and label: CSV (``path,label``) and JSONL (``{"path": ..., "label": ...}``)."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from fastload.errors import PackError
from fastload.shard.manifest import MAX_NUMBERED

__all__ = ["LABEL_NAMES", "PATH_NAMES", "Labels", "read_table", "table_path"]

PATH_NAMES = ("path", "file", "filename", "file_name", "image")
LABEL_NAMES = ("label", "class", "target")
MAX_LABEL = 10_000_000

Row = tuple[str, str | int | None]


def read_table(path: Path) -> Iterator[Row]:
    """Path and label (a name, an integer or None) of each line.

    Raises:
        PackError: not CSV or JSONL, naming the line.
    """
    reader = {".csv": _read_csv, ".jsonl": _read_jsonl}.get(path.suffix.lower())
    if reader is None:
        raise PackError(f"{path} is neither a folder nor a .csv or .jsonl file of paths and labels.")
    return reader(path)


def _read_csv(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = _rows(path, file)
        first = next(rows, None)
        if first is None:
            raise PackError(f"{path} is empty; expected lines of path,label.")
        names = [name.strip().lower() for name in first]
        columns = [
            next((names.index(n) for n in known if n in names), None) for known in (PATH_NAMES, LABEL_NAMES)
        ]
        where, what = columns
        if where is None:
            if len(first) > 2:
                raise PackError(
                    f"{path}: the first line has {len(first)} columns and none is called path. "
                    f"Write a header with path and label, or exactly two columns."
                )
            where, what, rows = 0, 1 if len(first) == 2 else None, chain([first], rows)  # type: ignore[assignment]
        for number, row in enumerate(rows, 1):
            if not row:
                continue
            if len(row) <= max(where, what or 0):
                raise PackError(f"{path}: record {number} has {len(row)} columns: {row!r}.")
            yield row[where], None if what is None else row[what].strip()


def _rows(path: Path, file: Iterable[str]) -> Iterator[list[str]]:
    reader = csv.reader(file)
    try:
        yield from reader
    except csv.Error as error:
        raise PackError(f"{path}, line {reader.line_num}: {error}.") from None


def _read_jsonl(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                body = json.loads(line)
                label = body.get("label")
                if not isinstance(body["path"], str) or not isinstance(label, str | int | None):
                    raise TypeError("path must be a string, label a string or an integer")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise PackError(
                    f'{path}, line {number}: {error!r}; expected {{"path": "a.jpg", "label": "cat"}}.'
                ) from None
            yield body["path"], label


class Labels:
    """Class names and label numbers of a table: names sorted, or the integers as they are.

    Integers are their own class names up to a million of them, above that there are no class names.

    Args:
        values: every label of the table; all integers (also as text), or names.

    Raises:
        PackError: an integer label outside [-1, 10^7].
    """

    def __init__(self, values: Iterator[str | int | None]) -> None:
        distinct = set(values) - {None, ""}
        self._numeric = all(isinstance(v, int) or v.removeprefix("-").isdecimal() for v in distinct)  # type: ignore[union-attr]
        if self._numeric:
            numbers = sorted(int(v) for v in distinct)  # type: ignore[arg-type]
            if numbers and not (numbers[0] >= -1 and numbers[-1] <= MAX_LABEL):
                raise PackError(
                    f"labels reach from {numbers[0]} to {numbers[-1]}; must be in [-1, {MAX_LABEL}]."
                )
            count = numbers[-1] + 1 if numbers else 0
            self.classes = tuple(str(i) for i in range(count)) if count <= MAX_NUMBERED else ()
        else:
            self.classes = tuple(sorted(str(v) for v in distinct))
        self._index = {name: i for i, name in enumerate(self.classes)}

    def number(self, value: str | int | None) -> int:
        """The label of one value; -1 for none."""
        if value is None or value == "":
            return -1
        return int(value) if self._numeric else self._index[str(value)]


def table_path(folder: bytes, text: str) -> bytes:
    """A table's path relative to ``folder``; absolute if it lies outside."""
    path = os.fsencode(text)
    inside = os.path.normpath(os.path.relpath(os.path.join(folder, path), folder))
    if inside == b".." or inside.startswith(b"../"):
        return os.path.abspath(os.path.join(folder, path))
    return inside
