"""Augmentation of whole batches by torch operations, the same on the host and on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.prefetch.feeder import BatchKey
from fastload.sample.layout import VALID
from fastload.sampler import BatchIds, Sampler
from fastload.transfer.convert import Converter
from fastload.transfer.draws import BatchKeyed, erasing_boxes, jitter_factors
from fastload.transfer.mixing import MIXES, known, mixed
from fastload.transforms.batch import (
    BATCH_SPECS,
    ColorJitter,
    LabelSmoothing,
    MixUp,
    OfFields,
    RandomChoice,
    TimmMixup,
)
from fastload.transforms.operations.output import RandomErasing
from fastload.transforms.plan import Erasing

# ---- A batch's images and labels ----


def describe(batch: Any) -> str:
    """Return a batch in a few words, for messages."""
    kind = type(batch).__name__
    return f"{kind} of {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else kind


@dataclass(frozen=True)
class Named:
    """The fields of a mapping batch that are its images and its labels.

    Args:
        image, label: the keys; None: not known, or not needed.
    """

    image: str | None = None
    label: str | None = None

    def check(self, batch: Mapping[str, Any], images: bool, labels: bool) -> None:
        """Check that a batch has what is needed.

        Raises:
            TypeError: it does not.
        """
        for needed, which in ((images, "image"), (labels, "label")):
            name = getattr(self, which)
            if needed and (name is None or name not in batch):
                raise TypeError(
                    f"batch_transform needs to know the {which}s of a batch. Found: {describe(batch)}, and "
                    f"{which}={name!r}. Say which: batch_transform=OfFields(..., {which}=NAME)."
                )
            if needed and not isinstance(batch[name], torch.Tensor):
                raise TypeError(
                    f"batch_transform needs the {which}s of a batch as one tensor. Found: {which}s {name!r} "
                    f"as {type(batch[name]).__name__}. Let the transform make pictures of one size."
                )

    def pair(self, batch: Any) -> tuple[Any, Any]:
        """Return a batch's images and labels; for a mapping None for what has no name.

        Raises:
            TypeError: a callable has removed them.
        """
        if not isinstance(batch, Mapping):
            return batch[0], batch[1]
        for name in (self.image, self.label):
            if name is not None and name not in batch:
                raise TypeError(f"A callable in batch_transform returned no {name!r}: {describe(batch)}.")
        image, label = self.image, self.label
        return (None if image is None else batch[image]), (None if label is None else batch[label])

    def put(self, batch: Any, images: Any, labels: Any) -> Any:
        """Return the batch with these in their place."""
        if not isinstance(batch, Mapping):
            return [images, labels]
        values = {self.image: images, self.label: labels}
        return {**batch, **{name: value for name, value in values.items() if name is not None}}


UNNAMED = Named()


# ---- Colour jitter: torchvision's operations on float pictures, with a factor for each sample ----

_GRAY = (0.2989, 0.587, 0.114)  # torchvision's weights of red, green and blue


def color_jitter(
    images: torch.Tensor, factors: torch.Tensor, used: tuple[bool, bool, bool, bool]
) -> torch.Tensor:
    """Apply brightness, contrast, saturation, then hue.

    Args:
        images: (n, 3, h, w) float32 in [0, 1]; changed in place if an operation allows it.
        factors: (n, 4) float32: three factors, and the hue's shift in turns.
        used: which of the four to apply.

    Returns:
        (n, 3, h, w) float32 in [0, 1].
    """
    brightness, contrast, saturation, hue = factors.view(-1, 4, 1, 1, 1).unbind(1)
    if used[0]:
        images = images.mul_(brightness).clamp_(0.0, 1.0)
    if used[1]:
        images = _blend(images, _gray(images).mean((1, 2, 3), keepdim=True), contrast)
    if used[2]:
        images = _blend(images, _gray(images), saturation)
    return _shift_hue(images, hue[:, 0]) if used[3] else images


def _gray(images: torch.Tensor) -> torch.Tensor:
    """Convert to grey, (n, 1, h, w)."""
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return (red * _GRAY[0]).add_(green, alpha=_GRAY[1]).add_(blue, alpha=_GRAY[2])


def _blend(images: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return ``factor * images + (1 - factor) * other``, clamped to [0, 1]."""
    return images.mul_(factor).add_(other * (1.0 - factor)).clamp_(0.0, 1.0)


