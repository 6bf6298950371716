"""Outlines, areas and masks of the objects of samples put together of several: masks are bit for bit what
pycocotools draws in the stored picture, resized, put on the canvas and moved as Pillow moves a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mosaic_reference import Spec, compose, objects, picture
from PIL import Image as PilImage
from shapes_reference import coco_mask, random_area, random_outlines
from transform_reference import Draws

import fastload
from fastload import Array, Boxes, DataLoader, Fields, Image, Of, Polygons
from fastload import transforms as T
from fastload._native import _C
from fastload.sampler import BatchIds
from fastload.sampler.partners import Partnering, partners

COUNT = 10
SIZE = 48
SEED = 5
SIDES = [(20 + 17 * i % 51, 25 + 29 * i % 43) for i in range(COUNT)]  # width, height
RNG = np.random.default_rng(6)


def object_of(number: int, row: int) -> Any:
    """Outlines, some beyond the border, or an area; now and then nothing."""
    width, height = SIDES[number]
    if row % 3 == 2:
        return random_area(RNG, height, width)
    return [] if row == 4 else random_outlines(RNG, height, width)


OBJECTS = [[object_of(i, row) for row in range(0 if i == 3 else 1 + i % 6)] for i in range(COUNT)]
MASKS = [
    [coco_mask(one, SIDES[i][1], SIDES[i][0]) for one in some] for i, some in enumerate(OBJECTS)
]  # (height, width) each


def box_of(number: int, row: int) -> list[float]:
    """Boxes decide which objects stay, whatever their outlines are: these are of most of the picture."""
    width, height = SIDES[number]
    return [0.1 * row * width / 6, 0.05 * height, width * (0.6 + row / 20), 0.9 * height]


BOXES = [[box_of(i, row) for row in range(len(some))] for i, some in enumerate(OBJECTS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [
        {
            "image": PilImage.new("RGB", SIDES[i]),
            "boxes": np.array(BOXES[i], np.float32).reshape(-1, 4),
            "row": np.arange(len(OBJECTS[i])),
            "masks": OBJECTS[i],
            "rough": [[] if isinstance(one, dict) else one for one in OBJECTS[i]],
        }
        for i in range(COUNT)
    ]
    out = tmp_path_factory.mktemp("shapes") / "packed"
    schema = {
        "image": Image(),
        "boxes": Boxes(),
        "row": Of("boxes", Array("int64", (None,))),
        "masks": Of("boxes", Polygons("mixed")),
        "rough": Of("boxes", Polygons()),
    }
    fastload.pack(samples, out, schema=schema)
    return out


@dataclass(frozen=True)
class Behind:
    """What a chain does behind the mosaic: to a mask, and to points (n, 2) step by step, with the size
    (width, height) that boxes are cut to."""

    chain: tuple[Any, ...] = ()
    mask: Callable[[PilImage.Image], PilImage.Image] = lambda mask: mask
    steps: tuple[tuple[Callable[[np.ndarray], np.ndarray], tuple[int, int]], ...] = ()

    def points(self, points: np.ndarray) -> np.ndarray:
        for step, _ in self.steps:
            points = step(points)
        return points

    def leaves(self, box: np.ndarray) -> bool:
        """Whether anything is left of a box: views drop those of which nothing is."""
        for step, size in self.steps:
            corners = step(np.array([[x, y] for x in box[::2] for y in box[1::2]]))
            box = np.concatenate([corners.min(0).clip(0, size), corners.max(0).clip(0, size)])
        return bool((box[2] - box[0]) * (box[3] - box[1]) > 0)


def turned(points: np.ndarray) -> np.ndarray:
    """By 30 degrees around the middle of 44 x 40 pixels."""
    angle, middle = np.radians(30), np.array([22, 20])
    x, y = (points - middle).T
    across, down = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    return np.stack([across, down], 1) + middle


LEFT_RIGHT, TOP_BOTTOM = PilImage.Transpose.FLIP_LEFT_RIGHT, PilImage.Transpose.FLIP_TOP_BOTTOM
NOTHING = Behind()
MIRRORED = Behind(
    (T.RandomHorizontalFlip(1.0),),
    lambda mask: mask.transpose(LEFT_RIGHT),
    ((lambda points: np.array([SIZE, 0]) + points * [-1, 1], (SIZE, SIZE)),),
)
CUT = Behind(
    (T.Resize((40, 60)), T.CenterCrop((30, 36)), T.RandomVerticalFlip(1.0)),
    lambda mask: (
        mask.resize((60, 40), PilImage.Resampling.NEAREST).crop((12, 5, 48, 35)).transpose(TOP_BOTTOM)
    ),
    ((lambda points: np.array([0, 30]) + (points * [60 / SIZE, 40 / SIZE] - [12, 5]) * [1, -1], (36, 30)),),
)
TURNED = Behind(
    (T.RandomHorizontalFlip(1.0), T.CenterCrop((40, 44)), T.RandomRotation((30, 30))),
    lambda mask: (
        mask.transpose(LEFT_RIGHT).crop((2, 4, 46, 44)).rotate(30, PilImage.Resampling.NEAREST, fillcolor=0)
    ),
    ((lambda points: np.array([SIZE - 2, -4]) + points * [-1, 1], (44, 40)), (turned, (44, 40))),
)

SIDEWAYS = Behind(
    (T.CenterCrop((40, 44)), T.RandomQuarterTurn((1,))),
    lambda mask: mask.crop((2, 4, 46, 44)).transpose(PilImage.Transpose.ROTATE_90),
    ((lambda points: np.array([-4, 46]) + points[:, ::-1] * [1, -1], (40, 44)),),
)


@dataclass(frozen=True)
class Expected:
    row: int
    mask: np.ndarray
    outlines: list[np.ndarray] | None  # None: it is an area


def expected(spec: Spec, sample: int, mates: list[int], behind: Behind) -> Iterator[Expected]:
    own = [sample, *(i for i in mates[: spec.tiles - 1] if i >= 0)]
    for number, ids in enumerate([own, [i for i in mates[spec.tiles - 1 :] if i >= 0]]):
        if not ids:
            continue
        sizes = [SIDES[i] for i in ids]
        made = compose(spec, sizes, Draws(SEED, 0, sample, 0, 128 * number))
        cores = _C.compose(spec.core(), sizes, SEED, 0, sample, view=128 * number)
        kept, boxes = objects(spec, made, [np.array(BOXES[i]) for i in ids], sizes)
        for (tile, row), box in zip(kept, boxes, strict=True):
            if not behind.leaves(box):
                continue
            pictures = [
                PilImage.fromarray(
                    MASKS[i][row] if j == tile else np.zeros((SIDES[i][1], SIDES[i][0]), np.uint8)
                )
                for j, i in enumerate(ids)
            ]
            mask = behind.mask(picture(spec, cores, pictures, PilImage.Resampling.NEAREST, 0))
            one = OBJECTS[ids[tile]][row]
            x, y, w, h = made.pictures[tile]
            outlines = None if isinstance(one, dict) else []
            for points in one if outlines is not None else ():
                canvas = np.asarray(points, np.float64) * [w / sizes[tile][0], h / sizes[tile][1]] + [x, y]
                moved = np.concatenate([canvas, np.ones((len(canvas), 1))], 1) @ made.matrix.T
                outlines.append(behind.points(moved[:, :2] / moved[:, 2:]))
            yield Expected(row, np.asarray(mask), outlines)


def batches(folder: Path, spec: Spec, behind: Behind, **options: Any) -> Iterator[tuple[list[int], Any, Any]]:
    """Ids, partners and batch."""
    numbers = spec.degrees, spec.translate, spec.scale, spec.shear, spec.perspective
    chain = T.Compose([T.Mosaic(spec.size, 0.7, spec.tiles, *numbers), T.MixUp(0.4), *behind.chain])
    of = Partnering(spec.tiles, 0.7, 0.4)
    settings = {"batch_size": 5, "shuffle": True, "seed": SEED, "num_workers": 2, **options}
    with DataLoader(folder, transform=chain, **settings) as loader:
        for step, batch in enumerate(loader):
            ids = loader.sampler.batch(0, 0, step).ids.tolist()
            yield ids, partners(loader.sampler, SEED, 0, BatchIds(np.array(ids), None), of).tolist(), batch


CASES = [
    (Spec(SIZE), NOTHING),
    (Spec(SIZE, 9, scale=0.9), MIRRORED),
    (Spec(SIZE, 4, degrees=40, shear=8), NOTHING),
    (Spec(SIZE, 9, degrees=170), CUT),
    (Spec(SIZE, 4, perspective=0.001), MIRRORED),
    (Spec(SIZE), CUT),
    (Spec(SIZE), TURNED),
    (Spec(SIZE, 4, degrees=20), TURNED),
    (Spec(SIZE), SIDEWAYS),
    (Spec(SIZE, 4, degrees=20), SIDEWAYS),
]


@pytest.mark.parametrize(("spec", "behind"), CASES, ids=range(len(CASES)))
def test_masks_are_those_of_the_stored_pictures_moved(folder: Path, spec: Spec, behind: Behind) -> None:
    seen = pixels = 0
    for ids, mates, batch in batches(
        folder, spec, behind, fields=Fields(["image", "row", "masks"], masks="dense")
    ):
        for i, (sample, others) in enumerate(zip(ids, mates, strict=True)):
            wanted = list(expected(spec, sample, others, behind))
            assert batch["row"][i].tolist() == [one.row for one in wanted]
            found = batch["masks"][i].numpy()
            assert found.shape[1:] == tuple(batch["image"].shape[2:])
            for one, mask in zip(wanted, found, strict=True):
                assert np.array_equal(mask, one.mask), (sample, one.row)
                pixels += int(mask.sum())
            seen += len(wanted)
    assert seen > 20
    assert pixels > 2000


@pytest.mark.parametrize("case", [0, 2, 3, 4, 6, 9])
def test_outlines_move_as_boxes_and_areas_as_masks(folder: Path, case: int) -> None:
    spec, behind = CASES[case]
    outlines = areas = 0
    for ids, mates, batch in batches(folder, spec, behind):
        for i, (sample, others) in enumerate(zip(ids, mates, strict=True)):
            wanted = list(expected(spec, sample, others, behind))
            found = list(zip(wanted, batch["masks"][i], batch["rough"][i], strict=True))
            for one, exact, rough in found:
                if one.outlines is None:
                    assert np.array_equal(coco_mask(exact, 0, 0), one.mask)
                    assert rough == []
                    areas += 1
                    continue
                for points, double, single in zip(one.outlines, exact, rough, strict=True):
                    assert double.dtype == np.float64
                    assert single.dtype == np.float32
                    np.testing.assert_allclose(double, points, rtol=1e-12, atol=1e-9)
                    np.testing.assert_allclose(single, points, rtol=1e-5, atol=1e-3)
                    outlines += 1
    assert outlines > 20
    assert areas > 3


@pytest.mark.parametrize("collate", ["ragged", "pad"])
def test_masks_of_differing_sizes(folder: Path, collate: str) -> None:
    """Behind a mosaic that is resized at random; each mask is of its picture's size."""
    chain = T.Compose([T.Mosaic(SIZE), T.RandomShortestSize((24, 31, 40))])
    seen = set()
    with DataLoader(
        folder, batch_size=5, seed=SEED, transform=chain, fields=Fields(masks="dense"), collate=collate
    ) as loader:
        for batch in loader:
            for i, masks in enumerate(batch["masks"]):
                assert masks.shape[1:] == batch["image"][i].shape[1:]
                assert len(masks) == len(batch["row"][i])
                height, width = masks.shape[1:] if collate == "ragged" else batch["image_sizes"][i].tolist()
                assert height == width
                assert not masks[:, height:].any()
                assert not masks[:, :, width:].any()
                seen.add(height)
                assert masks.dtype == torch.uint8
    assert seen == {24, 31, 40}
