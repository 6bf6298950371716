"""Lines of ``fastload info`` about fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastload.cli.output import human_bytes, sides_row

__all__ = ["field_rows"]


def field_rows(facts: Sequence[dict[str, Any]], about: bool) -> list[tuple[str, str]]:
    """A line for each field.

    Args:
        facts: of :func:`fastload.packing.field_facts.field_facts`.
        about: only a part of the samples has been looked at.
    """
    return [
        (f"field {one['name']}", f"{one['kind']}: {'about ' if about else ''}{_words(one) or 'no values'}")
        for one in facts
    ]


def _words(facts: dict[str, Any]) -> str:
    parts = []
    if "sides" in facts:
        codecs = ", ".join(f"{name} {count}" for name, count in facts["codecs"].items())
        parts += [codecs, human_bytes(facts["bytes"]), sides_row(facts["sides"])]
    if "different" in facts:
        of = f" of {facts['classes']}" if facts["classes"] else ""
        parts.append(f"{facts['different']}{of} classes")
    for unit in ("rows", "bytes"):
        sizes = facts.get(unit)
        if isinstance(sizes, dict):
            parts.append(f"{sizes['mean']:g} {unit} a sample ({sizes['min']} to {sizes['max']})")
    if "min" in facts:
        parts.append(f"values {_number(facts['min'])} to {_number(facts['max'])}")
    if facts.get("nan"):
        parts.append(f"{facts['nan']} NaN")
    if facts.get("without"):
        parts.append(f"{facts['without']} samples without")
    return ", ".join(filter(None, parts))


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
