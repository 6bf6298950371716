"""COCO's sets: packed, read against pycocotools, and unpacked to files that say the same."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_trees import write_photo
from made_detection import CATEGORY_IDS, CLASSES, made_set
from pack_trees import run_cli
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

import fastload
from fastload.errors import PackError
from fastload.packing import json_stream
from fastload.packing.publish import PackResult
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.fields import Keypoints, Labels
from fastload.shard.dataset import PackedFiles

BOX: dict[str, Any] = {
    "id": 1,
    "image_id": 1,
    "category_id": 3,
    "bbox": [1.5, 2, 10, 8.25],
    "area": 80.0,
    "iscrowd": 0,
}
SQUARE = [2, 2, 8.5, 2, 8.5, 9.13, 2, 9.13]


def said(value: Any) -> str:
    """Equal for equal values of equal types."""
    return json.dumps(value, sort_keys=True)


def write_set(folder: Path, content: dict[str, Any], name: str = "instances.json") -> Path:
    """A JSON, and a picture of 40x30 for each of its images."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    (folder / "annotations" / name).write_text(json.dumps(content))
    for number, image in enumerate(content["images"]):
        write_photo(folder / "images" / image["file_name"], number)
    return folder


def small(annotations: list[Any], images: int = 2) -> dict[str, Any]:
    """A set of some images of 40x30, and these annotations."""
    listed = [{"id": n, "file_name": f"{n}.jpg", "width": 40, "height": 30} for n in range(1, images + 1)]
    categories = [{"id": 3, "name": "cat", "supercategory": "animal"}, {"id": 18, "name": "dog"}]
    return {"info": {"year": 2026}, "images": listed, "annotations": annotations, "categories": categories}


def pack(place: Path, output: Path, **options: Any) -> PackResult:
    (result,) = fastload.pack(place, output, **options)  # type: ignore[misc]
    return result


def there_and_back(folder: Path, content: dict[str, Any], **options: Any) -> PackResult:
    """Pack a set, and check that unpacking gives the same JSON."""
    write_set(folder / "set", content)
    result = pack(folder / "set", folder / "out", **options)
    unpack(folder / "out", folder / "back", as_="coco")
    found = json.loads((folder / "back" / "annotations" / "instances.json").read_text())
    assert said(found) == said(content)
    return result


def test_a_made_set(tmp_path: Path) -> None:
    made = made_set(tmp_path / "set", 12, crowds=0.9, empty=0.3)
    # (images and masks make it a set of pairs, too)
    result = pack(tmp_path / "set", tmp_path / "out", as_="coco", num_proc=2)
    assert verify(tmp_path / "out", decode=True) == ([], 12)
    assert (result.manifest.num_records, result.manifest.left_out, result.manifest.skipped) == (12, 0, 0)
    labels, points = result.manifest.schema["labels"].kind, result.manifest.schema["keypoints"].kind
    assert labels == Labels(CLASSES, CATEGORY_IDS)
    assert points == Keypoints(5, pairs=((1, 2), (3, 4)))
    truth, dataset = COCO(made.json), PackedFiles(tmp_path / "out")
    for sample, image in enumerate(made.instances["images"]):

        def value(name: str, sample: int = sample) -> Any:
            return dataset.schema[name].decode(dataset.value_bytes(name, sample))

        wanted = truth.loadAnns(truth.getAnnIds(image["id"]))
        assert dataset.key(sample) == image["file_name"]
        assert (tmp_path / "set" / "images" / image["file_name"]).read_bytes() == dataset.read(sample)
        assert value("image_id") == image["id"]
        assert value("ids").tolist() == [one["id"] for one in wanted]
        assert value("boxes").tolist() == [np.float32(one["bbox"]).tolist() for one in wanted]
        assert [CATEGORY_IDS[at] for at in value("labels")] == [one["category_id"] for one in wanted]
        assert value("area").tolist() == [one["area"] for one in wanted]
        assert value("iscrowd").tolist() == [one["iscrowd"] for one in wanted]
        assert value("keypoints").reshape(-1, 15).tolist() == [one["keypoints"] for one in wanted]
        assert value("captions") == [
            one["caption"] for one in made.captions["annotations"] if one["image_id"] == image["id"]
        ]
        size = image["height"], image["width"]
        for mask, one in zip(value("masks"), wanted, strict=True):
            flat = mask if isinstance(mask, dict) else [polygon.ravel().tolist() for polygon in mask]
            drawn = coco_mask.frPyObjects(flat, *size)
            drawn = coco_mask.decode(drawn if isinstance(drawn, dict) else coco_mask.merge(drawn))
            np.testing.assert_array_equal(drawn, truth.annToMask(one))
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    for name, content in (("instances", made.instances), ("captions", made.captions)):
        found = json.loads((tmp_path / "back" / "annotations" / f"{name}.json").read_text())
        assert said(found) == said(content)
    again = pack(tmp_path / "back", tmp_path / "again")
    assert again.manifest.fields == result.manifest.fields


