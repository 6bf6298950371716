"""SimCLR: two views of each picture, with other crops, colours and blur (Chen et al. 2020).

    fastload pack photos packed
    python examples/recipes/simclr.py packed

A batch is a dict; ``batch["first"]`` and ``batch["second"]`` are the two views of the same pictures.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from running import run

from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

view = T.Compose(
    [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        T.RandomGrayscale(p=0.2),
        T.RandomApply([T.GaussianBlur(23, (0.1, 2.0))], p=0.5),
        T.Normalize(MEAN, STD),
    ]
)
views = T.Views(first=view, second=view)


def pairs(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """As most code of SimCLR wants them: all first views, then all second ones."""
    return {"pictures": torch.cat(views.of(batch))}


if __name__ == "__main__":
    sys.exit(run(__doc__, views, pairs))
