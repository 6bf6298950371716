"""Self-supervised: DINO, two large crops and eight small ones of each picture (Caron et al. 2021).

    fastload pack photos packed
    python examples/dino.py packed --batch-size 64

The teacher, a moving average of the student, sees the large crops, the student all ten. ``views.of(batch)``
is the list of crops that DINO's, SwAV's and iBOT's own training loops take, too. The crops are the paper's;
the network is a small one.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PROTOTYPES, MOMENTUM = 256, 0.996


def crop(size: int, scale: tuple[float, float], blur: float, solarize: float = 0.0) -> T.Compose:
    """One kind of crop; ``blur`` and ``solarize`` are probabilities."""
    return T.Compose(
        [
            T.RandomResizedCrop(size, scale=scale, interpolation="bicubic"),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            T.RandomGrayscale(p=0.2),
            T.RandomApply([T.PillowGaussianBlur((0.1, 2.0))], p=blur),
            T.RandomSolarize(128, p=solarize),
            T.Normalize(MEAN, STD),
        ]
    )


views = T.Views(
    {
        "global_0": crop(224, (0.4, 1.0), blur=1.0),
        "global_1": crop(224, (0.4, 1.0), blur=0.1, solarize=0.2),
        "local": (8, crop(96, (0.05, 0.4), blur=0.5)),
    }
)


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    return {"transform": views, "fields": ["image"]}


class Dino(nn.Module):
    """A student, its teacher, and the centre of what the teacher says."""

    centre: torch.Tensor

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.student, self.teacher = encoder, deepcopy(encoder).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(PROTOTYPES))

    @torch.no_grad()
    def taught(self, crops: list[torch.Tensor]) -> list[torch.Tensor]:
        """Move the teacher towards the student; then its probabilities for each crop, (n, PROTOTYPES)."""
        for mine, its in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            mine.lerp_(its, 1 - MOMENTUM)
        said = [self.teacher(crop) for crop in crops]
        found = [((one - self.centre) / 0.04).softmax(1) for one in said]
        self.centre.lerp_(torch.cat(said).mean(0), 0.1)
        return found


def model(dataset: PackedDataset) -> nn.Module:
    """Convolutions that take crops of any size."""
    layers: list[nn.Module] = []
    for inside, outside in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.ReLU()]
    return Dino(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, PROTOTYPES)))


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The student must say of each crop what the teacher says of the other large ones."""
    crops = [crop.to(device) for crop in views.of(batch)]
    targets = network.taught(crops[:2])
    said = [(network.student(crop) / 0.1).log_softmax(1) for crop in crops]
    pairs = [
        -(target * one).sum(1).mean()
        for first, target in enumerate(targets)
        for second, one in enumerate(said)
        if first != second
    ]
    return torch.stack(pairs).mean()


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
