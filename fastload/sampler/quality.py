"""How well an order mixes, in numbers to compare with a uniform shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.sampler.sampler import Order, Sampler

_BATCHES = 400  # measured, spread over the epoch
_DISTANCES = 100_000  # positions


@dataclass(frozen=True)
class Quality:
    """Measures of one epoch's order: means over batches that are spread over the epoch."""

    classes: float  # distinct classes in a batch
    class_chi2: float  # Pearson's chi-square of a batch's classes over its mean under independent draws: 1
    together: float  # share of samples whose successor on disk is in the same batch
    distance: float  # mean distance between a sample's place on disk and in the epoch, over the set's length


def measure(sampler: Sampler, labels: npt.NDArray[np.int64], epoch: int = 0) -> Quality:
    """Measure ``epoch`` at the sampler's batch size.

    Args:
        sampler: rank 0's, with one process.
        labels: (n,) int64, the class of each sample.
    """
    n, total = len(labels), sampler.total(epoch)
    steps = np.unique(
        np.linspace(0, max(0, total // sampler.partition.global_batch - 1), _BATCHES).astype(int)
    )
    batches = [sampler.batch(epoch, 0, int(step)).ids for step in steps]
    probabilities = np.bincount(labels[labels >= 0]) / max(1, (labels >= 0).sum())
    classes, statistics, together = [], [], []
    for ids in batches:
        own = labels[ids]
        counts = np.bincount(own[own >= 0], minlength=len(probabilities))
        classes.append(np.count_nonzero(counts))
        expected = probabilities * len(ids)
        used = expected > 0
        degrees = max(1, np.count_nonzero(used) - 1)
        statistics.append(((counts - expected)[used] ** 2 / expected[used]).sum() / degrees)
        together.append(np.isin(ids + 1, ids).mean())
    return Quality(
        float(np.mean(classes)),
        float(np.mean(statistics)),
        float(np.mean(together)),
        _distance(sampler.order, n, total, epoch),
    )


def _distance(order: Order, n: int, total: int, epoch: int) -> float:
    positions = np.unique(np.linspace(0, total - 1, _DISTANCES).astype(np.int64))
    return float(np.abs(order.ids(positions, epoch) - positions).mean() / n)
