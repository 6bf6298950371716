"""JSON files larger than memory: their top level's lists, one element after another, with where each lies.

Python's own scanner reads the values; what is done here is to show it one part of the file at a time. A part
is read as Latin-1, one character a byte, so that places in it are bytes of the file: beyond ASCII that makes
wrong texts, which are read again as UTF-8, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fastload.errors import PackError

__all__ = ["Element", "elements", "value_of"]

_WINDOW = 4 << 20
_MOST = 256 << 20  # of one element, and of the top level without its lists
_SPACE = re.compile(r"[ \t\n\r]*")
_PART_OF_NUMBER = re.compile(r"\.?|[eE][-+]?")  # what may be left behind a number at a part's end
_BEFORE_END = 16  # characters that a number, a word or an escape may still need
_DECODER = json.JSONDecoder()


class Element(NamedTuple):
    """A value of the top level, or one of its lists' elements."""

    key: str  # of the top level
    place: int  # in the list; -1: the value is no element of a list
    offset: int  # in the file
    text: str  # its bytes there, as Latin-1
    value: Any  # of elements of lists: texts beyond ASCII are wrong, value_of(raw) has them right

    @property
    def raw(self) -> bytes:
        """Its bytes in the file."""
        return self.text.encode("latin-1")


def value_of(data: bytes) -> Any:
    """The value that these bytes of a file say.

    Raises:
        ValueError: they are not UTF-8, or have a number that JSON does not know.
    """
    try:
        return _STRICT.decode(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start} of it") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


_STRICT = json.JSONDecoder(parse_constant=_no_number)


def elements(path: Path, lists: Collection[str]) -> Iterator[Element]:
    """The elements of these lists of the file's top level, each list as [] before them, and all its other
    values, in the file's order.

    Raises:
        PackError: no JSON, no object, a key that is there twice; naming file and byte.
    """
    with open(path, "rb") as file:
        yield from _Parts(path, file).top(lists)


class _Parts:
    """A part of a file, and where in it the reader stands."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        self._text = ""
        self._begin = self._at = 0  # the part's place in the file, the reader's in the part
        self._ended = False

    def top(self, lists: Collection[str]) -> Iterator[Element]:
        if self._peek() == "\u00ef":  # a mark of byte order, in front of UTF-8
            self._at += 3
        self._take("{")
        seen: set[str] = set()
        while self._peek() != "}":
            if seen:
                self._take(",")
            key = self._right(self._value("").raw)
            if not isinstance(key, str) or key in seen:
                self._fail(f"the key {key!r} is there twice" if key in seen else "a key must be a text")
            seen.add(key)
            self._take(":")
            if key in lists and self._peek() == "[":
                yield from self._list(key)
                continue
            found = self._value(key)
            yield found._replace(value=self._right(found.raw))
        self._take("}")
        if self._peek():
            self._fail("there is more behind the object's end")

    def _list(self, key: str) -> Iterator[Element]:
        self._take("[")
        yield Element(key, -1, self._begin + self._at, "", [])
        place = 0
        while self._peek() != "]":
            if place:
                self._take(",")
                self._peek()
            yield self._value(key, place)
            place += 1
        self._take("]")

    def _right(self, data: bytes) -> Any:
        try:
            return value_of(data)
        except ValueError as error:
            self._fail(str(error))

    def _peek(self) -> str:
        """The next character that is no space; "": the file ends."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def _take(self, wanted: str) -> None:
        found = self._peek()
        if found != wanted:
            self._fail(f"{wanted!r} must follow. Found: {found!r}" if found else f"it ends before {wanted!r}")
        self._at += 1

    def _value(self, key: str, place: int = -1) -> Element:
        """The value that begins at the next character."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                # Of a number cut off behind 12, 12. or 12e- the first part is a number, too.
                if self._ended or _PART_OF_NUMBER.fullmatch(self._text, end) is None:
                    break
            except RecursionError:
                self._fail("its values are nested too deeply")
            except json.JSONDecodeError as error:
                if self._ended or not self._may_go_on(error):
                    self._at = error.pos
                    self._fail(error.msg)
            except ValueError as error:  # a number of thousands of digits
                self._fail(str(error))
            if len(self._text) - self._at > _MOST:
                self._fail(f"a value has more than {_MOST} bytes")
            self._read_on()
        text = self._text[self._at : end]
        found = Element(key, place, self._begin + self._at, text, value)
        self._at = end
        return found

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos > len(self._text) - _BEFORE_END

    def _read_on(self) -> None:
        """Leave behind what has been read; a value that does not fit gets twice the room."""
        left = self._text[self._at :]
        self._begin += self._at
        self._at = 0
        more = self._file.read(max(_WINDOW, len(left)))
        self._ended = not more
        self._text = left + more.decode("latin-1")

    def _fail(self, what: str) -> Any:
        raise PackError(f"{self._path} cannot be read as JSON, at byte {self._begin + self._at}: {what}.")
