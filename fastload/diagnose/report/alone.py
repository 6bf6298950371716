"""A loader by itself: a second one with the same arguments, run for some seconds without a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fastload.diagnose.report.history import History, Moments

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["Alone", "run_alone"]


@dataclass(frozen=True)
class Alone:
    """What a loader did without a step.

    Args:
        rate: samples per second, from the first batch on.
        batches: how many were taken.
        stats: its clocks, as :meth:`fastload.DataLoader.stats` gives them.
        moments: its clocks from moment to moment.
    """

    rate: float
    batches: int
    stats: dict[str, Any]
    moments: Moments


def run_alone(loader: DataLoader[Any], seconds: float) -> Alone:
    """Run a second loader with ``loader``'s arguments for ``seconds``.

    ``loader``, its place and torch's generators stay as they are. The second one draws a uniform order of its
    own where a sampler was given, which may not be asked twice, and writes no error log.
    """
    first, before, batches = 0.0, 0, 0
    # Worker processes of Python callables are seeded from torch's generator.
    with torch.random.fork_rng(devices=[]), type(loader)(**_arguments(loader)) as copy:
        with History(copy) as history:
            for _ in _epochs(copy):
                now = time.perf_counter()
                batches += 1
                if batches == 1:
                    first, before = now, copy.stats()["samples"]
                elif now - first >= seconds:
                    break
            spent = time.perf_counter() - first
        stats = copy.stats()
    rate = (stats["samples"] - before) / spent if batches > 1 else 0.0
    return Alone(rate, batches, stats, history.moments)


def _epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of one epoch after the other; ends after an empty one."""
    batch = empty = object()
    while True:
        for batch in loader:
            yield batch
        if batch is empty:
            return


def _arguments(loader: DataLoader[Any]) -> dict[str, Any]:
    arranged = loader._arranged
    world, seed = arranged.known()
    own: dict[str, Any] = {
        "rank": world.rank,
        "world_size": world.size,
        "process_group": None,
        "seed": seed or 0,
    }
    own |= {"dataset": loader.dataset, "generator": None, "handshake": "off", "error_log": None}
    given = {**loader._arguments, **own}
    if given["sampler"] is not None or given["batch_sampler"] is not None:
        given |= {"sampler": None, "batch_sampler": None, "shuffle": True}
        given |= {"batch_size": arranged.batch_size}
    return given
