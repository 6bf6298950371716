"""The other forms in which the node cache keeps pictures: coefficients, and decoded and scaled pixels."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.layout import Contents
from fastload.cache.opening import ENCODED, Tier
from fastload.dataset.decoding import decode_with_pil
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

# ---- The decoded tier: pictures scaled to a longest side before crops are cut from them ----

FULL = "full"
_LONGEST = 65_500  # pixels; no decoder takes a longer side

Side: TypeAlias = int | str | None  # pixels, FULL, or no such tier


def check_decoded(side: Any) -> None:
    """Raise if ``Cache.decoded`` is invalid.

    Raises:
        TypeError, ValueError: neither None, "full" nor an integer in [1, 65500].
    """
    if side is None or side == FULL:
        return
    found = f"Found: {side!r}."
    if isinstance(side, bool) or not isinstance(side, (int, np.integer)):
        raise TypeError(f"Cache.decoded must be a number of pixels, {FULL!r} or None. {found}")
    if not 1 <= side <= _LONGEST:
        raise ValueError(f"Cache.decoded must be 1 to {_LONGEST} pixels, {FULL!r} or None. {found}")


def decoded_side(side: Side) -> int:
    """Return ``decoded_side`` of ``_C.Engine``: pixels; 0 for None."""
    if side is None:
        return 0
    return int(_C.UNBOUNDED) if side == FULL else int(side)


def tier_name(side: Side) -> str:
    """Return the cache's tier: "encoded", "decoded-full", "decoded-256"..."""
    return "encoded" if side is None else f"decoded-{side}"


def bounded_sizes(
    widths: npt.ArrayLike, heights: npt.ArrayLike, side: Side
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Scale widths and heights so that the longer side is at most ``side``, as ``pack --max-side`` does.

    The shorter side is rounded, halves to even, and at least 1. Sizes of 0 (not known) stay 0.
    """
    width, height = np.asarray(widths, np.int64), np.asarray(heights, np.int64)
    limit = decoded_side(side)
    if limit == 0:
        return width, height
    across, down = (np.ascontiguousarray(sides, np.uint32).reshape(-1) for sides in (width, height))
    sizes = _C.bounded_sizes(across, down, limit).astype(np.int64)
    return sizes[:, 0].reshape(width.shape), sizes[:, 1].reshape(height.shape)


def decoded_bytes(records: npt.NDArray[np.void], side: Side) -> npt.NDArray[np.int64]:
    """Return the bytes of each record's pixels in the tier, (n,); 0: no room, because its size is not known.

    Args:
        records: index entries (``fastload.shard.index.RECORD``).
        side: ``Cache.decoded``, not None.
    """
    width, height = bounded_sizes(records["width"], records["height"], side)
    size = 3 * width * height
    return np.where(size < 2**32, size, 0)


# ---- Cache files of the decoded tier ----


def decoded(dataset: PackedFiles, side: Side) -> Contents:
    """Return the contents of a cache file of the tier. Reads the whole index.

    Pictures whose size is not in the index (those that only Pillow can open) never have room: they are
    decoded whenever they are needed.
    """
    records = dataset.all_records
    lengths = decoded_bytes(records, side)
    sizes = np.stack(bounded_sizes(records["width"], records["height"], side), axis=1)
    return Contents(
        dataset.manifest.seal,
        tier_name(side),
        dataset.folder,
        dataset.index.digest,
        lengths.astype(np.uint32),
        sizes=sizes.astype(np.uint16),
    )


def tier_of(side: Side) -> Tier:
    """Return the tier for ``Cache(decoded=side)``; None: records as they are."""
    if side is None:
        return ENCODED
    return Tier(
        tier_name(side),
        lambda dataset: decoded(dataset, side),
        lambda dataset: int(decoded_bytes(dataset.all_records, side).sum()),
    )


def fill_target(
    file: _C.CacheFile, side: Side, max_pixels: int = _C.MAX_PIXELS, shown: tuple[bool, bool] = (False, False)
) -> _C.FillTarget:
    """Return what ``_C.Filler`` fills: the records of ``file``, decoded unless ``side`` is None.

    Args:
        file: the cache file.
        side: ``Cache.decoded``.
        max_pixels: of a picture.
        shown: the set's; see :attr:`PackedFiles.shown`.
    """
    if side is None:
        return _C.CacheTarget(file)
    fallback = partial(decode_with_pil, max_pixels=max_pixels)
    return _C.PixelTarget(file, decoded_side(side), max_pixels, fallback, shown)


# ---- Cache files of coefficient records ----

_JPEG = _C.CODECS["jpeg"][0]
_SHARE, _HEADER = 8, 768  # of a place beyond the JPEG's bytes: an eighth, and room for tables
_MOST = 2**32 - 1


def place_bytes(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
    """Return the bytes of each record's place, (n,): an eighth more than a JPEG has, exactly those of others.

    The coefficients' length is known only once they are made; those that do not fit stay JPEGs.

    Args:
        records: index entries (``fastload.shard.index.RECORD``).
    """
    lengths = records["length"].astype(np.uint64)
    more = np.where(records["codec"] == _JPEG, lengths // _SHARE + _HEADER, 0)
    return np.minimum(lengths + more.astype(np.uint64), _MOST).astype(np.uint32)


def _contents(dataset: PackedFiles) -> Contents:
    """Return the contents of a file of them. Reads the whole index."""
    records = dataset.index.records().view(RECORD)[:, 0]
    lengths = place_bytes(records)
    return Contents(dataset.manifest.seal, COEFFICIENTS.name, dataset.folder, dataset.index.digest, lengths)


def _most_bytes(dataset: PackedFiles) -> int:
    size: int = dataset.manifest.data_bytes
    return size + size // _SHARE + _HEADER * dataset.manifest.num_records


#: Coefficients of JPEGs, and other records as they are.
COEFFICIENTS = Tier("coefficients", _contents, _most_bytes)


def coefficient_target(
    file: _C.CacheFile, max_pixels: int = _C.MAX_PIXELS, shown: tuple[bool, bool] = (False, False)
) -> _C.FillTarget:
    """Return what ``_C.Filler`` fills: JPEGs of at most ``max_pixels`` become coefficients, but not those
    that are turned; ``shown`` as in :func:`fill_target`."""
    return _C.CoefficientTarget(file, max_pixels, shown)
