"""Chains of torchvision and timm themselves, against torch's DataLoader over the same pictures.

torchvision's wheels are for CUDA builds of torch; with another one two operators must be declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pictures import jpegs
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset

_declared: list[Any] = []  # operators live as long as these
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def tv() -> Any:
    """torchvision's transforms, v1 and v2."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
    from torchvision import models, transforms
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import InterpolationMode, v2

    return SimpleNamespace(v1=transforms, v2=v2, models=models, folder=ImageFolder, mode=InterpolationMode)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PackedDataset]:
    """The same 8 pictures as a folder of files and packed."""
    root, blobs = tmp_path_factory.mktemp("files"), jpegs(8)
    (root / "only").mkdir()
    for number, blob in enumerate(blobs):
        (root / "only" / f"{number}.jpg").write_bytes(blob)
    return root, plain_pack(tmp_path_factory.mktemp("set"), blobs, [0] * 8, ["only"])


class Crops:
    """MoCo's two crops, DINO's several."""

    def __init__(self, *parts: Callable[[Any], Any]) -> None:
        self.parts = parts

    def __call__(self, image: Any) -> list[Any]:
        return [part(image) for part in self.parts]


def to_rgb(image: Any) -> Any:
    return image.convert("RGB")


def exact(tv: Any) -> dict[str, Any]:
    """Chains without random parts: the values must be those of torch's loader."""
    v1, v2 = tv.v1, tv.v2
    end = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
    stacked = [v1.TenCrop(20), lambda parts: torch.stack([end[0](part) for part in parts])]
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    center, small = v1.CenterCrop(20), v1.Resize((9, 9))
    resize = v1.Resize(24, interpolation=tv.mode.BICUBIC)
    flips = [v1.RandomHorizontalFlip(1.0), v1.Resize((25, 20)), v1.CenterCrop((24, 19))]
    return {
        "eval": v1.Compose([v1.Resize(28), v1.CenterCrop(24), *end]),
        "clip": v1.Compose([resize, v1.CenterCrop(24), to_rgb, *end]),
        "lanczos": v1.Compose([v1.Resize((24, 20), interpolation=tv.mode.LANCZOS), *end]),
        "weights": tv.models.ResNet18_Weights.IMAGENET1K_V1.transforms(),
        "array": v1.Compose([v1.Resize((24, 20)), lambda image: np.array(image)]),
        "tencrop": v1.Compose([v1.Resize(28), *stacked]),
        "flips": v1.Compose([*flips, *end]),
        "v2": v2.Compose([v2.RGB(), v2.Resize((24, 20)), *floats]),
        "crops": Crops(v1.Compose([resize, center, *end]), v1.Compose([small, end[0]])),
    }


def random_chains(tv: Any) -> dict[str, Any]:
    v1, v2 = tv.v1, tv.v2
    crop, flip, end = v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), [v1.ToTensor()]
    jitter = v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
    two = v1.Compose([crop, jitter, v1.RandomGrayscale(0.2), v1.GaussianBlur(5), flip, *end])
    return {
        "classic": v1.Compose([crop, flip, *end, v1.Normalize(MEAN, STD)]),
        "flip first": v1.Compose([flip, crop, *end]),
        "random crop": v1.Compose([v1.Resize(26), v1.RandomCrop(24), *end]),
        "padded crop": v1.Compose([v1.Resize((24, 24)), v1.RandomCrop(24, padding=4), *end]),
        "RandAugment": v1.Compose([crop, v1.RandAugment(), *end]),
        "TrivialAugment": v1.Compose([crop, v1.TrivialAugmentWide(), v1.PILToTensor(), v1.RandomErasing()]),
        "AutoAugment": v1.Compose([crop, v1.AutoAugment(), *end]),
        "AugMix": v1.Compose([crop, v1.AugMix(), *end]),
        "erasing": v1.Compose([crop, *end, v1.RandomErasing(p=1.0)]),
        "moco, dino": Crops(two, two, v1.Compose([v1.RandomResizedCrop(12), flip, *end])),
        "v2 pictures": v2.Compose([v2.RandomResizedCrop(24), v2.TrivialAugmentWide(), v2.ToImage()]),
        "v2 tensors": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(24, antialias=True), v2.RandAugment()]),
    }


def timm_chains() -> dict[str, Any]:
    data = pytest.importorskip("timm.data")
    train = {"is_training": True, "input_size": 24}
    return {
        "train": data.create_transform(**train, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.5),
        "random": data.create_transform(**train, interpolation="random", color_jitter=None),
        "augmix": data.create_transform(**train, auto_augment="augmix-m5-w4-d2"),
        "prefetcher": data.create_transform(**train, use_prefetcher=True),
        "eval": data.create_transform(24, is_training=False, interpolation="bicubic", crop_pct=0.9),
    }


def leaves(batch: Any) -> list[torch.Tensor]:
    return [batch] if isinstance(batch, torch.Tensor) else [leaf for part in batch for leaf in leaves(part)]


def run(
    sets: tuple[Path, PackedDataset], tv: Any, chain: Any
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Our batch, the same for any number of workers, and torch's."""
    torch_batch = next(iter(torch.utils.data.DataLoader(tv.folder(sets[0], chain), 8)))
    batches = [
        leaves(next(iter(DataLoader(sets[1], 8, seed=1, num_workers=workers, transform=chain))))
        for workers in (0, 2)
    ]
    assert all(map(torch.equal, *batches))
    found, wanted = batches[0], leaves(torch_batch)
    assert [(leaf.dtype, leaf.shape) for leaf in found] == [(leaf.dtype, leaf.shape) for leaf in wanted]
    return found, wanted


def test_values_are_those_of_torchs_loader(sets: tuple[Path, PackedDataset], tv: Any) -> None:
    chains = exact(tv)
    assert len(chains) > 3
    for name, chain in chains.items():
        found, wanted = run(sets, tv, chain)
        for leaf, other in zip(found, wanted, strict=True):
            assert torch.allclose(leaf.float(), other.float(), rtol=0, atol=1e-6), name


def test_random_chains_run_and_repeat(sets: tuple[Path, PackedDataset], tv: Any) -> None:
    chains = random_chains(tv)
    assert len(chains) > 3
    for chain in chains.values():
        run(sets, tv, chain)


def test_timms_chains_run_and_repeat(sets: tuple[Path, PackedDataset], tv: Any) -> None:
    chains = timm_chains()
    assert "eval" in chains
    for name, chain in chains.items():
        found, wanted = run(sets, tv, chain)
        if name == "eval":
            assert torch.allclose(found[0], wanted[0], rtol=0, atol=1e-6)
