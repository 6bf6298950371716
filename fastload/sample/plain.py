"""Values of fields as JSON, and as stock libraries, can say them; what they give can be packed again."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from fastload.sample.fields import Image, Label, Polygons
from fastload.sample.schema import Field

__all__ = ["is_file", "plain_value"]


def plain_value(field: Field, data: bytes) -> Any:
    """The value of a field's bytes: numbers, str, lists and dicts; bytes as base64, a label's name.

    Raises:
        FormatError: bytes that are no value's.
    """
    value = field.decode(data)
    kind = field.kind
    if isinstance(kind, Polygons) and kind.format == "polygons":
        return [[polygon.reshape(-1).tolist() for polygon in polygons] for polygons in value]
    if isinstance(kind, Label):
        if value < 0:
            return None
        return kind.classes[value] if kind.classes else value
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def is_file(field: Field, raw: bool = False) -> bool:
    """Whether the pictures of a field are image files, not pixels as they are.

    Args:
        field: of kind Image or Mask; images of other than one or three channels are pixels.
        raw: whether all images are.
    """
    return not isinstance(field.kind, Image) or (field.kind.channels in (1, 3) and not raw)
