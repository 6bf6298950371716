"""JSON files larger than memory, read as streams."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fastload.errors import PackError
from fastload.machine.paths import open_regular

# Python's own scanner reads the values and is shown one part of the file at a time. A part is read as
# Latin-1, one character per byte, so that positions in it are bytes of the file: texts beyond ASCII come
# out wrong and are read again as UTF-8, and nothing else.

_WINDOW = 4 << 20
_MOST = 256 << 20  # bytes of one element, and of the top level without its lists
_SPACE = re.compile(r"[ \t\n\r]*")
_PART_OF_NUMBER = re.compile(r"\.?|[eE][-+]?")  # what may remain of a number at a part's end
_BEFORE_END = 16  # characters that a number, a word or an escape may still need
_DECODER = json.JSONDecoder()


class Element(NamedTuple):
    """A value of the top level, or an element of one of its lists."""

    key: str  # of the top level
    place: int  # in the list; -1: the value is no element of a list
    offset: int  # in the file
    text: str  # its bytes as Latin-1
    value: Any  # for list elements, texts beyond ASCII are wrong; value_of(raw) has them right

    @property
    def raw(self) -> bytes:
        """Its bytes in the file."""
        return self.text.encode("latin-1")


def value_of(data: bytes) -> Any:
    """Return the value of these bytes of a file.

    Raises:
        ValueError: they are not UTF-8, or have a number that JSON does not know.
    """
    try:
        return _STRICT.decode(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start} of it") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


_STRICT = json.JSONDecoder(parse_constant=_no_number)


def elements(path: Path, lists: Collection[str]) -> Iterator[Element]:
    """Yield the elements of these lists of the file's top level, each list as [] before them, and all its
    other values, in the file's order.

    Raises:
        PackError: it is not a JSON object, or a key occurs twice; the message names file and byte.
    """
    with open_regular(path) as file:
        yield from _Parts(path, file).top(lists)


def array_elements(path: Path, begin: int = 0) -> Iterator[Element]:
    """Yield the elements of the list that a file is.

    Args:
        begin: the offset of one of them; those before it are left out.

    Raises:
        PackError: it is no JSON list; the message names file and byte.
    """
    with open_regular(path) as file:
        file.seek(begin)
        yield from _Parts(path, file, begin).array(begin > 0)


class _Parts:
    """A part of a file, and the reader's position in it."""

    def __init__(self, path: Path, file: Any, begin: int = 0) -> None:
        self._path, self._file = path, file
        self._text = ""
        self._begin, self._at = begin, 0  # the part's offset in the file, the reader's in the part
        self._ended = False

    def array(self, inside: bool) -> Iterator[Element]:
        """Yield the elements of the file's list, from where the reader is; ``inside``: at one of them."""
        if not inside:
            self._skip_mark()
        yield from self._list("", inside)
        if self._peek():
            self._fail("there is more after the list's end")

    def top(self, lists: Collection[str]) -> Iterator[Element]:
        self._skip_mark()
        self._take("{")
        seen: set[str] = set()
        while self._peek() != "}":
            if seen:
                self._take(",")
            key = self._right(self._value("").raw)
            if not isinstance(key, str) or key in seen:
                self._fail(f"the key {key!r} occurs twice" if key in seen else "a key must be a text")
            seen.add(key)
            self._take(":")
            if key in lists and self._peek() == "[":
                yield from self._list(key)
                continue
            element = self._value(key)
            yield element._replace(value=self._right(element.raw))
        self._take("}")
        if self._peek():
            self._fail("there is more after the object's end")

    def _skip_mark(self) -> None:
        if self._peek() == "\u00ef":  # UTF-8's byte order mark
            for _ in range(3):
                self._peek()
                self._at += 1

    def _list(self, key: str, inside: bool = False) -> Iterator[Element]:
        if not inside:
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
        """Return the next character that is no space; "": the file ends."""
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
        char = self._peek()
        if char != wanted:
            self._fail(f"{wanted!r} must follow. Found: {char!r}" if char else f"it ends before {wanted!r}")
        self._at += 1

    def _value(self, key: str, place: int = -1) -> Element:
        """Return the value that begins at the next character."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                # If a number is cut off after 12, 12. or 12e-, its first part is a number, too.
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
        element = Element(key, place, self._begin + self._at, text, value)
        self._at = end
        return element

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos > len(self._text) - _BEFORE_END

    def _read_on(self) -> None:
        """Drop what has been read and read on; a value that does not fit gets twice the room."""
        left = self._text[self._at :]
        self._begin += self._at
        self._at = 0
        more = self._file.read(max(_WINDOW, len(left)))
        self._ended = not more
        self._text = left + more.decode("latin-1")

    def _fail(self, what: str) -> Any:
        raise PackError(f"{self._path} cannot be read as JSON, at byte {self._begin + self._at}: {what}.")
