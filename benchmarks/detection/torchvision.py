"""torchvision's side of bench_detection.py: v2's transforms in torch's DataLoader, as in its references.

The variant is the reference's "backend": Pillow's pictures, or tensors of uint8 from the decoder on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detection.jobs import Job, endless

sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))

__all__ = ["batches"]

GREYS = (123, 117, 104)


class FixedSizeCrop:
    """The reference's: cut to at most ``side``, then fill at the right and below; drops nothing here."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __call__(self, image: Any, target: Any) -> Any:
        import torch
        from torchvision.transforms.v2 import functional as f

        height, width = f.get_size(image)
        cut_h, cut_w = min(height, self.side), min(width, self.side)
        draw = float(torch.rand(1))
        place = [int((height - cut_h) * draw), int((width - cut_w) * draw), cut_h, cut_w]
        if (cut_h, cut_w) != (height, width):
            image = f.crop(image, *place)
            target = {**target, **{name: f.crop(target[name], *place) for name in ("boxes", "masks")}}
        gaps = [0, 0, self.side - cut_w, self.side - cut_h]
        if any(gaps):
            image = f.pad(image, gaps, fill=list(GREYS))
            target = {**target, **{name: f.pad(target[name], gaps) for name in ("boxes", "masks")}}
        return image, target


class Pairs:
    """A picture and its mask of classes."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.images = sorted((folder / "images").iterdir())
        self.folder, self.transform = folder, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        import numpy as np
        import torch
        from PIL import Image
        from torchvision import tv_tensors

        path = self.images[index]
        with Image.open(path) as image, Image.open(self.folder / "masks" / f"{path.stem}.png") as mask:
            ids = tv_tensors.Mask(torch.from_numpy(np.array(mask)))
            return self.transform(image.convert("RGB"), ids)


def transform_of(job: Job, variant: str) -> Any:
    """The job's chain."""
    import torch
    from torchvision.transforms import v2

    start = [v2.ToImage()] if variant == "tensor" else []
    ending: list[Any] = [] if variant == "tensor" else [v2.ToImage()]
    ending.append(v2.ToDtype(torch.float32, scale=True))
    chains: dict[str, list[Any]] = {
        "ssd": [
            v2.RandomPhotometricDistort(p=1.0), v2.RandomZoomOut(fill=list(GREYS)), v2.RandomIoUCrop(),
            v2.Resize((320, 320)), v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes(),
        ],
        "frcnn": [
            v2.RandomShortestSize(list(range(480, 801, 32)), 1333), v2.RandomHorizontalFlip(),
        ],
        "lsj": [
            v2.ScaleJitter((1024, 1024)), FixedSizeCrop(1024), v2.RandomHorizontalFlip(),
            v2.SanitizeBoundingBoxes(),
        ],
        "mask": [v2.RandomResizedCrop(512), v2.RandomHorizontalFlip()],
    }  # fmt: skip
    return v2.Compose([*start, *chains[job.name], *ending, v2.ToPureTensor()])


def listed(batch: Any) -> Any:
    """The references' collate_fn."""
    return tuple(zip(*batch, strict=True))


def padded(batch: Any) -> Any:
    """The pictures in one tensor of the largest sides, which are whole multiples of 32."""
    import torch

    images, targets = zip(*batch, strict=True)
    sides = [-(-max(image.shape[at] for image in images) // 32) * 32 for at in (1, 2)]
    whole = torch.zeros(len(images), 3, *sides)
    for place, image in zip(whole, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]].copy_(image)
    return whole, targets


def dataset_of(job: Job, variant: str, folder: Path) -> Any:
    """The pictures and annotations with the job's chain."""
    import bare_torchvision  # noqa: F401
    from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2

    transform = transform_of(job, variant)
    if job.name == "mask":
        return Pairs(folder, transform)
    keys = ["image_id", "boxes", "labels", *(["masks"] if job.name == "lsj" else [])]
    found = CocoDetection(folder / "images", folder / "annotations" / "instances.json", transforms=transform)
    return wrap_dataset_for_transforms_v2(found, target_keys=keys)


def batches(job: Job, variant: str, workers: int, work: Path) -> Iterator[int]:
    """Endless: an item a batch."""
    dataset = dataset_of(job, variant, work / "made")
    from torch.utils.data import DataLoader

    collate = {"ssd": listed, "lsj": listed, "frcnn": padded}.get(job.name)
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "persistent_workers": True}
    return endless(DataLoader(dataset, job.batch, num_workers=workers, collate_fn=collate, **options))
