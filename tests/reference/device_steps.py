"""A training step on the simulated device: it looks at its batch some time later, and keeps some."""

from __future__ import annotations

from typing import Any

import torch
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset


def expected(dataset: PackedDataset, transform: Any = None, **options: Any) -> list[Any]:
    """Two epochs by the CPU path."""
    with DataLoader(dataset, 8, transform=transform, num_workers=1, **{"seed": 0, **options}) as loader:
        return [[(i.clone(), y.clone()) for i, y in loader] for _ in range(2)]


class Step:
    """A training step: kernels that compare the batch with what it must be, some time later."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.kept: list[Any] = []
        self.wrong: list[int] = []
        self.count = 0

    def __call__(self, images: torch.Tensor, labels: torch.Tensor, wanted: Any) -> None:
        number, self.count = self.count, self.count + 1

        def compare() -> None:
            if not (torch.equal(labels, wanted[1]) and close(images, wanted[0])):
                self.wrong.append(number)

        for _ in range(self.gpu.random.randrange(3)):
            self.gpu.kernel(lambda: None)
        self.gpu.kernel(compare)
        if self.gpu.random.random() < 0.4:
            self.kept.append((images, labels, wanted, number))

    def finish(self) -> list[int]:
        """The batches that were not what they must be: when used, or when kept until now."""
        self.gpu.synchronize()
        for images, labels, wanted, number in self.kept:
            if not (torch.equal(labels, wanted[1]) and close(images, wanted[0])):
                self.wrong.append(number)
        return self.wrong


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Within one unit of float32 at the size of the terms (|x / std| < 5)."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape or found.stride() != wanted.stride():
        return False
    return bool((found.double() - wanted.double()).abs().max() <= 2.0**-21)


def run(gpu: SimulatedGpu, loader: DataLoader, wanted: list[Any], streams: bool = True) -> list[int]:
    """Two epochs on streams that change at random; the numbers of the batches that were wrong."""
    step = Step(gpu)
    for epoch in range(2):
        iterator = iter(loader)
        for batch in wanted[epoch]:
            stream = gpu.random.choice(gpu.user_streams) if streams else gpu.current
            with gpu.using(stream):
                images, labels = next(iterator)
                step(images, labels, batch)
        assert next(iterator, None) is None
    wrong = step.finish()
    loader.close()
    assert gpu.failures == []
    assert gpu.pinned == {}
    return wrong
