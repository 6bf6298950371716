"""Random parameters of batch transforms, for all samples of a batch at once."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.sampler import BatchIds
from fastload.transforms.batch import ColorJitter
from fastload.transforms.plan import Erasing

_ERASE_OP, _JITTER_OP, _BATCH_OP = (_C.DRAW_OPS[name] for name in ("erase", "jitter", "batch"))
_TRIES = 10

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]


def _uniform(words: Words, low: float = 0.0, high: float = 1.0) -> Floats:
    """Return uniform numbers in [low, high) with 32 bits."""
    result: Floats = low + (high - low) * (words.astype(np.float64) * 2.0**-32)
    return result


def jitter_factors(spec: ColorJitter, seed: int, epoch: int, batch: BatchIds) -> Floats:
    """Draw brightness, contrast, saturation and hue, (n, 4)."""
    words = _C.batch_words(seed, epoch, batch.ids, batch.draws, _JITTER_OP, 1)[:, 0]
    ranges: list[Any] = [spec.brightness, spec.contrast, spec.saturation, spec.hue]
    return np.stack([_uniform(words[:, i], *ranges[i]) for i in range(4)], axis=1)


def erasing_boxes(spec: Erasing, seed: int, epoch: int, batch: BatchIds, height: int, width: int) -> Floats:
    """Draw (n, 4 * most rectangles): each one's first and end row, first and end column; zeros: none.

    torchvision's ``RandomErasing.get_params``, with timm's several rectangles: a try fits if both its sides
    are below the picture's. The core's erase() draws the same.
    """
    least, most = spec.count
    words = _C.batch_words(seed, epoch, batch.ids, batch.draws, _ERASE_OP, _TRIES * most + 1)
    counts = least + np.floor(_uniform(words[:, 0, 1]) * (most - least + 1))
    counts = np.where(_uniform(words[:, 0, 0]) < spec.probability, counts, 0)
    boxes = []
    for number in range(most):
        tries = words[:, 1 + _TRIES * number : 1 + _TRIES * (number + 1)]
        found = _erasing_box(spec, tries, height, width, np.maximum(counts, 1))
        boxes.append(np.where((number < counts)[:, None], found, 0.0))
    return np.concatenate(boxes, axis=1)


def _erasing_box(spec: Erasing, tries: Words, height: int, width: int, counts: Floats) -> Floats:
    """Return the first of (n, tries, 4) words that fits, as (n, 4)."""
    area = (height * width / counts)[:, None] * _uniform(tries[..., 0], *spec.area)
    aspect = np.exp(_uniform(tries[..., 1], *spec.log_ratio))
    h, w = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits: npt.NDArray[np.bool_] = np.logical_and(h < height, w < width)
    first = fits.argmax(axis=1)
    rows = np.arange(len(first))
    h, w = h[rows, first], w[rows, first]
    top = np.floor(_uniform(tries[rows, first, 2]) * (height - h + 1))
    left = np.floor(_uniform(tries[rows, first, 3]) * (width - w + 1))
    return np.where(fits.any(axis=1, keepdims=True), np.stack([top, top + h, left, left + w], axis=1), 0.0)


class BatchKeyed:
    """Random numbers of one batch: key (seed, epoch), counter (first sample id, its draw, operation)."""

    def __init__(self, seed: int, epoch: int, batch: BatchIds) -> None:
        sample = int(batch.ids[0]) & 0xFFFFFFFFFFFFFFFF
        draw = 0 if batch.draws is None else int(batch.draws[0])
        blocks = (_C.sample_words(seed, epoch, sample, draw, _BATCH_OP, block) for block in range(1 << 16))
        self._words = chain.from_iterable(blocks)

    def seed(self) -> int:
        """Return 63 bits for a generator."""
        return next(self._words) << 31 | next(self._words) >> 1

    def uniform(self) -> float:
        """Draw from [0, 1) uniformly."""
        return ((next(self._words) << 32 | next(self._words)) >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """Draw an integer from [0, n) uniformly."""
        return (next(self._words) << 32 | next(self._words)) * n >> 64

    def beta(self, alpha: float) -> float:
        """Draw from Beta(alpha, alpha), as a ratio of gammas in logarithms: small ones would underflow."""
        difference = self._log_gamma(alpha) - self._log_gamma(alpha)
        return 1.0 / (1.0 + math.exp(-difference)) if difference > -700 else 0.0

    def _log_gamma(self, alpha: float) -> float:
        """Draw the logarithm of a Gamma(alpha) number: Marsaglia and Tsang (2000), for alpha < 1 boosted."""
        boost = 0.0
        if alpha < 1.0:
            boost, alpha = math.log(1.0 - self.uniform()) / alpha, alpha + 1.0
        d = alpha - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self._normal()
            v = (1.0 + c * x) ** 3
            if v > 0 and math.log(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return math.log(d * v) + boost

    def _normal(self) -> float:
        """Draw a normal number: Box and Muller (1958), one of the pair."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())
