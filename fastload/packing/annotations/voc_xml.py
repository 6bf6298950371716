"""Pascal VOC's XML as nested lists, and the objects that it has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np

__all__ = ["VocObject", "filled", "object_of", "objects_of", "parse_voc", "rest_of", "to_xml"]

#: An element: its name, and its text or the elements in it. Attributes, where there are some, come third.
Element = list[Any]
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_FLAGS = ("difficult", "truncated")
_DEEPEST = 32
_RETURN = {"\r": "&#13;"}  # XML reads a bare one as a line's end


class VocObject(NamedTuple):
    """What fields say of an object."""

    name: str
    box: tuple[float, float, float, float]  # as the file has it
    difficult: bool
    truncated: bool


class _Tree:
    """Elements on their way from the parser."""

    def __init__(self) -> None:
        self._top: Element = ["", []]
        self._open = [self._top]

    @property
    def root(self) -> Element:
        found: Element = self._top[1][0]
        return found

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > _DEEPEST:
            raise ValueError(f"its elements are nested more than {_DEEPEST} deep")
        element: Element = [name, "", attributes] if attributes else [name, ""]
        inside = self._open[-1]
        if isinstance(inside[1], str):
            if inside[1].strip():
                raise ValueError(f"<{inside[0]}> has both text and elements")
            inside[1] = []
        inside[1].append(element)
        self._open.append(element)

    def end(self, name: str) -> None:
        self._open.pop()

    def text(self, text: str) -> None:
        inside = self._open[-1]
        if isinstance(inside[1], str):
            inside[1] += text
        elif text.strip():
            raise ValueError(f"<{inside[0]}> has both text and elements")


def parse_voc(data: bytes) -> Element:
    """The ``annotation`` of a file; comments are not kept.

    Raises:
        ValueError: no XML, or not such a file's.
    """
    tree = _Tree()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:  # the latter of encodings that nobody knows
        raise ValueError(f"it is no XML: {error}") from None
    if tree.root[0] != "annotation":
        raise ValueError(f"its first element is <{tree.root[0]}>; must be <annotation>")
    return tree.root


def _refuse(*_: Any) -> None:
    raise ValueError("it declares a document type, whose entities could grow without end")


def objects_of(root: Element) -> list[Element]:
    """The elements of objects, in their order."""
    return [element for element in _elements(root) if element[0] == "object"]


def _elements(element: Element) -> list[Element]:
    return element[1] if isinstance(element[1], list) else []


def _child(element: Element, name: str) -> Element | None:
    return next((one for one in _elements(element) if one[0] == name), None)


def _text(element: Element | None, name: str) -> str | None:
    found = None if element is None else _child(element, name)
    return found[1].strip() if found is not None and isinstance(found[1], str) else None


def object_of(element: Element) -> VocObject:
    """What fields say of an object.

    Raises:
        ValueError: it has no name or no box, or one without area.
    """
    name = _text(element, "name")
    if not name:
        raise ValueError("it has no <name>")
    bounds = _child(element, "bndbox")
    if bounds is None:
        raise ValueError("it has no <bndbox>")
    numbers = []
    for corner in _CORNERS:
        text = _text(bounds, corner)
        try:
            number = float(text or "")
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1 << 20:
            raise ValueError(f"<{corner}> must be a number of pixels. Found: {text!r}")
        numbers.append(number)
    left, top, right, bottom = numbers
    if right <= left or bottom <= top:
        raise ValueError(f"its box has no area: {left:g}, {top:g}, {right:g}, {bottom:g}")
    flags = [_flag(element, flag) for flag in _FLAGS]
    return VocObject(name, (left, top, right, bottom), *flags)


def _flag(element: Element, name: str) -> bool:
    text = _text(element, name)
    if text not in (None, "", "0", "1"):
        raise ValueError(f"<{name}> must be 0 or 1. Found: {text!r}")
    return text == "1"


def _printed(number: float) -> str:
    """A coordinate as text: the shortest that gives this float32 again."""
    text = str(np.float32(number))
    return text.removesuffix(".0")


def _said(one: VocObject) -> dict[str, str]:
    """The texts of what fields say of an object."""
    corners = {corner: _printed(number) for corner, number in zip(_CORNERS, one.box, strict=True)}
    return {
        "name": one.name,
        "difficult": str(int(one.difficult)),
        "truncated": str(int(one.truncated)),
        **corners,
    }


def rest_of(root: Element, kept: Sequence[tuple[Element, VocObject]]) -> Element:
    """The annotation without the objects that are not kept, and without what the fields say of the others:
    where they give the very text, it is None."""
    objects = {id(element): one for element, one in kept}
    found: list[Element] = []
    for element in _elements(root):
        if element[0] != "object":
            found.append(element)
        elif id(element) in objects:
            found.append(_changed(element, functools.partial(_forgotten, _said(objects[id(element)]))))
    return [root[0], found, *root[2:]]


def filled(rest: Element, objects: Sequence[VocObject]) -> Element:
    """The annotation again, of what :func:`rest_of` left and of what the fields say."""
    said = iter(map(_said, objects))
    found: list[Element] = []
    for element in _elements(rest):
        if element[0] == "object":
            element = _changed(element, functools.partial(_remembered, next(said)))
        found.append(element)
    return [rest[0], found, *rest[2:]]


def _forgotten(said: dict[str, str], name: str, text: str | None) -> str | None:
    return None if text == said[name] else text


def _remembered(said: dict[str, str], name: str, text: str | None) -> str | None:
    return said[name] if text is None else text


def _changed(element: Element, change: Callable[[str, str | None], str | None]) -> Element:
    """An object with other texts of what fields say of it."""
    inside = []
    for child in _elements(element):
        if child[0] == "bndbox":
            inner = [
                [one[0], change(one[0], one[1]), *one[2:]] if _is_leaf(one, _CORNERS) else one
                for one in _elements(child)
            ]
            child = [child[0], inner, *child[2:]]
        elif _is_leaf(child, ("name", *_FLAGS)):
            child = [child[0], change(child[0], child[1]), *child[2:]]
        inside.append(child)
    return [element[0], inside, *element[2:]]


def _is_leaf(element: Element, names: Sequence[str]) -> bool:
    return element[0] in names and not isinstance(element[1], list)


def to_xml(element: Element, depth: int = 0) -> str:
    """As text, indented by tabs as VOC's own files."""
    attributes = "".join(
        f" {name}={quoteattr(value)}" for name, value in (element[2] if len(element) > 2 else {}).items()
    )
    tabs, name = "\t" * depth, element[0]
    if isinstance(element[1], str):
        return f"{tabs}<{name}{attributes}>{escape(element[1], _RETURN)}</{name}>\n"
    inside = "".join(to_xml(one, depth + 1) for one in element[1])
    return f"{tabs}<{name}{attributes}>\n{inside}{tabs}</{name}>\n"
