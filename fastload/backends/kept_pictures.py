"""Pictures of mosaics that stay in memory for the samples that follow: how many bytes of them."""

from __future__ import annotations

from fastload.backends.options import Options
from fastload.backends.pairs import record_streams
from fastload.dataset.mixture import Packed
from fastload.sampler import Sampler
from fastload.sampler.partners import reach
from fastload.transforms.plan import MosaicUse, Plan

__all__ = ["kept_bytes", "mosaic_bytes"]

#: Bytes at most, of one loader.
MOST_KEPT = 512 << 20


def kept_bytes(dataset: Packed, use: MosaicUse, sampler: Sampler, options: Options) -> int:
    """For the pictures among which a rank's samples find their others, three quarters of a square each."""
    masks = len(record_streams(dataset, options.fields)) - 1
    return min(MOST_KEPT, reach(sampler) * use.size**2 * (3 + masks) * 3 // 4)


def mosaic_bytes(dataset: Packed, plan: Plan, sampler: Sampler, options: Options, threads: int) -> int:
    """Bytes at most for putting samples together: pictures that are kept, and what each thread works in.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        sampler: the order of samples.
        options: the loader's.
        threads: that decode, at most.
    """
    uses = [one.mosaic for _, one in plan.scheduled or ((0, plan),)]
    return max(
        (_bytes_of(dataset, use, sampler, options, threads) for use in uses if use is not None), default=0
    )


def _bytes_of(dataset: Packed, use: MosaicUse, sampler: Sampler, options: Options, threads: int) -> int:
    # A canvas of two by two, the one or two that it becomes, and a picture on its way to those that are kept.
    squares = 4 + (2 if use.mixup else 1) + 1
    return kept_bytes(dataset, use, sampler, options) + threads * squares * 3 * use.size**2
