"""The decoded tier of the node cache: pictures as ``cache_decoded=SIDE`` cuts crops from them."""

from __future__ import annotations

from functools import partial

import numpy as np

from fastload._native import _C
from fastload.cache.layout import Contents
from fastload.cache.streams import ENCODED, Tier
from fastload.cache.tier import Side, bounded_sizes, decoded_bytes, decoded_side, tier_name
from fastload.dataset.decoding import decode_with_pil
from fastload.shard.dataset import PackedFiles

__all__ = ["decoded", "fill_target", "tier_of"]


def decoded(dataset: PackedFiles, side: Side) -> Contents:
    """What a cache file of the tier holds. Reads the whole index.

    Pictures whose size is not in the index (those that only Pillow can open) never have room: they are
    decoded whenever they are needed.
    """
    records = dataset.records
    lengths = decoded_bytes(records, side)
    sizes = np.stack(bounded_sizes(records["width"], records["height"], side), axis=1)
    return Contents(
        dataset.id,
        tier_name(side),
        dataset.folder,
        dataset.index.digest,
        lengths.astype(np.uint32),
        sizes=sizes.astype(np.uint16),
    )


def tier_of(side: Side) -> Tier:
    """The tier for ``cache_decoded=side``; None: records as they are."""
    if side is None:
        return ENCODED
    return Tier(
        tier_name(side),
        lambda dataset: decoded(dataset, side),
        lambda dataset: int(decoded_bytes(dataset.records, side).sum()),
    )


def fill_target(file: _C.CacheFile, side: Side, max_pixels: int = _C.MAX_PIXELS) -> _C.FillTarget:
    """What ``_C.Filler`` fills: records of ``file`` (``_C.CacheFile``), decoded if ``side`` is not None."""
    if side is None:
        return _C.CacheTarget(file)
    fallback = partial(decode_with_pil, max_pixels=max_pixels)
    return _C.PixelTarget(file, decoded_side(side), max_pixels, fallback)
