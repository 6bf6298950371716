"""Sets in Pascal VOC's format: XML files, lists of names, masks of some."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as trees
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_trees import ids_of, voc_objects, voc_xml, write_photo, write_voc
from PIL import Image as pillow

import fastload
from fastload import Array, Boxes, Image, Json, Labels, Mask
from fastload.errors import PackError
from fastload.packing.annotations.voc import (
    VOC_CLASSES,
    filled,
    object_of,
    objects_of,
    parse_voc,
    rest_of,
    to_xml,
)
from fastload.packing.verify import verify
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles


def value(dataset: PackedFiles, name: str, sample: int) -> Any:
    return dataset.schema[name].decode(dataset.value_bytes(name, sample))


def test_what_the_files_say(tmp_path: Path) -> None:
    found = fastload.pack(write_voc(tmp_path / "VOC2012", 12), tmp_path / "out")
    assert [(one.output.name, one.manifest.num_records) for one in found] == [("train", 6), ("val", 6)]
    of = "boxes"
    for at, result in enumerate(found):
        dataset = PackedFiles(result.output)
        assert verify(result.output) == ([], 6)
        assert list(dataset.schema) == [
            Field("image", Image()),
            Field("boxes", Boxes("xyxy")),
            Field("labels", Labels(VOC_CLASSES), of),
            Field("difficult", Array("bool", (None,)), of),
            Field("truncated", Array("bool", (None,)), of),
            Field("rest", Json()),
        ]
        for sample in range(6):
            objects = voc_objects(6 * at + sample)
            assert dataset.key(sample) == f"JPEGImages/2007_{6 * at + sample:06}.jpg"
            corners = [[int(one[c]) for c in ("xmin", "ymin", "xmax", "ymax")] for one in objects]
            assert value(dataset, "boxes", sample).tolist() == corners
            assert [VOC_CLASSES[n] for n in value(dataset, "labels", sample)] == [
                one["name"] for one in objects
            ]
            for flag in ("difficult", "truncated"):
                assert value(dataset, flag, sample).tolist() == [one[flag] == "1" for one in objects]


def test_lists_and_masks(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "VOCdevkit" / "VOC2012", 10, masks=4)
    train = root / "ImageSets" / "Segmentation" / "train.txt"
    (result,) = fastload.pack(tmp_path / "VOCdevkit", tmp_path / "set", annotations=train)
    dataset = PackedFiles(result.output)
    assert len(dataset) == 4
    assert dataset.schema["mask"].kind == Mask(classes=("background", *VOC_CLASSES))
    assert dataset.schema["instances"].kind == Mask()
    for sample in range(4):
        for name, number in (("mask", sample), ("instances", sample + 50)):
            pixels = np.asarray(pillow.open(io.BytesIO(dataset.value_bytes(name, sample))))
            assert np.array_equal(pixels, ids_of(number))


def test_two_years_are_two_sets(tmp_path: Path) -> None:
    for year in ("2007", "2012"):
        write_voc(tmp_path / "in" / f"VOC{year}", 2)
    with pytest.raises(PackError, match=r"several sets:\n  voc: .*VOC2007\n  voc: .*VOC2012"):
        fastload.pack(tmp_path / "in", tmp_path / "out")


def test_others_classes_and_no_lists(tmp_path: Path) -> None:
    (tmp_path / "in" / "Annotations").mkdir(parents=True)
    for i, name in enumerate(("zebra", "ant")):
        objects = [{**voc_objects(1)[0], "name": name, "xmin": "1.25"}]
        (tmp_path / "in" / "Annotations" / f"{i}.xml").write_text(voc_xml(str(i), objects))
        write_photo(tmp_path / "in" / "images" / f"{i}.png", i)
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    dataset = PackedFiles(result.output)
    assert dataset.schema["labels"].kind == Labels(("ant", "zebra"))
    assert [value(dataset, "labels", i).tolist() for i in range(2)] == [[1], [0]]
    assert value(dataset, "boxes", 0)[0, 0] == 1.25


def test_xml_beside_the_pictures_is_said(tmp_path: Path) -> None:
    write_photo(tmp_path / "in" / "a.jpg", 1)
    (tmp_path / "in" / "a.xml").write_text(voc_xml("a", voc_objects(3)))
    assert fastload.pack(tmp_path / "in", tmp_path / "plain")[0].manifest.is_plain
    fastload.pack(tmp_path / "in", tmp_path / "set", as_="voc")
    assert len(value(PackedFiles(tmp_path / "set"), "boxes", 0)) == 3


def test_the_xml_again() -> None:
    """What the fields say is taken out and put in again, also where the text is not what they print."""
    objects = [
        *voc_objects(3),
        {**voc_objects(1)[0], "xmin": "1.50", "xmax": "39.123456789", "ymin": " 2 ", "difficult": ""},
    ]
    tree = parse_voc(voc_xml("a", objects).encode())
    kept = [(element, object_of(element)) for element in objects_of(tree)]
    rest = json.loads(json.dumps(rest_of(tree, kept)))
    texts = json.dumps(rest)
    assert texts.count("null") == 3 * 7 + 3
    assert all(text in texts for text in ("1.50", "39.123456789"))
    stored = [one._replace(box=tuple(float(np.float32(n)) for n in one.box)) for _, one in kept]
    again = filled(rest, stored)
    assert again == tree
    assert parse_voc(to_xml(again).encode()) == tree
    assert [e.text for e in trees.fromstring(to_xml(again)).iter("pose")] == ["Left & <up>"] * 4


BAD = {
    ("<name>dog</name>", ""): "it has no <name>",
    ("<bndbox>", "<box>"): "it has no <bndbox>",
    ("<xmin>5</xmin>", "<xmin>x</xmin>"): "<xmin> must be a number of pixels. Found: 'x'",
    ("<xmin>5</xmin>", ""): "Found: None",
    ("<xmin>5</xmin>", "<xmin>nan</xmin>"): "Found: 'nan'",
    ("<xmin>5</xmin>", "<xmin>1e300</xmin>"): "Found: '1e300'",
    ("<xmin>5</xmin>", "<xmin>9</xmin>"): "its box has no area: 9, 5, 9, 9",
    ("<difficult>0", "<difficult>maybe"): "<difficult> must be 0 or 1. Found: 'maybe'",
}


@pytest.mark.parametrize("change", BAD)
def test_a_bad_object(tmp_path: Path, change: tuple[str, str]) -> None:
    write_voc(tmp_path / "in", 4)
    path = tmp_path / "in" / "Annotations" / "2007_000001.xml"
    one = {**voc_objects(1)[0], "xmin": "5", "ymin": "5", "xmax": "9", "ymax": "9"}
    good = {**one, "name": "cat", "xmin": "6"}
    text = voc_xml("a", [one, good]).replace(*change, 1)
    path.write_text(text.replace("</bndbox>", "</box>", 1) if change[1] == "<box>" else text)
    with pytest.raises(PackError, match="1 annotation cannot be packed") as caught:
        fastload.pack(tmp_path / "in", tmp_path / "out")
    assert "object 1 of Annotations/2007_000001.xml: " in str(caught.value)
    assert BAD[change] in str(caught.value)
    train = fastload.pack(tmp_path / "in", tmp_path / "out", on_error="skip")[0]
    dataset = PackedFiles(train.output)
    assert (train.manifest.left_out, len(dataset)) == (1, 2)
    assert value(dataset, "boxes", 1).tolist() == [[6, 5, 9, 9]]
    assert len(objects_of(value(dataset, "rest", 1))) == 1


HOSTILE = {
    "<annotation>": "it is not XML",
    "<a></a>": "its first element is <a>",
    '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>': "declares a document type",
    "<annotation>" + "<a>" * 100_000: "nested more than 32 deep",
    "<annotation>a<b/></annotation>": "has both text and elements",
    "<annotation><b/>a</annotation>": "has both text and elements",
    "": "it is not XML",
    '<?xml version="1.0" encoding="none-such"?><annotation/>': "it is not XML: unknown encoding",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_such_xml(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=HOSTILE[text]):
        parse_voc(text.encode())
    write_voc(tmp_path / "in", 4)
    (tmp_path / "in" / "Annotations" / "2007_000001.xml").write_text(text)
    with pytest.raises(PackError, match="1 sample cannot be packed"):
        fastload.pack(tmp_path / "in", tmp_path / "out")


def test_missing_files_and_turned_pictures(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "in", 8)
    (root / "JPEGImages" / "2007_000001.jpg").unlink()
    (root / "Annotations" / "2007_000002.xml").unlink()
    write_photo(root / "JPEGImages" / "2007_000003.jpg", 3, orientation=8)
    with pytest.raises(PackError, match="3 samples cannot be packed") as caught:
        fastload.pack(root, tmp_path / "out")
    for words in ("000001.xml: there is no picture", "No such file", "orientation 8"):
        assert words in str(caught.value)
    train, val = fastload.pack(root, tmp_path / "out", on_error="skip")
    assert (train.manifest.num_records, train.manifest.skipped, val.manifest.skipped) == (1, 3, 0)


def test_lists_that_are_wrong(tmp_path: Path) -> None:
    root = write_voc(tmp_path / "in", 4)
    (root / "empty.txt").write_text("\n")
    for name, words in (("none.txt", "cannot be read"), ("empty.txt", "has no names")):
        with pytest.raises(PackError, match=words):
            fastload.pack(root, tmp_path / "out", annotations=root / name)
    names = fastload.pack(root, tmp_path / "set", annotations="ImageSets/Main/dog_train.txt")
    assert names[0].manifest.num_records == 2
    write_photo(root / "JPEGImages" / "2007_000001.png", 1)
    with pytest.raises(PackError, match="have the same name"):
        fastload.pack(root, tmp_path / "out")


def test_names_with_spaces(tmp_path: Path) -> None:
    root = tmp_path / "in"
    names = ["photo of 1", "photo of", "my dog"]
    (root / "Annotations").mkdir(parents=True)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    for i, name in enumerate(names):
        write_photo(root / "JPEGImages" / f"{name}.jpg", i)
        (root / "Annotations" / f"{name}.xml").write_text(voc_xml(name, voc_objects(i)))
    (root / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{name}\n" for name in names))
    (root / "flags.txt").write_text("photo of  1\nmy dog  -1\n")
    [found] = fastload.pack(root, tmp_path / "out")
    dataset = PackedFiles(found.output)
    assert [dataset.key(i) for i in range(len(dataset))] == [f"JPEGImages/{name}.jpg" for name in names]
    [found] = fastload.pack(root, tmp_path / "flagged", annotations=root / "flags.txt")
    dataset = PackedFiles(found.output)
    assert [dataset.key(i) for i in range(len(dataset))] == [
        "JPEGImages/photo of.jpg",
        "JPEGImages/my dog.jpg",
    ]
