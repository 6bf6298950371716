"""COCO's JSONs as an attacker would write them: errors that name file and place, and nothing outside the
folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attack_rules import Rule, breaks
from field_sets import resealed
from PIL import Image

import fastload
from fastload.errors import FormatError, PackError
from fastload.packing.unpack import unpack
from fastload.shard.dataset import PackedFiles

CLIMB = Rule(
    "FORMAT.md",
    "Keys",
    "a reader that writes files MUST refuse keys that are absolute or have empty, `.` or `..` parts or a NUL",
)
ERROR = Rule(
    "SECURITY.md",
    "What is trusted",
    "A data set from a stranger may make a job fail with an error; it must not crash the process",
)
AREAS = Rule("FORMAT.md", "Kinds", "They come to height times width.")

ONE: dict[str, Any] = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "segmentation": []}
GOOD: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 8}],
    "annotations": [ONE],
    "categories": [{"id": 1, "name": "a"}],
}


def write(folder: Path, text: str | bytes) -> Path:
    (folder / "annotations").mkdir(parents=True)
    (folder / "images").mkdir()
    Image.new("RGB", (9, 8)).save(folder / "images" / "1.jpg")
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "annotations" / "instances.json").write_bytes(data)
    return folder


def packed(folder: Path, output: Path, on_error: str = "raise") -> Any:
    annotations = [folder / "annotations" / "instances.json"]
    (result,) = fastload.pack(  # type: ignore[misc]
        folder, output, annotations=annotations, on_error=on_error, entries=None
    )
    return result


def changed(**parts: Any) -> str:
    return json.dumps({**GOOD, **parts})


TEXT = json.dumps(GOOD)
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "it ends before '{'"),
    "an end in the middle": (TEXT[:-30], "cannot be read as JSON, at byte"),
    "more behind the end": (TEXT + "{}", "more after the object's end"),
    "a list": ("[" + TEXT + "]", "'{' must follow"),
    "UTF-16": (TEXT.encode("utf-16"), "'{' must follow"),
    "nested too deeply": (changed(info=1).replace('"info": 1', '"info": ' + "[" * 100_000), "too deeply"),
    "an annotation nested too deeply": (TEXT.replace("[1, 1, 5, 5]", "[" * 100_000), "too deeply"),
    "keys twice": (TEXT[:-1] + ', "images": []}', "the key 'images' occurs twice"),
    "a control character": (TEXT.replace("1.jpg", "1\0.jpg"), "control character"),
    "a number of 5000 digits": (TEXT.replace("[1, 1, 5, 5]", "1" * 5000), "at byte"),
    "no UTF-8 at the top": (TEXT[:-1].encode() + b', "info": "\xff"}', "invalid UTF-8"),
    "NaN at the top": (changed(info=float("nan")), "NaN is not a JSON number"),
    "no images": (json.dumps({"annotations": [ONE]}), "it has no 'images'"),
    "images that are none": (changed(images=5), "'images' must be a list"),
    "annotations that are none": (changed(annotations={"a": 1}), "'annotations' must be a list"),
    "an image that is none": (changed(images=[7]), "images[0] must have an 'id'"),
    "an image without an id": (changed(images=[{"file_name": "1.jpg"}]), "images[0] must have an 'id'"),
    "an id of 2^63": (changed(images=[{"id": 2**63, "file_name": "1.jpg"}]), "must have an 'id'"),
    "ids twice": (changed(images=[*GOOD["images"], *GOOD["images"]]), "two images have the id 1"),
    "an annotation that is none": (changed(annotations=[[1]]), "annotations[0] must be an object"),
    "categories that are none": (changed(categories=[1]), "'categories' must be a list of objects"),
    "categories of one id": (changed(categories=[*GOOD["categories"] * 2]), "an 'id' of its own"),
    "a category without a name": (changed(categories=[{"id": 1}]), "must have a 'name'"),
    "65536 keypoints": (changed(annotations=[ONE | {"keypoints": [0] * 196608}]), "from 1 to 65535"),
}  # fmt: skip


@breaks(ERROR)
@pytest.mark.parametrize("name", REFUSED)
def test_files_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    text, message = REFUSED[name]
    folder = write(tmp_path / "set", text)
    with pytest.raises(PackError) as raised:
        packed(folder, tmp_path / "out", on_error="skip")
    assert message in str(raised.value)
    assert "instances.json" in str(raised.value)
    assert not (tmp_path / "out" / "dataset.json").exists()


LISTED: dict[str, tuple[dict[str, Any], str]] = {
    "an absolute path": ({"file_name": "/etc/passwd"}, "below the folder of the pictures"),
    "a path to outside": ({"file_name": "../annotations/instances.json"}, "below the folder of the pictures"),
    "a path through a folder": ({"file_name": "sub/../../1.jpg"}, "below the folder of the pictures"),
    "a NUL": ({"file_name": "1.jpg\0"}, "embedded null"),
    "half of a pair": ({"file_name": "\ud800.jpg"}, "has no file_name"),
    "a name that is none": ({"file_name": 5}, "has no file_name"),
    "a folder": ({"file_name": "."}, "irectory"),
    "a JSON": ({"file_name": "instances.json"}, "No such file"),
}


@breaks(CLIMB)
@pytest.mark.parametrize("name", LISTED)
def test_images_that_lie_are_listed(tmp_path: Path, name: str) -> None:
    image, message = LISTED[name]
    images = [*GOOD["images"], GOOD["images"][0] | {"id": 2} | image]
    folder = write(tmp_path / "set", changed(images=images))
    result = packed(folder, tmp_path / "out", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (1, 1)
    assert message in (tmp_path / "out" / "skipped.jsonl").read_text()


RUNS = {"size": [2**16, 2**16], "counts": [2**32 - 1, 1]}
LEFT_OUT: dict[str, Any] = {
    "runs of another picture": RUNS,
    "runs of 2^64": {"size": [9, 8], "counts": [2**63, 2**63, 72]},
    "runs below 0": {"size": [8, 9], "counts": [73, -1]},
    "a size of 2^31": {"size": [2**31, 0], "counts": []},
    "a size that is text": {"size": "89", "counts": [72]},
    "letters without an end": {"size": [8, 9], "counts": "o" * 1000},
    "letters that are none": {"size": [8, 9], "counts": "~~"},
    "numbers of 1e400": [[0, 0, 5, 0, 5, "1e400"]],
    "lists in lists": [[[0, 0], [5, 0], [5, 5]]],
    "a polygon of a text": ["0,0,5,0,5,5"],
}


@breaks(AREAS)
@pytest.mark.parametrize("name", LEFT_OUT)
def test_segmentations_that_lie_are_left_out(tmp_path: Path, name: str) -> None:
    annotations = [ONE, ONE | {"id": 2, "segmentation": LEFT_OUT[name]}]
    text = changed(annotations=annotations).replace('"1e400"', "1e400")
    result = packed(write(tmp_path / "set", text), tmp_path / "out", on_error="skip")
    assert (result.manifest.num_records, result.manifest.left_out) == (1, 1)


def test_a_mark_of_byte_order_and_keys_twice_in_an_annotation(tmp_path: Path) -> None:
    text = "\ufeff" + TEXT.replace('"id": 1, "image_id"', '"id": 9, "id": 1, "image_id"')
    packed(write(tmp_path / "set", text), tmp_path / "out")
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    found = (tmp_path / "back" / "annotations" / "instances.json").read_text()
    assert json.loads(found) == json.loads(text.removeprefix("\ufeff"))


@breaks(CLIMB)
@pytest.mark.parametrize("name", ["../x.json", "/tmp/x.json", "a/../../x.json", ""])
@pytest.mark.parametrize("key", ["name", "folder"])
def test_sets_that_would_be_unpacked_elsewhere(tmp_path: Path, name: str, key: str) -> None:
    packed(write(tmp_path / "set", TEXT), tmp_path / "out")
    dataset = PackedFiles(tmp_path / "out")
    source = json.loads(json.dumps(dataset.schema["image"].source))
    (source["files"][0] if key == "name" else source)[key] = name
    entries = [dict(entry) for entry in dataset.manifest.fields]
    entries[0]["source"] = source
    resealed(tmp_path / "out", entries)
    with pytest.raises(FormatError, match="is no path below a folder"):
        unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    assert not (tmp_path / "back").exists()
    assert not (tmp_path / "x.json").exists()
