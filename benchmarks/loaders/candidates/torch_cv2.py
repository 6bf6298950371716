"""torch's DataLoader with OpenCV: full decode, bilinear resize that is not antialiased."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.candidates.torch_pil import Photos, endless
from loaders.jobs import MEAN, STD, Job, listing, random_crop

VARIANTS = ()


def versions() -> dict[str, str]:
    import cv2
    import torch

    return {"torch": torch.__version__, "opencv": cv2.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import cv2

    cv2.setNumThreads(0)  # the workers are the parallelism
    return endless(Photos(listing(folder), load, Steps(job)), job, threads)


def load(path: str) -> Any:
    """(height, width, 3) BGR; EXIF is ignored as torchvision does."""
    import cv2

    return cv2.imread(path, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)


class Steps:
    """Crop, INTER_LINEAR resize, flip, BGR to RGB on the small result."""

    def __init__(self, job: Job) -> None:
        import torch

        self.job = job
        self.mean, self.std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    def __call__(self, image: Any) -> Any:
        import cv2
        import torch

        image = self._train(image) if self.job.train else self._validate(image)
        tensor = torch.from_numpy(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
        if not self.job.normalize:
            return tensor
        return tensor.permute(2, 0, 1).contiguous().float().div_(255).sub_(self.mean).div_(self.std)

    def _train(self, image: Any) -> Any:
        import cv2

        height, width = image.shape[:2]
        left, top, w, h = random_crop(width, height)
        image = cv2.resize(image[top : top + h, left : left + w], (224, 224), interpolation=cv2.INTER_LINEAR)
        return cv2.flip(image, 1) if random.random() < 0.5 else image

    def _validate(self, image: Any) -> Any:
        import cv2

        height, width = image.shape[:2]
        size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        return image[top : top + 224, left : left + 224]
