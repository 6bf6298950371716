"""The two loaders of a run, by fastload or by torch: random crops to train, central ones to validate."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from training.world import World

__all__ = ["Data", "Loader", "open_data", "usable_cpus"]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Loader(Protocol):
    """What the training loop needs of a loader."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


@dataclass
class Data:
    """Both loaders and how many classes there are. ``val`` is None where the folder has no ``val``."""

    train: Loader
    val: Loader | None
    classes: int

    def close(self) -> None:
        """Close the loaders."""
        self.train.close()
        if self.val is not None:
            self.val.close()


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def open_data(options: argparse.Namespace, world: World) -> Data:
    """The loaders for ``options.data``, which has ``train`` and usually ``val`` in it."""
    folder: Path = options.data
    if not (folder / "train").is_dir():
        raise FileNotFoundError(f"{folder} has no folder 'train' in it; it needs one, and usually 'val'.")
    opener = open_fastload if options.loader == "fastload" else open_torch
    train, classes = opener(folder / "train", options, world, True)
    val = opener(folder / "val", options, world, False)[0] if (folder / "val").is_dir() else None
    if len(train) == 0:
        raise ValueError(
            f"{folder / 'train'} has fewer images than a batch on every rank "
            f"({options.batch_size} x {world.size}). Use a smaller --batch-size."
        )
    return Data(train, val, classes)


def thread_count(options: argparse.Namespace, world: World) -> int:
    """``--threads``, or this process's share of the machine."""
    if options.threads is not None:
        return int(options.threads)
    return max(1, usable_cpus() // world.local_size)


def open_fastload(folder: Path, options: argparse.Namespace, world: World, train: bool) -> tuple[Loader, int]:
    """A fastload.DataLoader over a packed folder, and the number of classes."""
    from fastload import DataLoader
    from fastload import transforms as T

    if train:
        steps = [T.RandomResizedCrop(options.size), T.RandomHorizontalFlip()]
    else:
        steps = [T.Resize(options.resize), T.CenterCrop(options.size)]
    loader = DataLoader(
        folder,
        batch_size=options.batch_size,
        shuffle=train,
        drop_last=train,
        num_workers=thread_count(options, world),
        seed=options.seed,
        transform=T.Compose([*steps, T.Normalize(mean=MEAN, std=STD)]),
        device=world.device,
    )
    dataset: Any = loader.dataset
    return loader, len(dataset.classes)


def open_torch(folder: Path, options: argparse.Namespace, world: World, train: bool) -> tuple[Loader, int]:
    """torch's DataLoader with Pillow over an image folder, and the number of classes."""
    from training import torch_baseline as baseline

    if train:
        transform: baseline.Transform = baseline.train_transform(options.size, MEAN, STD)
    else:
        transform = baseline.eval_transform(options.resize, options.size, MEAN, STD)
    dataset = baseline.ImageFolder(folder, transform)
    batches = baseline.EpochBatches(len(dataset), options.batch_size, train, options.seed, world)
    return baseline.TorchLoader(dataset, batches, thread_count(options, world)), len(dataset.classes)
