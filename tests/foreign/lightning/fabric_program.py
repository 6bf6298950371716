"""Trains with Lightning Fabric: fabric_program.py STRATEGY DEVICES PACKED OUT."""

from __future__ import annotations

import faulthandler
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from numbered_set import SIDE, NumberedPictures, loss_of, tiny_model, weights_of, write_result

import fastload
from fastload import transforms as T

STRATEGY, DEVICES, PACKED, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
AUGMENTED = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])


class Run:
    """A model, an optimizer and a loader in Fabric's hands."""

    def __init__(self, fabric: L.Fabric, kind: str) -> None:
        self.fabric = fabric
        model = tiny_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        if kind == "torch":
            self.given = torch.utils.data.DataLoader(NumberedPictures(), 4, shuffle=True)
        else:
            self.given = fastload.DataLoader(PACKED, 4, shuffle=True, transform=AUGMENTED, num_workers=2)
        self.loader = fabric.setup_dataloaders(self.given)
        self.epochs: list[list[list[int]]] = []
        self.steps = 0

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint has; Fabric takes the loader's state as it takes the model's."""
        return {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}

    def epoch(self, stop: int | None = None) -> None:
        """One pass; with ``stop`` a checkpoint is saved after that batch, and the pass left."""
        self.epochs.append([])
        for step, (images, labels) in enumerate(self.loader):
            self.optimizer.zero_grad()
            self.fabric.backward(loss_of(self.model(images), labels))
            self.optimizer.step()
            self.steps += 1
            self.epochs[-1].append(labels.tolist())
            if step == stop:
                self.fabric.save(OUT / "middle.ckpt", self.state)
                return

    def result(self) -> dict[str, Any]:
        """What the test compares."""
        found: dict[str, Any] = {"epochs": self.epochs, "steps": self.steps}
        found["weights"] = weights_of(self.model.module)
        if isinstance(self.given, fastload.DataLoader):
            stats = self.given.stats()
            found["batches"] = stats["data_wait"]["count"]
            found["decoded"] = stats["stages"]["decode"]["count"]
        return found


def train(fabric: L.Fabric) -> None:
    """Uninterrupted, interrupted and resumed, and torch's."""
    results: dict[str, Any] = {}
    for kind in ("torch", "packed"):
        fabric.seed_everything(3)
        run = Run(fabric, kind)
        for _ in range(4):
            run.epoch()
        results[kind] = run.result()
    fabric.seed_everything(3)
    stopped = Run(fabric, "packed")
    for stop in (None, None, 3):
        stopped.epoch(stop)
    results["stopped"] = stopped.result()
    fabric.seed_everything(4)  # what was saved decides
    resumed = Run(fabric, "packed")
    fabric.load(OUT / "middle.ckpt", resumed.state)
    for _ in range(2):
        resumed.epoch()
    results["resumed"] = resumed.result()
    write_result(OUT, fabric.global_rank, results)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = L.Fabric(accelerator="cpu", devices=DEVICES, strategy=STRATEGY)
    if "spawn" in STRATEGY:
        made.launch(train)
    else:
        made.launch()
        train(made)
