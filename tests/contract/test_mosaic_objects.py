"""The objects of samples put together of several: boxes against Ultralytics' rule, rows that follow them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mosaic_reference import Spec, compose, objects
from PIL import Image as PilImage
from transform_reference import Draws

import fastload
from fastload import Array, Boxes, DataLoader, Fields, Image, Keypoints, Labels, Of, Ranks
from fastload import transforms as T
from fastload.sampler import BatchIds
from fastload.sampler.partners import Partnering, partners

COUNT = 16
SIZE = 64
SEED = 8
SIDES = [(20 + 17 * i % 71, 30 + 29 * i % 83) for i in range(COUNT)]  # width, height
RNG = np.random.default_rng(3)


def corners(number: int) -> np.ndarray:
    """Boxes, some beyond the border, every fifth picture without any."""
    count = 0 if number % 5 == 0 else 1 + number % 6
    width, height = SIDES[number]
    first = RNG.uniform(-0.1, 0.8, (count, 2)) * (width, height)
    sides = RNG.uniform(0.02, 0.5, (count, 2)) * (width, height)
    return np.concatenate([first, first + sides], 1).astype(np.float32)


BOXES = [corners(i) for i in range(COUNT)]


def as_format(boxes: np.ndarray, format: str, size: tuple[int, int] | None) -> np.ndarray:
    """Boxes of corners in another format; in parts of a size."""
    x1, y1, x2, y2 = boxes.astype(np.float64).T
    found = {
        "xyxy": [x1, y1, x2, y2],
        "xywh": [x1, y1, x2 - x1, y2 - y1],
        "cxcywh": [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1],
    }[format]
    stacked = np.stack(found, 1)
    return (stacked if size is None else stacked / (size * 2)).astype(np.float32)


def pack(out: Path, format: str, relative: bool) -> Path:
    samples = [
        {
            "image": PilImage.new("RGB", SIDES[i], (i, 2 * i, 3 * i)),
            "boxes": as_format(BOXES[i], format, SIDES[i] if relative else None),
            "labels": [(i + row) % 3 for row in range(len(BOXES[i]))],
            "row": np.array([100 * i + row for row in range(len(BOXES[i]))], np.int64),
            "crowd": np.array([row % 3 == 2 for row in range(len(BOXES[i]))], np.bool_),
            "points": np.array([[[*box[:2], 2], [0, 0, 0]] for box in BOXES[i]], np.float32).reshape(
                -1, 2, 3
            ),
        }
        for i in range(COUNT)
    ]
    schema = {
        "image": Image(),
        "boxes": Boxes(format, relative=relative),
        "labels": Of("boxes", Labels(("a", "b", "c"))),
        "row": Of("boxes", Array("int64", (None,))),
        "crowd": Of("boxes", Array("bool", (None,))),
        "points": Of("boxes", Keypoints(2)),
    }
    fastload.pack(samples, out, schema=schema)
    return out


@pytest.mark.parametrize(("format", "relative"), [("xyxy", False), ("xywh", False), ("cxcywh", True)])
@pytest.mark.parametrize(
    "spec", [Spec(SIZE), Spec(SIZE, 9, degrees=20, shear=5), Spec(SIZE, 4, perspective=0.0005)], ids="abc"
)
def test_boxes_and_what_is_of_them(tmp_path: Path, spec: Spec, format: str, relative: bool) -> None:
    """Of mosaics, of pictures alone, and of mixes, mirrored."""
    folder = pack(tmp_path / "set", format, relative)
    first = T.Mosaic(
        spec.size, 0.7, spec.tiles, spec.degrees, spec.translate, spec.scale, spec.shear, spec.perspective
    )
    of = Partnering(spec.tiles, 0.7, 0.4)
    seen = 0
    chain = T.Compose([first, T.MixUp(0.4), T.RandomHorizontalFlip(1.0), T.DropCrowds("crowd")])
    with DataLoader(folder, batch_size=8, shuffle=True, seed=SEED, transform=chain, num_workers=2) as loader:
        for step, batch in enumerate(loader):
            ids = loader.sampler.batch(0, 0, step).ids.tolist()
            mates = partners(loader.sampler, SEED, 0, BatchIds(np.array(ids), None), of).tolist()
            for i, (sample, others) in enumerate(zip(ids, mates, strict=True)):
                rows, boxes, points = expected(spec, sample, others)
                assert batch["row"][i].tolist() == rows
                assert batch["labels"][i].tolist() == [(row // 100 + row % 100) % 3 for row in rows]
                assert not batch["crowd"][i].any()
                wanted = as_format(boxes, format, (SIZE, SIZE) if relative else None)
                np.testing.assert_allclose(batch["boxes"][i].numpy(), wanted, atol=2e-4)
                np.testing.assert_allclose(batch["points"][i][:, 0, :2].numpy(), points, rtol=1e-4, atol=1e-3)
                assert (batch["points"][i][:, :, 2] == torch.tensor([2.0, 0.0])).all()
                seen += len(rows)
    assert seen > 30


def expected(spec: Spec, sample: int, mates: list[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Rows by their numbers, their boxes and first points, mirrored; without crowds."""
    own = [sample, *(i for i in mates[: spec.tiles - 1] if i >= 0)]
    groups = [own, [i for i in mates[spec.tiles - 1 :] if i >= 0]]
    rows: list[int] = []
    boxes: list[np.ndarray] = []
    points: list[np.ndarray] = []
    for number, ids in enumerate(groups):
        if not ids:
            continue
        sizes = [SIDES[i] for i in ids]
        made = compose(spec, sizes, Draws(SEED, 0, sample, 0, 128 * number))
        kept, found = objects(spec, made, [BOXES[i] for i in ids], sizes)
        for (tile, row), (x1, y1, x2, y2) in zip(kept, found, strict=True):
            if row % 3 == 2:
                continue
            rows.append(100 * ids[tile] + row)
            boxes.append(np.array([SIZE - x2, y1, SIZE - x1, y2]))
            x, y, w, h = made.pictures[tile]
            at = BOXES[ids[tile]][row][:2] * np.array([w / sizes[tile][0], h / sizes[tile][1]]) + [x, y]
            moved = made.matrix @ [*at, 1.0]
            points.append(np.array([SIZE - moved[0] / moved[2], moved[1] / moved[2]]))
    return rows, np.array(boxes).reshape(-1, 4), np.array(points).reshape(-1, 2)


