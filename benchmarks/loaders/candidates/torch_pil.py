"""torch's DataLoader, decoding and transforming with Pillow: the baseline.

The transforms are torchvision's own where it imports, else the same steps written out below.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loaders.jobs import JOBS, MEAN, STD, Job, listing, random_crop

VARIANTS = ()
_kept: list[Any] = []  # a torch Library ends with its object


def versions() -> dict[str, str]:
    import numpy
    import PIL
    import torch

    vision = torchvision_or_none()
    transforms = f"torchvision {vision.__version__}" if vision else "written out"
    return {
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "numpy": numpy.__version__,
        "transforms": transforms,
    }


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    return endless(Photos(listing(folder), open_pil, transform_of(job)), job, threads)


class Decoder:
    """A job of loaders/jobs.py, training's of uint8, as a callable on a JPEG's bytes that can be pickled."""

    def __init__(self, job: Job = JOBS["train_u8"]) -> None:
        self._transform = transform_of(job)

    def __call__(self, data: bytes) -> Any:
        from PIL import Image

        return self._transform(Image.open(io.BytesIO(data)).convert("RGB"))


def endless(dataset: Any, job: Job, threads: int) -> Iterator[int]:
    """Sizes of the batches of torch's DataLoader over ``dataset``, with its usual fast settings."""
    import torch

    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=job.batch,
        shuffle=job.train,
        num_workers=threads,
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    while True:
        for _images, labels in loader:
            yield len(labels)


class Photos:
    """A map-style dataset over paths: ``transform(load(path))`` and the label."""

    def __init__(
        self, items: list[tuple[str, int]], load: Callable[[str], Any], transform: Callable[[Any], Any]
    ) -> None:
        self.items, self.load, self.transform = items, load, transform

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.items[index]
        return self.transform(self.load(path)), label


def open_pil(path: str) -> Any:
    """As torchvision's default loader does it."""
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def torchvision_or_none() -> Any:
    """torchvision, or None where it is not installed.

    A torchvision built for CUDA does not import beside a CPU build of torch, because its library with
    the operators does not load and two of them are looked up on import. Only their names are needed
    for its transforms, which are Python and Pillow: so the schemas are declared here.
    """
    import torch

    torch_library: Any = torch.library
    try:
        import torchvision
    except ModuleNotFoundError:
        return None
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch_library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        import torchvision
    return torchvision


def transform_of(job: Job) -> Any:
    """torchvision's transform of the job where it imports, else the steps written out."""
    if torchvision_or_none():
        return with_torchvision(job)
    if job.recipe:
        raise SystemExit("The recipes are torchvision's: install it (install_rival.sh torch_pil).")
    return Steps(job)


def with_torchvision(job: Job) -> Any:
    """torchvision's transforms of the job; uint8 leaves Pillow by NumPy, which costs least."""
    import torchvision.transforms as t

    if job.recipe:
        from recipes.torchvision import transform_of

        return transform_of(job.recipe)
    geometry = (
        [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
        if job.train
        else [t.Resize(256), t.CenterCrop(224)]
    )
    ending = [t.ToTensor(), t.Normalize(MEAN, STD)] if job.normalize else [to_uint8]
    return t.Compose([*geometry, *ending])


def to_uint8(image: Any) -> Any:
    """(224, 224, 3) uint8 tensor of a Pillow image."""
    import numpy as np
    import torch

    return torch.from_numpy(np.array(image))


class Steps:
    """The job without torchvision: its draw, Pillow's antialiased bilinear resize, its normalisation."""

    def __init__(self, job: Job) -> None:
        import torch

        self.job = job
        self.mean, self.std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    def __call__(self, image: Any) -> Any:
        image = self._train(image) if self.job.train else self._validate(image)
        tensor = to_uint8(image)
        if not self.job.normalize:
            return tensor
        return tensor.permute(2, 0, 1).contiguous().float().div_(255).sub_(self.mean).div_(self.std)

    def _train(self, image: Any) -> Any:
        from PIL import Image

        left, top, width, height = random_crop(*image.size)
        image = image.crop((left, top, left + width, top + height)).resize(
            (224, 224), Image.Resampling.BILINEAR
        )
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image

    def _validate(self, image: Any) -> Any:
        from PIL import Image

        width, height = image.size
        size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        return image.crop((left, top, left + 224, top + 224))
