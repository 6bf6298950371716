"""Which samples a run has seen: a line of JSON for each batch of each rank, before it is trained on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from training.world import World, sum_over_ranks

__all__ = ["Trace"]


class Trace:
    """One file for each start and rank: ``START-rankRANK.jsonl``, where later starts have higher numbers.

    The first line has rank, world size and process id, the others epoch, step and the batch's labels. A step
    that is in a checkpoint was written by all ranks, because all of them took part in its gradients.
    The step's samples are those of the last start that has it: what a start did after the last
    checkpoint is done again by the next one.

    Args:
        folder: made if it does not exist.
        world: all its ranks must make one.
    """

    def __init__(self, folder: Path, world: World) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = torch.tensor(time.time_ns() if world.is_first else 0, device=world.device)
        start = int(sum_over_ranks(world, now))
        self._path = folder / f"{start}-rank{world.rank}.jsonl"
        self._write({"rank": world.rank, "world_size": world.size, "pid": os.getpid()})

    def batches(
        self, loader: Iterable[tuple[torch.Tensor, torch.Tensor]], epoch: int, first: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The loader's batches, noted as steps from ``first`` on."""
        for step, (images, labels) in enumerate(loader, first):
            self._write({"epoch": epoch, "step": step, "labels": labels.tolist()})
            yield images, labels

    def _write(self, facts: dict[str, object]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
