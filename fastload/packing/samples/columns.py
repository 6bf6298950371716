"""What a table's columns hold: seen once as a whole, so that the last row counts as the first does."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastload.errors import PackError
from fastload.machine.sizes import counted
from fastload.packing.samples.guess import LABELS, array_of, guess_kind, is_beyond, is_exact, with_gaps
from fastload.packing.tables import NUMBER, WHOLE, is_beyond_floats, label_sort, labels_of
from fastload.sample.fields import MISSING, Array, Bytes, Image, Json, Kind, Label, Mask, Scalar, Text

if TYPE_CHECKING:
    from fastload.packing.samples.arrow_types import Typed

__all__ = ["Column", "parsed", "value_of"]

_POINT_ZERO = re.compile(r"([-+]?\d+)\.0*", re.ASCII)  # a whole number all the same
_BOOLS = {"true": True, "false": False}
_KEPT, _SHAPES = 16, 64  # values that are kept in any case, and of those that look different from all before
# By Arrow's type, what a column is whose values that were looked at are all null.
_EMPTY: dict[str, Kind] = {
    **dict.fromkeys(("string", "large_string", "string_view"), Text()),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), Bytes()),
}
_LABELS_TYPES = ("string", "large_string", "int", "uint")  # names of Arrow's types begin so
_MOST_CLASSES = 10_000_000
_MOST_DIGITS = 400  # of a number; a float has 309 before its point


class Column:
    """One column of a table, while its rows are walked.

    Args:
        name: its name.
        texts: whether its values are CSV's texts.
        kind: what it is said to be; None: to be guessed.
        whole: whether that is all there is to say: a label without classes has none.
        typed: what its type says, where it has one.
    """

    def __init__(
        self, name: str, texts: bool, kind: Kind | None, whole: bool = False, typed: Typed | None = None
    ) -> None:
        self.name, self._texts, self._kind, self._typed = name, texts, kind, typed
        if kind is None:
            self._wants_classes = name.lower() in LABELS
        else:
            self._wants_classes = isinstance(kind, Label) and not kind.classes and not whole
        self._kept: list[tuple[Any, Any, int]] = []  # as it is written, as it is meant, row
        self._looks: set[Any] = set()
        self._distinct: set[str | int] = set()  # classes
        self._sorts: dict[str, str] = {}  # of labels, and the first of each with its row
        self._only_texts = False
        self._whole: dict[str, tuple[int, int]] = {}  # the least and the largest integer, and one that no
        # float64 is, with their rows
        self.gaps: list[int] = [0, 0]  # rows without a value, and the first of them
        self.rows = 0

    @property
    def is_known(self) -> bool:
        """Whether no value can change what it is."""
        return self._kind is not None and not self._wants_classes

    def skip(self, rows: int) -> None:
        """The first rows, which have no such column."""
        self.rows = rows
        self.gaps = [rows, 1] if rows else [0, 0]

    def see(self, value: Any) -> None:
        """A value of the next row; None: there is none."""
        self.rows += 1
        if value is None:
            self.gaps = [self.gaps[0] + 1, self.gaps[1] or self.rows]
            return
        if self._wants_classes:
            self._see_class(value)
        if self._kind is not None or (self._typed is not None and self._typed.kind is not None):
            return
        text = value
        if self._texts:
            value = parsed(text)
            self._only_texts = self._only_texts or value is text
        if type(value) is int:
            self._see_integer(value)
        look = _look(value)
        if len(self._kept) < _KEPT or (look not in self._looks and len(self._looks) < _SHAPES):
            self._looks.add(look)
            self._kept.append((text, value, self.rows))

    def _see_integer(self, value: int) -> None:
        if value < self._whole.get("low", (value + 1, 0))[0]:
            self._whole["low"] = value, self.rows
        if value > self._whole.get("high", (value - 1, 0))[0]:
            self._whole["high"] = value, self.rows
        if "inexact" not in self._whole and not is_exact(value):
            self._whole["inexact"] = value, self.rows

    def _see_class(self, value: Any) -> None:
        if isinstance(value, str):
            value = value.strip() if self._texts else value
            if not value or value in self._distinct:
                return
        elif not isinstance(value, (int, float)) or len(self._distinct) > _MOST_CLASSES:
            self._wants_classes = False
            self._distinct.clear()
            return
        sort = label_sort(value, self._texts and self._kind is None)
        if sort not in self._sorts:
            self._sorts[sort] = f"{value!r:.80} in row {self.rows}"
        if self._sorts.keys().isdisjoint({"fraction", "truth"}):
            self._distinct.add(value)
        else:  # these are no classes
            self._distinct.clear()

    def kind(self, root: bytes, where: str) -> Kind:
        """What it holds.

        Args:
            where: the table, for messages.

        Raises:
            PackError: nothing that a field can hold; the message names the column.
        """
        if self._wants_classes and (self._sorts or self._has_no_labels()):
            classes = self._classes(where)
            if classes is not None:
                return classes
        if self._kind is not None:
            return self._kind
        try:
            found = self._guessed(root)
        except ValueError as error:
            json_can = (
                f"--field {self.name}=json keeps them, " if all(map(_says_json, self._values())) else ""
            )
            advice = f"{json_can}--field {self.name}=none leaves the column out."
            raise PackError(f"{where}: the column {error}{self._rows_of(str(error))} {advice}") from None
        if not self.gaps[0]:
            return found
        if not self._texts:
            if isinstance(found, Bytes):
                raise PackError(
                    f"{where}: the column {self.name!r} has bytes, and null in row {self.gaps[1]}, which "
                    f"bytes have no place for. Leave the column out, --field {self.name}=none, or those rows."
                )
            return with_gaps(found)
        if isinstance(found, Scalar) and found.dtype.startswith(("int", "uint")):
            # CSV has no types: what is not there is NaN, where a float holds all that is there.
            return Text() if "inexact" in self._whole else Scalar("float64")
        return found if isinstance(found, Text) else with_gaps(found)

    def _guessed(self, root: bytes) -> Kind:
        if self._typed is not None and self._typed.kind is not None:
            return self._typed.kind
        if not self._kept and self._typed is not None and self._typed.name in _EMPTY:
            return _EMPTY[self._typed.name]
        values = self._values()
        if self._only_texts or (self._texts and not _agree(values)):
            values = [text for text, _, _ in self._kept]
        try:
            return guess_kind(self.name, values, root, "" if self._typed is None else self._typed.dtype)
        except ValueError:
            if not self._texts:
                raise
            return Text()  # what is written is kept, where no type of numbers has all of it

    def _values(self) -> list[Any]:
        """Values that stand for all, as they are meant."""
        return [value for _, value, _ in self._kept] + [value for value, _ in self._whole.values()]

    def _has_no_labels(self) -> bool:
        """Whether a column of labels has none at all, so that all are -1."""
        name = "null" if self._typed is None else self._typed.name
        return self._kind is None and (name == "null" or name.startswith(_LABELS_TYPES))

    def _classes(self, where: str) -> Label | None:
        """The classes; None: these are none."""
        try:
            labels = labels_of(self._distinct, self._sorts, self.name, self._texts)
        except ValueError as error:
            raise PackError(f"{where}: the column {self.name!r} {error}") from None
        return None if labels is None else Label(labels.classes)

    def _rows_of(self, words: str) -> str:
        """In which rows the values are that a message is about."""
        named = set(re.findall(r"-?\d+", words))
        rows = {row for value, row in self._whole.values() if str(value) in named}
        rows = rows or {row for _, value, row in self._kept if not _says_json(value)}
        return f" Found in row {', '.join(map(str, sorted(rows)[:3]))}." if rows else ""

    def note(self, found: Kind) -> str:
        """What became of values that are not in the field as they were; "": all are.

        Args:
            found: the kind.
        """
        words = []
        if self._typed is not None and self._typed.converted:
            words.append(f"{self._typed.name} as {_called(found)}")
        if self._texts and isinstance(found, Text) and not self._only_texts and self._kept:
            words.append("values that no other kind has as they are written, so text")
        count, first = self.gaps
        if count and not isinstance(found, (Image, Mask)):
            what = "empty" if self._texts else "null"
            rows = f"{what} in {counted(count, 'row')} (the first: row {first})"
            words.append(f"{rows}: {_without(found, self._texts)}")
        return f"{self.name}: {'; '.join(words)}" if words else ""


def _called(kind: Kind) -> str:
    return str(kind.dtype) if isinstance(kind, Scalar) else kind.name


def _without(kind: Kind, texts: bool) -> str:
    """What a batch has where a row has no value."""
    if isinstance(kind, Scalar):
        return "NaN"
    if isinstance(kind, Text) and texts and not kind.null:
        return '""'
    if isinstance(kind, (Text, Json)):
        return f"None ({kind.name})"
    return "-1, no class" if isinstance(kind, Label) else "no objects" if kind.has_rows else "none"


def _agree(values: list[Any]) -> bool:
    """Whether values of CSV are of one sort: texts of truths beside numbers stay texts."""
    sorts = {bool: "truth", int: "number", float: "number", list: "json", dict: "json"}
    return len({sorts.get(type(value), "text") for value in values}) <= 1


def _says_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def parsed(text: str) -> Any:
    """What a text of a CSV file says if it is a number, a truth or JSON, else itself; a whole number is the
    one that is written, a fraction its nearest float."""
    if len(text) > _MOST_DIGITS and text[:1] not in ("[", "{"):
        return text
    if WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        whole = _POINT_ZERO.fullmatch(text)
        is_lost = whole is not None and not is_exact(int(whole[1]))
        return text if is_lost or is_beyond_floats(text) else float(text)
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def value_of(kind: Kind, value: Any, texts: bool, json_texts: bool) -> Any:
    """The value of a cell, as a field of that kind takes it.

    Raises:
        ValueError: a text that cannot be one; null, and the field has no place for it.
    """
    if value is None:
        return _nothing(kind, texts)
    if isinstance(kind, (Image, Mask, Text)):
        return value
    if isinstance(kind, Label):
        return _class(kind, value, texts)
    if isinstance(kind, Bytes):
        return _bytes(value) if isinstance(value, str) else value
    if isinstance(kind, Json) and isinstance(value, str):
        return _json(value) if json_texts else value
    if texts:
        found = parsed(value)
        if isinstance(found, str):
            raise ValueError(f"{value!r:.80} is no {kind.name}")
        return found
    return value


def _nothing(kind: Kind, texts: bool) -> Any:
    """What a field has of a row without a value."""
    if isinstance(kind, Scalar):
        if kind.dtype in MISSING:
            return MISSING[kind.dtype]
        raise ValueError(
            f"there is no value, and {kind.dtype} has none that says so: float64 has NaN, json None"
        )
    if isinstance(kind, Text):
        if kind.null or texts:
            return None if kind.null else ""
        raise ValueError("it is null; text(null=True) keeps that")
    if isinstance(kind, Bytes):
        if texts:
            return b""
        raise ValueError("it is null, which bytes have no place for")
    if isinstance(kind, Array):
        raise ValueError("it is null, and an array has no null: json keeps it")
    return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _class(kind: Label, value: Any, texts: bool) -> Any:
    if isinstance(value, str) and value not in kind.indices:
        value = value.strip() if texts else value
        if value not in kind.indices and WHOLE.fullmatch(value):
            return int(value)
        return value or None
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r:.40} is no base64: {error}") from None


def _look(value: Any) -> Any:
    """What two values have in common that a field cannot tell from each other."""
    if isinstance(value, (list, tuple)):
        found = array_of(value)
        if found is None:
            return "no numbers"
        rows = len(found) if len(found) < 4 else -1
        is_negative = found.dtype.kind in "if" and found.size > 0 and bool(found.min() < 0)
        beyond = found.dtype.kind in "iu" and is_beyond(found)
        return found.shape[1:], found.dtype.kind, rows, is_negative, beyond, not found.size
    if isinstance(value, Mapping):
        return tuple(sorted(map(str, value)))
    return type(value)
