"""What a transform becomes: a :class:`Plan` of what the core does, and the callables that follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastload._native import _C

__all__ = ["PixelUse", "Plan", "Step"]


@dataclass(frozen=True)
class Step:
    """What became of one item of a transform."""

    name: str
    native: bool  # in the core; else in Python
    why: str
    keep: str = ""  # what would keep it in the core; empty where nothing is known to


@dataclass(frozen=True)
class PixelUse:
    """An operation on pixels as the core takes it: its name in ``_C.PIXEL_OPERATIONS``, the probability with
    which it happens to a sample, and its numbers."""

    name: str
    probability: float
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What the core does to each picture: geometry (the fields of GeometrySpec), ``pixels``, store (those of
    StoreSpec); then the ``tail``.

    ``tail`` holds the callables to run, in order: on a PIL picture, if ``picture``, else on a ``(C, H, W)``
    tensor of ``dtype``. ``steps`` says of each item of the transform where it runs, and why.
    """

    kind: str = "none"  # "none", "random_resized_crop", "resize_shorter", "resize_exact"
    out_height: int = 0
    out_width: int = 0
    max_size: int = 0
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: str = "bilinear"
    center_height: int = 0
    center_width: int = 0
    random_window: bool = False  # the window of center_height and center_width lies anywhere
    flip_probability: float = 0.0
    flip_place: str = "last"  # "last", "before_window", "before_crop"
    pixels: tuple[PixelUse, ...] = ()  # on the cut picture, in order, before it is stored
    dtype: str = "uint8"
    scale: bool = False
    normalize: bool = False
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    tail: tuple[Callable[[Any], Any], ...] = ()
    picture: bool = False
    steps: tuple[Step, ...] = field(default=(), compare=False)

    @property
    def output_size(self) -> tuple[int, int] | None:
        """``(height, width)`` of every sample in pixels, or None where it depends on the picture."""
        if self.center_height:
            return self.center_height, self.center_width
        if self.kind in ("random_resized_crop", "resize_exact"):
            return self.out_height, self.out_width
        return None

    @property
    def is_random(self) -> bool:
        """Whether the core draws for each sample."""
        drawn = self.kind == "random_resized_crop" or self.random_window
        chances = (self.flip_probability, *(use.probability for use in self.pixels))
        return drawn or any(0.0 < chance < 1.0 for chance in chances)

    def geometry_spec(self) -> _C.GeometrySpec:
        """The core's description of crop, resize, window and flip."""
        return _C.GeometrySpec(
            kind=self.kind,
            out_height=self.out_height,
            out_width=self.out_width,
            max_size=self.max_size,
            scale=self.crop_scale,
            ratio=self.crop_ratio,
            filter=self.filter,
            center_height=self.center_height,
            center_width=self.center_width,
            random_window=self.random_window,
            flip_probability=self.flip_probability,
            flip_place=self.flip_place,
        )

    def pixel_spec(self) -> _C.PixelSpec:
        """The core's description of the operations on pixels."""
        return _C.PixelSpec([(use.name, use.probability, list(use.numbers)) for use in self.pixels])

    def store_spec(self, channels_last: bool = True) -> _C.StoreSpec:
        """The core's description of dtype, scaling and layout (``channels_last``: HWC in memory, else CHW).

        Raises:
            ValueError: a mean or std that float32 cannot hold.
        """
        return _C.StoreSpec(
            dtype=self.dtype,
            channels_last=channels_last,
            scale=self.scale,
            normalize=self.normalize,
            mean=self.mean,
            std=self.std,
        )

    def made_of(self, picture: Any, seed: int, epoch: int = 0, sample: int = 0, draw: int = 0) -> Any:
        """What the core makes of one (height, width, 3) uint8 picture outside a batch: (h, w, 3 * itemsize)
        bytes of ``dtype``."""
        geometry, (height, width) = self.geometry_spec(), picture.shape[:2]
        view = _C.draw_view(geometry, width, height, seed, epoch, sample, draw)
        if not self.pixels:
            return _C.resize_store(picture, view, geometry.filter, self.store_spec())
        pixels = _C.resize(picture, view, geometry.filter)
        return _C.store(_C.operate(pixels, self.pixel_spec(), seed, epoch, sample, draw), self.store_spec())
