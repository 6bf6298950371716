"""Cache files of coefficient records: what they have room for, and what the loader may be told of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.layout import Contents
from fastload.cache.streams import Tier
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

__all__ = ["COEFFICIENTS", "coefficient_target", "place_bytes"]

_JPEG = _C.CODECS["jpeg"][0]
_SHARE, _HEADER = 8, 768  # of a place beyond the JPEG's bytes: an eighth, and what tables take
_MOST = 2**32 - 1


def place_bytes(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
    """Bytes of each record's place, (n,): of a JPEG an eighth more than it has, of others what they have.

    How long the coefficients are is known when they are made; what does not fit stays a JPEG.

    Args:
        records: index entries (``fastload.shard.index.RECORD``).
    """
    lengths = records["length"].astype(np.uint64)
    more = np.where(records["codec"] == _JPEG, lengths // _SHARE + _HEADER, 0)
    return np.minimum(lengths + more.astype(np.uint64), _MOST).astype(np.uint32)


def _contents(dataset: PackedFiles) -> Contents:
    """What a file of them holds. Reads the whole index."""
    records = dataset.index.records().view(RECORD)[:, 0]
    lengths = place_bytes(records)
    return Contents(dataset.id, COEFFICIENTS.name, dataset.folder, dataset.index.digest, lengths)


def _most_bytes(dataset: PackedFiles) -> int:
    size: int = dataset.manifest.data_bytes
    return size + size // _SHARE + _HEADER * dataset.manifest.num_records


#: Coefficients of JPEGs, and other records as they are.
COEFFICIENTS = Tier("coefficients", _contents, _most_bytes)


def coefficient_target(file: _C.CacheFile, max_pixels: int = _C.MAX_PIXELS) -> _C.FillTarget:
    """What ``_C.Filler`` fills: JPEGs of at most ``max_pixels`` become coefficients."""
    return _C.CoefficientTarget(file, max_pixels)
