"""Single samples of any fields as Python values, and the common schema of several sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fastload import errors
from fastload.dataset.decoding import bad_sample, decode_field
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Labels, Mask
from fastload.sample.planned import picture_dtype
from fastload.sample.schema import Field, Schema
from fastload.shard.dataset import PackedFiles

# ---- Single samples, for ``PackedDataset.sample(i)`` ----


def read_sample(dataset: Packed, sample: int, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return a sample by field name: Python numbers; arrays, boxes, points and pictures as tensors (images
    (channels, height, width), masks (height, width)); objects as they are.

    Args:
        dataset: a packed one.
        sample: its id.
        names: names of the wanted fields; None: all.

    Raises:
        SampleError: a bad record, with its shard and key; its cause says why.
        ShardError: a shard is missing or cannot be read.
    """
    part, own = dataset.locate(sample)
    label = dataset.schema.label_field
    try:
        return {
            field.name: dataset.label(sample) if field == label else _value(part, field, own)
            for field in part.schema
            if names is None or field.name in names
        }
    except (errors.DecodeError, errors.ChecksumError) as error:
        raise bad_sample(dataset, sample, str(error), type(error)) from error


def _value(part: PackedFiles, field: Field, own: int) -> Any:
    if field.storage == "record":
        return _picture(part, field, own)
    value = part.value(field.name, own)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value


def _picture(part: PackedFiles, field: Field, own: int) -> torch.Tensor:
    pixels, kind = decode_field(part, field.name, own), field.kind
    if isinstance(kind, Mask):
        return torch.from_numpy(pixels.astype(np.uint8 if kind.bits == 8 else np.int32))
    dtype = picture_dtype(kind, "uint8")  # type: ignore[arg-type]
    return torch.from_numpy(pixels.astype(dtype)).permute(2, 0, 1)


# ---- The schema of several packed datasets that are read as one ----


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
