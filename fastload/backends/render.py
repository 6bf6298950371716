"""Decoding samples one by one, where they differ in size and no engine can put them into one slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.backends.faults import SAMPLE_ERRORS
from fastload.backends.tail import SampleKey
from fastload.cache.tier import bounded_sizes
from fastload.dataset.decoding import decode_record
from fastload.dataset.mixture import Packed
from fastload.prefetch.fault import Fault
from fastload.transforms.plan import Plan

__all__ = ["Rendered", "Renderer", "Request", "Stopped"]

_UNKNOWN_SIDE = 256  # pixels of a black picture whose size the index does not know


class Stopped(Exception):
    """A bad sample is an error; the last fault says which."""


class Request(NamedTuple):
    """Which samples: what :class:`fastload.sampler.BatchIds` says, and their substitutes."""

    epoch: int
    ids: npt.NDArray[np.int64]  # (n,); -1: padding
    draws: npt.NDArray[np.uint32] | None  # (n,)
    substitutes: npt.NDArray[np.int64] | None  # (n, tries), for on_error="replace"


class Rendered:
    """Labels and faults of a request, complete when all its images have been taken."""

    def __init__(self, labels: npt.NDArray[np.int64]) -> None:
        self.labels = labels
        self.faults: list[Fault] = []


class Renderer:
    """Decodes and transforms samples by themselves; bad ones are blank or replaced, as ``on_error`` says.

    Args:
        dataset: what to read.
        plan: the compiled transform.
        seed, max_pixels, on_error: the loader's.
        side: ``cache_decoded``; such samples are scaled every time.
    """

    def __init__(
        self,
        dataset: Packed,
        plan: Plan,
        seed: int,
        max_pixels: int,
        on_error: str,
        side: int | str | None = None,
    ) -> None:
        if plan.needs_engine:
            raise ValueError(
                "Callables behind Mosaic get pictures of one size: let Resize((height, width)) say it."
            )
        self._dataset = dataset
        self._plan = plan
        self._seed = seed
        self._max_pixels = max_pixels
        self._on_error = on_error
        self._side = side

    def __call__(self, request: Request) -> tuple[Iterator[torch.Tensor], Rendered]:
        """The images, (3, H, W) of the plan's dtype in channels_last strides, decoded when they are taken;
        and what is known of them then. A fault that stops the run raises :class:`Stopped` there.
        """
        known = self._dataset.labels[np.maximum(request.ids, 0)]
        found = Rendered(np.where(request.ids < 0, _C.IGNORE_LABEL, known))
        return self._images(request, found), found

    def _images(self, request: Request, found: Rendered) -> Iterator[torch.Tensor]:
        for position, sample in enumerate(request.ids.tolist()):
            draw = 0 if request.draws is None else int(request.draws[position])
            key = SampleKey(self._seed, request.epoch, sample, draw)
            if sample < 0:
                yield self._black(key)
                continue
            try:
                image = self._render(key)
            except Exception as error:
                image = self._instead(request, position, key, error, found)
            yield image

    def _instead(
        self, request: Request, position: int, key: SampleKey, error: Exception, found: Rendered
    ) -> torch.Tensor:
        """What comes instead of a bad sample."""
        fault = Fault(position, key.sample, type(error), str(error))
        if self._on_error == "raise" or not isinstance(error, SAMPLE_ERRORS):
            found.faults.append(fault._replace(fatal=True))
            raise Stopped from error
        if request.substitutes is None:
            found.faults.append(fault)
            found.labels[position] = _C.IGNORE_LABEL
            return self._black(key)
        message = ""
        for substitute in request.substitutes[position].tolist():
            try:
                image = self._render(SampleKey(key.seed, key.epoch, substitute, key.draw))
            except SAMPLE_ERRORS as other:
                message = str(other)
                continue
            found.labels[position] = self._dataset.labels[substitute]
            found.faults.append(fault._replace(substitute=substitute))
            return image
        tries = request.substitutes.shape[1]
        none = f"none of {tries} substitutes could be decoded; the last: {message}"
        found.faults.append(fault._replace(fatal=True, message=none))
        raise Stopped

    def _render(self, key: SampleKey) -> torch.Tensor:
        part, own = self._dataset.locate(key.sample)
        picture: Any = decode_record(part, own, self._max_pixels)
        picture = _bounded(picture, self._side)
        stored = self._plan.made_of(picture, key.seed, key.epoch, key.sample, key.draw)
        return torch.from_numpy(stored).view(getattr(torch, self._plan.dtype)).permute(2, 0, 1)

    def _black(self, key: SampleKey) -> torch.Tensor:
        """Zeros of the size that the sample would have by the index (padding: the first sample's)."""
        sample = max(key.sample, 0)
        part, own = self._dataset.locate(sample)
        record = part.record(own)
        sizes = bounded_sizes(record["width"], record["height"], self._side)
        width, height = (int(size) or _UNKNOWN_SIDE for size in sizes)
        geometry = self._plan.geometry_spec()
        try:
            view = _C.draw_view(geometry, width, height, key.seed, key.epoch, sample, key.draw)
        except ValueError:  # smaller than RandomCrop: what is asked for
            assert self._plan.output_size is not None
            view = _C.View(((0, 0, 1, 1), (1, 1), (0, 0, *self._plan.output_size[::-1]), False))
        width, height = view.made
        return torch.zeros(height, width, 3, dtype=getattr(torch, self._plan.dtype), device="cpu").permute(
            2, 0, 1
        )


def _bounded(picture: Any, side: int | str | None) -> Any:
    height, width = picture.shape[:2]
    new_width, new_height = (int(size) for size in bounded_sizes(width, height, side))
    if (new_width, new_height) == (width, height):
        return picture
    target, whole = (new_width, new_height), (0, 0, new_width, new_height)
    scaled = _C.resize(picture, _C.View(((0, 0, width, height), target, whole, False)))
    return scaled.reshape(new_height, new_width, 3)
