"""COCO's panoptic sets: PNGs of ids become masks of the segments' places, and come back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from annotated_trees import write_photo
from made_detection import CATEGORY_IDS, CLASSES, made_set
from PIL import Image as pillow

import fastload
from fastload import Array, Boxes, Labels, Mask
from fastload.errors import PackError
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles


def ids_in(path: Path) -> npt.NDArray[np.int64]:
    """The ids of a PNG: red + 256 green + 65536 blue."""
    with pillow.open(path) as picture:
        return np.asarray(picture).astype(np.int64) @ np.array([1, 256, 65536])


def value(dataset: PackedFiles, name: str, sample: int) -> Any:
    return dataset.schema[name].decode(dataset.value_bytes(name, sample))


def pixels(dataset: PackedFiles, sample: int) -> npt.NDArray[Any]:
    with pillow.open(io.BytesIO(dataset.value_bytes("panoptic", sample))) as picture:
        return np.asarray(picture)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A made set, with what is panoptic of it alone."""
    made_set(tmp_path / "in", 8, seed=3)
    for name in ("instances", "captions"):
        (tmp_path / "in" / "annotations" / f"{name}.json").unlink()
    return tmp_path / "in"


def document(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "annotations" / "panoptic.json").read_text())
    return found


def write(place: Path, said: dict[str, Any]) -> None:
    (place / "annotations" / "panoptic.json").write_text(json.dumps(said))


def test_what_the_files_say(place: Path, tmp_path: Path) -> None:
    (result,) = fastload.pack(place, tmp_path / "set", as_="coco")
    dataset, said = PackedFiles(tmp_path / "set"), document(place)
    assert verify(tmp_path / "set") == ([], 8)
    of = "segments_boxes"
    assert [dataset.schema[name] for name in ("panoptic", of, "segments_labels", "segments_ids")] == [
        Field("panoptic", Mask(8, ignore=0)),
        Field(of, Boxes("xywh")),
        Field("segments_labels", Labels(tuple(CLASSES), tuple(CATEGORY_IDS)), of),
        Field("segments_ids", Array("int64", (None,)), of),
    ]
    assert sum(len(one["segments_info"]) for one in said["annotations"]) > 10
    for number, one in enumerate(said["annotations"]):
        segments = one["segments_info"]
        assert value(dataset, "segments_ids", number).tolist() == [segment["id"] for segment in segments]
        assert np.array_equal(
            value(dataset, of, number), np.array([s["bbox"] for s in segments], np.float32).reshape(-1, 4)
        )
        assert value(dataset, "segments_area", number).tolist() == [segment["area"] for segment in segments]
        ids = np.array([0, *(segment["id"] for segment in segments)])
        assert np.array_equal(ids[pixels(dataset, number)], ids_in(place / "panoptic" / one["file_name"]))
    assert result.manifest.left_out == 0


def test_it_comes_back(place: Path, tmp_path: Path) -> None:
    said = document(place)
    said["annotations"].reverse()
    said["annotations"][2]["more"] = [1.0, 1]
    for one in said["annotations"]:
        for number, segment in enumerate(one["segments_info"]):
            segment["note" if number else "area"] = number + 0.5
    write(place, said)
    (result,) = fastload.pack(place, tmp_path / "set", as_="coco")
    assert unpack(tmp_path / "set", tmp_path / "again", as_="panoptic") == 8
    # as texts, which tell 1 from 1.0
    assert json.dumps(document(tmp_path / "again"), sort_keys=True) == json.dumps(said, sort_keys=True)
    for one in said["annotations"]:
        again = tmp_path / "again" / "annotations" / "panoptic" / one["file_name"]
        assert np.array_equal(ids_in(again), ids_in(place / "panoptic" / one["file_name"]))
    for picture in (place / "images").iterdir():
        assert (tmp_path / "again" / "images" / picture.name).read_bytes() == picture.read_bytes()
    (once_more,) = fastload.pack(tmp_path / "again", tmp_path / "more" / "set", as_="coco")
    assert once_more.manifest.id == result.manifest.id


def test_it_is_named_beside_others(tmp_path: Path) -> None:
    made_set(tmp_path / "in", 3)
    for named in ("annotations/panoptic.json", tmp_path / "in" / "annotations" / "panoptic.json"):
        fastload.pack(tmp_path / "in", tmp_path / "set", annotations=named, restart=True)
        assert "panoptic" in PackedFiles(tmp_path / "set").schema
    fastload.pack(tmp_path / "in", tmp_path / "two", as_="coco")
    assert "panoptic" not in PackedFiles(tmp_path / "two").schema


