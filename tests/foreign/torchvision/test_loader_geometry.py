"""Whole loaders against torchvision v2's own functions on the same draws: pictures, masks of pixels and of
objects bit for bit, boxes of every format within 1e-4 pixels, points within 1e-3.

Masks go through torchvision as Pillow's pictures, by the nearest pixel; where something comes from outside of
a picture that is turned, ours have their ``ignore``. Chains are torchvision's objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from field_sets import write_field_set
from geometry_v2_reference import after
from pictures import encoded
from PIL import Image as Pillow
from pixel_reference import Step, drawn_around
from pycocotools import mask as coco_mask
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F
from torchvision_scenes import Objects
from transform_reference import Draws

from fastload import DataLoader, Fields, Of, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.sample.fields import Boxes, Image, Keypoints, Labels, Mask, Polygons
from fastload.sample.schema import Schema
from fastload.transforms import compile_plan
from fastload.transforms.recognised import translate

COUNT, SEED, POINTS, IGNORE = 24, 6, 3, 250
FORMATS = [("xyxy", False), ("xywh", False), ("cxcywh", False), ("cxcywh", True)]
FILL = {tv_tensors.Image: (123, 117, 104), tv_tensors.Mask: 7, "others": 0}
SANITIZE = [v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]
CHAINS: dict[str, list[Any]] = {
    "ssd": [
        v2.RandomZoomOut(fill=FILL, p=0.7), v2.RandomIoUCrop(trials=5), v2.Resize((31, 30)),
        v2.RandomHorizontalFlip(), *SANITIZE,
    ],
    "flip, crop": [v2.RandomHorizontalFlip(), v2.RandomResizedCrop(24), v2.SanitizeBoundingBoxes()],
    "lsj": [
        v2.ScaleJitter((40, 40)), T.FixedSizeCrop(40, {"image": 114, "mask": 7}), v2.RandomHorizontalFlip(),
        *SANITIZE,
    ],
    "shortest": [v2.RandomShortestSize([20, 30], 50), v2.RandomHorizontalFlip(), *SANITIZE],
    "padded crop": [
        v2.RandomHorizontalFlip(), v2.RandomResize(12, 30),
        v2.RandomCrop((20, 12), padding=[4, 9, 1, 2], pad_if_needed=True, fill=7),
    ],
    "pad": [v2.Pad([1, 2, 3, 4], fill=9), v2.Resize(24, max_size=40)],
    "centre": [v2.Resize(24), v2.CenterCrop(20), v2.SanitizeBoundingBoxes()],
    "upside down": [v2.Resize((31, 30)), v2.RandomVerticalFlip(), v2.RandomHorizontalFlip(), *SANITIZE],
    "rotated": [v2.RandomResizedCrop((40, 36)), v2.RandomRotation(30, fill=7), v2.RandomVerticalFlip()],
    "moved": [
        v2.RandomAffine(20, (0.2, 0.1), (0.8, 1.2), (-10, 10, -5, 5), fill=7), v2.Resize((30, 40)), *SANITIZE,
    ],
    "tilted": [v2.Resize((40, 36)), v2.RandomPerspective(0.4, p=0.7, fill=7), *SANITIZE],
}  # fmt: skip

# Operations on pixels, and what is done with boxes at the end.
MOVING = (T.RandomRotation, T.RandomAffine, T.RandomPerspective)
NOT_OF_THE_VIEW = (*MOVING, T.ClampBoundingBoxes, T.SanitizeBoundingBoxes)
FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)


# ---- a set ----------------------------------------------------------------------------------------


def samples() -> list[dict[str, Any]]:
    """Objects within, across and beyond borders, of no size, and none at all; each says which it is."""
    rng = np.random.default_rng(9)
    found = []
    for number in range(COUNT):
        width, height = (int(side) for side in rng.integers(6, 70, 2))
        count = number % 5
        corners = np.sort(rng.uniform(-0.2, 1.2, (count, 2, 2)) * [width, height], 1)
        if number % 4 == 1 and count:
            corners[0, 1] = corners[0, 0]
        outlines = rng.uniform(0, 1, (count, 6, 2)) * [width, height]
        found.append(
            {
                "pixels": rng.integers(0, 256, (height, width, 3), dtype=np.uint8),
                "mask": rng.integers(0, 200, (height, width), dtype=np.uint8),
                "corners": corners.reshape(-1, 4).astype(np.float32),
                "points": rng.uniform(-0.2, 1.2, (count, POINTS, 2)) * [width, height],
                "outlines": [[one] for one in outlines],
            }
        )
    return found


def in_format(one: dict[str, Any], form: str, relative: bool) -> np.ndarray:
    rows = F.convert_bounding_box_format(torch.from_numpy(one["corners"]), "XYXY", form.upper()).numpy()
    height, width = one["mask"].shape
    return rows / np.array([width, height] * 2, np.float32) if relative else rows


@pytest.fixture(scope="module", params=FORMATS, ids=str)
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PackedDataset, str, bool]:
    form, relative = request.param
    followers = {
        "labels": Labels(),
        "points": Keypoints(POINTS, pairs=((1, 2),)),
        "shapes": Polygons("mixed"),
    }
    kinds = {"image": Image(), "mask": Mask(ignore=IGNORE), "boxes": Boxes(form, relative)}
    kinds |= {name: Of("boxes", kind) for name, kind in followers.items()}
    rows = [
        {
            "image": encoded(Pillow.fromarray(one["pixels"]), "PNG"),
            "mask": encoded(Pillow.fromarray(one["mask"]), "PNG"),
            "boxes": in_format(one, form, relative),
            "labels": np.arange(len(one["corners"])),
            "points": np.concatenate([one["points"], np.full((*one["points"].shape[:2], 1), 2)], 2).astype(
                np.float32
            ),
            "shapes": one["outlines"],
        }
        for one in samples()
    ]
    folder = write_field_set(tmp_path_factory.mktemp("geometry") / "set", Schema.of(kinds), rows)
    return PackedDataset(folder), form, relative


def scene_of(one: dict[str, Any], form: str, relative: bool) -> Objects:
    height, width = one["mask"].shape
    rows = in_format(one, form, relative).astype(np.float64) * ([width, height] * 2 if relative else 1)
    corners = F.convert_bounding_box_format(torch.from_numpy(rows), form.upper(), "XYXY").numpy()
    runs = [
        coco_mask.merge(coco_mask.frPyObjects([o[0].ravel().tolist()], height, width))
        for o in one["outlines"]
    ]
    shapes = (
        np.stack([coco_mask.decode(run) for run in runs]) if runs else np.zeros((0, height, width), np.uint8)
    )
    return Objects(
        one["pixels"], one["mask"], corners.reshape(-1, 4), np.ones(len(corners), bool), form=form.upper(),
        points=one["points"].astype(np.float32).astype(np.float64), shapes=shapes,
    )  # fmt: skip


# ---- torchvision's steps --------------------------------------------------------------------------


def move(scene: Objects, step: Step, number: int) -> None:
    """An operation that moves pixels, with the numbers that were drawn for it."""
    (name, numbers), (width, height) = step, scene.size
    if name == "vertical_flip":
        return scene.upside_down()
    if name == "horizontal_flip":
        return scene.mirror()
    fill = (tuple(int(one) for one in numbers[-3:]), int(numbers[-1]))  # of masks, too
    how = {
        "fill": fill,
        "interpolation": (InterpolationMode.NEAREST, InterpolationMode.BILINEAR)[int(numbers[-4])],
    }
    if name == "rotate":
        return scene.done(F.rotate, numbers[0], **how)
    if name == "affine":
        shift = [round(numbers[1] * width), round(numbers[2] * height)]
        return scene.done(F.affine, numbers[0], shift, numbers[3], list(numbers[4:6]), **how)
    assert name == "perspective"
    motion = _C.motion_of(name, list(numbers), width, height, SEED, 0, number)
    return scene.done(F.perspective, None, None, coefficients=list(motion[0]), **how)


def of_the_view(specs: list[Any]) -> Iterator[Any]:
    """The steps of the geometry: flips are among them, as long as no pixels were moved."""
    moved = False
    for spec in specs:
        moved |= isinstance(spec, MOVING)
        if not isinstance(spec, NOT_OF_THE_VIEW) and not (moved and isinstance(spec, FLIPS)):
            yield spec


def expected(
    one: dict[str, Any], form: str, relative: bool, chain: list[Any], number: int
) -> tuple[Objects, list[int]]:
    """The scene behind the chain, and which objects are left."""
    scene, draws = scene_of(one, form, relative), Draws(SEED, 0, number)
    plan = compile_plan(T.Compose(chain))
    before, behind = drawn_around(plan, draws)
    for step in before:
        move(scene, step, number)
    specs = [spec for item in chain for spec in (translate(item) or (item,))]
    after(scene, list(of_the_view(specs)), draws, 7)
    for step in behind:
        move(scene, step, number)
    scene.rows = torch.where(torch.from_numpy(scene.stays)[:, None], scene.rows, 0.0)
    height, width = scene.mask.shape
    boxes = tv_tensors.BoundingBoxes(scene.rows, format=form.upper(), canvas_size=(height, width))
    if any(isinstance(item, v2.ClampBoundingBoxes) for item in chain):
        boxes = F.clamp_bounding_boxes(boxes)
    corners = F.convert_bounding_box_format(boxes, new_format="XYXY").as_subclass(torch.Tensor)
    stays = torch.ones(len(corners), dtype=torch.bool)
    if any(isinstance(item, v2.SanitizeBoundingBoxes) for item in chain):
        # Rounded: a box that ends at the border would go where float32 factors of a resize, or left + width,
        # put it a millionth of a pixel beyond.
        ends = corners.round(decimals=4)
        _, stays = F.sanitize_bounding_boxes(ends, format="XYXY", canvas_size=(height, width))
        scene.kept(stays)
    scene.boxes = corners[stays].numpy()
    if scene.mirrored:
        scene.points = scene.points[:, [0, 2, 1]]
    return scene, stays.nonzero().ravel().tolist()


@pytest.mark.parametrize("name", list(CHAINS))
def test_all_fields_are_where_torchvision_has_them(
    dataset: tuple[PackedDataset, str, bool], name: str
) -> None:
    packed, form, relative = dataset
    chain = CHAINS[name]
    plan = compile_plan(T.Compose(chain))
    assert all(step.native for step in plan.steps)
    found: dict[str, list[Any]] = {
        field: [] for field in ("image", "mask", "boxes", "labels", "points", "shapes")
    }
    with DataLoader(
        packed, 7, transform=T.Compose(chain), seed=SEED, collate="ragged", fields=Fields(masks="dense")
    ) as loader:
        for batch in loader:
            for field, values in found.items():
                values += [one.numpy().copy() for one in batch[field]]
    left = 0
    for number, one in enumerate(samples()):
        scene, stays = expected(one, form, relative, chain, number)
        ours = {field: values[number] for field, values in found.items()}
        assert ours["labels"].tolist() == stays
        assert np.array_equal(ours["image"].transpose(1, 2, 0), scene.pixels)
        sure = scene.sure.astype(bool)
        assert np.array_equal(ours["mask"][sure], scene.mask[sure])
        assert ours["shapes"].shape == scene.shapes.shape
        assert np.array_equal(ours["shapes"][:, sure], scene.shapes[:, sure])
        rows = ours["boxes"].astype(np.float64) * (np.array(scene.size * 2) if relative else 1)
        corners = F.convert_bounding_box_format(torch.from_numpy(rows), form.upper(), "XYXY").numpy()
        assert np.abs(corners - scene.boxes).max(initial=0) < 1e-4
        assert np.abs(ours["points"][..., :2] - scene.points).max(initial=0) < 1e-3
        left += len(stays)
    assert left > COUNT / 2
