"""``fastload index`` over uncompressed Parquet, and over Arrow files with objects: what pyarrow reads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pack_trees import encoded
from PIL import Image

from fastload import PackedDataset, pack
from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.verify import verify
from fastload.shard.parquet_pages import hybrid
from fastload.shard.parquet_plain import read_foreign

PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}
WAYS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "dictionaries": {"compression": "none"},
    "small dictionaries": {"compression": "none", "dictionary_pagesize_limit": 2000},
    "pages of version 2": {**PLAIN, "data_page_version": "2.0"},
    "dictionaries, version 2": {"compression": "none", "data_page_version": "2.0"},
    "small pages": {**PLAIN, "data_page_size": 1500},
    "row groups": {**PLAIN, "row_group_size": 7},
    "with checksums": {**PLAIN, "write_page_checksum": True},
    "pictures alone plain": {"compression": {"image.bytes": "none", "image.path": "snappy"}},
}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(count: int = 40, kind: pa.DataType = IMAGE, **columns: Any) -> pa.Table:
    blobs = [encoded(i) for i in range(count)]
    pictures = [{"bytes": b, "path": f"{i:03d}.jpg"} for i, b in enumerate(blobs)] if kind == IMAGE else blobs
    return pa.table({"image": pa.array(pictures, kind), **columns})


@pytest.mark.parametrize("way", WAYS)
def test_pictures_lie_where_pyarrow_reads_them(tmp_path: Path, way: str) -> None:
    labels = [i % 3 for i in range(40)]
    path = tmp_path / "a.parquet"
    pq.write_table(table(label=labels), path, **WAYS[way])
    manifest = index_files([path], tmp_path / "out")
    assert (manifest.format, manifest.is_plain) == ("parquet", True)
    dataset = PackedDataset(tmp_path / "out")
    theirs = [row["bytes"] for row in pq.read_table(path).column("image").to_pylist()]
    assert [dataset.read(i) for i in range(len(dataset))] == theirs
    assert dataset.labels.tolist() == labels
    assert [dataset.key(i) for i in (0, 39)] == ["000.jpg", "039.jpg"]
    assert verify(tmp_path / "out", decode=True) == ([], 40)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_columns_of_bytes_and_folders_of_files(tmp_path: Path, kind: pa.DataType) -> None:
    for number in range(2):
        pq.write_table(
            table(5, kind, text=[f"{number} {i}" for i in range(5)]), tmp_path / f"{number}.parquet", **PLAIN
        )
    index_files([tmp_path], tmp_path / "out")
    dataset = PackedDataset(tmp_path / "out")
    assert str(dataset.schema) == "image=image, text=text"
    assert [dataset.read(i) for i in range(10)] == [encoded(i) for i in range(5)] * 2
    assert [dataset.sample(i)["text"] for i in range(10)] == [f"{n} {i}" for n in range(2) for i in range(5)]
    assert dataset.key(7) == "1/00000002"


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
    path = tmp_path / "a.parquet"
    pq.write_table(table(12, **further(12)), path, **PLAIN)
    index_files([path], tmp_path / "indexed")
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


def write_parquet(path: Path, found: pa.Table) -> Path:
    pq.write_table(found, path, **PLAIN)
    return path


@pytest.mark.parametrize(("name", "write"), [("a.arrow", write_arrow), ("a.parquet", write_parquet)])
def test_objects(tmp_path: Path, name: str, write: Callable[[Path, pa.Table], Path]) -> None:
    path = write(tmp_path / name, detection())
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


@pytest.mark.parametrize(
    ("write", "words"),
    [
        ({"compression": "snappy"}, r"compressed \(SNAPPY\).*'fastload pack .*a\.parquet OUTPUT' packs it"),
        ({**PLAIN, "column_encoding": {"image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}},
         "encoding 6, and are no plain ranges.*fastload pack"),
    ],
)  # fmt: skip
def test_what_cannot_be_indexed_says_why(tmp_path: Path, write: dict[str, Any], words: str) -> None:
    pq.write_table(table(4), tmp_path / "a.parquet", **write)
    with pytest.raises(FormatError, match=words):
        index_files([tmp_path / "a.parquet"], tmp_path / "out")


def test_pictures_that_are_there_once_for_several_rows(tmp_path: Path) -> None:
    twice = pa.table({"image": pa.array([encoded(0), encoded(1), encoded(0)], pa.binary())})
    pq.write_table(twice, tmp_path / "a.parquet", compression="none")
    with pytest.raises(FormatError, match="rows share bytes|share the bytes of one picture"):
        index_files([tmp_path / "a.parquet"], tmp_path / "out")
    pq.write_table(twice, tmp_path / "b.parquet", **PLAIN)
    assert index_files([tmp_path / "b.parquet"], tmp_path / "out").num_records == 3
    none = pa.table({"image": pa.array([encoded(0), None], pa.binary())})
    pq.write_table(none, tmp_path / "c.parquet", **PLAIN)
    with pytest.raises(FormatError, match="rows without bytes"):
        index_files([tmp_path / "c.parquet"], tmp_path / "three")


def test_tables_beside_tars_are_left_alone(tmp_path: Path) -> None:
    from tar_reference import captioned, write_tar

    write_tar(tmp_path / "00000.tar", captioned(3))
    pq.write_table(pa.table({"url": ["x"] * 3}), tmp_path / "00000.parquet")
    assert index_files([tmp_path], tmp_path / "out").num_records == 3


@pytest.mark.parametrize("way", ["plain", "dictionaries", "pages of version 2"])
def test_mutants_are_refused_or_read_within_the_file(tmp_path: Path, way: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(10, pa.binary()), path, **WAYS[way])
    data, rng = path.read_bytes(), np.random.default_rng(1)
    payload = np.zeros(len(data), bool)
    located = read_foreign(path, None, {}).located
    for offset, length in zip(located.offsets.tolist(), located.lengths.tolist(), strict=True):
        payload[offset : offset + length] = True
    structure = np.flatnonzero(~payload)
    outcomes = {"refused": 0, "read": 0}
    for _ in range(200):
        mutant = bytearray(data)
        for at in rng.choice(structure, 2):
            mutant[at] = int(rng.integers(0, 256))
        path.write_bytes(mutant)
        try:
            found = read_foreign(path, None, {}).located
        except FastloadError:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        assert (found.offsets + found.lengths <= len(data)).all()
    assert min(outcomes.values()) > 8, outcomes


def slow_hybrid(data: bytes, width: int, count: int) -> list[int]:
    """Parquet's runs, bit by bit."""
    found: list[int] = []
    at = 0
    while len(found) < count:
        head = shift = 0
        while True:
            byte, at = data[at], at + 1
            head, shift = head | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        size = (head >> 1) * width if head & 1 else (width + 7) // 8
        number = int.from_bytes(data[at : at + size], "little")
        at += size
        if head & 1:
            found += [number >> k * width & (1 << width) - 1 for k in range(8 * (head >> 1))]
        else:
            found += [number] * (head >> 1)
    return found[:count]


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 13, 20, 32])
def test_runs_of_levels_and_indices(width: int) -> None:
    rng = np.random.default_rng(width)
    data, count = b"", 0
    for _ in range(20):
        if rng.integers(2):
            groups = int(rng.integers(1, 40))
            data += bytes([groups << 1 | 1]) + rng.bytes(groups * width)
            count += 8 * groups
        else:
            length = int(rng.integers(1, 64))
            data += bytes([length << 1]) + int(rng.integers(1 << width)).to_bytes((width + 7) // 8, "little")
            count += length
    assert hybrid(data, width, count - 3).tolist() == slow_hybrid(data, width, count - 3)
    with pytest.raises(FormatError, match="levels or indices"):
        hybrid(data[:-1] if data else data, width, count + 100)
