"""What the recipes of this folder share: the command line, and a few batches, timed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import fastload

__all__ = ["run"]

Shown = Callable[[Any], dict[str, torch.Tensor]]


def run(description: str, transform: Any, shown: Shown, arguments: Sequence[str] | None = None) -> None:
    """Read batches of a packed folder, and say what they are and how fast they came.

    Args:
        description: of the recipe, for ``--help``.
        transform: the loader's.
        shown: from a batch what a model gets of it, by name.
        arguments: the command line's; None: those that the program was called with.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", help="made by 'fastload pack'")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--batches", type=int, default=20, help="to time, after the first one")
    parser.add_argument("--device", default=None, help="such as cuda")
    given = parser.parse_args(arguments)
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "seed": 0, "device": given.device}
    with fastload.DataLoader(given.folder, given.batch_size, transform=transform, **options) as loader:
        print(loader.explain())
        batches = endless(loader)
        for name, tensor in shown(next(batches)).items():
            print(f"{name}: {tuple(tensor.shape)} {tensor.dtype}")
        began = time.perf_counter()
        for _ in range(given.batches):
            shown(next(batches))
        seconds = time.perf_counter() - began
    print(f"{given.batches * given.batch_size / seconds:.0f} images/s")


def endless(loader: Any) -> Any:
    """Batches of one epoch after the other."""
    if not len(loader):
        raise SystemExit("The folder has fewer samples than a batch: pass a smaller --batch-size.")
    while True:
        yield from loader
