"""``fastload index`` over MDS shards: the same samples as their own rules give."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mds_reference import read_mds, write_mds
from pack_trees import encoded
from PIL import Image

from fastload import PackedDataset
from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.verify import verify
from fastload.shard.mds import read_foreign

COLUMNS = {
    "image": "jpeg", "y": "int", "caption": "str", "facts": "json", "score": "float32",
    "pose": "ndarray:float32:2,3", "raw": "bytes", "thing": "pkl", "left": "jpeg",
}  # fmt: skip


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "image": encoded(i), "y": i % 3, "caption": f"é {i}", "facts": {"b": i, "a": [1.5]},
            "score": i / 3, "pose": np.arange(6).reshape(2, 3) + i, "raw": b"\0" * i,
            "thing": b"x", "left": encoded(50 + i),
        }
        for i in range(count)
    ]  # fmt: skip


def test_all_columns(tmp_path: Path) -> None:
    source = write_mds(tmp_path / "mds", COLUMNS, rows(10), each=4)
    manifest = index_files([source], tmp_path / "out")
    assert (manifest.format, len(manifest.shards), manifest.skipped) == ("mds", 3, 3)
    reason = json.loads((tmp_path / "out" / "skipped.jsonl").read_text().splitlines()[0])
    assert reason["path"] == "shard.00000.mds: thing"
    assert "--field thing=bytes" in reason["reason"]
    assert str(manifest.schema) == (
        "image=image, label=label, caption=text, facts=json, left=image, pose=array(float32, (2, 3)), "
        "raw=bytes, score=scalar(float32)"
    )
    dataset = PackedDataset(tmp_path / "out")
    theirs = read_mds(source)
    assert len(dataset) == len(theirs) == 10
    assert dataset.key(5) == "shard.00001/00000001"
    for i, sample in enumerate(theirs):
        assert dataset.read(i) == sample["image"]
        assert dataset.value_bytes("left", i) == sample["left"]
        found = dataset.sample(i)
        assert found["label"] == struct.unpack("<q", sample["y"])[0]
        assert found["caption"] == sample["caption"].decode()
        assert found["facts"] == json.loads(sample["facts"])
        for name in ("score", "pose"):
            assert dataset.value_bytes(name, i) == sample[name]
        assert found["raw"] == sample["raw"]
    assert verify(tmp_path / "out", decode=True) == ([], 10)


def test_a_picture_and_a_label_are_a_plain_set(tmp_path: Path) -> None:
    source = write_mds(
        tmp_path / "mds", {"x": "bytes", "y": "int"}, [{"x": encoded(i), "y": i} for i in range(5)]
    )
    assert index_files([source], tmp_path / "out").is_plain
    assert PackedDataset(tmp_path / "out").labels.tolist() == list(range(5))
    assert index_files([source / "shard.00000.mds"], tmp_path / "two").num_records == 5


def test_what_columns_are_can_be_said(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).save(out, "PNG")
    columns = {"a": "jpeg", "b": "png", "n": "int", "t": "bytes", "z": "pkl"}
    row = {"a": encoded(0), "b": out.getvalue(), "n": 7, "t": "é".encode(), "z": b"12"}
    source = write_mds(tmp_path / "mds", columns, [row])
    with pytest.raises(FormatError, match=r"--column\. Columns: a: jpeg, b: png, n: int, t: bytes, z: pkl"):
        index_files([source], tmp_path / "out")
    fields = (("b", "mask"), ("n", "label"), ("t", "text"), ("z", "bytes"))
    manifest = index_files([source], tmp_path / "out", IndexOptions(fields=fields))
    assert str(manifest.schema) == "image=image, label=label, b=mask, t=text, z=bytes"
    found = PackedDataset(tmp_path / "out").sample(0)
    assert (found["label"], found["t"], found["z"]) == (7, "é", b"12")
    assert found["b"].tolist() == np.arange(12).reshape(3, 4).tolist()
    none = IndexOptions(column="b", fields=(("a", "none"), ("n", "none"), ("t", "none"), ("z", "none")))
    assert index_files([source], tmp_path / "two", none).is_plain
    for wrong in ((("t", "boxes"),), (("n", "text"),), (("t", "label"),)):
        with pytest.raises(FormatError, match=r"cannot be|one label at most"):
            index_files([source], tmp_path / "x", IndexOptions(column="a", fields=wrong))


def test_bad_values_follow_the_policy(tmp_path: Path) -> None:
    samples = [
        {"image": encoded(0), "t": b"good"}, {"image": encoded(1), "t": b"\xff"},
        {"image": b"none", "t": b""}, {"image": encoded(3), "t": b"last"},
    ]  # fmt: skip
    source = write_mds(tmp_path / "mds", {"image": "jpeg", "t": "bytes"}, samples)
    options = IndexOptions(fields=(("t", "text"),))
    with pytest.raises(
        PackError, match=r"2 records[^$]*record 1 \(shard\.00000/00000001\): 't' is not UTF-8"
    ):
        index_files([source], tmp_path / "out", options)
    index_files([source], tmp_path / "out", IndexOptions(fields=options.fields, on_error="skip"))
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.sample(i)["t"] for i in range(2)] == ["good", "last"]
    assert verify(tmp_path / "out", decode=True) == ([], 2)


def test_what_cannot_be_indexed_says_why(tmp_path: Path) -> None:
    source = write_mds(tmp_path / "mds", {"image": "jpeg"}, [{"image": encoded(0)}])
    index = json.loads((source / "index.json").read_text())
    shard = source / "shard.00000.mds"

    def changed(**facts: Any) -> None:
        (source / "index.json").write_text(json.dumps({**index, "shards": [{**index["shards"][0], **facts}]}))

    for facts, words in (
        ({"format": "json"}, "format 'json'"),
        ({"samples": 2}, "has 1 samples; index.json says 2"),
        ({"column_sizes": [7]}, "has the size 7; it must be None"),
        ({"column_names": []}, "columns of shard.00000.mds"),
        ({"raw_data": {"basename": "../x.mds", "bytes": 1}}, "no file of its folder"),
        ({"raw_data": None}, "has no raw_data"),
        ({"raw_data": {"basename": shard.name, "bytes": 1}}, "bytes; index.json says 1"),
    ):
        changed(**facts)
        with pytest.raises(FormatError, match=words):
            index_files([source], tmp_path / "out")
    changed(zip_data={"basename": "shard.00000.mds.zstd"}, compression="zstd:3")
    data = shard.read_bytes()
    shard.unlink()
    with pytest.raises(FormatError, match=r"cannot be indexed: zstd:3.*streaming\.StreamingDataset\(remote="):
        index_files([source], tmp_path / "out")
    shard.write_bytes(data)
    (source / "index.json").write_text("[")
    with pytest.raises(FormatError, match="no index of MDS shards"):
        index_files([source], tmp_path / "out")
    (source / "index.json").unlink()
    with pytest.raises(FormatError, match=r"has no index\.json"):
        index_files([shard], tmp_path / "out")


def test_a_folder_of_folders_says_which_to_index(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_mds(tmp_path / "splits" / split, {"image": "jpeg"}, [{"image": encoded(0)}])
    with pytest.raises(
        FormatError, match=r"holds several splits; index .*/splits/train and the others apart"
    ):
        index_files([tmp_path / "splits"], tmp_path / "out")
    write_mds(tmp_path / "sets" / "one", {"image": "jpeg"}, [{"image": encoded(0)}])
    with pytest.raises(FormatError, match=r"files itself; index .*/sets/one"):
        index_files([tmp_path / "sets"], tmp_path / "out")


def test_damaged_shards_are_refused_or_lie_within_the_file(tmp_path: Path) -> None:
    samples = [{"image": encoded(i), "t": f"{i}", "y": i} for i in range(3)]
    source = write_mds(tmp_path / "mds", {"image": "jpeg", "t": "str", "y": "int"}, samples)
    shard = source / "shard.00000.mds"
    data, rng, refused = shard.read_bytes(), np.random.default_rng(3), 0
    for _ in range(300):
        mutant = bytearray(data)
        at = int(rng.choice([*range(0, 20), *struct.unpack_from("<3I", data, 4)])) + int(rng.integers(0, 4))
        mutant[at] = int(rng.integers(0, 256))
        shard.write_bytes(mutant)
        try:
            found = read_foreign(shard, None, {})
        except FastloadError:
            refused += 1
            continue
        located = found.located
        assert (located.offsets + located.lengths <= len(data)).all()
        assert bytes(mutant) == data or found.fields["t"].chunk.lengths.sum() < len(data)
    assert refused > 100
