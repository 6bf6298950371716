"""Single samples of any fields as Python values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from fastload import errors
from fastload.dataset.decoding import bad_sample, decode_field, decode_list
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Mask
from fastload.sample.planned import picture_dtype
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles


def read_sample(dataset: Packed, sample: int, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return a sample by field name: Python numbers; arrays, boxes, points and pictures as tensors (images
    (channels, height, width), masks (height, width)), lists of pictures as lists of these; objects as they
    are.

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
    if field.storage == "records":
        return _pictures(part, field, own)
    value = part.value(field.name, own)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value


def _pictures(part: PackedFiles, field: Field, own: int) -> list[torch.Tensor | None] | None:
    each = decode_list(part, field.name, own)
    if each is None:
        return None
    return [None if one is None else torch.from_numpy(one).permute(2, 0, 1) for one in each]


def _picture(part: PackedFiles, field: Field, own: int) -> torch.Tensor:
    pixels, kind = decode_field(part, field.name, own), field.kind
    if isinstance(kind, Mask):
        return torch.from_numpy(pixels.astype(np.uint8 if kind.bits == 8 else np.int32))
    dtype = picture_dtype(kind, "uint8")  # type: ignore[arg-type]
    return torch.from_numpy(pixels.astype(dtype)).permute(2, 0, 1)
