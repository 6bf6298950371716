"""The last steps of a transform: dtype, normalisation and erasing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Misplaced, Operation, Stage, misplaced, set_field
from fastload.transforms.plan import Erasing

# ---- Normalisation ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Normalize:
    """Compute ``(x - mean) / std`` for each channel, as float32; uint8 values are scaled to [0, 1] first.

    Unlike torchvision's, it may come directly after the geometric transforms: then it computes
    ``(x / 255 - mean) / std``. Results are rounded once if :class:`ToDtype` asks for less than float32.

    Raises:
        TypeError, ValueError: ``mean`` or ``std`` is not three finite numbers, or a ``std`` is 0.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        set_field(self, "mean", arguments.floats("Normalize.mean", self.mean, 3))
        std = arguments.floats("Normalize.std", self.std, 3)
        if 0.0 in std:
            raise ValueError(f"Normalize.std must not be 0. Found: {std}.")
        set_field(self, "std", std)


def _add_normalize(draft: Draft, spec: Normalize, strict: bool) -> Draft:
    if draft.stage >= Stage.NORMALIZE:
        raise misplaced(spec)
    plan, converted = draft.plan, draft.stage == Stage.DTYPE
    if strict and plan.dtype != "float32":
        raise Misplaced("torchvision normalises float tensors, in their own dtype.")
    # After ToDtype without scale, x is in [0, 255]: mean and std are then in units of 255.
    unit = 255.0 if converted and not plan.scale else 1.0
    _warn_of_units(spec, unit)
    return draft.then(
        Stage.NORMALIZE,
        scale=True,
        normalize=True,
        dtype=plan.dtype if converted else "float32",
        mean=tuple(value / unit for value in spec.mean),
        std=tuple(value / unit for value in spec.std),
    )


def _warn_of_units(spec: Normalize, most: float) -> None:
    """Warn of numbers for pixels up to 255 where they end at 1, or the other way round: training would go on
    with values of another size, and say nothing."""
    if min(spec.mean) > most:
        told = f"pixels are in [0, {most:.0f}] here, so no value would be above 0."
        advice = "Divide mean and std by 255." if most == 1 else "Give mean and std in the pixels' unit."
    elif most > 1 and max(map(abs, spec.std)) < 1:
        told = "pixels are in [0, 255] after ToDtype without scale=True, and would become larger still."
        advice = "Pass scale=True to ToDtype, or leave it out, for a mean and std of pixels in [0, 1]."
    else:
        return
    warnings.warn(f"{spec}: {told} {advice}", stacklevel=2)


NORMALIZE = Operation(
    Normalize,
    _add_normalize,
    {"Normalize": lambda item: (Normalize(item.mean, item.std),)},
    makes_tensor=True,
)


# ---- Dtypes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToDtype:
    """Convert pictures to ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"`` (or torch's dtype).

    Args:
        dtype: the dtype of pictures; float16 and bfloat16 are rounded to nearest even from float32. None:
            unchanged.
        scale: divide by 255 when converting uint8 to float.
        masks: the dtype of masks, ``"int64"``, as losses want it; None: as they are stored.

    Raises:
        ValueError: the dtype is not one of these.
    """

    dtype: Any
    scale: bool = False
    masks: Any = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            set_field(self, "dtype", arguments.dtype_name("ToDtype.dtype", self.dtype))
        if self.masks is not None:
            name = str(self.masks).removeprefix("torch.")
            if name != "int64":
                raise ValueError(f"ToDtype.masks must be 'int64', or None. Found: {self.masks!r}.")
            set_field(self, "masks", name)


def _add_to_dtype(draft: Draft, spec: ToDtype, strict: bool) -> Draft:
    if spec.masks is not None:
        draft = replace(draft, plan=replace(draft.plan, mask_dtype=spec.masks))
    if spec.dtype is None:
        return draft
    plan = draft.plan
    if draft.stage < Stage.DTYPE:
        if spec.dtype == "uint8":
            return draft
        return draft.then(Stage.DTYPE, dtype=spec.dtype, scale=spec.scale)
    if spec.dtype == plan.dtype:
        return draft
    if plan.dtype != "float32" or spec.dtype == "uint8":
        raise Misplaced(f"{spec!r} cannot follow {plan.dtype}: only float32 may be converted once more.")
    return draft.then(Stage.FINAL_DTYPE, dtype=spec.dtype)


_NO_IMAGES = ("BoundingBoxes", "KeyPoints")


def _to_dtype_of_torchvision(item: Any) -> tuple[ToDtype]:
    dtypes = item.dtype
    if not isinstance(dtypes, Mapping):
        return (ToDtype(dtypes, bool(item.scale)),)
    by_name = {getattr(key, "__name__", key): dtype for key, dtype in dtypes.items()}
    others = by_name.get("others")
    images = {by_name[name] for name in ("Image", "Tensor") if name in by_name} or {others}
    if len(images) > 1:
        raise ValueError("it names different dtypes for tensors and images")
    if any(by_name.get(name, others) is not None for name in _NO_IMAGES):
        raise ValueError("it converts boxes or points")
    masks = by_name.get("Mask", others)
    return (ToDtype(images.pop(), bool(item.scale), masks),)


