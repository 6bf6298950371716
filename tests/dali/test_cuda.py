"""The DALI back end on a real GPU. Skipped without one (see conftest.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from odd_images import odd_images
from plain_pack import plain_pack
from two_backends import TRAIN, apart, with_dali

from fastload import Dali, DataLoader, OnError, PackedDataset
from fastload import transforms as T

pytestmark = [pytest.mark.cuda, pytest.mark.dali, pytest.mark.timeout(300)]

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def check_same(dataset: Any, unit: float = 1.0, **options: Any) -> dict[str, Any]:
    """Labels equal, pixels near: nvJPEG's inverse DCT and upsampling are its own."""
    settings = {"batch_size": 8, "transform": TRAIN, "shuffle": True, "seed": 0, **options}
    own = {name: value for name, value in settings.items() if name != "backend"}
    with DataLoader(dataset, **own) as native:
        wanted = [(images.clone(), labels) for _ in range(2) for images, labels in native]
    with with_dali(dataset, device="cuda", **settings) as dali:
        found = [(images.cpu(), labels.cpu()) for _ in range(2) for images, labels in dali]
        stats: dict[str, Any] = dali.stats()["decoders"]
    assert len(found) > 1
    for (images, labels), (pixels, same) in zip(found, wanted, strict=True):
        assert torch.equal(labels, same)
        assert (images.shape, images.dtype, images.stride()) == (pixels.shape, pixels.dtype, pixels.stride())
        inner, _, mean = apart(images, pixels)
        assert inner <= 12 * unit, (inner, mean)
        assert mean <= 1.0 * unit, (inner, mean)
    return stats


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16"])
def test_equals_the_native_back_end(photos: PackedDataset, dtype: str, share: float) -> None:
    steps = [] if dtype == "uint8" else [NORMALIZE, T.ToDtype(dtype)]
    unit = 1.0 if dtype == "uint8" else 2 / 255 / 0.22
    stats = check_same(
        photos, unit, transform=T.Compose([*TRAIN.transforms, *steps]), backend=Dali(decode_share=share)
    )
    assert stats["samples"]["dali"] > 0
    assert stats["failures"] == 0


def test_validation(photos: PackedDataset) -> None:
    check_same(photos, transform=T.Compose([T.Resize(64), T.CenterCrop(56)]))


def test_odd_images_get_the_same_verdicts(tmp_path: Any) -> None:
    blobs = list(odd_images().values())
    dataset = plain_pack(tmp_path, blobs, range(len(blobs)), probe=False)
    options = {
        "seed": 0,
        "transform": T.Resize((48, 48)),
        "on_error": OnError("skip", max_pixels=10**7),
        "batch_size": 8,
    }
    with DataLoader(dataset, **options) as native, with_dali(dataset, device="cuda", **options) as dali:
        for _ in range(2):
            wanted = torch.cat([labels for _, labels in native])
            assert torch.equal(torch.cat([labels.cpu() for _, labels in dali]), wanted)


def test_a_memory_limit_moves_pictures_to_our_own_decoder(photos: PackedDataset) -> None:
    free = check_same(photos)["samples"]
    output = 4 * 8 * 3 * 48 * 48
    limit = output + 3 * 8 * 20_000  # some five pictures of a batch, three batches in work
    bounded = check_same(photos, backend=Dali(memory_limit=limit * 8 // 7), prefetch_factor=2)["samples"]
    assert free["native"] == 0
    assert bounded["native"] > 0


def test_pinned_batches_on_the_host(photos: PackedDataset) -> None:
    with with_dali(photos, pin_memory=True) as dali:
        images, _ = next(iter(dali))
    assert images.is_pinned()
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_memory_is_given_back(photos: PackedDataset) -> None:
    check_same(photos)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        check_same(photos)
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20
