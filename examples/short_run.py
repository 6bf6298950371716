"""What most programs of this folder share: the command line, and a loop that trains some steps."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch

import fastload

__all__ = ["train"]

Loss = Callable[[torch.nn.Module, Any, torch.device], torch.Tensor]


def train(
    description: str | None,
    options: Callable[[fastload.PackedDataset], dict[str, Any]],
    model: Callable[[fastload.PackedDataset], torch.nn.Module],
    loss: Loss,
    arguments: Sequence[str] | None = None,
) -> None:
    """Train some steps on a packed folder, and print the loss of each.

    Args:
        description: of the task, for ``--help``.
        options: from the dataset, which knows its fields, the loader's: transform, collate and so on.
        model: from the dataset, which knows its classes, an untrained model.
        loss: from the model, a batch, and the device it is to go to.
        arguments: the command line's; None: those that the program was called with.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", help="made by 'fastload pack'")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3, help="the learning rate")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    device = torch.device(given.device)
    common: dict[str, Any] = {"shuffle": True, "drop_last": True, "seed": 0}
    dataset = fastload.PackedDataset(given.folder)
    with fastload.DataLoader(given.folder, given.batch_size, **common, **options(dataset)) as loader:
        print(loader.explain())
        network = model(dataset).to(device).train()
        trained = [one for one in network.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, given.rate)
        batches = endless(loader)
        for step in range(given.steps):
            found = loss(network, next(batches), device)
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
            print(f"step {step + 1}: loss {float(found.detach()):.3f}", flush=True)


def endless(loader: Any) -> Any:
    """Batches of one epoch after the other."""
    if not len(loader):
        raise SystemExit("The folder has fewer samples than a batch: pass a smaller --batch-size.")
    while True:
        yield from loader
