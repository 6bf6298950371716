"""Sample ids: order, partition among ranks, and the object that joins them."""

from __future__ import annotations

from fastload.sampler.block import BlockOrder, BlockSampler, default_blocks, order_name
from fastload.sampler.changing import ChangingOrder, LeftOutOrder, whole_order
from fastload.sampler.keyed import KeyedSampler, RepeatedSampler, SubsetSampler, WeightedSampler
from fastload.sampler.order import Partition
from fastload.sampler.sampler import BatchIds, Sampler, check_begun, check_position, make_sampler
from fastload.sampler.sticky import StickyOrder, block_sampler

__all__ = [
    "BatchIds",
    "BlockOrder",
    "BlockSampler",
    "ChangingOrder",
    "KeyedSampler",
    "LeftOutOrder",
    "Partition",
    "RepeatedSampler",
    "Sampler",
    "StickyOrder",
    "SubsetSampler",
    "WeightedSampler",
    "block_sampler",
    "check_begun",
    "check_position",
    "default_blocks",
    "make_sampler",
    "order_name",
    "whole_order",
]
