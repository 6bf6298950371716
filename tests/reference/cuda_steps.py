"""Training steps on a real GPU that take a random time, and look at their batch afterwards."""

from __future__ import annotations

import random
from typing import Any

import torch

from fastload import DataLoader

__all__ = ["DeviceStep", "batches_of"]


def batches_of(loader: DataLoader, epochs: int) -> list[Any]:
    """Copies of all batches of some epochs."""
    return [(images.clone(), labels.clone()) for _ in range(epochs) for images, labels in loader]


class DeviceStep:
    """Counts, on the device, the batches that differ from what they must be.

    Args:
        rng: chooses streams and delays.
        keeps: also keep some batches, and compare them at the end.
    """

    def __init__(self, rng: random.Random, keeps: bool = True) -> None:
        self._rng = rng
        self._keeps = keeps
        self._kept: list[Any] = []
        self._streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
        self._counts = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in self._streams]
        torch.cuda.synchronize()

    def any_stream(self) -> torch.cuda.Stream:
        """One of three streams."""
        return self._rng.choice(self._streams)

    def sleep(self) -> None:
        """Some of the time the current stream is busy for up to about 5 milliseconds."""
        if self._rng.random() < 0.6:
            torch.cuda._sleep(self._rng.randrange(1, 8_000_000))

    def __call__(self, images: torch.Tensor, labels: torch.Tensor, wanted: Any) -> None:
        """Kernels on the current stream."""
        self.sleep()
        count = self._counts[self._streams.index(torch.cuda.current_stream())]
        count += (images != wanted[0]).any().long() + (labels != wanted[1]).any().long()
        if self._keeps and self._rng.random() < 0.3:
            self._kept.append((images, labels, wanted))
        self.sleep()

    def wrong(self) -> int:
        """How many were wrong, when used or when kept."""
        torch.cuda.synchronize()
        late = sum(
            not (torch.equal(images, wanted[0]) and torch.equal(labels, wanted[1]))
            for images, labels, wanted in self._kept
        )
        return late + sum(int(count) for count in self._counts)
