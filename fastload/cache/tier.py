"""The decoded tier: pictures scaled to a longest side before crops are cut from them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C

__all__ = ["FULL", "bounded_sizes", "check_decoded", "decoded_bytes", "decoded_side", "tier_name"]

FULL = "full"
_LONGEST = 65_500  # pixels; no decoder takes a longer side

Side: TypeAlias = int | str | None  # pixels, FULL, or no such tier


def check_decoded(side: Any) -> None:
    """Refuse what ``cache_decoded`` cannot be.

    Raises:
        TypeError, ValueError: neither None, "full" nor an integer in [1, 65500].
    """
    if side is None or side == FULL:
        return
    found = f"Found: {side!r}."
    if isinstance(side, bool) or not isinstance(side, (int, np.integer)):
        raise TypeError(f"cache_decoded must be a number of pixels, {FULL!r} or None. {found}")
    if not 1 <= side <= _LONGEST:
        raise ValueError(f"cache_decoded must be 1 to {_LONGEST} pixels, {FULL!r} or None. {found}")


def decoded_side(side: Side) -> int:
    """What ``_C.Engine`` calls ``decoded_side``: pixels; 0 for None."""
    if side is None:
        return 0
    return int(_C.UNBOUNDED) if side == FULL else int(side)


def tier_name(side: Side) -> str:
    """The cache's tier: "encoded", "decoded-full", "decoded-256"..."""
    return "encoded" if side is None else f"decoded-{side}"


def bounded_sizes(
    widths: npt.ArrayLike, heights: npt.ArrayLike, side: Side
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Widths and heights scaled so that the longer side is at most ``side``, as ``pack --max-side`` does.

    The shorter side is rounded, to even where it lies halfway, and at least 1. Sizes of 0 (not known) stay 0.
    """
    width, height = np.asarray(widths, np.int64), np.asarray(heights, np.int64)
    limit = decoded_side(side)
    if limit == 0:
        return width, height
    across, down = (np.ascontiguousarray(sides, np.uint32).reshape(-1) for sides in (width, height))
    sizes = _C.bounded_sizes(across, down, limit).astype(np.int64)
    return sizes[:, 0].reshape(width.shape), sizes[:, 1].reshape(height.shape)


def decoded_bytes(records: npt.NDArray[np.void], side: Side) -> npt.NDArray[np.int64]:
    """Bytes of each record's pixels in the tier, (n,); 0: no room, because its size is not known.

    Args:
        records: index entries (``fastload.shard.index.RECORD``).
        side: ``cache_decoded``, not None.
    """
    width, height = bounded_sizes(records["width"], records["height"], side)
    size = 3 * width * height
    return np.where(size < 2**32, size, 0)