def letters(mask: np.ndarray) -> dict[str, Any]:
    runs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": runs["size"], "counts": runs["counts"].decode()}


ODD: list[dict[str, Any]] = [
    {},
    {"bbox": [1, 2, 3, 4]},
    {"bbox": [0.1, 1e-05, 3.3333333333333335, 16777217]},
    {"bbox": [-5.5, -0.0, 100, 100]},
    {"area": 7},
    {"area": 0.1},
    {"iscrowd": 1},
    {"iscrowd": False},
    {"id": "a text"},
    {"id": 2**70},
    {"id": 7.0},
    {"segmentation": [SQUARE]},
    {"segmentation": [SQUARE, [0, 0, 1, 1, 2, 0]]},
    {"segmentation": [[0, 0, 5, 0, 5, 5]]},
    {"segmentation": []},
    {"segmentation": {"size": [30, 40], "counts": [100, 10, 1090]}},
    {"segmentation": {"size": [30, 40], "counts": [0, 10, 0, 5, 1185]}},
    {"segmentation": {"counts": [1200], "size": [30, 40], "more": 1}},
    {"segmentation": letters(np.arange(1200).reshape(30, 40) % 7 < 3)},
    {"segmentation": letters(np.zeros((30, 40)))},
    {"attributes": {"occluded": True, "notes": ["\u00fc", "\U0001f600", None]}},
    {"keypoints": [1, 2, 2, 0, 0, 0], "num_keypoints": 1},
    {"keypoints": [1.5, 2, 1, 3, 4, 2], "num_keypoints": 5},
    {"keypoints": [1, 2, 2, 0, 0, 0]},
    {"num_keypoints": 0},
]


