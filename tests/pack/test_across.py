"""Sets unpacked to files of another layout: COCO, YOLO and Pascal VOC, each read again by its own packer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_trees import write_voc, write_yolo
from pycocotools.coco import COCO
from test_coco import BOX, SQUARE, small, write_set

import fastload
from fastload.packing.unpack import unpack
from fastload.sample.fields import Boxes, Labels
from fastload.shard.dataset import PackedFiles

POINTS = [5.5, 6, 2, 0, 0, 0, 7.25, 8, 1]
CLOSE = {"rtol": 0, "atol": 1e-4}


def corners(dataset: PackedFiles, sample: int) -> np.ndarray[Any, Any]:
    """Boxes in pixels, as left, top, right, bottom."""
    field = dataset.schema["boxes"]
    assert isinstance(field.kind, Boxes)
    found = field.decode(dataset.value_bytes("boxes", sample)).astype(np.float64)
    if field.kind.relative:
        found = found * np.tile([int(dataset.record(sample)[side]) for side in ("width", "height")], 2)
    begin, second = found[:, :2], found[:, 2:]
    if field.kind.format == "cxcywh":
        begin = begin - second / 2
    return np.concatenate([begin, second if field.kind.format == "xyxy" else begin + second], 1)


def same_objects(one: PackedFiles, other: PackedFiles) -> None:
    """The same pictures, with the same boxes of the same classes, in the same order."""
    assert len(one) == len(other) > 0
    names = []
    for dataset in (one, other):
        kind = dataset.schema["labels"].kind
        assert isinstance(kind, Labels)
        labels = [dataset.schema["labels"].decode(dataset.value_bytes("labels", n)) for n in range(len(one))]
        names.append([[kind.classes[index] for index in some] for some in labels])
    assert names[0] == names[1]
    assert sum(map(len, names[0])) > 0
    for sample in range(len(one)):
        assert one.value_bytes("image", sample) == other.value_bytes("image", sample)
        np.testing.assert_allclose(corners(one, sample), corners(other, sample), **CLOSE)


def packed(place: Path, output: Path) -> PackedFiles:
    """The first dataset of a set."""
    results = fastload.pack(place, output)
    assert isinstance(results, list)
    return PackedFiles(results[0].output)


def made(layout: str, folder: Path) -> PackedFiles:
    """A set of a layout, packed."""
    if layout == "coco":
        write_set(folder / layout, small([BOX, BOX | {"id": 2, "category_id": 18, "image_id": 2}]))
    elif layout == "yolo":
        write_yolo(folder / layout, 5, splits=("train",))
    else:
        write_voc(folder / layout, 8)
    return packed(folder / layout, folder / f"{layout}-set")


ALONE = {"coco": "iscrowd", "voc": "difficult", "yolo": "image"}  # fields that others have no place for


@pytest.mark.parametrize(("layout", "other"), [(a, b) for a in ALONE for b in ALONE if a != b])
def test_each_to_each(tmp_path: Path, layout: str, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = made(layout, tmp_path)
    unpack(Path(str(dataset.where)), tmp_path / "back", as_=other)
    same_objects(dataset, packed(tmp_path / "back", tmp_path / "again"))
    there = (tmp_path / "back" / "not-said.txt").exists()
    listed = (tmp_path / "back" / "not-said.txt").read_text() if there else ""
    assert listed in capsys.readouterr().err
    assert (f"field '{ALONE[layout]}'" in listed) == (layout != "yolo")


def test_outlines_and_points_to_coco(tmp_path: Path) -> None:
    kinds = {"outlines": "masks", "points": "keypoints"}
    for kind, field in kinds.items():
        write_yolo(tmp_path / kind, 5, kind, splits=("train",))
        dataset = packed(tmp_path / kind, tmp_path / f"{kind}-set")
        unpack(Path(str(dataset.where)), tmp_path / f"{kind}-coco", as_="coco")
        path = tmp_path / f"{kind}-coco" / "annotations" / "instances.json"
        api = COCO(str(path))
        again = packed(tmp_path / f"{kind}-coco", tmp_path / f"{kind}-again")
        same_objects(dataset, again)
        for sample in range(len(dataset)):
            values = [one.schema[field].decode(one.value_bytes(field, sample)) for one in (dataset, again)]
            assert len(values[0]) == len(values[1])
            for first, second in zip(*values, strict=True):
                np.testing.assert_allclose(np.asarray(first), np.asarray(second), **CLOSE)
        if kind == "outlines":
            areas = [(one["area"], float(api.annToMask(one).sum())) for one in api.loadAnns(api.getAnnIds())]
            assert areas
            assert all(len(one["segmentation"]) == 1 for one in api.loadAnns(api.getAnnIds()))
        else:
            assert again.schema["keypoints"].kind.pairs == dataset.schema["keypoints"].kind.pairs  # type: ignore[attr-defined]


def test_what_yolo_cannot_say_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = [SQUARE, [20, 20, 25, 20, 25, 25]]
    runs = {"size": [30, 40], "counts": [100, 20, 1080]}
    areas: list[Any] = [[SQUARE], two, runs, [], [], [], []]
    boxes = [[2 + at, 3, 10, 8] for at in range(4)] + [[35, 2, 10, 8], [50, 2, 10, 8], [5, 3, 10, 8]]
    annotations = [
        BOX | {"id": number, "bbox": box, "segmentation": area}
        for number, (box, area) in enumerate(zip(boxes, areas, strict=True))
    ]
    captions = small([{"id": 1, "image_id": 1, "caption": "a"}])
    write_set(tmp_path / "set", small(annotations), "instances_a.json")
    write_set(tmp_path / "set", captions, "captions_a.json")
    dataset = packed(tmp_path / "set", tmp_path / "out")
    unpack(tmp_path / "out", tmp_path / "yolo", as_="yolo")
    listed = (tmp_path / "yolo" / "not-said.txt").read_text().splitlines()
    for line in (
        "field 'captions' (texts)",
        "field 'iscrowd' (array)",
        "2 objects of several outlines, or of run lengths: as boxes",
        "5 boxes as outlines of four corners, in files with outlines",
        "1 boxes cut off at the border, beyond which YOLO has none",
        "1 objects that are the very line of another: once",
        "1 objects without a class, or with none of their box in the picture: left out",
    ):
        assert line in listed
    assert "field 'masks' (polygons)" not in listed
    assert "captions" in capsys.readouterr().err
    again = packed(tmp_path / "yolo", tmp_path / "again")
    kept = corners(dataset, 0)[:5]
    np.testing.assert_allclose(corners(again, 0)[1:4], kept[1:4], **CLOSE)
    np.testing.assert_allclose(corners(again, 0)[4], [35, 2, 40, 10], **CLOSE)
    outline = again.schema["masks"].decode(again.value_bytes("masks", 0))[0][0]
    np.testing.assert_allclose(outline.reshape(-1), SQUARE, **CLOSE)


def test_coco_says_what_coco_has(tmp_path: Path) -> None:
    """Of a set of dicts, with ids, areas, crowds and run lengths."""
    image = np.zeros((30, 40, 3), np.uint8)
    runs = {"size": [30, 40], "counts": [100, 20, 1080]}
    sample = {
        "image": image, "boxes": [[1, 2, 3.5, 4]], "labels": [1], "masks": [runs], "ids": [77],
        "iscrowd": [True], "seen": 3.0,
    }  # fmt: skip
    schema = {
        "image": "image", "boxes": "boxes(xyxy)", "labels": "labels(classes=['a', 'b'], ids=[5, 9]) of boxes",
        "masks": "polygons(mixed) of boxes", "ids": "array(int64, (None,)) of boxes",
        "iscrowd": "array(bool, (None,)) of boxes", "seen": "float32",
    }  # fmt: skip
    fastload.pack([sample], tmp_path / "out", schema)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    (one,) = json.loads((tmp_path / "back" / "annotations" / "instances.json").read_text())["annotations"]
    facts = {"id": 77, "image_id": 1, "category_id": 9, "bbox": [1.0, 2.0, 2.5, 2.0], "area": 20.0}
    assert one == {**facts, "iscrowd": 1, "segmentation": runs}
    assert (tmp_path / "back" / "not-said.txt").read_text() == "field 'seen' (scalar)\n"


def test_a_text_of_the_name_of_pictures_numbers(tmp_path: Path) -> None:
    """A set's own field that COCO has no place for: pictures are numbered, and it is said."""
    image = np.zeros((30, 40, 3), np.uint8)
    one = {"image": image, "boxes": [[1, 2, 3.5, 4]], "labels": [1]}
    schema = {
        "image": "image", "boxes": "boxes(xyxy)", "labels": "labels(classes=['a', 'b']) of boxes",
        "image_id": "text",
    }  # fmt: skip
    fastload.pack([one | {"image_id": "0a"}, one | {"image_id": "0b"}], tmp_path / "out", schema)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    found = json.loads((tmp_path / "back" / "annotations" / "instances.json").read_text())
    assert [picture["id"] for picture in found["images"]] == [1, 2]
    assert (tmp_path / "back" / "not-said.txt").read_text() == "field 'image_id' (text)\n"


