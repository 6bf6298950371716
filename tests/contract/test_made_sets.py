"""The made sets of objects: what their annotations say is what was painted, by pycocotools' own reading."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from made_detection import CATEGORY_IDS, CLASSES, MadeSet, made_set, write_yolo
from PIL import Image
from pycocotools.coco import COCO

IMAGES = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeSet:
    return made_set(tmp_path_factory.mktemp("made"), IMAGES, seed=3, crowds=0.5)


def read(made: MadeSet) -> COCO:
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(made.json))


def test_masks_boxes_and_areas_are_those_of_the_annotations(made: MadeSet) -> None:
    coco = read(made)
    assert len(coco.anns) > IMAGES
    for image in coco.dataset["images"]:
        expected = np.zeros((image["height"], image["width"]), np.uint8)
        for one in coco.loadAnns(coco.getAnnIds(image["id"])):
            mask = coco.annToMask(one)
            rows, columns = np.nonzero(mask)
            assert not expected[rows, columns].any(), "objects overlap"
            expected[rows, columns] = CATEGORY_IDS.index(one["category_id"]) + 1
            assert one["area"] == mask.sum()
            x, y, w, h = one["bbox"]
            assert (x, x + w) == (columns.min(), columns.max() + 1)
            assert (y, y + h) == (rows.min(), rows.max() + 1)
        png = Path(image["file_name"]).with_suffix(".png")
        with Image.open(made.folder / "masks" / png) as found:
            assert np.array_equal(np.asarray(found), expected)


def test_all_kinds_of_annotations_are_there(made: MadeSet) -> None:
    objects = made.instances["annotations"]
    assert {one["category_id"] for one in objects} == set(CATEGORY_IDS)
    forms = {type(one["segmentation"]) for one in objects}
    assert forms == {dict, list}
    parts = {len(one["segmentation"]) for one in objects if isinstance(one["segmentation"], list)}
    assert parts == {1, 2}
    assert any(one["iscrowd"] for one in objects)
    assert any(not made.objects_of(at) for at in range(IMAGES)), "no picture without objects"
    assert len(made.captions["annotations"]) == 5 * IMAGES
    assert all(len(one["keypoints"]) == 15 for one in objects)


def test_the_panoptic_segments_are_the_objects(made: MadeSet) -> None:
    panoptic = json.loads((made.folder / "annotations" / "panoptic.json").read_text())
    assert [len(one["segments_info"]) for one in panoptic["annotations"]] == [
        len(made.objects_of(at)) for at in range(IMAGES)
    ]
    for one in panoptic["annotations"]:
        with Image.open(made.folder / "panoptic" / one["file_name"]) as image:
            ids = np.asarray(image).astype(np.int64) @ (1, 256, 65536)
        areas = {segment["id"]: segment["area"] for segment in one["segments_info"]}
        found = dict(zip(*np.unique(ids[ids > 0], return_counts=True), strict=True))
        assert found == areas


def test_yolo_lines_are_the_boxes(made: MadeSet) -> None:
    write_yolo(made)
    image = made.instances["images"][-1]
    lines = (made.folder / "labels" / image["file_name"]).with_suffix(".txt").read_text().splitlines()
    objects = made.objects_of(IMAGES - 1)
    assert len(lines) == len(objects) > 0
    for line, one in zip(lines, objects, strict=True):
        label, x, y, w, h = map(float, line.split())
        assert CATEGORY_IDS[int(label)] == one["category_id"]
        sides = np.array([image["width"], image["height"]] * 2)
        assert np.allclose(np.array([x - w / 2, y - h / 2, w, h]) * sides, one["bbox"], atol=1e-3)
    assert f"{len(CLASSES) - 1}: {CLASSES[-1]}" in (made.folder / "data.yaml").read_text()


def test_the_same_seed_makes_the_same_set(made: MadeSet, tmp_path: Path) -> None:
    again = made_set(tmp_path, IMAGES, seed=3, crowds=0.5)
    assert again.instances == made.instances
    for name in made.names:
        assert (again.images / name).read_bytes() == (made.images / name).read_bytes()
