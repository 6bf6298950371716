"""Loaders whose views show more than the picture: images and masks against torchvision's steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_v2_reference import Scene, after
from PIL import Image as Pillow
from transform_reference import Draws

import fastload
from fastload import Cache, DataLoader
from fastload import transforms as T
from fastload.sample.fields import Image, Label, Mask
from fastload.transforms import compile_plan

COUNT, IGNORE, SEED = 24, 250, 7
ZOOM = T.RandomZoomOut(fill=(123, 117, 104), p=0.8)


def samples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(3)
    for number in range(COUNT):
        height, width = (int(side) for side in rng.integers(1, 90, 2))
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        mask = rng.integers(0, 200, (height, width), dtype=np.uint8)
        yield {
            "image": Pillow.fromarray(pixels),
            "mask": Pillow.fromarray(mask),
            "depth": Pillow.fromarray(mask[:, ::-1]),
            "label": number % 3,
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fills") / "set"
    schema = {
        "image": Image(),
        "mask": Mask(ignore=IGNORE),
        "depth": Image(1),
        "label": Label(("a", "b", "c")),
    }
    fastload.pack(samples(), path, schema)
    return path


def wanted(chain: list[Any], view: int = 0) -> list[Scene]:
    found = []
    for number, sample in enumerate(samples()):
        pixels, mask = np.asarray(sample["image"]), np.asarray(sample["mask"])
        scene = Scene(pixels, mask, np.zeros((0, 4)), np.zeros(0, bool))
        found.append(after(scene, chain, Draws(SEED, 0, number, 0, view), IGNORE))
    return found


CHAINS = {
    "zoom": [ZOOM, T.Resize((31, 40)), T.RandomHorizontalFlip()],
    "lsj": [T.ScaleJitter((40, 40)), T.FixedSizeCrop((40, 40), fill=114)],
    "random": [T.RandomCrop((20, 30), padding=9, pad_if_needed=True, fill={"image": 5, "mask": 6})],
    "shortest": [T.RandomShortestSize((20, 30), 50), T.Pad((1, 2, 3, 4), 77)],
    "letterbox": [T.Letterbox(40), T.RandomHorizontalFlip()],
    "turned": [T.RandomResizedCrop((20, 31)), T.RandomVerticalFlip(), T.RandomQuarterTurn()],
    "center": [T.Resize(10), T.CenterCrop((30, 11))],
}


@pytest.mark.parametrize("name", list(CHAINS))
def test_images_and_masks_are_torchvisions(folder: Path, name: str) -> None:
    with DataLoader(
        folder, 8, transform=T.Compose(CHAINS[name]), seed=SEED, fields=["image", "mask"], collate="ragged"
    ) as loader:
        found = [
            (image, mask)
            for batch in loader
            for image, mask in zip(batch["image"], batch["mask"], strict=True)
        ]
    assert all(step.native for step in compile_plan(T.Compose(CHAINS[name])).steps)
    scenes = wanted(CHAINS[name])
    assert len(found) == len(scenes)
    for (image, mask), scene in zip(found, scenes, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), scene.pixels)
        assert np.array_equal(mask.numpy(), scene.mask)


def test_pairs_of_image_and_label_too_and_decoded_ones(folder: Path) -> None:
    chain = CHAINS["zoom"]
    scenes = wanted(chain)
    for options in ({}, {"cache": Cache(decoded="full")}):
        with DataLoader(
            folder, 8, transform=T.Compose(chain), seed=SEED, fields=["image", "label"], **options
        ) as loader:
            images = np.concatenate([batch["image"].permute(0, 2, 3, 1).numpy() for batch in loader])
        assert np.array_equal(images, np.stack([scene.pixels for scene in scenes])), options


def test_views_share_a_picture(folder: Path) -> None:
    chains = {"near": CHAINS["zoom"], "far": [T.RandomZoomOut(0, (3, 4), 1.0), T.Resize((9, 9))]}
    views = T.Views(**{name: T.Compose(chain) for name, chain in chains.items()})
    with DataLoader(folder, COUNT, transform=views, seed=SEED, fields=["image", "mask"]) as loader:
        (batch,) = [dict(batch) for batch in loader]
    for number, (name, chain) in enumerate(chains.items()):
        scenes = wanted(chain, number)
        pixels = batch[name].permute(0, 2, 3, 1).numpy()
        assert np.array_equal(pixels, np.stack([scene.pixels for scene in scenes]))
        assert np.array_equal(batch[f"{name}_mask"].numpy(), np.stack([scene.mask for scene in scenes]))


def test_operations_on_the_whole_picture_leave_the_fill(folder: Path) -> None:
    chain = [ZOOM, T.Resize((31, 40))]
    transform = T.Compose([T.RandomInvert(1.0), *chain])
    with DataLoader(folder, COUNT, transform=transform, seed=SEED, fields=["image", "mask"]) as loader:
        (batch,) = [dict(batch) for batch in loader]
    scenes = []
    for number, sample in enumerate(samples()):
        pixels, mask = 255 - np.asarray(sample["image"]), np.asarray(sample["mask"])
        scene = Scene(pixels, mask, np.zeros((0, 4)), np.zeros(0, bool))
        scenes.append(after(scene, chain, Draws(SEED, 0, number), IGNORE))
    images = batch["image"].permute(0, 2, 3, 1).numpy()
    assert np.array_equal(images, np.stack([scene.pixels for scene in scenes]))
    assert np.array_equal(batch["mask"].numpy(), np.stack([scene.mask for scene in scenes]))


def test_a_colour_does_not_fit_pictures_of_one_channel(folder: Path) -> None:
    chain = T.Compose(CHAINS["zoom"])
    message = r"one number or one for each channel.*Found: 123, 117, 104"
    with (
        DataLoader(folder, 8, transform=chain, fields=["depth"]) as loader,
        pytest.raises(ValueError, match=message),
    ):
        list(loader)
    one = T.Compose([T.RandomZoomOut(9, (3, 4), 1.0), T.Resize((30, 30))])
    with DataLoader(folder, COUNT, transform=one, fields=["depth"], seed=SEED) as loader:
        (depth,) = [batch["depth"].clone() for batch in loader]
    assert depth.shape == (COUNT, 1, 30, 30)
    assert ((depth == 9).float().mean((1, 2, 3)) > 0.8).all()


def test_batches_of_a_bucket_have_one_size(folder: Path) -> None:
    sizes = [(20, 20), (12, 30), (30, 12)]
    sampler = fastload.BucketSampler(fastload.PackedDataset(folder), sizes)
    chain = T.Compose([T.BucketCrop(sizes), T.RandomHorizontalFlip()])
    with DataLoader(
        folder, 3, sampler=sampler, transform=chain, fields=["image"], collate="ragged", seed=SEED
    ) as loader:
        found = [{tuple(image.shape[1:]) for image in batch["image"]} for batch in loader]
    assert all(len(one) == 1 for one in found)
    assert set.union(*found) == set(sizes)


def test_an_iou_crop_needs_boxes(folder: Path) -> None:
    chain = T.Compose([T.RandomIoUCrop(), T.Resize((9, 9))])
    options: dict[str, Any] = {"transform": chain, "fields": ["image", "mask"]}
    with pytest.raises(ValueError, match="works on the boxes of objects. Found: none"):
        next(iter(DataLoader(folder, 8, **options)))
