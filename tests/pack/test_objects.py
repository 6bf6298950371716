"""Sets whose fields say something of objects: packed, verified, read by stock libraries, unpacked and packed
again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_sets import republished
from pack_trees import run_cli
from pictures import encoded, picture

import fastload
from fastload import Array, Boxes, Image, Keypoints, Labels, Of, Polygons, Texts
from fastload.errors import PackError
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import write_column
from fastload.shard.dataset import PackedFiles

CLASSES = ("cat", "dog")
AREA = {"size": [3, 4], "counts": [2, 3, 7]}
SCHEMA = Schema.of(
    [
        Field("image", Image(), None, {"folder": "val2017"}),
        ("boxes", Boxes("xywh")),
        Field("labels", Labels(CLASSES, (18, 3)), "boxes", {"supercategory": ["animal", "animal"]}),
        ("area", Of("boxes", Array("float64", (None,)))),
        ("masks", Of("boxes", Polygons("mixed"))),
        ("points", Of("boxes", Keypoints(2, pairs=((0, 1),)))),
        ("captions", Texts()),
    ]
)


def samples(count: int) -> list[dict[str, Any]]:
    """With no object, one, two, ... up to three in turn."""
    return [
        {
            "image": encoded(picture(seed=number, width=24, height=20)),
            "boxes": [[1, 2, 3, 4.5]] * (number % 4),
            "labels": ["dog", None, "cat"][: number % 4],
            "area": np.arange(number % 4) / 3,
            "masks": [[[0.1, 0.7, 5, 5, 0.3, 9]], AREA, []][: number % 4],
            "points": [[1, 2, 0, 3, 4, 2]] * (number % 4),
            "captions": ["a caption", "", "\u00fc\0\U0001f600"][: (number + 1) % 4],
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("container", ["arrow", "lmdb", "hdf5"])
def test_there_and_back(tmp_path: Path, container: str) -> None:
    made = fastload.pack(samples(9), tmp_path / "set", SCHEMA, format=container)
    assert isinstance(made, fastload.packing.publish.PackResult)
    assert json.loads((tmp_path / "set" / "dataset.json").read_text())["fastload"] == [1, 2]
    assert verify(tmp_path / "set", decode=True) == ([], 9)
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.schema == SCHEMA
    assert [field.source for field in dataset.schema] == [field.source for field in SCHEMA]
    for table in ("jsonl", "csv", "parquet"):
        unpack(tmp_path / "set", tmp_path / table, table=table)  # type: ignore[arg-type]
        (again,) = fastload.pack(
            tmp_path / table / f"samples.{table}", tmp_path / f"again-{table}", format=container
        )  # type: ignore[misc]
        assert again.manifest.schema == SCHEMA
        for name in SCHEMA.names:
            for sample in range(9):
                found = PackedFiles(again.output).value_bytes(name, sample)
                assert found == dataset.value_bytes(name, sample), (table, name, sample)


def test_stock_libraries_see_them(tmp_path: Path) -> None:
    import pyarrow as pa

    fastload.pack(samples(4), tmp_path / "set", SCHEMA)
    (shard,) = (tmp_path / "set").glob("*.arrow")
    table = pa.ipc.open_stream(pa.memory_map(str(shard))).read_all()
    row = table.slice(3, 1).to_pylist()[0]
    assert row["labels"] == [1, -1, 0]
    assert row["masks"] == [
        {"outlines": [[0.1, 0.7, 5, 5, 0.3, 9]], "size": [], "counts": []},
        {"outlines": [], **AREA},
        {"outlines": [], "size": [], "counts": []},
    ]
    assert table["captions"].to_pylist() == [["a caption"], ["a caption", ""], samples(3)[2]["captions"], []]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["labels"]["feature"] == {"names": ["cat", "dog"], "_type": "ClassLabel"}


def test_samples_whose_rows_do_not_go_together(tmp_path: Path) -> None:
    wrong = samples(6)
    wrong[2]["labels"] = ["cat"]
    with pytest.raises(PackError, match=r"'labels' is of 'boxes' and must have as many rows, 2\. Found: 1"):
        fastload.pack(wrong, tmp_path / "set", SCHEMA)
    made = fastload.pack(wrong, tmp_path / "other", SCHEMA, on_error="skip")
    assert (made.manifest.num_records, made.manifest.skipped) == (5, 1)  # type: ignore[union-attr]


def test_verify_finds_rows_that_do_not_go_together(tmp_path: Path) -> None:
    fastload.pack(samples(6), tmp_path / "set", SCHEMA)

    def write(path: Path, field: Any) -> Any:
        lengths = np.array([0, 8, 16, 16, 0, 8])  # the fourth has three boxes
        return write_column(path, field, 6, (), [lengths], [bytes(48)])

    republished(tmp_path / "set", "area", write)
    (problem,) = [one for one in verify(tmp_path / "set")[0] if one.sample is not None]
    assert (problem.sample, problem.reason) == (3, "has 2 rows of 'area', 3 of 'boxes'")


def test_sets_of_other_classes_are_not_mixed(tmp_path: Path) -> None:
    fastload.pack(samples(4), tmp_path / "one", SCHEMA)
    kinds = {field.name: Of(field.of, field.kind) if field.of else field.kind for field in SCHEMA}
    fastload.pack(samples(4), tmp_path / "other", kinds | {"labels": Of("boxes", Labels(CLASSES, (3, 18)))})
    with pytest.raises(
        ValueError, match="Classes of 'labels': 18 cat, 3 dog in the first, 3 cat, 18 dog in the"
    ):
        fastload.mix([tmp_path / "one", tmp_path / "other"])
    assert len(fastload.mix([tmp_path / "one", tmp_path / "one"])) == 8


def test_words_say_what_goes_together(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(encoded(picture(seed=1, width=9, height=8), "PNG"))
    row = {
        "image": "1.png",
        "boxes": [[1, 2, 3, 4], [0, 0, 1, 1]],
        "kinds": ["dog", "cat"],
        "said": ["a", ""],
    }
    (tmp_path / "table.jsonl").write_text(json.dumps(row) + "\n")
    words = ["boxes=boxes(xywh)", "kinds=labels(classes=['cat', 'dog']) of boxes", "said=texts"]
    done = run_cli(
        "pack", tmp_path / "table.jsonl", tmp_path / "set", *(w for word in words for w in ("--field", word))
    )
    assert done.returncode == 0, done.stderr
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.schema["kinds"] == Field("kinds", Labels(CLASSES), "boxes")
    assert dataset.schema["kinds"].decode(dataset.value_bytes("kinds", 0)).tolist() == [1, 0]
    wrong = ["boxes=boxes(xywh)", "kinds=labels(classes=['cat', 'dog']) of box"]
    done = run_cli(
        "pack", tmp_path / "table.jsonl", tmp_path / "no", *(w for word in wrong for w in ("--field", word))
    )
    assert done.returncode == 1
    assert "Field 'kinds' is of 'box', and there is no such field" in done.stderr


def test_loaders_give_them(tmp_path: Path) -> None:
    fastload.pack(samples(4), tmp_path / "set", SCHEMA)
    loader = fastload.DataLoader(
        tmp_path / "set", batch_size=4, fields=["boxes", "labels", "area", "captions"], transform=None
    )
    (batch,) = list(loader)
    assert batch["labels"].values.tolist() == [1, 1, -1, 1, -1, 0]
    assert batch["labels"].offsets.tolist() == batch["boxes"].offsets.tolist() == [0, 0, 1, 3, 6]
    assert batch["captions"] == [one["captions"] for one in samples(4)]
