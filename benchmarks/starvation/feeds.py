"""What feeds a training loop in bench_starvation.py and others: endless batches, by name.

``images`` float32 (batch, 3, size, size), normalised, and ``labels`` int64, both where the loader leaves
them: on the device where it puts them there, else in (pinned) host memory.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from loaders.jobs import MEAN, STD

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

__all__ = ["FEEDS", "Feed", "Work", "reason_to_skip"]

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Work:
    """What is to be fed."""

    images: Path  # class folders with image files
    packed: Path  # the same, packed
    batch: int
    size: int  # pixels a side of the crops
    threads: int  # of the loader, or its worker processes
    device: str  # "cuda" or "cpu"


@dataclass(frozen=True)
class Feed:
    """``open`` gives the batches; ``ahead`` how many of them may lie ready when nobody takes any."""

    open: Callable[[Work], Iterator[Batch]]
    ahead: Callable[[Work], int]


def synthetic(work: Work) -> Iterator[Batch]:
    """Random pixels that already are on the device: what training can reach at most."""
    generator = torch.Generator(work.device).manual_seed(0)
    shape = (work.batch, 3, work.size, work.size)
    batches = []
    for _ in range(2):
        images = torch.randn(shape, generator=generator, device=work.device)
        labels = torch.randint(10, (work.batch,), generator=generator, device=work.device)
        batches.append((images.contiguous(memory_format=torch.channels_last), labels))
    while True:
        yield from batches


def parameters() -> set[str]:
    """Names of the parameters of this fastload's DataLoader."""
    from fastload import DataLoader

    return set(inspect.signature(DataLoader.__init__).parameters)


def fastload_loader(work: Work, **options: Any) -> Any:
    """fastload.DataLoader with the training transforms."""
    from fastload import DataLoader
    from fastload import transforms as T

    steps = [T.RandomResizedCrop(work.size), T.RandomHorizontalFlip(), T.Normalize(mean=MEAN, std=STD)]
    return DataLoader(
        work.packed,
        batch_size=work.batch,
        shuffle=True,
        drop_last=True,
        num_workers=work.threads,
        seed=0,
        transform=T.Compose(steps),
        **options,
    )


def endless(loader: Any) -> Iterator[Batch]:
    """Epoch after epoch."""
    while True:
        yield from loader


def fastload(work: Work) -> Iterator[Batch]:
    """On CUDA: uint8 over the bus by the loader's own stream, normalised on the device."""
    return endless(fastload_loader(work, device=work.device))


def fastload_coefficients(work: Work) -> Iterator[Batch]:
    """The same from coefficient records, which lie beside the packed images."""
    return fastload(replace(work, packed=work.packed.with_name(f"{work.packed.name}-coefficients")))


def fastload_host(work: Work) -> Iterator[Batch]:
    """Normalised float32 in pinned memory; the training loop copies it."""
    return endless(fastload_loader(work, pin_memory=True))


def fastload_dali(work: Work) -> Iterator[Batch]:
    """The same loader over its DALI back end."""
    return endless(fastload_loader(work, backend="dali", device=work.device))


def fastload_dali_auto(work: Work) -> Iterator[Batch]:
    """DALI and the native decoder beside each other; who waits gets less of the work."""
    from fastload import Dali

    return endless(fastload_loader(work, backend=Dali(decode_share="auto"), device=work.device))


def torch_pil(work: Work) -> Iterator[Batch]:
    """torch's DataLoader, worker processes with Pillow, pinned where there is CUDA."""
    from training.torch_baseline import ImageFolder, train_transform

    loader: Any = torch.utils.data.DataLoader(
        ImageFolder(work.images, train_transform(work.size, MEAN, STD)),
        batch_size=work.batch,
        shuffle=True,
        num_workers=work.threads,
        drop_last=True,
        pin_memory=work.device != "cpu",
        persistent_workers=work.threads > 0,
    )
    return endless(loader)


FEEDS = {
    "synthetic": Feed(synthetic, lambda work: 0),
    "fastload": Feed(fastload, lambda work: 4),
    "fastload_coefficients": Feed(fastload_coefficients, lambda work: 4),
    "fastload_host": Feed(fastload_host, lambda work: 4),
    "fastload_dali": Feed(fastload_dali, lambda work: 4),
    "fastload_dali_auto": Feed(fastload_dali_auto, lambda work: 4),
    "torch_pil": Feed(torch_pil, lambda work: 2 * work.threads),  # prefetch_factor 2 for each worker
}


def reason_to_skip(name: str, device: str) -> str:
    """Why feed ``name`` cannot run here; empty where it can."""
    if name == "fastload_host" and device == "cpu":
        return "without a GPU it is the same as fastload"
    if name.startswith("fastload_dali"):
        if "backend" not in parameters():
            return "this version of fastload has no DataLoader(backend=)"
        try:
            import nvidia.dali  # noqa: F401
        except ImportError as error:
            return f"DALI is not installed ({error})"
    return ""
