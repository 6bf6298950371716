"""Sample ids: order, partition among ranks, and the object that joins them."""

from __future__ import annotations

from fastload.sampler.partition import Partition
from fastload.sampler.sampler import BatchIds, BatchSampler, Sampler, make_sampler

__all__ = ["BatchIds", "BatchSampler", "Partition", "Sampler", "make_sampler"]
