"""The column ``objects`` of tables that Hugging Face's ``datasets`` writes: boxes, classes and the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hub_tables import IMAGE
from pictures import jpegs

import fastload
from fastload import Array, Boxes, Image, Json, Labels, Scalar, Texts
from fastload.cli import main
from fastload.errors import PackError
from fastload.packing.verify import verify
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles

datasets = pytest.importorskip("datasets")

NAMES = ["bolt", "nut", "gear"]
COUNT = 12
PICTURES = jpegs(COUNT)
SCHEMA = [
    Field("image", Image()),
    Field("image_id", Scalar("int64")),
    Field("boxes", Boxes("xywh")),
    Field("ids", Array("int64", (None,)), of="boxes"),
    Field("labels", Labels(tuple(NAMES)), of="boxes"),
    Field("area", Array("float32", (None,)), of="boxes"),
    Field("iscrowd", Array("bool", (None,)), of="boxes"),
    Field("note", Texts(), of="boxes"),
    Field("segmentation", Json()),
]


def objects_of(number: int, corners: bool = False) -> dict[str, list[Any]]:
    """Of one picture, 0 to 4 objects, as a dict of lists."""
    rng = np.random.default_rng(number)
    count = number % 5
    boxes = rng.integers(1, 30, (count, 4)).astype(float)
    if corners:
        boxes[:, 2:] += boxes[:, :2]
    return {
        "id": [100 * number + at for at in range(count)],
        "category": rng.integers(0, 3, count).tolist(),
        "bbox": boxes.tolist(),
        "area": [0.5 + at for at in range(count)],
        "iscrowd": [at % 2 for at in range(count)],
        "note": [f"n{at}" for at in range(count)],
        "segmentation": [[[1.0, 2.0, 3.0]] for _ in range(count)],
    }


def features(listed: bool) -> Any:
    value, sequence = datasets.Value, datasets.Sequence
    inner = {
        "id": value("int64"), "category": datasets.ClassLabel(names=NAMES), "area": value("float32"),
        "bbox": sequence(value("float32"), length=4), "iscrowd": value("int64"), "note": value("string"),
        "segmentation": sequence(sequence(value("float32"))),
    }  # fmt: skip
    objects = [inner] if listed else sequence(inner)
    return datasets.Features({"image": datasets.Image(), "image_id": value("int64"), "objects": objects})


def made(listed: bool, corners: bool = False) -> Any:
    found = [objects_of(number, corners) for number in range(COUNT)]
    rows = [[dict(zip(one, row, strict=True)) for row in zip(*one.values(), strict=True)] for one in found]
    columns = {
        "image": [{"bytes": data, "path": None} for data in PICTURES],
        "image_id": list(range(COUNT)),
        "objects": rows if listed else found,
    }
    return datasets.Dataset.from_dict(columns, features=features(listed))


def check(folder: Path, corners: bool = False) -> None:
    dataset = PackedFiles(folder)
    assert verify(folder) == ([], COUNT)
    for number in range(COUNT):
        wanted = objects_of(number, corners)

        def value(name: str, number: int = number) -> Any:
            found = dataset.schema[name].decode(dataset.value_bytes(name, number))
            return found.tolist() if isinstance(found, np.ndarray) else found

        assert dataset.value_bytes("image", number) == PICTURES[number]
        assert value("image_id") == number
        for name, key in {"boxes": "bbox", "labels": "category", "ids": "id"}.items():
            assert value(name) == wanted[key]
        for name in ("area", "iscrowd", "note", "segmentation"):
            assert value(name) == wanted[name]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("how", ["parquet", "disk"])
def test_what_datasets_writes(tmp_path: Path, listed: bool, how: str) -> None:
    rows = made(listed)
    (tmp_path / "in").mkdir()
    if how == "disk":
        rows.save_to_disk(tmp_path / "in")
    else:
        rows.to_parquet(tmp_path / "in" / "train.parquet")
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set")
    check(tmp_path / "set")
    found = {field.name: field for field in result.manifest.schema}
    assert found == {field.name: field for field in SCHEMA}
    (two,) = fastload.pack(tmp_path / "in", tmp_path / "two" / "set", num_proc=2)
    assert two.manifest.id == result.manifest.id


def test_an_earlier_version_of_the_features(tmp_path: Path) -> None:
    """Before version 4 a sequence of a dict said so around it."""
    table = made(False).data.table
    said = json.loads(table.schema.metadata[b"huggingface"])
    inner = {"category": {"names": NAMES, "_type": "ClassLabel"}, "id": {"dtype": "int64", "_type": "Value"}}
    said["info"]["features"]["objects"] = {"feature": inner, "_type": "Sequence"}
    parquet.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(said)}), tmp_path / "a.parquet"
    )
    fastload.pack(tmp_path / "a.parquet", tmp_path / "set")
    assert PackedFiles(tmp_path / "set").schema["labels"].kind == Labels(tuple(NAMES))


def test_boxes_that_may_be_corners_must_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(False, corners=True).to_parquet(tmp_path / "a.parquet")
    words = ["pack", str(tmp_path / "a.parquet"), str(tmp_path / "set")]
    assert main(words) == 1
    assert "--field boxes='boxes(xywh)' or --field boxes='boxes(xyxy)'" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main([*words, "--field", "boxes=boxes(xyxy)", "--quiet"]) == 0
    check(tmp_path / "set", corners=True)
    assert PackedFiles(tmp_path / "set").schema["boxes"].kind == Boxes("xyxy")


def test_bad_objects_are_left_out(tmp_path: Path) -> None:
    table = made(True).data.table.to_pylist()
    table[3]["objects"][0]["bbox"] = [1.0, 2.0, 0.0, 3.0]
    table[3]["objects"][2]["bbox"] = None
    table[4]["objects"][1]["category"] = 7
    kind = made(True).data.table.schema
    parquet.write_table(pa.Table.from_pylist(table, kind), tmp_path / "a.parquet")
    with pytest.raises(PackError, match="3 annotations cannot be packed") as caught:
        fastload.pack(tmp_path / "a.parquet", tmp_path / "set")
    for reason in (
        "00000003, object 1: its box has no area: 0 x 3", "object 3: a box is four numbers. Found: None",
        "00000004, object 2: labels must be from 0 to 2. Found: 7",
    ):  # fmt: skip
        assert reason in str(caught.value)
    (result,) = fastload.pack(tmp_path / "a.parquet", tmp_path / "set", on_error="skip")
    assert (result.manifest.num_records, result.manifest.left_out) == (COUNT, 3)
    dataset = PackedFiles(tmp_path / "set")
    ids = [dataset.schema["ids"].decode(dataset.value_bytes("ids", i)).tolist() for i in (3, 4)]
    assert ids == [[301], [400, 402, 403]]


def test_names_that_are_taken_and_no_classes(tmp_path: Path) -> None:
    objects = [
        {"bbox": [[5, 5, 1, 1]], "label": [3], "area": [2]},
        {"bbox": [], "label": [], "area": []},
        None,
    ]
    table = pa.table({
        "image": pa.array([{"bytes": data, "path": None} for data in PICTURES[:3]], IMAGE),
        "area": pa.array([1, 2, 3]),
        "objects": pa.array(objects),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "a.parquet")
    fastload.pack(tmp_path / "a.parquet", tmp_path / "set")
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.schema["labels"] == Field("labels", Labels(), of="boxes")
    assert dataset.schema["objects_area"] == Field("objects_area", Array("int64", (None,)), of="boxes")
    boxes = [dataset.schema["boxes"].decode(dataset.value_bytes("boxes", i)).tolist() for i in range(3)]
    assert boxes == [[[5, 5, 1, 1]], [], []]


def test_objects_without_boxes_stay_json(tmp_path: Path) -> None:
    table = pa.table({
        "image": pa.array([{"bytes": data, "path": None} for data in PICTURES[:2]], IMAGE),
        "objects": pa.array([{"name": ["a"]}, {"name": []}]),
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "a.parquet")
    fastload.pack(tmp_path / "a.parquet", tmp_path / "set")
    assert PackedFiles(tmp_path / "set").schema["objects"].kind == Json()
