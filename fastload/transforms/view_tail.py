"""Python callables of one view of a sample, where a sample has several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
    """A (3, height, width) uint8 tensor as a PIL picture."""
    need("PIL.Image", "a callable in transform (it gets PIL pictures)")
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


@dataclass(frozen=True)
class ViewTail:
    """A callable of samples that are dicts: runs callables on the pictures of one view.

    Args:
        view: the view's name, and the pictures'.
        number: of the view, by which its generator differs from other views'.
        functions: the callables, in order.
        picture: they get PIL pictures; else tensors.
    """

    view: str
    number: int
    functions: tuple[Callable[..., Any], ...]
    picture: bool

    def __call__(self, sample: Mapping[str, Any], generator: Any = None) -> Mapping[str, Any]:
        if self.view not in sample:  # fields= has left the pictures out
            return sample
        value = as_picture(sample[self.view]) if self.picture else sample[self.view]
        for function in self.functions:
            if takes_generator(function):
                generator.manual_seed((generator.initial_seed() + self.number) % 2**63)
                value = function(value, generator=generator)
            else:
                value = function(value)
        return {**sample, self.view: value}