def small(place: Path, ids: npt.NDArray[np.int64], segments: list[Any]) -> None:
    """A set of one picture."""
    height, width = ids.shape
    write_photo(place / "val" / "a.jpg", 1, (width, height))
    (place / "annotations" / "panoptic_val").mkdir(parents=True)
    colours = np.stack([ids % 256, ids // 256 % 256, ids // 65536], 2).astype(np.uint8)
    pillow.fromarray(colours).save(place / "annotations" / "panoptic_val" / "a.png")
    said = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": width, "height": height}],
        "annotations": [{"image_id": 1, "file_name": "a.png", "segments_info": segments}],
        "categories": [{"id": 7, "name": "sky", "isthing": 0}],
    }
    (place / "annotations" / "panoptic_val.json").write_text(json.dumps(said))


def segment(number: Any, **further: Any) -> dict[str, Any]:
    return {"id": number, "category_id": 7, "area": 4, "iscrowd": 0, "bbox": [0, 0, 2, 2], **further}


def test_more_than_255_segments_take_16_bits(tmp_path: Path) -> None:
    ids = np.arange(400).reshape(20, 20) * 30001 + 1
    small(tmp_path / "in", ids, [segment(int(number)) for number in ids.reshape(-1)])
    fastload.pack(tmp_path / "in", tmp_path / "set")
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.schema["panoptic"].kind == Mask(16, ignore=0)
    assert np.array_equal(pixels(dataset, 0), np.arange(1, 401).reshape(20, 20))


def test_bad_segments_are_left_out(tmp_path: Path) -> None:
    ids = np.repeat(np.array([[0, 5, 6, 7, 8]]), 4, axis=0)
    segments = [
        segment(5), segment(6, category_id=8), segment(7, bbox=[0, 0, 0, 2]), segment(8), segment(9),
        segment(8), segment("x"), 3,
    ]  # fmt: skip
    small(tmp_path / "in", ids, segments)
    with pytest.raises(PackError, match="6 annotations cannot be packed") as caught:
        fastload.pack(tmp_path / "in", tmp_path / "set")
    for words in (
        "segment 6: category_id 8",
        "segment 9: it has no pixels",
        "8: a segment must have",
    ):
        assert words in str(caught.value)
    fastload.pack(tmp_path / "in", tmp_path / "set", on_error="skip")
    dataset = PackedFiles(tmp_path / "set")
    assert value(dataset, "segments_ids", 0).tolist() == [5, 8]
    assert pixels(dataset, 0)[0].tolist() == [0, 1, 0, 0, 2]
    assert dataset.manifest.left_out == 6


def test_bad_pictures_are_listed(place: Path, tmp_path: Path) -> None:
    said = document(place)
    names = [one["file_name"] for one in said["annotations"]]
    del said["annotations"][0]
    said["annotations"][0]["file_name"] = "../x.png"
    said["images"][2]["width"] += 1
    pillow.new("L", (9, 9)).save(place / "panoptic" / names[3])
    said["annotations"][3]["segments_info"] = None
    with pillow.open(place / "panoptic" / names[5]) as picture:
        odd = np.asarray(picture).copy()
    odd[0, 0] = 255
    pillow.fromarray(odd).save(place / "panoptic" / names[5])
    write(place, said)
    with pytest.raises(PackError, match="6 samples cannot be packed") as caught:
        fastload.pack(place, tmp_path / "set", as_="coco")
    for words in (
        "panoptic annotation. Found: 0", "must be a path below the folder", "pixels, its image", "Found: L",
        "no list 'segments_info'", "pixels of the segment 16777215",
    ):  # fmt: skip
        assert words in str(caught.value)
    (result,) = fastload.pack(place, tmp_path / "set", as_="coco", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (2, 6)


def test_no_folder_of_pngs(place: Path, tmp_path: Path) -> None:
    (place / "panoptic").rename(place / "elsewhere")
    with pytest.raises(PackError, match="PNGs of .* are in none of these folders"):
        fastload.pack(place, tmp_path / "set", as_="coco")


def test_pictures_that_exif_turns(place: Path, tmp_path: Path) -> None:
    picture = place / "images" / document(place)["images"][0]["file_name"]
    write_photo(picture, 0, orientation=3)
    with pytest.raises(PackError, match=r"EXIF turns this picture \(orientation 3\)"):
        fastload.pack(place, tmp_path / "set", as_="coco")
    fastload.pack(place, tmp_path / "set", as_="coco", exif="ignore", restart=True)
    assert PackedFiles(tmp_path / "set").value_bytes("image", 0) == picture.read_bytes()
