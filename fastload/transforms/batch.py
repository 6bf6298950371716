"""Transforms of whole batches, for ``fastload.DataLoader(batch_transform=...)``: only descriptions.

They run after decoding, on the device if the loader has one. :class:`ColorJitter` and :class:`RandomErasing`
draw for each sample, from (seed, epoch, sample id): threads, ranks and restarts change nothing.
:class:`MixUp`, :class:`CutMix`, :class:`RandomChoice` and :class:`TimmMixup` draw once per batch, and pair
each sample with another one of the batch. Their key is (seed, epoch, first sample id of the batch), so a
batch is mixed alike in every run; with another number of ranks or batch size, batches hold other samples.
In batches that are dicts they change the image and the label; :class:`OfFields` names them if there are
several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.output import RandomErasing

__all__ = [
    "BATCH_SPECS",
    "ColorJitter",
    "CutMix",
    "LabelSmoothing",
    "MixUp",
    "OfFields",
    "RandomChoice",
    "RandomErasing",
    "TimmMixup",
]


def _set(spec: Any, name: str, value: Any) -> None:
    object.__setattr__(spec, name, value)


def _in_range(where: str, value: float, low: float, high: float) -> float:
    (number,) = arguments.floats(where, (value,), 1)
    if not low <= number <= high:
        raise ValueError(f"{where} must be in [{low:g}, {high:g}]. Found: {value!r}.")
    return number


def _check_classes(where: str, num_classes: int, smoothing: float) -> None:
    if not 0.0 <= _in_range(f"{where}.label_smoothing", smoothing, 0.0, 1.0) < 1.0:
        raise ValueError(f"{where}.label_smoothing must be below 1. Found: {smoothing!r}.")
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
        raise ValueError(f"{where}.num_classes must be an int of at least 1. Found: {num_classes!r}.")


def _check_mix(where: str, alpha: float, num_classes: int, smoothing: float) -> None:
    if _in_range(f"{where}.alpha", alpha, 0.0, 1e6) == 0.0:
        raise ValueError(f"{where}.alpha must be above 0. Found: {alpha!r}.")
    _check_classes(where, num_classes, smoothing)


@dataclass(frozen=True)
class MixUp:
    """Mix each picture with its neighbour in the batch: ``lam * batch + (1 - lam) * batch.roll(1, 0)``, and
    the labels likewise, with ``lam`` from Beta(alpha, alpha), as torchvision does.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2017). Labels become (n, num_classes) float32;
    the row of a padded or skipped sample (label -100) is zeros.

    Args:
        num_classes: width of the labels.
        alpha: above 0; 1 is uniform.
        label_smoothing: as :class:`LabelSmoothing`'s.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    num_classes: int
    alpha: float = 1.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_mix("MixUp", self.alpha, self.num_classes, self.label_smoothing)


@dataclass(frozen=True)
class CutMix:
    """Paste a rectangle of ``batch.roll(1, 0)`` into each picture and mix the labels by its area, as
    torchvision does.

    Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features"
    (2019). The rectangle has 1 - lam of the picture's area, lam from Beta(alpha, alpha), and a uniformly
    random centre; what hangs over the edge is cut off. Labels become those of :class:`MixUp`.

    Args:
        num_classes: width of the labels.
        alpha: above 0; 1 is uniform.
        label_smoothing: as :class:`LabelSmoothing`'s.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    num_classes: int
    alpha: float = 1.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_mix("CutMix", self.alpha, self.num_classes, self.label_smoothing)


@dataclass(frozen=True)
class LabelSmoothing:
    """Turn labels into (n, num_classes) float32, with ``smoothing`` of their weight spread over all classes.

    Szegedy et al., "Rethinking the Inception Architecture" (2016): 1 - smoothing + smoothing / num_classes
    for the label, smoothing / num_classes for the others, as in timm's ``Mixup`` and torch's
    ``cross_entropy``. Rows of padded and skipped samples stay zeros. After a mix, it smooths mixed labels.

    Args:
        num_classes: width of the labels.
        smoothing: in [0, 1).

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    num_classes: int
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        _check_classes("LabelSmoothing", self.num_classes, self.smoothing)


