"""Every format is readable by its own library, in three lines, and by HF datasets."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
from pack_trees import class_tree, encoded, make_tree

from fastload import PackedDataset
from fastload.errors import FormatError
from fastload.packing import PackOptions, pack
from fastload.shard import arrow, hdf5
from fastload.shard.formats import FORMATS, ShardSpec, format_of
from fastload.shard.hdf5 import REFERENCE, heap_ranges, read_references
from fastload.shard.index import RECORD


@pytest.fixture
def packed(tmp_path: Path, format_name: str) -> PackedDataset:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "set", PackOptions(format=format_name, num_proc=1))
    return PackedDataset(tmp_path / "set")


def expected(dataset: PackedDataset) -> list[bytes]:
    source = dataset.folder.parent / "source"
    return [(source / dataset.key(i)).read_bytes() for i in range(len(dataset))]


def shard(dataset: PackedDataset) -> Path:
    return dataset.folder / dataset.manifest.shards[0].file


@pytest.mark.parametrize("format_name", ["arrow"])
def test_stock_pyarrow(packed: PackedDataset) -> None:
    table = pa.ipc.open_stream(pa.memory_map(str(shard(packed)))).read_all()
    images = [row.as_py() for row in table["image"]]
    assert [image["bytes"] for image in images] == expected(packed)
    assert [image["path"] for image in images] == [packed.key(i) for i in range(len(packed))]
    assert table["label"].to_pylist() == packed.labels.tolist()
    kinds = [field.type for field in table.schema]
    assert kinds == [pa.struct([("bytes", pa.binary()), ("path", pa.string())]), pa.int64()]
    assert all(field.nullable for field in table.schema)


@pytest.mark.parametrize("format_name", ["lmdb"])
def test_stock_lmdb(packed: PackedDataset) -> None:
    folder = shard(packed).parent
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        records = [txn.get(b"%08d" % i) for i in range(len(packed))]
        assert records == expected(packed)
        assert txn.stat()["entries"] == len(packed)
    assert [path.name for path in folder.iterdir()] == ["data.mdb"]


@pytest.mark.parametrize("format_name", ["lmdb"])
def test_lmdb_structure_is_sound(packed: PackedDataset) -> None:
    verify = pytest.importorskip("lmdb.verify")
    assert verify.verify(str(shard(packed).parent)) == []


@pytest.mark.parametrize("format_name", ["hdf5"])
def test_stock_h5py(packed: PackedDataset) -> None:
    with h5py.File(shard(packed)) as file:
        assert [bytes(row) for row in file["image"]] == expected(packed)
        assert file["label"][:].tolist() == packed.labels.tolist()
        assert file["path"].asstr()[:].tolist() == [packed.key(i) for i in range(len(packed))]
        assert list(file.attrs["classes"]) == packed.classes
        assert {len(file[name]) for name in file} == {len(packed)}


@pytest.mark.parametrize("format_name", ["arrow"])
def test_hf_datasets(packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    cache = str(tmp_path / "cache")
    files = [str(packed.folder / s.file) for s in packed.manifest.shards]
    loaded = datasets.load_dataset("arrow", data_files={"train": files}, split="train", cache_dir=cache)
    for dataset in (datasets.Dataset.from_file(files[0]), loaded):
        assert isinstance(dataset.features["image"], datasets.Image)
        assert dataset.features["label"].names == packed.classes
        row = dataset[5]
        assert row["label"] == packed.labels[5]
        assert row["image"].size == (packed.records[5]["width"], packed.records[5]["height"])
        raw = dataset.cast_column("image", datasets.Image(decode=False))
        assert [image["bytes"] for image in raw["image"]] == expected(packed)


def write_shard(folder: Path, format_name: str, lengths: list[int]) -> tuple[Path, list[bytes]]:
    """A shard of random records of these lengths, written in groups of 5."""
    rng = np.random.default_rng(len(lengths))
    blobs = [rng.bytes(n) for n in lengths]
    module = format_of(format_name)
    path = folder / f"s{FORMATS[format_name].suffix}"
    spec = ShardSpec((), len(blobs), sum(lengths))
    writer = module.Writer(path, spec)
    for start in range(0, len(blobs), 5):
        part = blobs[start : start + 5]
        records = np.zeros(len(part), RECORD)
        records["length"] = [len(blob) for blob in part]
        records["offset"] = np.cumsum(records["length"], dtype=np.uint64) - records["length"]
        data = np.frombuffer(b"".join(part), np.uint8)
        writer.append(data, records, [b"%d" % i for i in range(len(part))])
    writer.close()
    return path, blobs


@pytest.mark.parametrize(
    "lengths",
    [
        [1], [1, 2, 3, 4, 5, 6, 7, 8, 9], [4095, 4096, 4097, 8192, 1, 4080, 4079, 4081], [100] * 12,
        [3000] * 23, [50_000, 1, 70_000, 2], list(range(1, 400)),
    ],
)  # fmt: skip
def test_located_ranges_are_the_records(tmp_path: Path, format_name: str, lengths: list[int]) -> None:
    path, blobs = write_shard(tmp_path, format_name, lengths)
    module = format_of(format_name)
    (located,) = module.locate(path)
    data = module.data_file(path).read_bytes()
    ranges = zip(located.offsets.tolist(), located.lengths.tolist(), strict=True)
    assert [data[begin : begin + length] for begin, length in ranges] == blobs
    assert module.data_file(path).stat().st_size <= module.shard_bytes(located.lengths)


def test_lmdb_map_grows(tmp_path: Path) -> None:
    module = format_of("lmdb")
    writer = module.Writer(tmp_path / "s.lmdb", ShardSpec((), 1, 1))
    records = np.zeros(1, RECORD)
    blobs = [bytes([i]) * 3_000_000 for i in range(9)]
    records["length"] = 3_000_000
    for blob in blobs:
        writer.append(np.frombuffer(blob, np.uint8), records, [b"x"])
    writer.close()
    with lmdb.open(str(tmp_path / "s.lmdb"), readonly=True, lock=False) as env, env.begin() as txn:
        assert [txn.get(b"%08d" % i) for i in range(9)] == blobs


def slow_heap_ranges(path: Path, references: np.ndarray) -> list[tuple[int, int]]:
    """One row at a time, one object at a time: the obvious way through the global heap."""
    data, found = path.read_bytes(), []
    for length, collection, number in references.tolist():
        if length == 0:
            found.append((0, 0))
            continue
        assert data[collection : collection + 4] == b"GCOL"
        position = collection + 16
        while int.from_bytes(data[position : position + 2], "little") != number:
            size = int.from_bytes(data[position + 8 : position + 16], "little")
            position += 16 + -(-size // 8) * 8
        found.append((position + 16, length))
    return found


@pytest.mark.parametrize("chunks", [None, (7,), (200,)])
def test_heap_walk_equals_the_slow_one(tmp_path: Path, chunks: tuple[int] | None) -> None:
    rng = np.random.default_rng(0)
    blobs = [rng.integers(0, 255, int(n), np.uint8) for n in rng.integers(0, 3000, 200)]
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("image", (len(blobs),), h5py.vlen_dtype(np.uint8), chunks=chunks)
        for i in rng.permutation(len(blobs)):  # so that rows share collections out of order
            rows[i] = blobs[i]
    with h5py.File(path) as file:
        references = read_references(path, file["image"])
    assert references.dtype == REFERENCE
    offsets, lengths = heap_ranges(path, references)
    ranges = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    assert ranges == slow_heap_ranges(path, references)
    data = path.read_bytes()
    assert [data[o : o + n] for o, n in ranges] == [blob.tobytes() for blob in blobs]


def test_hf_metadata_without_classes(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", {"a.jpg": encoded(0)})
    pack(tmp_path / "source", tmp_path / "set", PackOptions(num_proc=1))
    schema = pa.ipc.open_stream(pa.memory_map(str(tmp_path / "set" / "set-00000-of-00001.arrow"))).schema
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}


@pytest.mark.parametrize("module", [arrow, hdf5])
def test_truncated_containers_are_refused(tmp_path: Path, module: object) -> None:
    path, _ = write_shard(tmp_path, "arrow" if module is arrow else "hdf5", [3000] * 8)
    data = path.read_bytes()
    for size in (0, 1, 7, 100, len(data) // 2):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            module.locate(path)  # type: ignore[attr-defined]
