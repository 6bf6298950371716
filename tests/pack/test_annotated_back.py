"""Packed sets of annotated pictures back to files of the format that they came from."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from annotated_trees import voc_objects, voc_xml, write_photo, write_voc, write_yolo, yolo_lines
from test_coco import BOX, small, write_set

import fastload
from fastload.errors import PackError
from fastload.packing.annotations.voc import parse_voc
from fastload.packing.annotations.yolo import part_of
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["boxes", "outlines", "points"])
def test_yolo_comes_back(tmp_path: Path, kind: str) -> None:
    """Files of pictures, and numbers, which have six digits; a label file more where there was none."""
    root = write_yolo(tmp_path / "in", 10, kind).parent
    packed = fastload.pack(root, tmp_path / "out")
    assert len(packed) == 2
    for at, result in enumerate(packed):
        split = result.output.name
        again = tmp_path / "again" / split
        assert unpack(result.output, again, as_="yolo") == 10
        for i in range(10):
            name = f"{split}/{i:03}"
            assert (again / f"images/{name}.jpg").read_bytes() == (root / f"images/{name}.jpg").read_bytes()
            lines = (again / f"labels/{name}.txt").read_text().splitlines()
            numbers = [[float(word) for word in line.split()] for line in lines]
            assert numbers == yolo_lines(100 * at + i, kind)
        assert len(files_below(again)) == 21
        said = yaml.safe_load((root / "data.yaml").read_text())
        del said["val" if split == "train" else "train"]
        assert yaml.safe_load((again / "data.yaml").read_text()) == said
        (once_more,) = fastload.pack(again, tmp_path / "more" / split)
        assert once_more.manifest.id == result.manifest.id


def test_parts_of_a_side_are_what_was_stored() -> None:
    rng = np.random.default_rng(7)
    for _ in range(2000):
        number, side = float(rng.random()), int(rng.integers(1, 10_000))
        for digits in (2, 6, 9):
            short = round(number, digits)
            assert float(part_of(short * side, side, float)) == short
        text = part_of(number * side, side, float)  # of 17 digits not always the very number
        assert abs(float(text) - number) <= 2 * math.ulp(number)
        stored = np.float32(number * side)
        assert np.float32(float(part_of(stored, side, np.float32)) * side) == stored


def test_yolo_of_a_list(tmp_path: Path) -> None:
    write_yolo(tmp_path / "in", 3, splits=("train",))
    (tmp_path / "in" / "some.txt").write_text("./images/train/002.jpg\n./images/train/001.jpg\n")
    (tmp_path / "in" / "data.yaml").write_text("val: some.txt\nnames: ['a\"b', 'ü', 'c: d']\n")
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    unpack(result.output, tmp_path / "again", as_="yolo")
    (once_more,) = fastload.pack(tmp_path / "again", tmp_path / "more" / "set")
    assert once_more.manifest.id == result.manifest.id
    assert once_more.manifest.schema == result.manifest.schema


def test_voc_comes_back(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "in", 8, masks=8)
    odd = [{**voc_objects(1)[0], "xmin": "1.50", "difficult": ""}]
    (root / "Annotations" / "2007_000005.xml").write_text(voc_xml("2007_000005", odd, (0, 0)))
    packed = fastload.pack(root, tmp_path / "out")
    assert len(packed) == 2
    for result in packed:
        again = tmp_path / "again" / result.output.name
        assert unpack(result.output, again, as_="voc") == 4
        found = files_below(again)
        assert len(found) == 4 * 4 + 1
        for name in found:
            there, here = (root / name).read_bytes(), (again / name).read_bytes()
            if name.endswith(".xml"):
                assert parse_voc(here) == parse_voc(there)
            else:
                assert here == there
        (once_more,) = fastload.pack(again, tmp_path / "more" / result.output.name)
        assert once_more.manifest.id == result.manifest.id


def test_left_out_objects_do_not_come_back(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "in", 4)
    good = voc_objects(1)[0]
    (root / "Annotations" / "2007_000001.xml").write_text(voc_xml("a", [{**good, "xmax": "0"}, good]))
    train = fastload.pack(root, tmp_path / "out", on_error="skip")[0]
    unpack(train.output, tmp_path / "again", as_="voc")
    wanted = parse_voc(voc_xml("a", [good]).encode())
    assert parse_voc((tmp_path / "again" / "Annotations" / "2007_000001.xml").read_bytes()) == wanted


def test_what_cannot_come_back(tmp_path: Path) -> None:
    write_photo(tmp_path / "in" / "cat" / "a.jpg", 1)
    fastload.pack(tmp_path / "in", tmp_path / "plain")
    write_yolo(tmp_path / "yolo", 2, splits=("train",))
    fastload.pack(tmp_path / "yolo", tmp_path / "raw", raw=True)
    few = {"image": "image", "boxes": "boxes(cxcywh, relative=True)"}
    fastload.pack(tmp_path / "yolo", tmp_path / "few", few)
    for name, as_, words in (
        ("plain", "panoptic", "cannot be unpacked as 'panoptic': .* It was not packed from annotated files"),
        ("plain", "yolo", "cannot be unpacked as 'yolo': .* It was not packed from annotated files"),
        ("few", "voc", "as 'voc': .* It was packed from files of layout 'yolo'. Take --as yolo"),
        ("few", "coco", "as 'coco': .* It was packed from files of layout 'yolo'. Take --as yolo"),
        ("raw", "yolo", "was packed with raw=True"),
        ("few", "yolo", "was packed without the field 'labels'"),
        ("few", "csv", "must be one of"),
    ):
        with pytest.raises(PackError, match=words):
            unpack(tmp_path / name, tmp_path / "again", as_=as_)
        assert not os.path.exists(tmp_path / "again")


def test_pictures_that_are_arrays(tmp_path: Path) -> None:
    content = small([BOX])
    write_set(tmp_path / "set", content)
    content["images"][0]["file_name"] = "a.npy"
    write_set(tmp_path / "set", content | {"images": content["images"][1:]})
    (tmp_path / "set" / "annotations" / "instances.json").write_text(json.dumps(content))
    np.save(tmp_path / "set" / "images" / "a.npy", np.full((30, 40, 3), 7, np.uint8))
    fastload.pack(tmp_path / "set", tmp_path / "out")
    assert verify(tmp_path / "out", decode=True) == ([], 2)
    with pytest.raises(PackError, match="a.npy was packed as pixels, and --as gives files back as they were"):
        unpack(tmp_path / "out", tmp_path / "back", as_="coco")
