"""``fastload index`` over Arrow files with objects and other columns; Parquet is packed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pack_trees import encoded
from PIL import Image

from fastload import PackedDataset, pack
from fastload.errors import FormatError, PackError
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.verify import verify

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(count: int = 40, kind: pa.DataType = IMAGE, **columns: Any) -> pa.Table:
    blobs = [encoded(i) for i in range(count)]
    pictures = [{"bytes": b, "path": f"{i:03d}.jpg"} for i, b in enumerate(blobs)] if kind == IMAGE else blobs
    return pa.table({"image": pa.array(pictures, kind), **columns})


def further(count: int) -> dict[str, Any]:
    ids = []
    for i in range(count):
        out = io.BytesIO()
        Image.fromarray(np.full((4, 5), i, np.uint8)).save(out, "PNG")
        ids.append({"bytes": out.getvalue(), "path": None})
    return {
        "label": pa.array([i % 2 for i in range(count)], pa.int32()),
        "caption": [f"é{i}" for i in range(count)],
        "score": pa.array([i / 7 for i in range(count)], pa.float32()),
        "numbers": [[1.5] * i for i in range(count)],
        "facts": [{"a": i, "b": None} for i in range(count)],
        "mask": pa.array(ids, IMAGE),
    }


def test_further_columns_are_those_of_pack(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrow", table(12, **further(12)))
    index_files([path], tmp_path / "indexed", IndexOptions(fields=(("caption", "text"),)))
    pack(path, tmp_path / "packed", num_proc=1)
    ours, theirs = PackedDataset(tmp_path / "indexed"), PackedDataset(tmp_path / "packed")
    assert set(ours.schema) == set(theirs.schema)
    for i in range(12):
        for name in theirs.schema.names:
            if name != "label":
                assert ours.value_bytes(name, i) == theirs.value_bytes(name, i), name
    assert ours.labels.tolist() == theirs.labels.tolist()
    assert verify(tmp_path / "indexed", decode=True) == ([], 12)
    none = ((name, "none") for name in ("score", "numbers", "facts", "mask"))
    some = index_files([path], tmp_path / "some", IndexOptions(fields=(("caption", "text"), *none)))
    assert str(some.schema) == "image=image, label=label, caption=text"


def objects(count: int) -> list[dict[str, Any]]:
    return [
        {
            "bbox": [[1.0 * k, 2.0, 3.0 + i, 4.0] for k in range(i % 3)],
            "category": [k % 2 for k in range(i % 3)],
            "area": [float(12 + 4 * i)] * (i % 3),
        }
        for i in range(count)
    ]


def detection(count: int = 9) -> pa.Table:
    box = {"feature": {"dtype": "float32", "_type": "Value"}, "length": 4, "_type": "List"}
    shown = {
        "bbox": {"feature": box, "_type": "List"},
        "category": {"feature": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "_type": "List"},
        "area": {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "List"},
    }
    features = {"image": {"_type": "Image"}, "objects": shown}
    kind = pa.struct([("bbox", pa.list_(pa.list_(pa.float32(), 4))), ("category", pa.list_(pa.int64())),
                      ("area", pa.list_(pa.float64()))])  # fmt: skip
    found = table(count, objects=pa.array(objects(count), kind))
    return found.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_arrow(path: Path, found: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found, max_chunksize=4)
    return path


def test_objects(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrow", detection())
    index_files([path], tmp_path / "indexed")
    pack(path, tmp_path / "packed", num_proc=1)
    ours, theirs = PackedDataset(tmp_path / "indexed"), PackedDataset(tmp_path / "packed")
    assert ours.schema == theirs.schema
    assert ours.schema["labels"].of == "boxes"
    assert ours.schema["labels"].kind.classes == ("cat", "dog")  # type: ignore[attr-defined]
    for i in range(9):
        for field in theirs.schema.names:
            assert ours.value_bytes(field, i) == theirs.value_bytes(field, i)
    assert verify(tmp_path / "indexed", decode=True) == ([], 9)


def test_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "objects": {
                "bbox": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
                "category": datasets.List(datasets.ClassLabel(names=["cat", "dog"])),
            },
        }
    )
    rows = {
        "image": [{"bytes": encoded(i), "path": f"{i}.jpg"} for i in range(6)],
        "objects": [{k: v for k, v in one.items() if k != "area"} for one in objects(6)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "hf"), num_shards=2)
    index_files([tmp_path / "hf"], tmp_path / "out")
    dataset = PackedDataset(tmp_path / "out")
    assert str(dataset.schema) == "image=image, boxes=boxes(xywh), labels=labels of boxes"
    for i, one in enumerate(objects(6)):
        found = dataset.sample(i)
        assert found["boxes"].tolist() == [[*map(float, box)] for box in one["bbox"]]
        assert found["labels"].tolist() == one["category"]
        assert dataset.read(i) == encoded(i)


def test_boxes_without_area_follow_the_policy(tmp_path: Path) -> None:
    rows = objects(5)
    rows[2]["bbox"][1] = [1.0, 1.0, 0.0, 5.0]
    found = detection(5)
    column = pa.array(rows, found.schema.field("objects").type)
    path = write_arrow(tmp_path / "a.arrow", found.set_column(1, found.schema.field(1), column))
    with pytest.raises(PackError, match=r"record 2 \(002\.jpg\): "):
        index_files([path], tmp_path / "out")
    manifest = index_files([path], tmp_path / "out", IndexOptions(on_error="skip"))
    assert (manifest.num_records, manifest.skipped, manifest.left_out) == (5, 0, 1)
    [line] = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == "a.arrow: 002.jpg"
    assert len(PackedDataset(tmp_path / "out").sample(2)["boxes"]) == 1


def test_arrow_without_objects_is_a_picture_and_a_label(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrow", table(6, caption=list("abcdef"), label=[1] * 6))
    assert index_files([path], tmp_path / "out").is_plain
    asked = IndexOptions(fields=(("caption", "text"),))
    manifest = index_files([path], tmp_path / "two", asked)
    assert str(manifest.schema) == "image=image, label=label, caption=text"


def test_parquet_is_packed(tmp_path: Path) -> None:
    for name in ("train.parquet", "test.parquet"):
        pq.write_table(table(4), tmp_path / name)
    words = "cannot be indexed: Parquet files are not read in place"
    for source in (tmp_path / "train.parquet", tmp_path):
        with pytest.raises(FormatError, match=rf"{source} {words}\. 'fastload pack {source} OUT"):
            index_files([source], tmp_path / "out")
    (tmp_path / "named.arrow").write_bytes((tmp_path / "test.parquet").read_bytes())
    with pytest.raises(FormatError, match=f"named.arrow {words}"):
        index_files([tmp_path / "named.arrow"], tmp_path / "out")


def test_tables_beside_tars_are_left_alone(tmp_path: Path) -> None:
    from tar_reference import captioned, write_tar

    write_tar(tmp_path / "00000.tar", captioned(3))
    pq.write_table(pa.table({"url": ["x"] * 3}), tmp_path / "00000.parquet")
    assert index_files([tmp_path], tmp_path / "out").num_records == 3
