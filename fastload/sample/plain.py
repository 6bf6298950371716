"""Values of fields as JSON, and as stock libraries, can say them; what they give can be packed again."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from fastload.sample.fields import Image, Label, Labels, Polygons, Scalar, is_missing
from fastload.sample.schema import Field


def plain_value(field: Field, data: bytes) -> Any:
    """The value of a field's bytes: numbers, str, lists and dicts; bytes as base64, names of labels; None for
    a text or a float that is missing.

    Raises:
        FormatError: bytes that are no value's.
    """
    value = field.decode(data)
    kind = field.kind
    if isinstance(kind, Scalar):
        return None if is_missing(value).item() else value.item()
    if isinstance(kind, Polygons):
        return [
            one if isinstance(one, dict) else [part.reshape(-1).tolist() for part in one] for one in value
        ]
    if isinstance(kind, Label):
        return _name_of(kind, value)
    if isinstance(kind, Labels):
        return [_name_of(kind, one) for one in value.tolist()]
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
    """Whether the pictures of a field are image files, not pixels as they are.

    Args:
        field: of kind Image or Mask; images of other than one or three channels are pixels.
        raw: whether all images are.
    """
    return not isinstance(field.kind, Image) or (field.kind.channels in (1, 3) and not raw)
