"""Numbers of any source as arrays of a field's dtype, refused where they would become others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MISSING", "as_numbers", "is_missing"]

# The quiet NaN with R's payload for "not available", 0x7A2 (of float16 0x1A2): a NaN to all arithmetic, and
# by its bits a value that is missing, not one that is not a number.
_MISSING_BITS = {"float16": 0x7FA2, "float32": 0x7FC007A2, "float64": 0x7FF80000000007A2}
#: The missing value of each dtype that has one.
MISSING = {
    name: np.array([bits], f"u{np.dtype(name).itemsize}").view(name)[0]
    for name, bits in _MISSING_BITS.items()
}


def is_missing(values: Any) -> npt.NDArray[np.bool_]:
    """Which numbers are missing ones; of dtypes without such a value none."""
    found = np.ascontiguousarray(values)
    if found.dtype.name not in _MISSING_BITS:
        return np.zeros(found.shape, np.bool_)
    bits: npt.NDArray[np.bool_] = found.view(f"u{found.dtype.itemsize}") == _MISSING_BITS[found.dtype.name]
    return bits


def as_numbers(value: Any, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """An array of ``dtype`` of equal numbers; floats are rounded to the nearest.

    Args:
        value: a number, nested sequences of them, an array or a tensor on the CPU.
        dtype: of the result.
        where: for messages, as ``"field 'area'"``.

    Raises:
        TypeError: no numbers; or fractions for a field of integers.
        ValueError: sequences of unequal lengths; numbers that ``dtype`` cannot hold.
    """
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{where} must be numbers in a regular shape. Found: {_shown(value)} ({error})."
        ) from None
    if found.size == 0:
        return np.zeros(found.shape, dtype)
    if found.dtype.kind == "f" and dtype.kind in "iu" and not hasattr(value, "dtype"):
        found = np.asarray(value, object)  # NumPy rounds integers of which some need uint64
    if found.dtype.kind == "O":  # integers beyond 64 bits among them
        found = _integers(found, value, dtype, where)
    if found.dtype.kind not in "buif":
        raise TypeError(f"{where} must be numbers ({dtype.name}). Found: {_shown(value)} ({found.dtype}).")
    if dtype.kind == "f":
        return _as_floats(found, dtype, where)
    if found.dtype.kind == "f":
        raise TypeError(f"{where} must be integers ({dtype.name}). Found: {_shown(value)} ({found.dtype}).")
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for extreme in (int(found.min()), int(found.max())):
        if not low <= extreme <= high:
            raise ValueError(f"{where} must be from {low} to {high} ({dtype.name}). Found: {extreme}.")
    return found.astype(dtype)


def _integers(found: npt.NDArray[Any], value: Any, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Integers of Python's, exactly; ``dtype``: what they are to be."""
    flat = found.ravel().tolist()
    wrong = [part for part in flat if not isinstance(part, int)]
    if wrong and all(isinstance(part, (int, float)) for part in flat):
        raise TypeError(f"{where} must be integers ({dtype.name}). Found: {_shown(value)} (float64).")
    if wrong:
        raise TypeError(f"{where} must be numbers. Found: {_shown(wrong[0])} in {_shown(value)}.")
    low, high = min(flat), max(flat)
    if low >= 0 and high < 1 << 64:
        return found.astype(np.uint64)
    if low >= -(1 << 63) and high < 1 << 63:
        return found.astype(np.int64)
    raise ValueError(f"{where} must be numbers of at most 64 bits. Found: {max(flat, key=abs)}.")


def _as_floats(found: npt.NDArray[Any], dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        rounded = found.astype(dtype)
    lost = np.isinf(rounded) & np.isfinite(found)
    if lost.any():
        raise ValueError(
            f"{where} must be from {-float(np.finfo(dtype).max):g} to {float(np.finfo(dtype).max):g} "
            f"({dtype.name}). Found: {found[lost].ravel()[0]}."
        )
    return rounded


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
