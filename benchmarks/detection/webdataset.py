"""WebDataset's side of bench_detection.py: its pipeline over tars, Pillow and torchvision's transforms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detection.jobs import MEAN, STD, Job, endless, tokens

sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))

__all__ = ["batches"]

SHUFFLED = 1000


def tokenized(text: str) -> Any:
    """The numbers of a caption, as a tensor."""
    import torch

    return torch.tensor(tokens(text))


def batches(job: Job, variant: str, workers: int, work: Path) -> Iterator[int]:
    """Endless: an item a batch."""
    import bare_torchvision  # noqa: F401
    import torch
    import webdataset
    from torchvision import transforms as t

    transform = t.Compose(
        [
            t.RandomResizedCrop(224, (0.9, 1.0), interpolation=t.InterpolationMode.BICUBIC),
            t.ToTensor(),
            t.Normalize(MEAN, STD),
        ]
    )
    tars = sorted(str(path) for path in (work / "tars").glob("*.tar"))
    found = webdataset.WebDataset(tars, shardshuffle=len(tars), seed=0)
    found = found.shuffle(SHUFFLED).decode("pilrgb").to_tuple("jpg", "txt")
    found = found.map_tuple(transform, tokenized).batched(job.batch, partial=False)
    torch.set_num_threads(1)
    loader = webdataset.WebLoader(found, batch_size=None, num_workers=workers, persistent_workers=True)
    return endless(loader)
