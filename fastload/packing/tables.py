"""Lists of path and label: CSV (``path,label``) and JSONL (``{"path": ..., "label": ...}``)."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from fastload.errors import PackError
from fastload.shard.manifest import MAX_NUMBERED
from fastload.shard.suffixes import is_image

PATH_NAMES = ("path", "file", "filename", "file_name", "image")
LABEL_NAMES = ("label", "class", "target")
MAX_LABEL = 10_000_000
#: Texts that are whole numbers, and those that are any number: without meaningless leading zeros.
WHOLE = re.compile(r"0|[-+]?[1-9]\d*", re.ASCII)
NUMBER = re.compile(
    r"[-+]?((0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf)", re.IGNORECASE | re.ASCII
)

Row = tuple[str, str | int | float | None]


def read_table(path: Path, is_file: Callable[[str], bool] | None = None) -> Iterator[Row]:
    """Yield path and label of each line: a name, a number, a truth value (JSONL) or None.

    Args:
        is_file: whether a path is a file's; None: paths are keys of something else.

    Raises:
        PackError: a line is not CSV or JSONL, or the first line looks like a header of other names.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise PackError(f"{path} is neither a folder nor a .csv or .jsonl file of paths and labels.")
    return _read_jsonl(path) if suffix == ".jsonl" else _read_csv(path, is_file)


def _read_csv(path: Path, is_file: Callable[[str], bool] | None) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = _rows(path, file)
        first = next(rows, None)
        if first is None:
            raise PackError(f"{path} is empty; expected lines of path,label.")
        where, what = _columns(first, is_file)
        if where is None:
            if len(first) > 2:
                raise PackError(
                    f"{path}: the first line has {len(first)} columns and none is called path. "
                    f"Write a header with path and label, or exactly two columns."
                )
            second = next(rows, None)
            if is_file is not None and second and _is_header(first[0], second[0], is_file):
                fields = zip(first, ("image", "label"), strict=False)
                text = " ".join(f"--field {name}={kind}" for name, kind in fields)
                raise PackError(
                    f"{path}: the first line, {','.join(first)!r:.200}, looks like a header: there is no "
                    f"such file. Call its columns path and label, or say what they are: {text}."
                )
            where, what = 0, 1 if len(first) == 2 else None
            rows = chain([first], [] if second is None else [second], rows)
        for number, row in enumerate(rows, 1):
            if not row:
                continue
            if len(row) <= max(where, what or 0):
                raise PackError(f"{path}: record {number} has {len(row)} columns: {row!r}.")
            yield row[where], None if what is None else row[what].strip()


def _columns(first: list[str], is_file: Callable[[str], bool] | None) -> tuple[int | None, int | None]:
    """Return where a header has paths and labels; None: it does not say, and may be no header."""
    names = [name.strip().lower() for name in first]
    where, what = (
        next((names.index(name) for name in known if name in names), None)
        for known in (PATH_NAMES, LABEL_NAMES)
    )
    if where is None and what is not None and len(names) == 2 and not (is_file and is_file(first[1 - what])):
        where = 1 - what  # image_id,label
    return where, what if where is not None else None


def _is_header(first: str, second: str, is_file: Callable[[str], bool]) -> bool:
    """Whether the first of two paths is rather a column name."""
    return not is_file(first) and (is_file(second) or (is_image(second) and not is_image(first)))


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
                if not isinstance(body["path"], str) or not isinstance(label, str | int | float | None):
                    raise TypeError("path must be a string, label a string or a number")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise PackError(
                    f'{path}, line {number}: {error!r}; expected {{"path": "a.jpg", "label": "cat"}}.'
                ) from None
            yield body["path"], label


def is_beyond_floats(text: str) -> bool:
    """Whether a number is too large or too small for a float64, where it would be infinite or 0."""
    number, digits = float(text), text.lower().partition("e")[0]
    return (math.isinf(number) and digits[-1:] in "0123456789.") or (
        number == 0 and any(digit in "123456789" for digit in digits)
    )


def has_header(path: Path) -> bool:
    """Whether a table of paths and labels names its columns; JSONL always does."""
    if path.suffix.lower() != ".csv":
        return True
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        return _columns(next(csv.reader(file), []), None)[0] is not None


def _label_name(path: Path) -> str:
    """Return the name of the labels in a table of paths and labels; "": it has none."""
    if path.suffix.lower() != ".csv":
        return "label"
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = next(csv.reader(file), [])
    where, what = _columns(first, None)
    return "" if where is None or what is None else first[what].strip()


def has_number_labels(path: Path) -> bool:
    """Whether the labels of a table of paths and labels are no classes: fractions, or truth values.

    Errors in the table are reported where it is read.
    """
    texts, sorts = path.suffix.lower() == ".csv", {}
    try:
        for _, label in read_table(path):
            sort = label_sort(label, texts)
            if sort not in sorts:
                sorts[sort] = repr(label)
        return bool(sorts.keys() - {""}) and not _are_classes(sorts)
    except (PackError, ValueError):
        return False


def label_sort(value: object, texts: bool) -> str:
    """Return a label's sort: ``"name"``, ``"number"`` (whole) or ``"number as text"``, ``"fraction"``,
    ``"NaN"`` (CSV's, which may be a name), ``"truth"``, ``""`` for none.

    Args:
        texts: whether the value is CSV's text, which may stand for any number.
    """
    if isinstance(value, str):
        text = value.strip() if texts else value
        if texts and text and NUMBER.fullmatch(text) and not WHOLE.fullmatch(text):
            return "fraction" if any(digit in text for digit in "0123456789") else "NaN"
        return "number as text" if WHOLE.fullmatch(text) else "name" if text else ""
    if isinstance(value, int):
        return "truth" if isinstance(value, bool) else "number"
    return "" if value is None else "fraction"


