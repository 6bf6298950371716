"""Checks of the transforms' arguments: each returns the canonical value or raises with the legal range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastload.transforms.plan import Fill

MAX_SIDE = 65_500  # pixels; JPEG's own limit on a side
DTYPES = ("uint8", "float16", "bfloat16", "float32")
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")


def side(where: str, value: Any) -> int:
    """Return ``value`` as a side in pixels. Raises TypeError or ValueError."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{where} must be an int in [1, {MAX_SIDE}]. Found: {value!r}.")
    number = int(value.__index__())
    if not 1 <= number <= MAX_SIDE:
        raise ValueError(f"{where} must be in [1, {MAX_SIDE}] pixels. Found: {number}.")
    return number


def whole(where: str, value: Any, least: int, most: int) -> int:
    """Return ``value`` as an int in [least, most]. Raises TypeError or ValueError."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{where} must be an int in [{least}, {most}]. Found: {value!r}.")
    number = int(value.__index__())
    if not least <= number <= most:
        raise ValueError(f"{where} must be in [{least}, {most}]. Found: {number}.")
    return number


def pair(where: str, value: Any) -> tuple[int, int]:
    """Return ``value``, an int or one or two ints, as ``(height, width)``; one number means a square."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) not in (1, 2):
            raise ValueError(f"{where} must be an int or (height, width). Found: {value!r}.")
        return side(where, value[0]), side(where, value[-1])
    return side(where, value), side(where, value)


def floats(where: str, value: Any, count: int) -> tuple[float, ...]:
    """Return ``value`` as ``count`` finite floats."""
    try:
        numbers = tuple(float(number) for number in value)
    except (TypeError, ValueError):
        raise TypeError(f"{where} must be {count} numbers. Found: {value!r}.") from None
    if len(numbers) != count or not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"{where} must be {count} finite numbers. Found: {value!r}.")
    return numbers


def probability(where: str, value: Any) -> float:
    """Return ``value`` as a probability."""
    (number,) = floats(where, (value,), 1)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{where} must be in [0, 1]. Found: {value!r}.")
    return number


def spread(where: str, value: Any, center: float, low: float, high: float) -> tuple[float, float]:
    """Return (least, greatest) within [low, high] from such a pair or a distance from ``center``."""
    if isinstance(value, Sequence):
        least, greatest = floats(where, value, 2)
    else:
        (reach,) = floats(where, (value,), 1)
        if reach < 0:
            raise ValueError(f"{where} must be at least 0. Found: {value!r}.")
        least, greatest = max(low, center - reach), center + reach
    if not low <= least <= greatest <= high:
        raise ValueError(f"{where} must be in [{low:g}, {high:g}]. Found: {(least, greatest)}.")
    return least, greatest


def interpolation_name(where: str, value: Any) -> str:
    """Return a filter's name; torchvision's InterpolationMode is accepted by its value."""
    name = getattr(value, "value", value)
    if name not in INTERPOLATIONS:
        raise ValueError(f"{where} must be one of {', '.join(INTERPOLATIONS)}. Found: {value!r}.")
    return str(name)


def span(where: str, value: Any) -> tuple[float, float]:
    """Return a range ``(low, high)``; one number means ``(-number, number)``."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < math.inf:
            raise ValueError(f"{where} must be at least 0 if it is one number. Found: {value!r}.")
        return -float(value), float(value)
    low, high = floats(where, value, 2)
    return ordered(where, low, high)


def ordered(where: str, low: float, high: float) -> tuple[float, float]:
    """Return the range; raise ValueError if its end is below its start."""
    if low > high:
        raise ValueError(f"{where} must be (low, high) with low <= high. Found: {(low, high)!r}.")
    return low, high


# The filters of operations that move pixels: names and Pillow's numbers, in the core's order (warp.h).
_FILTERS = (("nearest", 0), ("bilinear", 2), ("bicubic", 3))


def filter_name(where: str, value: Any) -> str:
    """Return the filter of an operation that moves pixels, from its name, torchvision's InterpolationMode,
    or Pillow's number."""
    filter = getattr(value, "value", value)
    for names in _FILTERS:
        if filter in names and not isinstance(filter, bool):
            return names[0]
    legal = ", ".join(name for name, _ in _FILTERS)
    raise ValueError(f"{where} must be one of {legal}. Found: {value!r}.")


def filter_and_fill(filter: str, fill: tuple[int, int, int]) -> tuple[float, ...]:
    """Return the last numbers of an operation that moves pixels, from checked arguments."""
    return float([name for name, _ in _FILTERS].index(filter)), *map(float, fill)


def colour(where: str, value: Any) -> tuple[int, int, int]:
    """Return red, green and blue of the surroundings of a picture, from one number for all, or three, which
    are truncated, as torchvision does. None means 0."""
    values = value if isinstance(value, Sequence) else (0 if value is None else value,)
    numbers = floats(where, values, len(values))
    if len(numbers) not in (1, 3) or not all(0 <= number < 256 for number in numbers):
        raise ValueError(f"{where} must be a number in [0, 255], or three. Found: {value!r}.")
    red, green, blue = (int(number) for number in (numbers * 3 if len(numbers) == 1 else numbers))
    return red, green, blue


def fill_of(where: str, value: Any) -> Fill:
    """Return the fill around a picture, from a number for all channels, one for each, or ``{"image": of
    images, "mask": of masks}``. Numbers are truncated, as torchvision does. None means 0."""
    fills = dict(value) if isinstance(value, Mapping) else {"image": value}
    if unknown := sorted(set(fills) - {"image", "mask"}):
        raise ValueError(f"{where} has keys image and mask. Found: {', '.join(map(str, unknown))}.")
    image, mask = fills.get("image"), fills.get("mask")
    values = image if isinstance(image, Sequence) else (0 if image is None else image,)
    numbers = [int(number) for number in floats(f"{where} of images", values, len(values))]
    if not 1 <= len(numbers) <= 4 or not all(0 <= number <= 65_535 for number in numbers):
        raise ValueError(
            f"{where} must be a number in [0, 65535], or one for each channel. Found: {value!r}."
        )
    return Fill(tuple(numbers), None if mask is None else whole(f"{where} of masks", mask, 0, 65_535))


def dtype_name(where: str, value: Any) -> str:
    """Return a dtype's name; a torch.dtype is accepted without importing torch."""
    name = str(value).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"{where} must be one of {', '.join(DTYPES)}. Found: {value!r}.")
    return name


def require_antialias(where: str, value: Any) -> None:
    """Raise ValueError for anything but an antialiased resize."""
    if value is not True:
        raise ValueError(
            f"{where} must be True: only the antialiased resize, equal to Pillow's, exists here. "
            f"Found: {value!r}. Leave it out, or resize in a callable of your own."
        )
