"""One set of several of COCO's JSONs: objects by their ids, captions, segments, maps of stuff; and back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_trees import ids_of, write_mask
from PIL import Image
from test_coco import BOX, SQUARE, pack, said, small, write_set

from fastload.errors import PackError
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.fields import Labels
from fastload.shard.dataset import PackedFiles

PERSON = {"id": 1, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"], "skeleton": [[1, 2]]}
POINTS = [5.5, 6, 2, 7, 8, 1, 0, 0, 0]


def files_of(seed: int, images: int = 7) -> dict[str, dict[str, Any]]:
    """Instances, keypoints of some of them and of others, stuff, captions; in any order, of some images."""
    draws = random.Random(seed)
    instances, people, stuff, captions = (small([], images) for _ in range(4))
    instances["categories"].append({"id": 1, "name": "person", "supercategory": "person"})
    people["categories"] = [PERSON]
    stuff["categories"] = [{"id": 92, "name": "banner"}, {"id": 18, "name": "dog", "other": 1}]
    for number in range(30):
        of = draws.randint(1, images)
        one = BOX | {"id": number, "image_id": of, "category_id": 1, "segmentation": [SQUARE]}
        kind = draws.randrange(4)
        if kind < 3:
            instances["annotations"].append(one | {"category_id": draws.choice([1, 3, 18])})
        if kind in (2, 3):
            changes = draws.choice([{}, {"area": 7}, {"bbox": [1.5, 2, 10, 8]}, {"more": [1, 2.0]}])
            points = {"keypoints": POINTS, "num_keypoints": draws.choice([2, 3])}
            people["annotations"].append(one | {"category_id": 1} | points | changes)
        stuff["annotations"].append(BOX | {"id": 1000 + number, "image_id": of, "category_id": 92})
        captions["annotations"].append({"id": number, "image_id": of, "caption": f"it is {number}"})
    files = {"instances": instances, "person_keypoints": people, "stuff": stuff, "captions": captions}
    for name, content in files.items():
        draws.shuffle(content["annotations"])
        if seed and name != "instances":
            draws.shuffle(content["images"])
            content["images"].append({"id": 100 + len(name), "file_name": f"{name}.jpg", "license": 3})
            lost = content["images"].pop(0)["id"]
            content["annotations"] = [one for one in content["annotations"] if one["image_id"] != lost]
    return files


@pytest.mark.parametrize("seed", range(4))
def test_all_of_a_split_come_back(tmp_path: Path, seed: int) -> None:
    files = files_of(seed)
    for name, content in files.items():
        write_set(tmp_path / "set", content, f"{name}_val.json")
    result = pack(tmp_path / "set", tmp_path / "out", num_proc=2 if seed == 1 else None)
    assert (result.manifest.left_out, result.manifest.skipped) == (0, 0)
    assert verify(tmp_path / "out", decode=True)[0] == []
    ids = [[one["id"] for one in content["images"]] for content in files.values()]
    assert result.manifest.num_records == len({number for some in ids for number in some})
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    for name, content in files.items():
        found = json.loads((tmp_path / "back" / "annotations" / f"{name}_val.json").read_text())
        assert said(found) == said(content)
    dataset = PackedFiles(tmp_path / "out")
    first = files["instances"]["images"]
    rest = [one for name in ("person_keypoints", "stuff", "captions") for one in files[name]["images"]]
    wanted = list(dict.fromkeys(one["id"] for one in [*first, *rest]))
    numbers = [
        int(dataset.schema["image_id"].decode(dataset.value_bytes("image_id", n))) for n in range(len(wanted))
    ]
    assert numbers == wanted


def test_an_object_is_one_row(tmp_path: Path) -> None:
    """Who is in both files has a box once, with its points; and labels are of all categories."""
    other = BOX | {"id": 2, "image_id": 1}
    write_set(tmp_path / "set", small([BOX | {"area": 80.0}, other]), "instances_val.json")
    people = small([other | {"category_id": 1, "keypoints": POINTS, "id": 7}, BOX | {"keypoints": POINTS}])
    people["categories"] = [PERSON, {"id": 3, "name": "cat"}]
    write_set(tmp_path / "set", people, "person_keypoints_val.json")
    pack(tmp_path / "set", tmp_path / "out")
    dataset = PackedFiles(tmp_path / "out")

    def value(name: str) -> Any:
        return dataset.schema[name].decode(dataset.value_bytes(name, 0))

    assert value("ids").tolist() == [1, 2, 7]
    assert value("order").tolist() == [0, 1, -1]
    assert value("order_2").tolist() == [1, -1, 0]
    kind = dataset.schema["labels"].kind
    assert isinstance(kind, Labels)
    assert [kind.ids[index] for index in value("labels")] == [3, 3, 1]
    points = np.array(POINTS, np.float32).reshape(3, 3)
    np.testing.assert_array_equal(value("keypoints"), [points, 0 * points, points])
    assert dataset.schema["keypoints"].kind.pairs == ((1, 2),)  # type: ignore[attr-defined]


def test_a_picture_with_two_names(tmp_path: Path) -> None:
    write_set(tmp_path / "set", small([BOX]), "instances_val.json")
    captions = small([{"id": 1, "image_id": 1, "caption": "a"}])
    captions["images"][1]["file_name"] = "other.jpg"
    write_set(tmp_path / "set", captions, "captions_val.json")
    with pytest.raises(
        PackError, match="image 2 is 2.jpg in instances_val.json and other.jpg in captions_val"
    ):
        pack(tmp_path / "set", tmp_path / "out")
    assert pack(tmp_path / "set", tmp_path / "out", on_error="skip", restart=True).manifest.skipped == 1


def test_segments_and_maps_of_stuff(tmp_path: Path) -> None:
    """Panoptic JSON and PNGs, and COCO-Stuff's PNGs, beside objects; segments of some images only."""
    folder = tmp_path / "set"
    write_set(folder, small([BOX], images=3), "instances_val.json")
    panoptic = small([], images=2)
    panoptic["images"].reverse()
    for number in (1, 2):
        numbers = np.full((30, 40), 300 + number)
        numbers[:5] = 0
        numbers[10:] = 70_000
        colours = np.stack([numbers % 256, numbers // 256 % 256, numbers // 65536], 2).astype(np.uint8)
        path = folder / "annotations" / "panoptic_val" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(colours).save(path)
        facts = {"category_id": 3, "iscrowd": 0, "bbox": [0, 5, 40, 5], "area": 200}
        segments = [facts | {"id": 300 + number}, facts | {"id": 70_000, "category_id": 18, "area": 800}]
        one = {"image_id": number, "file_name": path.name, "segments_info": segments}
        panoptic["annotations"].append(one)
    (folder / "annotations" / "panoptic_val.json").write_text(json.dumps(panoptic))
    for number in (1, 2, 3):
        write_mask(folder / "maps" / f"{number}.png", ids_of(number))
    names = [folder / "annotations" / f"{name}_val.json" for name in ("instances", "panoptic")]
    pack(folder, tmp_path / "out", annotations=names, masks=folder / "maps")
    assert verify(tmp_path / "out", decode=True)[0] == []
    schema = PackedFiles(tmp_path / "out").schema
    assert {"boxes", "panoptic", "segments_boxes", "stuff"} <= set(schema.names)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    for name in names:
        found = tmp_path / "back" / "annotations" / name.name
        assert said(json.loads(found.read_text())) == said(json.loads(name.read_text()))
    for number in (1, 2):
        pngs = [
            root / "annotations" / "panoptic_val" / f"{number}.png" for root in (folder, tmp_path / "back")
        ]
        first, second = (np.asarray(Image.open(path)) for path in pngs)
        np.testing.assert_array_equal(first, second)
    assert not (tmp_path / "back" / "annotations" / "panoptic_val" / "3.png").exists()
    for number in (1, 2, 3):
        back = tmp_path / "back" / "maps" / f"{number}.png"
        assert back.read_bytes() == (folder / "maps" / f"{number}.png").read_bytes()


def test_maps_in_the_folder_that_is_looked_for(tmp_path: Path) -> None:
    """They come back there, not among the pictures, and are found again."""
    write_set(tmp_path / "set", small([BOX], images=2), "instances_val.json")
    for number in (1, 2):
        write_mask(tmp_path / "set" / "stuffthingmaps" / "val" / f"{number}.png", ids_of(number))
    pack(tmp_path / "set", tmp_path / "out")
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    pack(tmp_path / "back", tmp_path / "again")
    first, second = (PackedFiles(tmp_path / name) for name in ("out", "again"))
    for number in range(2):
        assert first.value_bytes("stuff", number) == second.value_bytes("stuff", number)


def test_a_map_that_is_missing(tmp_path: Path) -> None:
    write_set(tmp_path / "set", small([BOX]), "stuff_val.json")
    write_mask(tmp_path / "set" / "annotations" / "stuff_val_pixelmaps" / "1.png", ids_of(1))
    with pytest.raises(PackError, match=r"2\.jpg: field 'stuff': No such file"):
        pack(tmp_path / "set", tmp_path / "out")
    result = pack(tmp_path / "set", tmp_path / "out", on_error="skip", restart=True)
    assert (result.manifest.num_records, result.manifest.skipped) == (1, 1)


def test_ids_of_files_that_were_numbered_apart(tmp_path: Path) -> None:
    """The same id with another box is another object, and so is each without an id."""
    first = small([BOX, BOX | {"id": 2, "bbox": [3, 3, 4, 4], "area": 16}])
    second = small(
        [BOX | {"bbox": [20, 18, 6, 5], "area": 30}, BOX | {"id": 2, "bbox": [3, 3, 4, 4.5], "area": 18}]
    )
    unnumbered = {"image_id": 1, "category_id": 3, "iscrowd": 0, "segmentation": []}
    for file, left in ((first, 1.0), (second, 30.0)):
        file["annotations"].append(unnumbered | {"bbox": [left, 1, 2, 2], "area": 4})
    write_set(tmp_path / "set", first, "instances_val.json")
    write_set(tmp_path / "set", second, "stuff_val.json")
    pack(tmp_path / "set", tmp_path / "out")
    dataset = PackedFiles(tmp_path / "out")
    boxes = dataset.schema["boxes"].decode(dataset.value_bytes("boxes", 0))
    wanted = [BOX["bbox"], [3, 3, 4, 4], [1, 1, 2, 2], [20, 18, 6, 5], [30, 1, 2, 2]]
    assert sorted(boxes.tolist()) == sorted([float(one) for one in box] for box in wanted)
    unpack(tmp_path / "out", tmp_path / "back", as_="coco")
    for name, content in (("instances", first), ("stuff", second)):
        found = json.loads((tmp_path / "back" / "annotations" / f"{name}_val.json").read_text())
        assert said(found) == said(content)