def labels_of(
    distinct: Iterable[str | int | float | None], sorts: Mapping[str, str], name: str, texts: bool
) -> Labels | None:
    """Return the classes of labels: names, or whole numbers. None: other numbers or truth values.

    Args:
        distinct: the labels.
        sorts: the sorts that occur, and how a message names the first of each.
        name: the column that the message's ``--field`` advice names; "": no advice.
        texts: whether they are CSV's.

    Raises:
        ValueError: names beside numbers, or a number outside [-1, 10^7], in words.
    """
    as_is, drop = f"--field {name}={'text' if texts else 'json'}", f"--field {name}=none leaves them out."
    try:
        if not _are_classes(sorts):
            return None
    except ValueError as error:
        as_names = f"--field {name}=label takes all for names of classes, " if texts else ""
        raise ValueError(
            f"{error} {as_names}{as_is} keeps them as they are, {drop}" if name else error
        ) from None
    try:
        return Labels(distinct)
    except ValueError as error:
        numbers = f"--field {name}=int64 takes them for numbers, {as_is} keeps them as they are, {drop}"
        raise ValueError(f"{error} {numbers}" if name else error) from None


def _are_classes(sorts: Mapping[str, str]) -> bool:
    number = next((sort for sort in ("fraction", "truth", "number") if sort in sorts), None)
    if number is not None and "name" in sorts:
        raise ValueError(
            f"has the {number} {sorts[number]} and the name {sorts['name']}: names are classes, "
            f"{'whole numbers are classes themselves' if number == 'number' else f'a {number} is none'}."
        )
    return not sorts.keys() & {"fraction", "truth"} and ("NaN" not in sorts or "name" in sorts)


class Labels:
    """Class names and label numbers of a table: names sorted, or the integers as they are.

    Integers are their own class names up to a million of them; above that there are no class names. A text is
    an integer if it is written as one: ``007`` is a name.

    Args:
        values: every label of the table; all integers (also as text), or names.

    Raises:
        ValueError: an integer label is outside [-1, 10^7].
    """

    def __init__(self, values: Iterable[str | int | float | None]) -> None:
        distinct = set(values) - {None, ""}
        self._numeric = all(map(_is_whole, distinct))
        if self._numeric:
            numbers = sorted(int(v) for v in distinct)  # type: ignore[arg-type]
            if numbers and not (numbers[0] >= -1 and numbers[-1] <= MAX_LABEL):
                raise ValueError(
                    f"has labels from {numbers[0]} to {numbers[-1]}; classes must be in [-1, {MAX_LABEL}]."
                )
            count = numbers[-1] + 1 if numbers else 0
            self.classes = tuple(str(i) for i in range(count)) if count <= MAX_NUMBERED else ()
        else:
            self.classes = tuple(sorted(str(v) for v in distinct))
        self._index = {name: i for i, name in enumerate(self.classes)}

    @classmethod
    def of_table(
        cls, path: Path, is_file: Callable[[str], bool] | None = None, can_have_fields: bool = True
    ) -> Labels:
        """Return the labels of a table of paths and labels.

        Args:
            is_file: see :func:`read_table`.
            can_have_fields: whether ``--field`` may say what its labels are.

        Raises:
            PackError: they are no classes, or neither classes nor numbers, or the first label looks like a
                column's name.
        """
        values = (label for _, label in read_table(path, is_file))
        first, texts = next(values, None), path.suffix.lower() == ".csv"
        others = set(values) - {None, ""}
        distinct = sorted(others | ({first} - {None, ""}), key=lambda label: (str(type(label)), label))
        is_name = re.search(r"\d", str(first)) is None and first not in (None, "")
        if others and is_name and not has_header(path) and all(map(_is_whole, others)):
            raise PackError(
                f"{path}: the first line has the label {first!r:.80}, all others have numbers, so it looks "
                "like a header. Call its columns path and label."
            )
        sorts = {label_sort(label, texts): repr(label) for label in distinct}
        try:
            labels = labels_of(distinct, sorts, _label_name(path) if can_have_fields else "", texts)
        except ValueError as error:
            raise PackError(f"{path} {error}") from None
        if labels is None:
            cure = "Write path,label as its first line, and they become a field of numbers."
            raise PackError(
                f"{path} has labels with fractions, or truths; a class is a name or a whole number."
                + (f" {cure}" if can_have_fields else "")
            )
        return labels

    def number(self, value: str | int | float | None) -> int:
        """Return the label of one value; -1 for none."""
        if value is None or value == "":
            return -1
        return int(value) if self._numeric else self._index[str(value)]


def _is_whole(value: str | int | float | None) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and WHOLE.fullmatch(value) is not None)


def table_path(folder: bytes, text: str) -> bytes:
    """Return a table's path relative to ``folder``; absolute if it lies outside."""
    path = os.fsencode(text)
    inside = os.path.normpath(os.path.relpath(os.path.join(folder, path), folder))
    if inside == b".." or inside.startswith(b"../"):
        return os.path.abspath(os.path.join(folder, path))
    return inside