@pytest.mark.parametrize("odd", ODD, ids=said)
def test_what_people_write_comes_back(tmp_path: Path, odd: dict[str, Any]) -> None:
    result = there_and_back(tmp_path, small([BOX | {"id": 5}, BOX | odd, BOX | {"image_id": 2, "id": 6}]))
    assert (result.manifest.left_out, result.manifest.skipped) == (0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_any_of_it_in_any_order(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    annotations = []
    for number in range(40):
        one = BOX | {"id": number, "image_id": draws.randint(1, 5), "category_id": draws.choice([3, 18])}
        for odd in draws.sample(ODD, 3):
            one |= odd
        for key in draws.sample(["area", "iscrowd", "id", "segmentation"], draws.choice([0, 0, 1, 2])):
            one.pop(key, None)
        annotations.append(one)
    content = small(annotations, images=6)
    content["images"][2] |= {"license": 4, "coco_url": "http://x/\u00e4"}
    content["images"][3]["file_name"] = "sub/\u00fc 4.jpg"
    content["images"][4].pop("height")
    content |= {"licenses": [{"id": 4, "name": "\u00df"}], "more": {"a": [1, 1.0, None]}}
    keys = list(content)
    draws.shuffle(keys)
    there_and_back(tmp_path, {key: content[key] for key in keys}, num_proc=draws.choice([None, 2]))


def test_letters_are_pycocotools() -> None:
    from fastload.packing.annotations.coco_rows import annotation_of

    rng = np.random.default_rng(0)
    for size in ((1, 1), (7, 5), (300, 200)):
        for share in (0.0, 0.01, 0.5, 1.0):
            wanted = letters(rng.random(size) < share)
            runs = _runs(coco_mask.decode(wanted))
            values = {"bbox": np.zeros(4, np.float32), "segmentation": {"size": list(size), "counts": runs}}
            assert annotation_of(values, 1, {"letters": True})["segmentation"] == wanted


def _runs(mask: np.ndarray) -> list[int]:
    runs, last = [0], 0
    for pixel in mask.ravel(order="F").tolist():
        if pixel != last:
            runs.append(0)
            last = pixel
        runs[-1] += 1
    return runs


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bbox": [1, 2, 0, 4]}, "bbox has no area: width 0, height 4"),
    ({"bbox": [1, 2, 3, -1]}, "bbox has no area"),
    ({"bbox": [1, 2, 3]}, "bbox must be left, top, width and height"),
    ({"bbox": [1, 2, 3, "4"]}, "bbox must be a list of numbers"),
    ({"bbox": [1, 2, 3, True]}, "bbox must be a list of numbers"),
    ({"bbox": [1, 2, 3, 10**400]}, "no float holds"),
    ({"bbox": [1, 2, 3, 1e39]}, "not too large"),
    ({"bbox": None}, "it has no bbox"),
    ({"category_id": 4}, "category_id 4 is not one of the categories"),
    ({"category_id": "cat"}, "category_id 'cat' is not one"),
    ({"segmentation": [[1, 1, 5, 5]]}, "at least three points. Found: 4 numbers"),
    ({"segmentation": [[1, 1, 5, 5, 3]]}, "at least three points. Found: 5 numbers"),
    ({"segmentation": [[1, 1, 1, 1, 1, 1]]}, "points are all the same"),
    ({"segmentation": [[1, 1, 5, 5, 3, 2**21]]}, "not too large"),
    ({"segmentation": "x"}, "must be a list of polygons, or run lengths"),
    ({"segmentation": {"size": [30, 41], "counts": [1230]}}, "its image's are"),
    ({"segmentation": {"size": [30, 40], "counts": [1199]}}, "counts must come to"),
    ({"segmentation": {"size": [30, 40], "counts": "\u00ff"}}, "not COCO's letters"),
    ({"segmentation": {"size": [30, 40]}}, "an area is"),
    ({"area": "80"}, "area must be a finite number"),
    ({"area": float("nan")}, "NaN is not a JSON number"),
    ({"iscrowd": 2}, "iscrowd must be 0 or 1"),
    ({"attributes": float("inf")}, "Infinity is not a JSON number"),
    ({"keypoints": [1, 2, 2]}, "keypoints must have 6 numbers. Found: 3"),
    ({"keypoints": [1, 2, -2, 0, 0, 0]}, "visibilities of at least 0"),
    ({"attributes": "\ud800"}, "surrogates not allowed"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=lambda value: str(value)[:40])
def test_bad_annotations_are_refused_or_listed(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    good = [
        BOX | {"id": 5, "keypoints": [1, 2, 2, 3, 4, 2], "num_keypoints": 2, "segmentation": [SQUARE]}
    ] * 3
    good[2] = good[2] | {"image_id": 2, "id": 6}
    content = small([good[0], BOX | {"id": 77} | bad, *good[1:]])
    write_set(tmp_path / "set", content)
    with pytest.raises(PackError, match="1 annotation") as raised:
        pack(tmp_path / "set", tmp_path / "out")
    assert "1.jpg, annotation 77" in str(raised.value)
    assert reason in str(raised.value)
    result = pack(tmp_path / "set", tmp_path / "out", on_error="skip")
    assert (result.manifest.num_records, result.manifest.left_out, result.manifest.skipped) == (2, 1, 0)
    (line,) = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert json.loads(line).items() >= {"path": "1.jpg", "annotation": "annotation 77"}.items()
    assert reason in json.loads(line)["reason"]
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    found = json.loads((tmp_path / "back" / "annotations" / "instances.json").read_text())
    assert said(found) == said(content | {"annotations": good})


def test_pictures_that_are_missing_and_annotations_of_none(tmp_path: Path) -> None:
    content = small([BOX, BOX | {"id": 2, "image_id": 9}, BOX | {"id": 3, "image_id": None}], images=3)
    write_set(tmp_path / "set", content)
    (tmp_path / "set" / "images" / "2.jpg").unlink()
    with pytest.raises(PackError) as raised:
        pack(tmp_path / "set", tmp_path / "out")
    for words in (
        "2.jpg: ",
        "No such file",
        ", is not that of an image",
        "annotation 3",
    ):
        assert words in str(raised.value)
    result = pack(tmp_path / "set", tmp_path / "out", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (2, 3)
    assert len((tmp_path / "out" / "skipped.jsonl").read_text().splitlines()) == 3


def test_pictures_that_exif_turns(tmp_path: Path) -> None:
    write_set(tmp_path / "set", small([BOX]))
    write_photo(tmp_path / "set" / "images" / "2.jpg", 2, orientation=6)
    with pytest.raises(PackError, match=r"2\.jpg: EXIF turns this picture \(orientation 6\).*--exif ignore"):
        pack(tmp_path / "set", tmp_path / "out")
    result = pack(tmp_path / "set", tmp_path / "less", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (1, 1)
    with pytest.raises(PackError, match="of other samples"):
        pack(tmp_path / "set", tmp_path / "less", on_error="skip", exif="ignore")
    pack(tmp_path / "set", tmp_path / "out", exif="ignore", restart=True)
    data = PackedFiles(tmp_path / "out").value_bytes("image", 1)
    assert data == (tmp_path / "set" / "images" / "2.jpg").read_bytes()


def test_captions_of_pictures_that_exif_turns(tmp_path: Path) -> None:
    content = small([{"id": 1, "image_id": 1, "caption": "a cat"}])
    write_set(tmp_path / "set", content, "captions.json")
    write_photo(tmp_path / "set" / "images" / "1.jpg", 1, orientation=6)
    assert pack(tmp_path / "set", tmp_path / "out").manifest.num_records == 2


def test_text_that_is_no_utf_8(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", small([BOX, BOX | {"id": 2, "note": "QQ"}]))
    path = folder / "annotations" / "instances.json"
    path.write_bytes(path.read_bytes().replace(b"QQ", b"\xff\xfe"))
    result = pack(folder, tmp_path / "out", on_error="skip")
    assert (result.manifest.num_records, result.manifest.left_out) == (2, 1)
    assert "invalid UTF-8" in (tmp_path / "out" / "skipped.jsonl").read_text()


def test_splits_and_names(tmp_path: Path) -> None:
    for split in ("train2017", "val2017"):
        content = small([BOX])
        (tmp_path / "coco" / "annotations").mkdir(parents=True, exist_ok=True)
        (tmp_path / "coco" / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
        for number, image in enumerate(content["images"]):
            write_photo(tmp_path / "coco" / split / image["file_name"], number)
    results = fastload.pack(tmp_path / "coco", tmp_path / "out")
    assert [result.output.name for result in results] == ["train2017", "val2017"]  # type: ignore[union-attr]
    unpack(tmp_path / "out" / "val2017", tmp_path / "back", as_="coco")
    assert (tmp_path / "back" / "val2017" / "1.jpg").is_file()
    assert (tmp_path / "back" / "annotations" / "instances_val2017.json").is_file()
    one = pack(
        tmp_path / "coco" / "val2017",
        tmp_path / "one",
        annotations=[tmp_path / "coco" / "annotations" / "instances_val2017.json"],
    )
    assert one.manifest.num_records == 2
    done = run_cli("pack", tmp_path / "coco", tmp_path / "cli", "--as", "coco", "--limit", "1")
    assert done.returncode == 0, done.stderr
    done = run_cli("unpack", tmp_path / "cli" / "val2017", tmp_path / "cli-back", "--as", "coco")
    assert done.returncode == 0, done.stderr
    assert "1 file" in done.stdout


def test_what_cannot_be_told_apart(tmp_path: Path) -> None:
    said = small([{"id": 1, "image_id": 1, "caption": "one"}])
    for name in ("captions_val.json", "captions-val.json"):
        write_set(tmp_path / "set", said, name)
    with pytest.raises(PackError, match=r"2 files have captions of the same pictures"):
        pack(tmp_path / "set", tmp_path / "out")
    annotations = [tmp_path / "set" / "annotations" / "captions_val.json"]
    assert pack(tmp_path / "set", tmp_path / "out", annotations=annotations).manifest.num_records == 2
    write_set(tmp_path / "other", small([BOX]), "instances_val.json")
    others = small([BOX])
    others["categories"][1]["name"] = "wolf"
    write_set(tmp_path / "other", others, "stuff_val.json")
    with pytest.raises(PackError, match="category 18 is 'wolf', which files before it .* call 'dog'"):
        pack(tmp_path / "other", tmp_path / "out2")
    (tmp_path / "none").mkdir()
    with pytest.raises(PackError, match="in none of these folders"):
        pack(tmp_path / "none", tmp_path / "out3", annotations=annotations)


def test_unpacking_needs_what_coco_says(tmp_path: Path) -> None:
    write_set(tmp_path / "set", small([BOX]))
    pack(tmp_path / "set", tmp_path / "small", max_side=20)
    with pytest.raises(PackError, match="was packed with max_side=20"):
        unpack(tmp_path / "small", tmp_path / "back", as_="coco")
    fastload.pack(tmp_path / "set" / "images", tmp_path / "plain")
    with pytest.raises(PackError, match="as 'coco': .* It was not packed from annotated files"):
        unpack(tmp_path / "plain", tmp_path / "back", as_="coco")


def test_pictures_that_become_smaller(tmp_path: Path) -> None:
    """Outlines scale, and areas become what the same areas become in a field of their own."""
    area = {"size": [30, 40], "counts": [100, 50, 300, 7, 743]}
    segmentations = [[SQUARE, [0, 0, 40, 0, 40, 30]], area, []]
    annotations = [BOX | {"id": n, "segmentation": one} for n, one in enumerate(segmentations)]
    write_set(tmp_path / "set", small(annotations))
    pack(tmp_path / "set", tmp_path / "out", max_side=20)
    schema = {"image": "image", "areas": "polygons(rle)"}
    one = {"image": tmp_path / "set" / "images" / "1.jpg", "areas": [area]}
    fastload.pack([one], tmp_path / "areas", schema, max_side=20)
    dataset, alone = PackedFiles(tmp_path / "out"), PackedFiles(tmp_path / "areas")
    masks = dataset.schema["masks"].decode(dataset.value_bytes("masks", 0))
    assert [polygon.ravel().tolist() for polygon in masks[0]] == [
        [number / 2 for number in SQUARE], [0, 0, 20, 0, 20, 15]
    ]  # fmt: skip
    assert masks[1:] == [*alone.schema["areas"].decode(alone.value_bytes("areas", 0)), []]
    assert dataset.schema["boxes"].decode(dataset.value_bytes("boxes", 0))[0].tolist() == [0.75, 1, 5, 4.125]


def test_images_of_one_file_and_lists_that_are_empty(tmp_path: Path) -> None:
    content = small([])
    content["images"][1]["file_name"] = "1.jpg"
    write_set(tmp_path / "set", content)
    result = pack(tmp_path / "set", tmp_path / "out")
    assert result.manifest.schema.names == ("image", "image_id", "boxes", "order", "rest")
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    found = json.loads((tmp_path / "back" / "annotations" / "instances.json").read_text())
    assert said(found) == said(content)


def test_annotations_before_images_and_values_over_parts_borders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = small([BOX | {"id": number, "note": "\u00fc" * number} for number in range(30)])
    first = {key: content[key] for key in ("annotations", "categories", "images", "info")}
    for window in (1, 7, 64, 1000):
        monkeypatch.setattr(json_stream, "_WINDOW", window)
        there_and_back(tmp_path / str(window), copy.deepcopy(first))
