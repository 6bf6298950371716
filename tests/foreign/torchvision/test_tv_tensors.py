"""Targets whose boxes and masks are torchvision's own tensors: its transforms know them."""

from __future__ import annotations

from pathlib import Path

import bare_torchvision  # noqa: F401
import pytest
import torch
from object_sets import object_set
from torchvision import tv_tensors
from torchvision.transforms import v2

import fastload
from fastload import DataLoader, Fields
from fastload import transforms as T

COUNT = 7


@pytest.mark.parametrize("chain", [None, T.Resize((32, 48))])
def test_v2_transforms_take_our_targets(tmp_path: Path, chain: T.Resize | None) -> None:
    folder, samples = object_set(tmp_path / "set", COUNT)
    options = {"transform": chain, "fields": Fields(masks="dense")}
    with DataLoader(folder, COUNT, collate="list", **options) as loader:
        images, plain = next(iter(loader))
    with DataLoader(folder, COUNT, collate=fastload.Detection("list", tv_tensors=True), **options) as loader:
        _, targets = next(iter(loader))
    flip, seen = v2.RandomHorizontalFlip(1.0), 0
    for image, target, one in zip(images, targets, plain, strict=True):
        height, width = image.shape[-2:]
        boxes, masks = target["boxes"], target["masks"]
        assert type(boxes) is tv_tensors.BoundingBoxes
        assert type(masks) is tv_tensors.Mask
        assert boxes.format is tv_tensors.BoundingBoxFormat.XYXY
        assert tuple(boxes.canvas_size) == (height, width)
        assert torch.equal(boxes.as_subclass(torch.Tensor), one["boxes"])
        assert torch.equal(masks.as_subclass(torch.Tensor), one["masks"])
        assert type(target["labels"]) is torch.Tensor
        turned, moved = flip(tv_tensors.Image(image), target)
        assert torch.equal(turned.as_subclass(torch.Tensor), image.flip(-1))
        wanted = one["boxes"][:, [2, 1, 0, 3]] * torch.tensor([-1, 1, -1, 1]) + torch.tensor([width, 0] * 2)
        assert torch.allclose(moved["boxes"].as_subclass(torch.Tensor), wanted)
        assert torch.equal(moved["masks"].as_subclass(torch.Tensor), one["masks"].flip(-1))
        assert moved["boxes"].shape == (len(boxes), 4)
        seen += len(boxes)
    assert seen == sum(len(sample["labels"]) for sample in samples)