def _shift_hue(images: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Convert to HSV, add ``shift`` (n, 1, 1) to the hue modulo 1, and convert back (Smith 1978)."""
    red, green, blue = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    spread = high - low
    gray = spread == 0
    divisor = spread.masked_fill(gray, 1.0)
    # Distances of the two smaller channels decide the place within the sector of the largest one.
    r, g, b = ((high - channel) / divisor for channel in (red, green, blue))
    hue = torch.where(high == red, b - g, torch.where(high == green, 2.0 + r - b, 4.0 + g - r))
    hue = (hue / 6.0 + shift).remainder_(1.0).masked_fill_(gray, 0.0)
    # Each channel follows the same trapezoid over the circle, a third of a turn apart (offsets 5, 3, 1).
    channels = []
    for offset in (5.0, 3.0, 1.0):
        k = (hue * 6.0 + offset).remainder_(6.0)
        channels.append(high - spread * torch.minimum(k, 4.0 - k).clamp_(0.0, 1.0))
    return torch.stack(channels, dim=1).contiguous(memory_format=torch.channels_last)


# ---- The augmenter ----

Seeded = Callable[[int], AbstractContextManager[None]]


@contextmanager
def host_seeded(seed: int) -> Iterator[None]:
    """Seed torch's global random numbers of the host in the block, and restore them afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def parts_of(transform: Any) -> tuple[Any, ...]:
    """Return the parts of ``batch_transform=``: our specs, and callables of (images, labels) or of dicts."""
    if transform is None:
        return ()
    if isinstance(transform, OfFields):
        return tuple(transform.transforms)
    return tuple(transform) if isinstance(transform, Sequence) else (transform,)


def parameters_of(parts: tuple[Any, ...]) -> int:
    """Return the number of values drawn for each sample."""
    boxes = (part.count[1] for part in map(_planned, parts) if isinstance(part, Erasing))
    return 4 * (sum(isinstance(part, ColorJitter) for part in parts) + sum(boxes))


def needs(parts: tuple[Any, ...]) -> tuple[bool, bool]:
    """Return whether any of our specs among the parts takes images, and labels."""
    own = [part for part in map(known, parts) if isinstance(part, (*BATCH_SPECS, Erasing))]
    images = any(not isinstance(part, LabelSmoothing) for part in own)
    return images, any(isinstance(part, MIXES) for part in own)


def _planned(part: Any) -> Any:
    """Return erasing in one form, so that the transform's is comparable with that of ``batch_transform``."""
    return part.planned if isinstance(part, RandomErasing) else part


def check_parts(parts: tuple[Any, ...], dtype: str | None) -> None:
    """Check the parts of ``batch_transform=``.

    Args:
        parts: from :func:`parts_of`.
        dtype: the images', by the loader's transform; None: not known.

    Raises:
        TypeError: neither a spec nor callable.
        ValueError: a ColorJitter that is not the first, two RandomErasing, or a transform that needs float
            images although they are uint8.
    """
    for position, part in enumerate(map(known, parts)):
        if isinstance(part, OfFields):
            raise TypeError("OfFields says it of all transforms of batches: none can stand beside or in it.")
        if not isinstance(part, BATCH_SPECS) and not callable(part):
            raise TypeError(
                f"batch_transform takes what fastload.transforms.batch has, and callables (images, labels), "
                f"or of a dict where batches are dicts. Found: {part!r}."
            )
        if isinstance(part, ColorJitter) and position > 0:
            raise ValueError("ColorJitter works on pictures before normalisation: it must come first.")
        blends = isinstance(part, TimmMixup) and part.mixup_alpha > 0.0
        if (blends or isinstance(part, (ColorJitter, MixUp, RandomChoice))) and dtype == "uint8":
            raise ValueError(
                f"{type(part).__name__} needs float images: add ToDtype or Normalize to the transform."
            )
        if isinstance(part, RandomErasing) and isinstance(part.value, str) and dtype == "uint8":
            raise ValueError("RandomErasing with noise needs float images: add Normalize to the transform.")
    if sum(isinstance(part, RandomErasing) for part in parts) > 1:
        raise ValueError("RandomErasing can occur only once: two would draw the same rectangles.")


class Augmenter:
    """``batch_transform=``, applied to batches.

    Args:
        parts: from :func:`parts_of`, checked.
        seed: the loader's.
        sampler: yields the samples of a batch.
        seeded: seeds torch's global random numbers for a callable.
        named: the image and the label of batches that are dicts.
    """

    def __init__(
        self,
        parts: tuple[Any, ...],
        seed: int,
        sampler: Sampler,
        seeded: Seeded = host_seeded,
        named: Named = UNNAMED,
    ) -> None:
        self.named = named
        self._needs = needs(parts)
        self._parts = tuple(map(_planned, parts))
        self._seed = seed
        self._sampler = sampler
        self._seeded = seeded
        self._jitter = next((part for part in self._parts if isinstance(part, ColorJitter)), None)
        self._erasing = next((part for part in self._parts if isinstance(part, Erasing)), None)
        self._values: torch.Tensor | None = None  # to erase with, on the images' device

    @property
    def jitters(self) -> bool:
        """Whether pictures are changed before normalisation."""
        return self._jitter is not None

    @property
    def parameters(self) -> int:
        """The number of values drawn for each sample."""
        return parameters_of(self._parts)

    def draw(self, epoch: int, batch: BatchIds, height: int, width: int) -> npt.NDArray[np.float32]:
        """Draw (n, parameters) for the samples of a batch of pictures of this size."""
        columns = []
        if self._jitter is not None:
            columns.append(jitter_factors(self._jitter, self._seed, epoch, batch))
        if self._erasing is not None:
            columns.append(erasing_boxes(self._erasing, self._seed, epoch, batch, height, width))
        return np.concatenate(columns, axis=1).astype(np.float32)

    def drawn(self, key: BatchKey, batch: Any) -> torch.Tensor | None:
        """Draw (n, parameters) float32 for the batch ``key`` from :meth:`taken`; None: none are drawn."""
        if not self.parameters:
            return None
        images, _ = self.named.pair(batch)
        return torch.from_numpy(self.draw(key.epoch, self._sampler.batch(*key), *images.shape[-2:]))

    def jitter(self, pixels: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """Jitter the colours of (n, 3, h, w) uint8; return float32 in [0, 1]."""
        assert self._jitter is not None
        spec = self._jitter
        unit = torch.mul(pixels, 1.0 / 255.0)
        neutral = ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0))
        ranges = (spec.brightness, spec.contrast, spec.saturation, spec.hue)
        brightness, contrast, saturation, hue = (r != n for r, n in zip(ranges, neutral, strict=True))
        return color_jitter(unit, parameters[:, :4], (brightness, contrast, saturation, hue))

    def taken(self, batch: Any) -> Any:
        """Return ``batch`` in a form for :meth:`__call__`: [images, labels], or a mapping that has them.

        Raises:
            TypeError: it is something else.
        """
        if isinstance(batch, Mapping):
            self.named.check(batch, *self._needs)
            return batch
        if isinstance(batch, (tuple, list)) and len(batch) == 2 and isinstance(batch[0], torch.Tensor):
            return list(batch)
        raise TypeError(
            f"batch_transform needs batches of (images, labels), or dicts. Found: {describe(batch)}."
        )

    def converted(self, batch: Any, parameters: torch.Tensor | None, converter: Converter) -> Any:
        """Return ``batch`` with the colours of its uint8 images changed, then converted."""
        assert parameters is not None
        images, labels = self.named.pair(batch)
        pixels = self.jitter(images, parameters)
        images = torch.empty_like(pixels, dtype=converter.dtype)
        converter(pixels, images)
        if isinstance(batch, Mapping) and not converter.keeps_zero:
            images[~batch[VALID]] = 0  # padding, as without the jitter
        return self.named.put(batch, images, labels)

    def __call__(self, batch: Any, parameters: torch.Tensor | None, key: BatchKey) -> Any:
        """Apply everything but the colour jitter, in order.

        Args:
            batch: images (n, 3, h, w) and labels (n,) int64, or a mapping that has them; see :meth:`taken`.
            parameters: (n, parameters) float32 on the images' device, from :meth:`draw`; None: none.
            key: which batch.

        Returns:
            [images, labels], or a dict, or what the last callable returned.
        """
        keyed = BatchKeyed(self._seed, key.epoch, self._sampler.batch(*key))
        named = self.named
        for part in map(known, self._parts):
            if isinstance(part, ColorJitter):
                continue
            if isinstance(part, Erasing):
                assert parameters is not None
                images, labels = named.pair(batch)
                boxes = parameters[:, -4 * part.count[1] :].reshape(len(parameters), -1, 4)
                batch = named.put(batch, self._erase(images, boxes, part, keyed), labels)
            elif isinstance(part, MIXES):
                batch = named.put(batch, *mixed(part, *named.pair(batch), keyed))
            else:
                with self._seeded(keyed.seed()):
                    batch = part(batch) if isinstance(batch, Mapping) else part(*batch)
        return batch

    def _erase(
        self, images: torch.Tensor, boxes: torch.Tensor, spec: Erasing, keyed: BatchKeyed
    ) -> torch.Tensor:
        """Fill rows boxes[:, k, 0] to boxes[:, k, 1] and columns boxes[:, k, 2] to boxes[:, k, 3] of the
        pictures, rectangle after rectangle."""
        if spec.fill != "value":
            with self._seeded(keyed.seed()):
                return _filled_with_noise(images, boxes, spec.fill)
        if self._values is None or self._values.device != images.device or self._values.dtype != images.dtype:
            values = torch.tensor(spec.value, device="cpu").to(images.dtype)
            self._values = values.to(images.device).view(1, 3, 1, 1)
        inside = _inside(images, boxes[:, 0])
        for number in range(1, boxes.shape[1]):
            inside = inside | _inside(images, boxes[:, number])
        return torch.where(inside, self._values, images)


