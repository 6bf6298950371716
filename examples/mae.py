"""Self-supervised: a masked autoencoder that sees a quarter of each crop (He et al. 2022).

    fastload pack photos packed
    python examples/mae.py packed --batch-size 64

The mask belongs to the model: it is drawn where the batch is, for 14 x 14 patches of 16 x 16 pixels.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PATCH, PATCHES, HIDDEN, WIDTH = 16, 14 * 14, 0.75, 64
PIXELS = 3 * PATCH * PATCH

transform = T.Compose(
    [
        T.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        T.Normalize(MEAN, STD),
    ]
)


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    return {"transform": transform, "fields": ["image"]}


def patches_of(images: torch.Tensor) -> torch.Tensor:
    """(n, 3, 224, 224) as (n, PATCHES, PIXELS)."""
    patches = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # (n, 3, 14, 14, 16, 16)
    return patches.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)


def rows_of(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Of (n, PATCHES, width) the rows at ``places``, (n, kept)."""
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class Autoencoder(nn.Module):
    """An encoder of the patches that are seen, and a smaller decoder of all."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Linear(PIXELS, WIDTH), nn.Linear(WIDTH, PIXELS)
        self.places = nn.Parameter(0.02 * torch.randn(1, PATCHES, WIDTH))
        self.hidden = nn.Parameter(torch.zeros(1, 1, WIDTH))
        options = {"dim_feedforward": 2 * WIDTH, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.encoder = nn.Sequential(*(nn.TransformerEncoderLayer(WIDTH, 4, **options) for _ in range(2)))
        self.decoder = nn.TransformerEncoderLayer(WIDTH, 4, **options)

    def forward(self, patches: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """What it makes of all patches, (n, PATCHES, PIXELS), from those at ``seen``, (n, kept)."""
        where = self.places.expand(len(patches), -1, -1)
        inside = self.encoder(self.embed(rows_of(patches, seen)) + rows_of(where, seen))
        whole = self.hidden.expand(len(patches), PATCHES, -1)
        whole = whole.scatter(1, seen.unsqueeze(-1).expand(-1, -1, WIDTH), inside)
        made: torch.Tensor = self.last(self.decoder(whole + where))
        return made


def model(dataset: PackedDataset) -> nn.Module:
    """The same for every set."""
    return Autoencoder()


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The squared error of the hidden patches."""
    patches = patches_of(batch["image"].to(device))
    order = torch.rand(patches.shape[:2], device=device).argsort(1)
    seen, hidden = order.split([round(PATCHES * (1 - HIDDEN)), round(PATCHES * HIDDEN)], 1)
    made = network(patches, seen)
    return nn.functional.mse_loss(rows_of(made, hidden), rows_of(patches, hidden))


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
