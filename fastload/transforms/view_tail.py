"""What Python callables want: PIL pictures, generators, and one of a sample's views alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.extras import need

__all__ = ["ViewTail", "as_picture", "takes_generator"]


def takes_generator(function: Callable[..., Any]) -> bool:
    """Whether a callable has a parameter ``generator``."""
    try:
        parameter = inspect.signature(function).parameters.get("generator")
    except (TypeError, ValueError):
        return False
    return parameter is not None


def as_picture(image: Any) -> Any:
    """A uint8 tensor (channels, height, width) of 3 channels or 1 as a PIL picture; others stay tensors."""
    if image is not None and (image.shape[0] not in (1, 3) or "uint8" not in str(image.dtype)):
        return image
    need("PIL.Image", "a callable in transform (it gets PIL pictures)")
    from PIL import Image

    pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


@dataclass(frozen=True)
class ViewTail:
    """The callables of one view, in the place of a callable of the whole sample.

    Args:
        number: of the view, by which its generator differs from other views'.
        functions: the callables, in order, as ``Plan.called`` of the view knows them.
    """

    number: int
    functions: tuple[Callable[..., Any], ...]
