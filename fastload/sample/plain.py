"""Values of fields in JSON, and for stock libraries; they can be packed again."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from fastload.sample.fields import Image, Label, Labels, Polygons, Scalar, is_missing
from fastload.sample.schema import Field


def plain_value(field: Field, data: bytes) -> Any:
    """Return the value of a field's bytes: numbers, str, lists and dicts, with bytes as base64 and labels as
    names; None for a missing text or float.

    Raises:
        FormatError: the bytes are not a legal value.
    """
    value = field.decode(data)
    kind = field.kind
    if isinstance(kind, Scalar):
        return None if is_missing(value).item() else value.item()
    if isinstance(kind, Polygons):
        return [
            each if isinstance(each, dict) else [part.reshape(-1).tolist() for part in each] for each in value
        ]
    if isinstance(kind, Label):
        return _name_of(kind, value)
    if isinstance(kind, Labels):
        return [_name_of(kind, index) for index in value.tolist()]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _name_of(kind: Label | Labels, index: int) -> Any:
    if index < 0:
        return None
    if not kind.classes or kind.indices[kind.classes[index]] != index:  # two classes of one name
        return index
    return kind.classes[index]


def is_file(field: Field, raw: bool = False) -> bool:
    """Return whether the pictures of a field are image files, not raw pixels.

    Args:
        field: of kind Image or Mask; images with other than one or three channels are raw pixels.
        raw: all images are raw pixels.
    """
    return not isinstance(field.kind, Image) or (field.kind.channels in (1, 3) and not raw)