@pytest.mark.parametrize("ids", [[5, 5], [0, 3]])
def test_numbers_that_repeat_are_given_anew(tmp_path: Path, ids: list[int]) -> None:
    """Pictures of two sets with the same numbers, and their objects: evaluators would take them for one."""
    image = np.zeros((30, 40, 3), np.uint8)
    schema = {
        "image": "image", "boxes": "boxes(xyxy)", "labels": "labels(classes=['a', 'b']) of boxes",
        "ids": "array(int64, (None,)) of boxes", "image_id": "scalar(int64)",
    }  # fmt: skip
    samples = [
        {"image": image, "boxes": [[1, 2, 3.5, 4 + n]], "labels": [n], "ids": [number], "image_id": 7}
        for n, number in enumerate(ids)
    ]
    fastload.pack(samples, tmp_path / "out", schema)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    file = tmp_path / "back" / "annotations" / "instances.json"
    found = json.loads(file.read_text())
    assert [one["id"] for one in found["images"]] == [1, 2]
    assert [(one["id"], one["image_id"]) for one in found["annotations"]] == [(1, 1), (2, 2)]
    assert len(COCO(str(file)).getAnnIds()) == 2
    assert (tmp_path / "back" / "not-said.txt").read_text() == (
        "1 image ids that other pictures have, too: pictures are numbered from 1\n"
        "1 ids of annotations that repeat or are not positive: they are counted from 1\n"
    )


@pytest.mark.parametrize("kind", ["float32", "uint64"])
def test_ids_that_are_no_ids_are_listed(tmp_path: Path, kind: str) -> None:
    image = np.zeros((30, 40, 3), np.uint8)
    schema = {
        "image": "image", "boxes": "boxes(xyxy)", "labels": "labels(classes=['a', 'b']) of boxes",
        "ids": f"array({kind}, (None,)) of boxes",
    }  # fmt: skip
    sample = {"image": image, "boxes": [[1, 2, 3.5, 4]], "labels": [1], "ids": np.array([9], kind)}
    fastload.pack([sample], tmp_path / "out", schema)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    found = json.loads((tmp_path / "back" / "annotations" / "instances.json").read_text())
    assert [one["id"] for one in found["annotations"]] == [1]
    assert (tmp_path / "back" / "not-said.txt").read_text() == "field 'ids' (array)\n"
