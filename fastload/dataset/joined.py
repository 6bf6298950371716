"""The common schema of several sets that are read as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastload.sample.fields import Labels
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles


def joined_schema(parts: Sequence[PackedFiles], classes: Sequence[str] | None = None) -> Schema:
    """Return the common schema; only the class names of the first label may differ.

    Args:
        parts: the packed folders.
        classes: names of the first label's classes; None: the first folder's.

    Raises:
        ValueError: they have different fields.
    """
    first = parts[0].schema
    wanted = _with_classes(first, ())
    for part in parts[1:]:
        found = _with_classes(part.schema, ())
        if found != wanted:
            raise ValueError(
                "Datasets that are read as one must have the same fields. Found: "
                f"{parts[0].where} with {first}, and {part.where} with {part.schema}. "
                f"{_of_classes(wanted, found)}Pack them with one schema."
            )
    return first if classes is None else _with_classes(first, tuple(classes))


def _of_classes(wanted: Schema, found: Schema) -> str:
    """Return how the classes of objects differ, which a schema's ``str`` omits."""
    for one, other in zip(wanted, found, strict=False):
        if isinstance(one.kind, Labels) and isinstance(other.kind, Labels) and one.kind != other.kind:
            first, second = _listed(one.kind), _listed(other.kind)
            return f"Classes of {one.name!r}: {first} in the first, {second} in the other. "
    return ""


def _listed(kind: Labels) -> str:
    ids = kind.ids or range(len(kind.classes))
    words = [f"{number} {name}" for number, name in zip(ids, kind.classes, strict=True)]
    return f"{', '.join(words) or 'none':.1000}"


def _with_classes(schema: Schema, classes: tuple[str, ...]) -> Schema:
    label = schema.label_field
    if label is None:
        return schema
    changed = replace(label, kind=replace(label.kind, classes=classes))  # type: ignore[call-arg]
    return Schema(tuple(changed if field is label else field for field in schema))