@dataclass(frozen=True)
class TimmMixup:
    """Mix as timm's ``Mixup`` does: mixup or cutmix, each sample with its counterpart from the other end of
    the batch (``batch.flip(0)``), with smoothed labels.

    A timm ``Mixup`` object may be given instead. In odd batches the middle sample is its own partner.

    Args:
        mixup_alpha, cutmix_alpha: the alpha of Beta(alpha, alpha); 0: never.
        cutmix_minmax: the rectangle's sides are uniform between these fractions of the picture's, instead of
            drawn by ``cutmix_alpha``, which becomes 1.
        prob: probability that a batch, pair or sample is mixed.
        switch_prob: probability of cutmix, if both are enabled.
        mode: draw once per "batch", per "pair" of samples that are each other's partner, or per sample
            ("elem").
        correct_lam: mix labels by the area that was pasted, not by the one that was drawn.
        label_smoothing: see :class:`LabelSmoothing`; with ``multi_label`` towards 0.5.
        num_classes: width of the labels.
        multi_label: labels come as (n, num_classes), with several classes per picture.

    Raises:
        TypeError, ValueError: an argument outside its range, or both alphas 0.
    """

    mixup_alpha: float = 1.0
    cutmix_alpha: float = 0.0
    cutmix_minmax: Sequence[float] | None = None
    prob: float = 1.0
    switch_prob: float = 0.5
    mode: str = "batch"
    correct_lam: bool = True
    label_smoothing: float = 0.1
    num_classes: int = 1000
    multi_label: bool = False

    def __post_init__(self) -> None:
        if self.cutmix_minmax is not None:
            low, high = arguments.floats("TimmMixup.cutmix_minmax", self.cutmix_minmax, 2)
            if not 0.0 <= low < high <= 1.0:
                raise ValueError(
                    f"TimmMixup.cutmix_minmax must be (least, greatest) within [0, 1]. Found: "
                    f"{self.cutmix_minmax!r}."
                )
            _set(self, "cutmix_minmax", (low, high))
            _set(self, "cutmix_alpha", 1.0)
        if self.mode not in ("batch", "pair", "elem"):
            raise ValueError(f"TimmMixup.mode must be 'batch', 'pair' or 'elem'. Found: {self.mode!r}.")
        _in_range("TimmMixup.mixup_alpha", self.mixup_alpha, 0.0, 1e6)
        _in_range("TimmMixup.cutmix_alpha", self.cutmix_alpha, 0.0, 1e6)
        if self.mixup_alpha == self.cutmix_alpha == 0.0:
            raise ValueError("TimmMixup needs mixup_alpha or cutmix_alpha above 0. Found: both 0.")
        _in_range("TimmMixup.prob", self.prob, 0.0, 1.0)
        _in_range("TimmMixup.switch_prob", self.switch_prob, 0.0, 1.0)
        _check_classes("TimmMixup", self.num_classes, self.label_smoothing)


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue at random, in this order, before normalisation.

    The operations are torchvision's on float pictures in [0, 1]. torchvision draws their order for each
    picture; here it is fixed, so that a batch is one sequence of operations. This transform must come first.

    Args:
        brightness, contrast, saturation: the factor is uniform in [max(0, 1 - x), 1 + x], or in (least,
            greatest).
        hue: the shift, in turns of the colour circle, is uniform in [-x, x], or in (least, greatest);
            within [-0.5, 0.5].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    brightness: float | Sequence[float] = 0.0
    contrast: float | Sequence[float] = 0.0
    saturation: float | Sequence[float] = 0.0
    hue: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            _set(self, name, arguments.spread(f"ColorJitter.{name}", getattr(self, name), 1.0, 0.0, math.inf))
        _set(self, "hue", arguments.spread("ColorJitter.hue", self.hue, 0.0, -0.5, 0.5))


@dataclass(frozen=True)
class RandomChoice:
    """Apply one of several :class:`MixUp` and :class:`CutMix`, drawn for each batch with equal probability.

    Raises:
        TypeError: an element is neither a MixUp nor a CutMix.
        ValueError: the list is empty.
    """

    transforms: Sequence[MixUp | CutMix]

    def __post_init__(self) -> None:
        parts = tuple(self.transforms)
        if not parts:
            raise ValueError("RandomChoice needs at least one transform.")
        for part in parts:
            if not isinstance(part, (MixUp, CutMix)):
                raise TypeError(f"RandomChoice takes MixUp and CutMix. Found: {part!r}.")
        _set(self, "transforms", parts)


@dataclass(frozen=True)
class OfFields:
    """Name the fields to transform in batches that are dicts with several images or labels.

    It is not needed if there is one of each. Callables get the whole dict in any case.

    Args:
        transforms: whatever ``batch_transform=`` takes.
        image, label: keys of the batch; None: the only image, the only label.

    Raises:
        TypeError: a name is not a str.
    """

    transforms: Any
    image: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        parts = self.transforms
        _set(self, "transforms", tuple(parts) if isinstance(parts, Sequence) else (parts,))
        for which in ("image", "label"):
            name = getattr(self, which)
            if name is not None and not isinstance(name, str):
                raise TypeError(f"OfFields.{which} must be the name of a field. Found: {name!r}.")


BATCH_SPECS = (ColorJitter, RandomErasing, MixUp, CutMix, LabelSmoothing, RandomChoice, TimmMixup)
