"""What a table's columns hold: seen once as a whole, so that the last row counts as the first does."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.packing.samples.guess import LABELS, guess_kind
from fastload.packing.tables import Labels
from fastload.sample.fields import Bytes, Image, Json, Kind, Label, Mask, Scalar, Text

__all__ = ["Column", "parsed", "value_of"]

_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(
    r"[-+]?((0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf)", re.IGNORECASE
)
_BOOLS = {"true": True, "false": False}
_KEPT, _SHAPES = 16, 64  # values that are kept in any case, and of those that look different from all before
_MOST_CLASSES = 10_000_000


class Column:
    """One column of a table, while its rows are walked.

    Args:
        name: its name.
        texts: whether its values are CSV's texts.
        kind: what it is said to be; None: to be guessed.
        whole: whether that is all there is to say: a label without classes has none.
    """

    def __init__(self, name: str, texts: bool, kind: Kind | None, whole: bool = False) -> None:
        self.name, self._texts, self._kind = name, texts, kind
        if kind is None:
            self._wants_classes = name.lower() in LABELS
        else:
            self._wants_classes = isinstance(kind, Label) and not kind.classes and not whole
        self._kept: list[Any] = []
        self._looks: set[Any] = set()
        self._distinct: set[str | int] = set()
        self._only_texts = self._gaps = False
        self.rows = 0

    @property
    def is_known(self) -> bool:
        """Whether no value can change what it is."""
        return self._kind is not None and not self._wants_classes

    def see(self, value: Any) -> None:
        """A value of the next row; None: there is none."""
        self.rows += 1
        if value is None:
            self._gaps = True
            return
        if self._wants_classes:
            self._see_class(value)
        if self._kind is not None:
            return
        if self._texts:
            text, value = value, parsed(value)
            self._only_texts = self._only_texts or value is text
        look = _look(value)
        if len(self._kept) < _KEPT or (look not in self._looks and len(self._looks) < _SHAPES):
            self._looks.add(look)
            self._kept.append((text, value) if self._texts else (value, value))

    def _see_class(self, value: Any) -> None:
        number = isinstance(parsed(value) if self._texts else value, float) or isinstance(value, bool)
        if number or not isinstance(value, (str, int)) or len(self._distinct) > _MOST_CLASSES:
            self._wants_classes = False
            self._distinct.clear()
        else:
            self._distinct.add(value.strip() if isinstance(value, str) else value)

    def kind(self, root: bytes) -> Kind:
        """What it holds.

        Raises:
            PackError: nothing that a field can hold; the message names the column.
        """
        if self._wants_classes and self._distinct:
            mixed = len({type(value) for value in self._distinct}) > 1
            return Label(Labels(iter({str(v) for v in self._distinct} if mixed else self._distinct)).classes)
        if self._kind is not None:
            return self._kind
        values = [text if self._only_texts else value for text, value in self._kept]
        try:
            found = guess_kind(self.name, values, root)
        except ValueError as error:
            raise PackError(f"{error} Say what it is, or leave it out: --field {self.name}=none.") from None
        if isinstance(found, Scalar) and self._gaps and found.dtype != "bool":
            return Scalar(str(np.result_type(found.dtype, np.float32)))  # what is not there is NaN
        return found


def parsed(text: str) -> Any:
    """What a text of a CSV file says if it is a number, a truth or JSON, else itself."""
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
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
        ValueError: a text that cannot be one.
    """
    if value is None:
        return _nothing(kind)
    if isinstance(kind, (Image, Mask, Text)):
        return value
    if isinstance(kind, Label):
        return _class(kind, value)
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


def _nothing(kind: Kind) -> Any:
    if isinstance(kind, Scalar) and kind.dtype.startswith("float"):
        return float("nan")
    return "" if isinstance(kind, Text) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _class(kind: Label, value: Any) -> Any:
    if isinstance(value, str) and value not in kind.indices:
        value = value.strip()
        if value not in kind.indices and _INTEGER.fullmatch(value):
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
        try:
            found = np.asarray(value)
        except ValueError:
            return "uneven"
        return found.shape[1:], found.dtype.kind, len(found) if found.ndim and len(found) < 4 else -1
    if isinstance(value, Mapping):
        return tuple(sorted(map(str, value)))
    return type(value)
