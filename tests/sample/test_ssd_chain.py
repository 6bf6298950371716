"""SSD's whole chain in a loader, against torchvision v2's steps one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from geometry_v2_reference import Scene, after
from PIL import Image as Pillow
from transform_reference import Draws

import fastload
from fastload import DataLoader
from fastload import transforms as T
from fastload.sample.fields import Boxes, Image, Labels

COUNT, SEED, SIDE = 60, 7, 32
STEPS = [
    T.RandomZoomOut(fill=(123, 117, 104)),
    T.RandomIoUCrop(),
    T.Resize((SIDE, SIDE)),
    T.RandomHorizontalFlip(),
]
FORMATS = ["xyxy", "xywh", "cxcywh"]


def samples() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pictures and corners; some pictures have no objects."""
    rng = np.random.default_rng(3)
    for number in range(COUNT):
        height, width = (int(side) for side in rng.integers(20, 90, 2))
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        corners = np.sort(rng.uniform(0.0, 1.0, (number % 5, 2, 2)) * [width, height], 1).astype(np.float32)
        yield pixels, corners.reshape(-1, 4)


def in_format(corners: np.ndarray, name: str) -> np.ndarray:
    if name == "xyxy":
        return corners
    size = corners[:, 2:] - corners[:, :2]
    first = corners[:, :2] if name == "xywh" else corners[:, :2] + size / 2
    return np.concatenate([first, size], 1).astype(np.float32)


def corners_of(rows: np.ndarray, name: str) -> np.ndarray:
    rows = rows.astype(np.float64)
    if name == "xyxy":
        return rows
    first = rows[:, :2] if name == "xywh" else rows[:, :2] - rows[:, 2:] / 2
    return np.concatenate([first, first + rows[:, 2:]], 1)


@pytest.fixture(scope="module", params=FORMATS)
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("ssd") / "set"
    schema = {"image": Image(), "boxes": Boxes(request.param), "labels": fastload.Of("boxes", Labels())}
    rows: Any = (
        {
            "image": Pillow.fromarray(pixels),
            "boxes": in_format(corners, request.param),
            "labels": np.arange(len(corners)),
        }
        for pixels, corners in samples()
    )
    fastload.pack(rows, folder, schema)
    return folder, request.param


def scenes(name: str) -> list[Scene]:
    found = []
    for number, (pixels, corners) in enumerate(samples()):
        boxes = corners_of(in_format(corners, name), name)
        scene = Scene(pixels, pixels[..., 0], boxes, np.ones(len(boxes), bool))
        found.append(after(scene, STEPS, Draws(SEED, 0, number), 0))
    return found


def lists(rows: Any) -> list[Any]:
    return [one.tolist() for one in rows]


def sanitized(scene: Scene) -> np.ndarray:
    """Which rows torchvision's SanitizeBoundingBoxes keeps."""
    boxes = np.where(scene.stays[:, None], scene.boxes, 0.0)
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return (width >= 1) & (height >= 1) & (width * height >= 1)


def test_pixels_boxes_and_labels_are_torchvisions(packed: tuple[Path, str]) -> None:
    folder, name = packed
    chain = T.Compose([*STEPS, T.SanitizeBoundingBoxes()])
    with DataLoader(folder, 12, transform=chain, seed=SEED) as loader:
        batches = [(b["image"].clone(), lists(b["boxes"]), lists(b["labels"])) for b in loader]
    images = torch.cat([one for one, _, _ in batches]).permute(0, 2, 3, 1).numpy()
    wanted = scenes(name)
    assert np.array_equal(images, np.stack([scene.pixels for scene in wanted]))
    labels = [one for _, _, group in batches for one in group]
    assert labels == [np.flatnonzero(sanitized(scene)).tolist() for scene in wanted]
    boxes = [np.array(one).reshape(-1, 4) for _, group, _ in batches for one in group]
    kept = [scene.boxes[sanitized(scene)] for scene in wanted]
    apart = [np.abs(corners_of(a, name) - b).max(initial=0.0) for a, b in zip(boxes, kept, strict=True)]
    assert max(apart) < 1e-4
    assert sum(len(one) for one in kept) > COUNT / 2
    assert any(not scene.stays.all() for scene in wanted)


def test_without_sanitize_boxes_out_of_the_crop_are_zeros(packed: tuple[Path, str]) -> None:
    folder, name = packed
    with DataLoader(folder, 12, transform=T.Compose(STEPS), seed=SEED, fields=["image", "boxes"]) as loader:
        boxes = [np.array(one).reshape(-1, 4) for batch in loader for one in lists(batch["boxes"])]
    wanted = [np.where(scene.stays[:, None], scene.boxes, 0.0) for scene in scenes(name)]
    apart = [np.abs(corners_of(a, name) - b).max(initial=0.0) for a, b in zip(boxes, wanted, strict=True)]
    assert max(apart) < 1e-4