def _inside(images: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return whether each pixel is in the picture's rectangle, (n, 1, h, w)."""
    top, bottom, left, right = boxes.view(-1, 4, 1, 1).unbind(1)
    rows = torch.arange(images.shape[2], device=images.device).view(1, -1, 1)
    columns = torch.arange(images.shape[3], device=images.device).view(1, 1, -1)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return inside.unsqueeze(1)


def _filled_with_noise(images: torch.Tensor, boxes: torch.Tensor, fill: str) -> torch.Tensor:
    """Fill rectangles with standard normal numbers, by torch's generator. The host draws only what is filled;
    a device draws whole batches, in one kernel, without waiting for the rectangles' positions."""
    if images.device.type != "cpu":
        for number in range(boxes.shape[1]):
            wide = images.shape if fill == "noise" else (*images.shape[:2], 1, 1)
            noise = torch.randn(wide, device=images.device, dtype=images.dtype)
            images = torch.where(_inside(images, boxes[:, number]), noise, images)
        return images
    images = images.clone()
    for image, own in zip(images, boxes.long().tolist(), strict=True):
        for top, bottom, left, right in own:
            if bottom > top and right > left:
                place = image[:, top:bottom, left:right]
                place.copy_(torch.randn(place.shape if fill == "noise" else (3, 1, 1), device="cpu"))
    return images
