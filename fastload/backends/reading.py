"""A packed dataset as one loader reads it: through the node's caches."""

from __future__ import annotations

from typing import Any

from fastload._native import _C
from fastload.backends.options import Options
from fastload.cache.decoded import tier_of
from fastload.cache.opening import CacheUse, PartUse, open_cache
from fastload.cache.tables import start_copies
from fastload.dataset.mixture import Packed

__all__ = ["Reading"]


class Reading:
    """Opens the caches of a dataset, and holds them.

    Args:
        dataset: what to read.
        options: the loader's: which caches.
        by_engine: an engine decodes; else pictures are decoded one by one.

    Raises:
        CacheError: an explicit ``cache`` that cannot be had.
    """

    def __init__(self, dataset: Packed, options: Options, by_engine: bool = True) -> None:
        self._own = dataset
        #: The dataset, to be read through caches of records.
        self.dataset = dataset
        #: Files of decoded pictures, one for each part of the dataset; none where records are cached.
        self.pixels: list[_C.CacheFile | None] = []
        if options.cache_decoded is None:
            self._use = open_cache(dataset.parts, options.cache)
            self.dataset = self._through_records()
            return
        tier = tier_of(options.cache_decoded)
        if by_engine:
            self._use = open_cache(dataset.parts, options.cache, tier)
        else:
            reason = "no cache: samples of different sizes are decoded one by one, for the Python callables"
            self._use = CacheUse([PartUse(None, reason) for _ in dataset.parts], tier.name)
        self.pixels = self._use.files

    def _through_records(self) -> Packed:
        cached = self._own.with_caches(self._use.files)
        for part, file in zip(cached.parts, self._use.files, strict=True):
            if file is not None:
                start_copies(file, part.folder)
        return cached

    def counts(self) -> dict[str, Any]:
        """See :meth:`fastload.cache.opening.CacheUse.stats`."""
        return self._use.stats()

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        self._use.close()
        self.dataset = self._own
