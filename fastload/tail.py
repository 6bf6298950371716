"""Python callables on decoded samples, and user collate functions: the part of a batch that is not native."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fastload import errors
from fastload._native import _C
from fastload.decoded import bounded_sizes
from fastload.decoding import decode_record
from fastload.mixture import Packed
from fastload.transforms.plan import Plan

__all__ = ["SampleKey", "Tail", "render"]

_TAIL_OP = 4  # follows DrawOp in csrc/core/base/philox.h: 1 crop, 2 flip, 3 substitute


@dataclass(frozen=True)
class SampleKey:
    """What a sample's randomness depends on."""

    seed: int
    epoch: int
    sample: int
    draw: int = 0

    def generator(self) -> torch.Generator:
        """A CPU generator that is the same for this sample in every run."""
        words = _C.sample_words(self.seed, self.epoch, self.sample, self.draw, _TAIL_OP, 0)
        generator = torch.Generator()
        generator.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        return generator


def _takes_generator(function: Callable[..., Any]) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("generator")
    except (TypeError, ValueError):
        return False
    return parameter is not None


class Tail:
    """Runs callables one after the other on a decoded uint8 (3, H, W) tensor.

    A callable with a parameter ``generator`` gets a ``torch.Generator`` that depends on seed, epoch and
    sample id only; others that draw random numbers draw torch's global ones, in no fixed order.
    """

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self._functions = [(function, _takes_generator(function)) for function in functions]

    def __call__(self, image: torch.Tensor, key: SampleKey) -> Any:
        for function, takes_generator in self._functions:
            image = function(image, generator=key.generator()) if takes_generator else function(image)
        return image


def render(
    dataset: Packed, plan: Plan, key: SampleKey, max_pixels: int, side: int | str | None = None
) -> torch.Tensor:
    """Decode and transform one sample by itself, for plans whose samples differ in size.

    ``side``: ``cache_decoded``; such samples are scaled every time.

    Returns:
        (3, H, W) of the plan's dtype, channels_last strides.
    """
    part, own = dataset.locate(key.sample)
    picture: Any = decode_record(part, own, max_pixels)
    picture = _bounded(picture, side)
    height, width = picture.shape[:2]
    geometry = plan.geometry_spec()
    view = _C.draw_view(geometry, width, height, key.seed, key.epoch, key.sample, key.draw)
    stored = _C.resize_store(picture, view, geometry.filter, plan.store_spec())
    pixels = torch.from_numpy(stored).view(getattr(torch, plan.dtype))
    return pixels.permute(2, 0, 1)


def _bounded(picture: Any, side: int | str | None) -> Any:
    height, width = picture.shape[:2]
    new_width, new_height = (int(size) for size in bounded_sizes(width, height, side))
    if (new_width, new_height) == (width, height):
        return picture
    target, whole = (new_width, new_height), (0, 0, new_width, new_height)
    scaled = _C.resize(picture, ((0, 0, width, height), target, whole, False))
    return scaled.reshape(new_height, new_width, 3)


def failed(sample: int, dataset: Packed, error: Exception) -> errors.SampleError:
    """The error of a callable, with the sample it happened on."""
    part, own = dataset.locate(sample)
    shard, key = part.reader.shard_path(own), part.key(own)
    wrapped = errors.SampleError(
        f"Sample {sample} (key {key!r} in {shard}): the "
        f"transform or collate function raised {type(error).__name__}: {error}"
    )
    wrapped.sample, wrapped.key, wrapped.shard = sample, key, shard
    return wrapped
