"""Every pixel of a batch against the slow way: Pillow's decode, crop and resize, torch's arithmetic."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from pictures import encoded, picture
from PIL import Image
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

# Pillow 13 resizes some shapes vertically first; these tests hold for it, decode and store for any.
pytestmark = pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="pass order of Pillow >= 13")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS["lanczos"] = Image.Resampling.LANCZOS


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """JPEGs of all subsamplings, gray and progressive ones, PNG: sides of 30 to 400 pixels."""
    blobs = []
    for i in range(36):
        image = picture(i, 30 + 37 * i % 371, 34 + 53 * i % 361)
        kinds: list[dict[str, Any]] = [
            {"subsampling": 0},
            {"subsampling": 1},
            {"subsampling": 2},
            {"progressive": True},
            {"quality": 97},
        ]
        if i % 7 == 6:
            blobs.append(encoded(image.convert("L"), quality=90))
        elif i % 7 == 5:
            blobs.append(encoded(image, "PNG"))
        else:
            blobs.append(encoded(image, **{"quality": 85, **kinds[i % 7]}))
    return plain_pack(tmp_path_factory.mktemp("photographs"), blobs, range(36))


def by_pillow(dataset: PackedDataset, sample: int, transform: Any, epoch: int) -> np.ndarray[Any, Any]:
    """What the geometric transforms make of a sample: whole decode, crop, resize, crop, flip."""
    plan = compile_plan(transform)
    image = Image.open(io.BytesIO(dataset.read(sample))).convert("RGB")
    view = _C.draw_view(plan.geometry_spec(), *image.size, 11, epoch, sample)
    (x, y, width, height), resized, (left, top, w, h), flip = view
    image = image.crop((x, y, x + width, y + height)).resize(resized, FILTERS[plan.filter])
    image = image.crop((left, top, left + w, top + h))
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image)


def check(dataset: PackedDataset, transform: Any, same: Callable[[torch.Tensor, torch.Tensor], bool]) -> None:
    loader = DataLoader(dataset, 9, shuffle=True, seed=11, num_workers=2, transform=transform)
    seen = 0
    for epoch in range(2):
        for images, labels in loader:
            seen += len(labels)
            for image, sample in zip(images, labels.tolist(), strict=True):
                pixels = torch.from_numpy(by_pillow(dataset, sample, transform, epoch).copy()).permute(
                    2, 0, 1
                )
                assert same(image, pixels), (epoch, sample)
    assert seen == 2 * len(dataset) > 0


GEOMETRY = [
    T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]),
    T.Compose([T.RandomResizedCrop((48, 80), interpolation="bicubic")]),
    T.Compose([T.Resize(72), T.CenterCrop(64)]),
    T.Compose([T.Resize((50, 31), interpolation="bicubic"), T.RandomHorizontalFlip(0.5)]),
    T.CenterCrop(120),
]


@pytest.mark.parametrize("transform", GEOMETRY, ids=repr)
@pytest.mark.parametrize("level", ["scalar", "sse4", "avx2", "avx512"])
def test_uint8_equals_pillow_bit_for_bit(photographs: PackedDataset, transform: Any, level: str) -> None:
    before = _C.simd_level()
    _C.set_simd_level(level)
    try:
        check(photographs, transform, torch.equal)
    finally:
        _C.set_simd_level(before)


def test_normalised_float32_equals_torch(photographs: PackedDataset) -> None:
    """Within 2e-6: one rounding of scale and shift instead of torch's three divisions."""

    def same(image: torch.Tensor, pixels: torch.Tensor) -> bool:
        exact = (pixels.double() / 255 - torch.tensor(MEAN).double().view(3, 1, 1)) / torch.tensor(STD).view(
            3, 1, 1
        )
        return bool((image.double() - exact).abs().max() < 2e-6)

    check(photographs, T.Compose([GEOMETRY[0], T.Normalize(MEAN, STD)]), same)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_the_rounded_float32(photographs: PackedDataset, dtype: str) -> None:
    full = T.Compose([GEOMETRY[2], T.Normalize(MEAN, STD)])
    half = T.Compose([GEOMETRY[2], T.Normalize(MEAN, STD), T.ToDtype(dtype)])
    exact = next(iter(DataLoader(photographs, 36, transform=full, seed=0)))[0]
    images = next(iter(DataLoader(photographs, 36, transform=half, seed=0)))[0]
    assert torch.equal(images, exact.to(getattr(torch, dtype)))
