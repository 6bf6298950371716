"""Segmentation: a small U-Net on pictures and masks of classes.

    fastload pack street packed          # street/images beside street/masks
    python examples/segmentation.py packed

Picture and mask have one crop and one flip; colours change the picture alone. Masks come as uint8 with the id
that is to be ignored (255) where nothing is known.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

SIDE = 128


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    geometry = [T.RandomResizedCrop(SIDE, scale=(0.3, 1.0)), T.RandomHorizontalFlip()]
    colours = [T.ColorJitter(0.2, 0.2, 0.2), T.ToDtype("float32", scale=True)]
    return {"transform": T.Compose([*geometry, *colours])}


class UNet(nn.Module):
    """Ronneberger et al. 2015, of ``levels`` levels and few channels; (n, 3, h, w) to (n, classes, h, w)."""

    def __init__(self, classes: int, width: int = 16, levels: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(block(a + b, a) for a, b in pairwise(widths))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of each class at each pixel."""
        left = []
        for down in self.down:
            images = down(images if not left else nn.functional.max_pool2d(images, 2))
            left.append(images)
        for up, same in zip(reversed(self.up), reversed(left[:-1]), strict=True):
            images = up(torch.cat([nn.functional.interpolate(images, size=same.shape[2:]), same], dim=1))
        scores: torch.Tensor = self.last(images)
        return scores


def block(inside: int, outside: int) -> nn.Module:
    """Two convolutions."""
    layers: list[nn.Module] = []
    for channels in (inside, outside):
        layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


def model(dataset: PackedDataset) -> nn.Module:
    """Its last layer has the classes of the set's mask; 256 if it does not name them."""
    return UNet(len(dataset.schema["mask"].kind.classes) or 256)


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """Cross-entropy where the mask says something."""
    images, masks = batch["image"].to(device), batch["mask"].to(device).long()
    return nn.functional.cross_entropy(network(images), masks, ignore_index=255)


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
