"""Hugging Face's column ``objects``, a struct of lists or a list of structs, as fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastload.sample.fields import DTYPES, Array, Boxes, Json, Kind, Labels, Texts
from fastload.sample.schema import Field
from fastload.shard.arrow import dtype_of

__all__ = ["OBJECTS", "ObjectColumns"]

OBJECTS = "objects"
#: What becomes of a key; others keep their names.
_BOXES, _LABELS = ("bbox", "boxes", "bboxes", "box"), ("category", "category_id", "label", "labels", "class")
_NAMES = {"id": "ids", "bbox_id": "ids", "is_crowd": "iscrowd"}
_FLAGS = ("iscrowd",)


@dataclass(frozen=True)
class ObjectColumns:
    """The fields that a column of objects becomes.

    Args:
        keys: the key of each field within an object.
        fields: all of them; the boxes, which the others follow, first.
        listed: whether it is a list of structs, not a struct of lists.
    """

    keys: tuple[str, ...]
    fields: tuple[Field, ...]
    listed: bool

    @classmethod
    def of(cls, schema: Any, features: Mapping[str, Any]) -> ObjectColumns | None:
        """Those of a table; None: it has no such column, or one without boxes.

        Args:
            schema: pyarrow's.
            features: what ``datasets`` has written of the columns.
        """
        if OBJECTS not in schema.names:
            return None
        struct = schema.field(OBJECTS).type
        listed = _is_list(struct)
        struct = struct.value_type if listed else struct
        if not pa.types.is_struct(struct):
            return None
        types = {part.name: part.type if listed else _inside(part.type) for part in struct}
        leader = next((key for key in _BOXES if key in types and _is_list(types[key] or pa.null())), None)
        if leader is None or None in types.values():
            return None
        keys = [leader, *(key for key in types if key != leader)]
        taken = set(schema.names)
        fields: list[Field] = []
        for key in keys:
            name = "boxes" if key == leader else "labels" if key in _LABELS else _NAMES.get(key, key)
            name = f"{OBJECTS}_{name}" if name in taken else name
            taken.add(name)
            kind = _kind(name, key, types[key], _names_of(features, key))
            follows = key != leader and not isinstance(kind, Json)
            fields.append(Field(name, kind, of=fields[0].name if follows else None))
        return cls(tuple(keys), tuple(fields), listed)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the fields."""
        return tuple(field.name for field in self.fields)

    def values(self, cell: Any) -> Iterator[tuple[str, list[Any]]]:
        """Each field's values for one sample."""
        for key, name in zip(self.keys, self.names, strict=True):
            if cell is None:
                yield name, []
            else:
                yield name, [one[key] for one in cell] if self.listed else cell[key] or []


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _inside(kind: Any) -> Any:
    """The type of a list's values; None: it is no list."""
    return kind.value_type if _is_list(kind) else None


def _kind(name: str, key: str, kind: Any, classes: tuple[str, ...] | None) -> Kind:
    if key in _BOXES and _is_list(kind):
        return Boxes("xywh")
    if key in _LABELS and (classes is not None or pa.types.is_integer(kind)):
        return Labels(classes or ())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Texts()
    if name in _FLAGS and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return Array("bool", (None,))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        dtype = dtype_of(kind)
        return Array(dtype, (None,)) if dtype in DTYPES else Json()
    return Json()


def _names_of(features: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """The class names of a key, by what ``datasets`` has written, now or in earlier versions."""
    found = _unwrapped(features.get(OBJECTS))
    found = _unwrapped(found.get(key)) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping) and found.get("_type") == "ClassLabel" and "names" in found:
        return tuple(map(str, found["names"]))
    return None


def _unwrapped(feature: Any) -> Any:
    """What a list is of."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif isinstance(feature, Mapping) and feature.get("_type") in ("Sequence", "List", "LargeList"):
            feature = feature.get("feature")
        else:
            return feature
