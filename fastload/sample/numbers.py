"""Numbers of any source as arrays of a field's dtype, refused where they would become others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_numbers"]


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
    if found.dtype.kind == "O":  # integers beyond 64 bits among them
        found = _integers(found, value, where)
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


def _integers(found: npt.NDArray[Any], value: Any, where: str) -> npt.NDArray[Any]:
    flat = found.ravel().tolist()
    whole = [isinstance(part, int) for part in flat]
    if not all(whole):
        raise TypeError(
            f"{where} must be numbers. Found: {_shown(flat[whole.index(False)])} in {_shown(value)}."
        )
    extreme = max(flat, key=abs)
    raise ValueError(f"{where} must be numbers of at most 64 bits. Found: {extreme}.")


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
