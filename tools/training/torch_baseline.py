"""The comparison: the same training data through torch.utils.data.DataLoader and Pillow.

An ImageFolder and the two usual chains of transforms, written out so that torchvision is not needed; each
does what torchvision's class of that name does on PIL images.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from training.world import World

__all__ = ["EpochBatches", "ImageFolder", "TorchLoader", "draw_crop", "eval_transform", "train_transform"]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
Transform = Callable[[Image.Image], torch.Tensor]


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """``root/<class>/**/<image>``: classes sorted by name, files sorted within a class."""

    def __init__(self, root: Path, transform: Transform) -> None:
        self.transform = transform
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples: list[tuple[str, int]] = []
        for label, name in enumerate(self.classes):
            for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
                paths = [os.path.join(folder, file) for file in sorted(files)]
                self.samples += [(path, label) for path in paths if path.lower().endswith(EXTENSIONS)]
        if not self.samples:
            raise FileNotFoundError(f"{root} has no class folders with images; --loader torch reads those.")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def draw_crop(width: int, height: int, scale: tuple[float, float] = (0.08, 1.0)) -> tuple[int, int, int, int]:
    """The box (left, top, width, height) of torchvision's RandomResizedCrop.get_params, ratio 3/4 to 4/3."""
    low, high = 3 / 4, 4 / 3
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(*scale).item()
        ratio = math.exp(torch.empty(1).uniform_(math.log(low), math.log(high)).item())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(torch.randint(0, height - h + 1, (1,)).item())
            left = int(torch.randint(0, width - w + 1, (1,)).item())
            return left, top, w, h
    w, h = width, height  # the central crop nearest to the wanted ratio
    if width / height < low:
        h = round(width / low)
    elif width / height > high:
        w = round(height * high)
    return (width - w) // 2, (height - h) // 2, w, h


def to_tensor(image: Image.Image, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """ToTensor and Normalize: (3, H, W) float32."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
    return pixels.sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1))


class train_transform:  # a class, so that spawned worker processes can unpickle it
    """RandomResizedCrop(size), RandomHorizontalFlip(), ToTensor(), Normalize(mean, std)."""

    def __init__(self, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.size, self.mean, self.std = size, mean, std

    def __call__(self, image: Image.Image) -> torch.Tensor:
        left, top, width, height = draw_crop(*image.size)
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        if torch.rand(1).item() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return to_tensor(image, self.mean, self.std)


class eval_transform:
    """Resize(resize), CenterCrop(size), ToTensor(), Normalize(mean, std)."""

    def __init__(self, resize: int, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.resize, self.size, self.mean, self.std = resize, size, mean, std

    def __call__(self, image: Image.Image) -> torch.Tensor:
        width, height = image.size
        short = min(width, height)
        # torchvision truncates the longer side.
        image = image.resize(
            (int(self.resize * width / short), int(self.resize * height / short)), Image.Resampling.BILINEAR
        )
        left = round((image.width - self.size) / 2)
        top = round((image.height - self.size) / 2)
        return to_tensor(image.crop((left, top, left + self.size, top + self.size)), self.mean, self.std)


class EpochBatches(Sampler[list[int]]):
    """This rank's batches of one epoch; can begin in the middle.

    Training (``shuffle``) gives every rank the same number of whole batches. Evaluation gives every sample to
    exactly one rank, so that ranks may differ by a batch.
    """

    def __init__(self, count: int, batch_size: int, shuffle: bool, seed: int, world: World) -> None:
        self.count, self.batch_size, self.shuffle, self.seed, self.world = (
            count,
            batch_size,
            shuffle,
            seed,
            world,
        )
        self.epoch = 0
        self.start = 0  # batches to leave out at the beginning

    def __len__(self) -> int:
        if self.shuffle:
            return self.count // (self.batch_size * self.world.size)
        mine = len(range(self.world.rank, self.count, self.world.size))
        return -(-mine // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.count)
        if self.shuffle:
            order = torch.randperm(
                self.count, generator=torch.Generator().manual_seed(self.seed + self.epoch)
            )
        mine = order[self.world.rank :: self.world.size].tolist()
        for step in range(self.start, len(self)):
            yield mine[step * self.batch_size : (step + 1) * self.batch_size]


class TorchLoader:
    """torch's DataLoader behind the calls of ``fastload.DataLoader`` that the training script makes."""

    def __init__(self, dataset: ImageFolder, batches: EpochBatches, num_workers: int) -> None:
        self.dataset = dataset
        self._batches = batches
        self._done = 0
        self._loader = DataLoader(
            dataset,
            batch_sampler=batches,
            num_workers=num_workers,
            pin_memory=batches.world.device.type == "cuda",
            persistent_workers=num_workers > 0,
        )

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        self._done = self._batches.start
        for batch in self._loader:
            self._done += 1
            yield batch
        self._batches.start = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle as this epoch does."""
        self._batches.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """The place in the epoch; the augmentation's random numbers are not part of it."""
        return {"epoch": self._batches.epoch, "batch": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self._batches.epoch = int(state["epoch"])
        self._batches.start = int(state["batch"])

    def close(self) -> None:
        """End the worker processes."""
        del self._loader
