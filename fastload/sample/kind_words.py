"""Kinds of fields as words, such as boxes(xywh), scalar(float32) or text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fastload.sample.fields import DTYPES, KINDS, Kind, Scalar

__all__ = ["kind_of", "leader_of", "words_of"]


def kind_of(what: Any) -> Kind:
    """A kind, from whatever says which.

    Args:
        what: a kind; its class, if it needs no settings; a mapping as :meth:`Kind.to_json` gives; or words: a
            kind's name, with settings in parentheses as Python would have them (names need no quotes), or the
            name of a dtype, which is a scalar.

    Raises:
        ValueError, TypeError: no such kind, or settings that are wrong.
    """
    if isinstance(what, Kind):
        return what
    if isinstance(what, type) and issubclass(what, Kind) and what is not Kind:
        return _made(what, what.__name__, [], {})
    if isinstance(what, Mapping):
        return Kind.from_json(what)
    if isinstance(what, str):
        return _parsed(what)
    raise TypeError(
        f"A field's kind must be one of fastload's ({', '.join(cls.__name__ for cls in KINDS.values())}), "
        f"its name, or a mapping. Found: {what!r}."
    )


def leader_of(text: str) -> tuple[str, str | None]:
    """``"labels of boxes"`` as a kind's words and the field that its rows follow; None: they follow none."""
    words, said, name = text.rpartition(" of ")
    if not said or _is_python(text):
        return text, None
    return words.strip(), name.strip()


def _is_python(text: str) -> bool:
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def words_of(kind: Kind) -> str:
    """The words for a kind; settings that it has by default, and class names and ids, are left out."""
    settings = []
    for setting in fields(kind):
        value = getattr(kind, setting.name)
        if setting.name not in ("classes", "ids") and value != setting.default:
            said = value if isinstance(value, str) else repr(value)
            needs_name = setting.name not in ("dtype", "shape", "format", "points")
            settings.append(f"{setting.name}={said}" if needs_name else said)
    return f"{kind.name}({', '.join(settings)})" if settings else kind.name


def _parsed(text: str) -> Kind:
    if text in DTYPES:
        return Scalar(text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        positional = [_value(node) for node in call.args]
        named = {str(word.arg): _value(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            f"A kind is a name with settings in parentheses, as boxes(xywh) or array(float32, (None, 5)). "
            f"Found: {text!r}."
        ) from None
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name not in KINDS:
        raise ValueError(f"A field's kind must be one of {', '.join(KINDS)}, or a dtype. Found: {text!r}.")
    return _made(KINDS[name], text, positional, named)


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _made(cls: type[Kind], text: str, positional: list[Any], named: dict[str, Any]) -> Kind:
    try:
        return cls(*positional, **named)
    except TypeError:
        settings = [setting.name for setting in fields(cls)]
        raise ValueError(
            f"{cls.name} has the settings {', '.join(settings) or 'none'}, all or some needed. Found: {text}."
        ) from None
