"""A packed dataset as one loader reads it: through the node's caches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastload._native import _C
from fastload.backends.options import Options
from fastload.backends.pairs import record_streams
from fastload.cache.decoded import tier_of
from fastload.cache.opening import CacheUse, files_there, no_cache, open_cache
from fastload.cache.streams import Streams, kept_of
from fastload.cache.tables import start_copies
from fastload.dataset.mixture import Packed

if TYPE_CHECKING:  # most have none
    from fastload.cache.disk import DiskUse
    from fastload.cache.format import Choice

__all__ = ["Reading"]

_log = logging.getLogger("fastload")


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
        #: Files of decoded pictures or of coefficients, one for each part of the dataset; none where records
        #: are cached as they are.
        self.pixels: list[_C.CacheFile | None] = []
        streams = record_streams(dataset, options.fields)
        #: The tiers below memory; None: there are none.
        self.disk: DiskUse | None = None
        if options.cache.disk is not None:
            from fastload.cache.disk import open_disk

            self.disk = open_disk(dataset.parts, options.cache.disk, streams)
        self._choice: Choice | None = None
        self._use: CacheUse
        if options.cache_decoded is None:
            if options.cache_format != "jpeg" and self._open_coefficients(options, streams, by_engine):
                # Of records that lie in memory as they are, coefficients are made without reading the set.
                self.dataset = self._through_records(streams, files_there(dataset.parts, options.cache))
                self.pixels = self._use.of(None)
                return
            self._use = open_cache(dataset.parts, options.cache, streams=streams)
            self.dataset = self._through_records(streams, self._use.of(None))
            return
        tier = tier_of(options.cache_decoded)
        if by_engine:
            self._use = open_cache(dataset.parts, options.cache, tier, streams)
            self.dataset = self._through_records(streams, [])
        else:
            reason = "no cache: samples of different sizes are decoded one by one, for the Python callables"
            self._use = no_cache(kept_of(dataset.parts, streams), reason, tier)
            if self.disk is not None:
                self.dataset = self._through_records((), [])
        self.pixels = self._use.of(None)

    @property
    def keeps_coefficients(self) -> bool:
        """Whether ``pixels`` are files of coefficients."""
        return self._choice is not None and self._choice.format == "coefficients"

    def _open_coefficients(self, options: Options, streams: Streams, by_engine: bool) -> bool:
        """Whether the cache keeps coefficients; opens it then. Where no file can be had, it keeps JPEGs: a
        file of those may be there."""
        from fastload.cache.coefficients import COEFFICIENTS
        from fastload.cache.format import Choice, choose

        parts, why_not = self._own.parts, ""
        if not by_engine:
            why_not = "samples of different sizes are decoded one by one, for Python callables"
        elif options.backend != "native":
            why_not = f"backend={options.backend!r} decodes JPEGs"
        elif None not in streams:
            why_not = "the loader reads no pictures of the index"
        self._choice = choose(options.cache_format, parts, options.cache, why_not)
        kept = self._choice.format == "coefficients"
        if kept:
            self._use = open_cache(parts, options.cache, COEFFICIENTS, streams)
            kept = any(file is not None for file in self._use.of(None))
            if not kept:
                self._choice = Choice("jpeg", self._use.stats()["reason"], self._choice.facts)
                self._use.close()
        chosen = self._choice
        _log.info("cache_format=%r keeps %s: %s", options.cache_format, chosen.format, chosen.reason)
        return kept

    def _through_records(self, streams: Streams, first: Sequence[_C.CacheFile | None]) -> Packed:
        """``first``: the files of the index's records, for each part of the dataset; none: []."""
        parts = self._own.parts
        fields: list[dict[str, _C.CacheFile]] = [{} for _ in parts]
        for stream in streams:
            for held, file in zip(fields, self._use.of(stream), strict=True):
                if stream is not None and file is not None:
                    held[stream] = file
        tiers = self.disk.of(parts) if self.disk is not None else [{} for _ in parts]
        cached = self._own.with_caches(first or [None] * len(parts), fields, tiers)
        for part, file in zip(cached.parts, first, strict=False):
            if file is not None:
                start_copies(file, part.folder, index=part.manifest.index_name)
        return cached

    def counts(self) -> dict[str, Any]:
        """See :meth:`fastload.cache.opening.CacheUse.stats`."""
        found = self._use.stats()
        if self._choice is not None:
            kept, reason, facts = self._choice.format, self._choice.reason, self._choice.facts
            found = {**found, "format": kept, "format_reason": reason, "format_facts": facts}
        return found if self.disk is None else {**found, "disk": self.disk.stats()}

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        self._use.close()
        if self.disk is not None:
            self.disk.close()
        self.dataset = self._own
