"""The image folder as torch users read it, for bench_doctor.py: torch's DataLoader, Pillow, torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["folder_loader"]


def folder_loader(folder: Path, size: int, **options: Any) -> Any:
    """A loader of ``ImageFolder``'s with random crops and flips; float32.

    Raises:
        ImportError: torchvision cannot be imported.
    """
    for name in ("nms", "qnms"):  # a torchvision without its operators is enough
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return torch.utils.data.DataLoader(
        datasets.ImageFolder(str(folder), transforms.Compose(steps)), **options
    )
