"""Masked autoencoders: one crop of each picture, and which of its patches the encoder sees (He et al. 2022).

    fastload pack photos packed
    python examples/recipes/mae.py packed

Batches are pairs of images and labels. The mask belongs to the model: it is drawn where the batch is, for
14 x 14 patches of 16 x 16 pixels.
"""

from __future__ import annotations

import sys

import torch
from running import run

from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PATCH, HIDDEN = 16, 0.75

transform = T.Compose(
    [
        T.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation="bicubic"),
        T.RandomHorizontalFlip(),
        T.Normalize(MEAN, STD),
    ]
)


def visible(batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The patches that the encoder gets, (n, 49, 768), and where they lie, (n, 49)."""
    images, _ = batch
    patches = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # (n, 3, 14, 14, 16, 16)
    patches = patches.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
    kept = round(patches.shape[1] * (1 - HIDDEN))
    places = torch.rand(patches.shape[:2], device=images.device).argsort(1)[:, :kept]
    seen = patches.gather(1, places.unsqueeze(-1).expand(-1, -1, patches.shape[-1]))
    return {"patches": seen, "places": places}


if __name__ == "__main__":
    sys.exit(run(__doc__, transform, visible))