def _to_float32(item: Any) -> tuple[ToDtype]:
    return (ToDtype("float32", scale=True),)


TO_DTYPE = Operation(
    ToDtype,
    _add_to_dtype,
    {
        "ToTensor": _to_float32,
        "timm.data.transforms.MaybeToTensor": _to_float32,
        "ToDtype": _to_dtype_of_torchvision,
        "ConvertImageDtype": lambda item: (ToDtype(item.dtype, scale=True),),
    },
    makes_tensor=True,
)


# ---- Erasing ----------------------------------------------------------------------------------------

_MOST_RANDOM_ERASING = 255  # rectangles; the core draws separate numbers for each


@dataclass(frozen=True)
class RandomErasing:
    """Fill random rectangles of a picture, as torchvision and timm do on the normalised picture.

    Zhong et al., "Random Erasing Data Augmentation" (2017). Each rectangle gets ten tries at an area of
    ``scale`` times the picture's, divided by the number of rectangles, and a height over width uniform in
    logarithm over ``ratio``; if none fits, it is left out.

    In a transform it comes last and draws for each sample. It runs where normalisation runs: in the core, or
    on the device. In ``batch_transform`` it erases the same rectangles in whole batches. The core's noise
    comes from a table of 65,536 equally likely quantiles of the normal distribution; a batch's is torch's.

    Args:
        p: probability, in [0, 1].
        scale: least and greatest share of the area, ``0 <= least <= greatest <= 1``.
        ratio: least and greatest height over width, ``0 < least <= greatest``.
        value: a number, or three, in the units of the delivered images; ``"random"``: a standard normal
            number for each value (timm's mode ``pixel``); ``"color"``: three for each rectangle (``rand``).
        count: the number of rectangles, from 1 to 255, or ``(least, greatest)``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0
    count: int | Sequence[int] = 1

    def __post_init__(self) -> None:
        where = "RandomErasing"
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))
        low, high = arguments.floats(f"{where}.scale", self.scale, 2)
        if not 0 <= low <= high <= 1:
            raise ValueError(f"{where}.scale must be 0 <= least <= greatest <= 1. Found: {(low, high)}.")
        set_field(self, "scale", (low, high))
        low, high = arguments.floats(f"{where}.ratio", self.ratio, 2)
        if not 0 < low <= high:
            raise ValueError(f"{where}.ratio must be 0 < least <= greatest. Found: {(low, high)}.")
        set_field(self, "ratio", (low, high))
        set_field(self, "value", _values(self.value))
        set_field(self, "count", _counts(self.count))

    @property
    def planned(self) -> Erasing:
        """The arguments as the core takes them."""
        least, greatest = self.ratio
        fill = {"random": "noise", "color": "color"}.get(str(self.value), "value")
        value: Any = (0.0, 0.0, 0.0) if isinstance(self.value, str) else self.value
        scale: Any = self.scale
        count: Any = self.count
        return Erasing(self.p, scale, (math.log(least), math.log(greatest)), count, fill, value)


def _values(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("random", "color"):
            raise ValueError(
                f"RandomErasing.value must be one or three numbers, 'random' or 'color'. Found: {value!r}."
            )
        return value
    values = value if isinstance(value, Sequence) else (value,) * 3
    return arguments.floats("RandomErasing.value", values, 3)


def _counts(count: Any) -> tuple[int, int]:
    least, greatest = count if isinstance(count, Sequence) else (count, count)
    for number in (least, greatest):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"RandomErasing.count must be an int or two. Found: {count!r}.")
    if not 1 <= least <= greatest <= _MOST_RANDOM_ERASING:
        raise ValueError(
            f"RandomErasing.count must be 1 <= least <= greatest <= {_MOST_RANDOM_ERASING}. Found: {count!r}."
        )
    return least, greatest


def _add_random_erasing(draft: Draft, spec: RandomErasing, strict: bool) -> Draft:
    if draft.stage >= Stage.ERASED:
        raise misplaced(spec)
    if draft.plan.dtype == "uint8":
        fits = not isinstance(spec.value, str) and all(
            value in range(256)
            for value in spec.value  # type: ignore[union-attr]
        )
        if not fits:
            raise Misplaced(
                f"{spec!r} fills uint8 pictures with what uint8 does not hold: put ToDtype or Normalize "
                "before it."
            )
    return draft.then(Stage.ERASED, erase=spec.planned)


def _random_erasing_of_torchvision(item: Any) -> tuple[RandomErasing]:
    value = item.value
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = float(value[0])
    return (
        RandomErasing(item.p, tuple(item.scale), tuple(item.ratio), "random" if value is None else value),
    )


def _of_timm(item: Any) -> tuple[RandomErasing]:
    value = "random" if item.per_pixel else "color" if item.rand_color else 0.0
    low, high = item.log_aspect_ratio
    return (
        RandomErasing(
            item.probability,
            (item.min_area, item.max_area),
            (math.exp(low), math.exp(high)),
            value,
            (item.min_count, item.max_count),
        ),
    )


RANDOM_ERASING = Operation(
    RandomErasing,
    _add_random_erasing,
    {"RandomErasing": _random_erasing_of_torchvision, "timm.data.random_erasing.RandomErasing": _of_timm},
)
