"""A sampler's places turned into sample ids, for datasets that are a choice of others' samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastload.sampler.order import IdArray
from fastload.sampler.sampler import BatchIds, Sampler

__all__ = ["MappedSampler"]


class MappedSampler:
    """Stands in for a :class:`Sampler` over places of a dataset, and gives ids of the samples there.

    Args:
        sampler: over places.
        ids: (n,) int64, the sample id at each place.
        repeats: a sample id stands at several places. Then its draws are told apart by the place,
            unless the sampler's order already tells them apart.
    """

    def __init__(self, sampler: Sampler, ids: IdArray, repeats: bool) -> None:
        self._sampler = sampler
        self._ids = ids
        self._repeats = repeats

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __len__(self) -> int:
        return len(self._sampler)

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        """As :meth:`Sampler.batch`, in sample ids; -1: padding."""
        found = self._sampler.batch(epoch, start, step)
        padded = found.ids < 0
        places = np.where(padded, 0, found.ids)
        draws = found.draws
        if draws is None and self._repeats:
            draws = places.astype(np.uint32)
        return BatchIds(np.where(padded, np.int64(-1), self._ids[places]), draws, found.positions)

    def ids_at(self, positions: IdArray, epoch: int) -> IdArray:
        """As :meth:`Sampler.ids_at`: sample ids."""
        return self._ids[self._sampler.ids_at(positions, epoch)]

    def substitute(self, epoch: int, word: int) -> int:
        """As :meth:`Sampler.substitute`: a sample id."""
        return int(self._ids[self._sampler.substitute(epoch, word)])
