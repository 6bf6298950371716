"""WebDataset's rules: which members of a tar are one sample, and what the suffixes of their names say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fastload.sample.fields import Bytes, Image, Json, Kind, Label, Mask, Text
from fastload.sample.schema import Field
from fastload.shard.formats import Kinds

__all__ = ["IMAGE", "LABEL", "TAKEN", "Grouped", "Suffixes", "grouped", "value_of"]

#: What a member can be made of.
TAKEN = (Image, Mask, Label, Text, Json, Bytes)
IMAGE, LABEL = "image", "label"  # fields' names of what every sample has in one form only

_PARTS = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)
_META = re.compile(rb"__[^/]*__($|/)")
_PICTURES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")
_BY_SUFFIX: dict[str, Kind] = {"txt": Text(), "text": Text(), "json": Json(), "jsn": Json()}
_NUMBER = re.compile(rb"\s*([+-]?\d{1,10})\s*")
_MOST_SUFFIXES = 1000  # that are told apart

T = TypeVar("T")


@dataclass
class Grouped(Generic[T]):
    """One sample: neighbours in the tar whose names are the same up to the first dot of the last part."""

    key: bytes  # that part, as WebDataset's __key__
    values: dict[str, T] = field(default_factory=dict)  # by suffix, in lower case
    names: dict[str, bytes] = field(default_factory=dict)  # of the members, likewise
    twice: str = ""  # a suffix that came again


def grouped(members: Iterable[tuple[bytes, T]], other: Callable[[bytes, str], None]) -> Iterator[Grouped[T]]:
    """Samples of a tar's members, in their order.

    Args:
        members: name and value of each plain file.
        other: is told of names that are in no sample, and why.
    """
    sample: Grouped[T] | None = None
    for name, value in members:
        if _META.match(name):
            continue
        match = _PARTS.match(name)
        if match is None:
            other(name, "its name has no suffix")
            continue
        suffix = match[2].lower().decode("utf-8", "backslashreplace")
        if sample is None or sample.key != match[1]:
            if sample is not None:
                yield sample
            sample = Grouped(match[1])
        if suffix in sample.values:
            sample.twice = sample.twice or suffix
            continue
        sample.values[suffix], sample.names[suffix] = value, name
    if sample is not None:
        yield sample


class Suffixes:
    """What suffixes say about fields.

    Args:
        asked: what users said.
    """

    def __init__(self, asked: Kinds) -> None:
        self.asked = asked
        self._known: dict[str, Field | None] = {}

    def field(self, suffix: str) -> Field | None:
        """The field of a suffix; None: it is in none. A picture is an Image where nobody said more."""
        if suffix not in self._known:
            if len(self._known) >= _MOST_SUFFIXES:
                return None
            self._known[suffix] = self._field(suffix)
        return self._known[suffix]

    def is_unknown(self, suffix: str) -> bool:
        """Whether a suffix is in no field and nobody wanted it so."""
        return self.field(suffix) is None and suffix not in self.asked

    def _field(self, suffix: str) -> Field | None:
        if suffix in self.asked:
            kind = self.asked[suffix]
            if kind is None:
                return None
            return Field(LABEL if isinstance(kind, Label) else suffix, kind)
        if suffix in _PICTURES:
            return Field(IMAGE, Image())
        if suffix == "cls":
            return Field(LABEL, Label())
        last = suffix.rsplit(".", 1)[-1]
        found = Image() if last in _PICTURES else _BY_SUFFIX.get(last)
        try:
            return None if found is None else Field(suffix, found)
        except ValueError:  # no name that a field may have
            return None


def value_of(field: Field, data: bytes) -> bytes:
    """The bytes that those of a member, or of a column of another format, are as a value of a field.

    Raises:
        ValueError: they are none; says why.
    """
    kind = field.kind
    if isinstance(kind, Bytes):
        return data
    if isinstance(kind, Label) and (number := _NUMBER.fullmatch(data)):
        return field.encode(int(number[1]))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{field.name!r} is not UTF-8: {error.reason} at byte {error.start}") from None
    if isinstance(kind, Label):
        if kind.classes:
            return field.encode(text.strip())
        raise ValueError(f"{field.name!r} must be a class's number. Found: {text[:80]!r}")
    if isinstance(kind, Text):
        return data
    try:
        return field.encode(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{field.name!r} is no JSON: {error}") from None
