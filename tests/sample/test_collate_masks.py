"""Masks in targets against pycocotools; batches of one bucket, padded to its size and no further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from object_sets import object_set
from pycocotools import mask as coco_masks

import fastload
from fastload import BucketSampler, DataLoader, Fields
from fastload import transforms as T

COUNT = 11


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return object_set(tmp_path_factory.mktemp("masks") / "set", COUNT)


def drawn(sample: dict[str, Any], number: int) -> np.ndarray:
    """(n, height, width): each object as pycocotools draws it."""
    height, width = 60 - number % 19, 40 + number % 21
    found = np.zeros((len(sample["masks"]), height, width), np.uint8)
    for row, outlines in enumerate(sample["masks"]):
        flat = [one.astype(float).reshape(-1).tolist() for one in outlines]
        found[row] = coco_masks.decode(coco_masks.merge(coco_masks.frPyObjects(flat, height, width)))
    return found


@pytest.mark.parametrize(
    "options", [{"fields": Fields(masks="dense")}, {"fields": ["image", "boxes", "labels", "masks"]}]
)
def test_targets_have_masks_where_they_are_asked_for(
    objects: tuple[Path, list[dict[str, Any]]], options: dict[str, Any]
) -> None:
    folder, samples = objects
    with DataLoader(folder, batch_size=4, collate="list", **options) as loader:
        targets = [target for _, of_batch in loader for target in of_batch]
    assert len(targets) == COUNT
    for number, target in enumerate(targets):
        assert target["masks"].dtype == torch.uint8
        assert np.array_equal(target["masks"].numpy(), drawn(samples[number], number))


def test_pictures_of_one_size_have_masks_of_it(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, samples = objects
    options: dict[str, Any] = {
        "transform": T.Resize((24, 36)),
        "fields": Fields(masks="dense"),
        "batch_size": COUNT,
    }
    with DataLoader(folder, collate="list", **options) as loader:
        _, targets = next(iter(loader))
    assert [tuple(one["masks"].shape) for one in targets] == [(len(one["labels"]), 24, 36) for one in samples]
    with DataLoader(folder, collate="yolo", **options) as loader:
        batch = next(iter(loader))
    assert batch["masks"].shape == batch["sem_masks"].shape == (COUNT, 6, 9)
    assert batch["masks"].any()
    for target, map_of_one in zip(targets, batch["masks"], strict=True):
        covered = target["masks"][target["iscrowd"] == 0][:, 2::4, 2::4].any(0)
        assert torch.equal(map_of_one > 0, covered)


def test_detrs_masks_are_padded_with_the_pictures(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, samples = objects
    with DataLoader(folder, batch_size=COUNT, collate="detr", fields=Fields(masks="dense")) as loader:
        batch = next(iter(loader))
    size = batch["pixel_values"].shape[-2:]
    seen = 0
    for number, labels in enumerate(batch["labels"]):
        kept = drawn(samples[number], number)[~samples[number]["iscrowd"]]
        seen += len(kept)
        height, width = kept.shape[1:]
        assert labels["masks"].shape == (len(kept), *size)
        assert np.array_equal(labels["masks"][:, :height, :width].numpy(), kept)
        assert int(labels["masks"].sum()) == int(kept.sum())
    assert seen > 5


def test_batches_of_a_bucket_have_its_size_and_no_more(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    sizes = [(20, 20), (21, 15), (15, 22)]
    packed = fastload.PackedDataset(objects[0])
    options: dict[str, Any] = {"transform": T.BucketCrop(sizes), "collate": "pad", "seed": 2}
    shapes, counted = set(), 0
    with DataLoader(packed, 4, sampler=BucketSampler(packed, sizes), **options) as loader:
        for batch in loader:
            counted += len(batch["image"])
            shapes.add(tuple(batch["image"].shape[-2:]))
            assert batch["image_sizes"].unique(dim=0).tolist() == [list(batch["image"].shape[-2:])]
    assert counted == COUNT
    assert shapes <= set(sizes)
    assert len(shapes) > 1