def test_threads_and_ranks_change_nothing(tmp_path: Path) -> None:
    folder = pack(tmp_path / "set", "xywh", False)
    chain = T.Compose([T.Mosaic(SIZE), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()])

    def rows(**options: Any) -> list[list[list[float]]]:
        settings = {"batch_size": 8, "shuffle": True, "seed": SEED, "num_workers": 1, **options}
        with DataLoader(folder, transform=chain, **settings) as loader:
            return [[boxes.tolist() for boxes in batch["boxes"]] for batch in loader]

    whole = rows()
    assert sum(len(boxes) for batch in whole for boxes in batch) > 10
    assert rows(num_workers=4) == whole
    halves = [rows(batch_size=4, ranks=Ranks(r, 2)) for r in range(2)]
    assert [one + other for one, other in zip(*halves, strict=True)] == whole


def test_outlines_of_no_boxes_are_refused(tmp_path: Path) -> None:
    outlines = [[np.array([[1, 1], [9, 1], [9, 9]], np.float32)]]
    sample = {"image": PilImage.new("RGB", (20, 20)), "boxes": [[1, 1, 9, 9]], "outlines": outlines}
    schema = {"image": Image(), "boxes": Boxes(), "outlines": fastload.Polygons()}
    fastload.pack([sample], tmp_path / "set", schema=schema)
    with pytest.raises(ValueError, match="nothing says which fields have a row"):
        DataLoader(tmp_path / "set", transform=T.Mosaic(SIZE))
    for more in ({"fields": ["image", "boxes"]}, {"fields": Fields(rows_of={"boxes": ["outlines"]})}):
        with DataLoader(tmp_path / "set", transform=T.Mosaic(SIZE), **more) as loader:
            assert next(iter(loader))["image"].shape == (1, 3, SIZE, SIZE)
