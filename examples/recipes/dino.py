"""DINO: two large crops and eight small ones of each picture (Caron et al. 2021).

    fastload pack photos packed
    python examples/recipes/dino.py packed

The teacher sees the large crops, the student all ten. ``views.of(batch)`` is the list of crops that DINO's,
SwAV's and iBOT's training loops take.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from running import run

from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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


def inputs(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What a network gets: crops of one size at a time."""
    crops: Sequence[torch.Tensor] = views.of(batch)
    return {"teacher and student": torch.cat(crops[:2]), "student": torch.cat(crops[2:])}


if __name__ == "__main__":
    sys.exit(run(__doc__, views, inputs))
