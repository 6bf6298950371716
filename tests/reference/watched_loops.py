"""Loops whose times are known: a clock that only data and steps move, counters that follow it, datasets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fastload.diagnose.usage import Usage

__all__ = ["Busy", "Counting", "FakeClock", "FakeMeter", "OwnNext", "Slow", "Stream"]


class FakeClock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds


class FakeMeter:
    """A machine on which the process has half a CPU, its workers two, and the disk gives 1000 bytes/s."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.reads = 0
        self.rest_from = float("inf")  # when the workers have no more to do

    def read(self, workers: Iterable[int] = ()) -> Usage:
        """Now."""
        self.reads += 1
        now = self.clock.now
        return Usage(
            when=now,
            process_cpu=now / 2,
            our_cpu=0.0,
            workers_cpu=2 * min(now, self.rest_from),
            read_bytes=int(1000 * now),
        )

    def memory(self, pids: Iterable[int]) -> dict[int, tuple[int, int]]:
        """No worker copies what it shares."""
        return dict.fromkeys(pids, (0, 0))


class Slow(Dataset[Any]):
    """Each sample takes 0.25 s of ``clock``."""

    def __init__(self, samples: int, clock: FakeClock) -> None:
        self.samples = samples
        self.clock = clock

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.clock.sleep(0.25)
        return torch.zeros(3, 4, 4), index


class Busy(Dataset[Any]):
    """Each sample takes ``seconds`` of a real CPU."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.samples = samples
        self.seconds = seconds

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return torch.zeros(3, 4, 4), index


class Stream(IterableDataset[Any]):
    """Numbers."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.samples))


class OwnNext(DataLoader[Any]):
    """Somebody's loader whose iteration is a generator around torch's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch, "theirs"


class Counting(Dataset[Any]):
    """Samples that take a while in pure Python."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        end = time.thread_time() + 0.04
        while time.thread_time() < end:
            sum(number for number in range(200))
        return torch.zeros(2)
