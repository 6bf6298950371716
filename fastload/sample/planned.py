"""Planning of batches: from the fields asked for to their layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastload.sample.fields import Image, Label, Mask, Polygons
from fastload.sample.layout import FieldLayout, Form, SampleLayout, Sizes
from fastload.sample.schema import Field, Schema

_MULTIPLE = 32  # padded sides are rounded up to multiples: few shapes, divisible by a network's strides
_IGNORE_LABEL = -100


def chosen(schema: Schema, names: Sequence[str] | None) -> tuple[Field, ...]:
    """Return the fields with these names, in this order; all for None.

    Raises:
        ValueError: there is no field with one of the names.
    """
    if names is None:
        return schema.fields
    unknown = [name for name in names if name not in schema]
    if unknown:
        raise ValueError(f"The dataset has no field {unknown[0]!r}. It has: {', '.join(schema.names)}.")
    return tuple(schema[name] for name in names)


def layout_of(
    fields: Sequence[Field], image_dtype: str, size: tuple[int, int] | None, sizes: Sizes, dense: bool = False
) -> SampleLayout:
    """Return the layout of a batch's samples.

    Args:
        fields: the fields, in order.
        image_dtype: the transform's dtype of images.
        size: height and width of all pictures; None: they differ, or are unknown.
        sizes: the treatment of pictures whose sizes differ.
        dense: draw outlines and run lengths of objects as masks.
    """
    return SampleLayout(tuple(_planned(field, image_dtype, size, sizes, dense) for field in fields))


def _planned(
    field: Field, image_dtype: str, size: tuple[int, int] | None, sizes: Sizes, dense: bool
) -> FieldLayout:
    kind: Any = field.kind
    if dense and isinstance(kind, Polygons):
        return _picture(field.name, torch.uint8, (), 0, size, sizes, "masks")
    if isinstance(kind, Image):
        dtype = getattr(torch, picture_dtype(kind, image_dtype))
        return _picture(field.name, dtype, (kind.channels,), 0, size, sizes)
    if isinstance(kind, Mask):
        dtype = torch.uint8 if kind.bits == 8 else torch.int32
        return _picture(field.name, dtype, (), kind.ignore, size, sizes)
    if kind.has_rows:
        return FieldLayout(field.name, "rows", _dtype(field), field.item_shape)
    if field.storage == "ragged":
        decode: Callable[[bytes], Any] = field.decode
        return FieldLayout(field.name, "objects", torch.uint8, decode=decode)
    if isinstance(kind, Label):
        return FieldLayout(field.name, "fixed", torch.int64, blank=_IGNORE_LABEL)
    return FieldLayout(field.name, "fixed", _dtype(field), field.item_shape)


def picture_dtype(kind: Image, dtype: str) -> str:
    """Return the dtype of an image's numbers in a batch; ``dtype``: the transform's."""
    if kind.bits == 8 or dtype != "uint8":
        return dtype
    return "uint16" if hasattr(torch, "uint16") else "int32"  # uint16 needs torch 2.3


def _picture(
    name: str,
    dtype: torch.dtype,
    channels: tuple[int, ...],
    blank: float,
    size: tuple[int, int] | None,
    sizes: Sizes,
    form: Form = "picture",
) -> FieldLayout:
    sides = size or (0, 0)
    if sizes.mode == "stack":
        return FieldLayout(name, form, dtype, (*channels, *sides), blank)
    shape = (*channels, 0, 0)
    return FieldLayout(name, form, dtype, shape, blank, sizes.mode, _MULTIPLE, sizes.most)


def _dtype(field: Field) -> torch.dtype:
    name = field.item_dtype.name
    if not hasattr(torch, name):
        raise ValueError(
            f"Field {field.name!r} has {name}, which this torch ({torch.__version__}) has no tensors of. "
            "Take a newer torch, or leave the field out by fields=[...]."
        )
    dtype: torch.dtype = getattr(torch, name)
    return dtype
