"""Self-supervised: SimCLR's loss over two views of each picture, which is decoded once (Chen et al. 2020).

    fastload pack photos packed
    python examples/self_supervised.py packed --batch-size 64

``batch["first"]`` and ``batch["second"]`` are the two views; labels are not read. dino.py has DINO's ten
views, mae.py a masked autoencoder.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

SIDE = 96
TEMPERATURE = 0.5


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    view = T.Compose(
        [
            T.RandomResizedCrop(SIDE),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            T.RandomGrayscale(p=0.2),
            T.RandomApply([T.GaussianBlur(9, (0.1, 2.0))], p=0.5),
            T.ToDtype("float32", scale=True),
        ]
    )
    return {"transform": T.Views(first=view, second=view), "fields": ["image"]}


def model(dataset: PackedDataset) -> nn.Module:
    """A small encoder; its output is what the loss compares."""
    layers: list[nn.Module] = []
    for inside, outside in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 64))


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """Each view must find the other one of its picture among all of the batch."""
    both = torch.cat([batch["first"], batch["second"]]).to(device)
    codes = nn.functional.normalize(network(both), dim=1)
    alike = codes @ codes.T / TEMPERATURE
    alike.fill_diagonal_(-torch.inf)
    count = len(both) // 2
    return nn.functional.cross_entropy(alike, torch.arange(2 * count, device=device).roll(count))


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
