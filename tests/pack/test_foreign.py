"""``fastload index`` over files that others wrote."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
from index_reference import read_index
from pack_trees import class_tree, encoded, snapshot

from fastload import PackedDataset
from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

BLOBS = [encoded(i, kind) for i in range(8) for kind in ("JPEG", "PNG")]
LABELS = [i % 3 for i in range(16)]


def check(folder: Path, blobs: list[bytes] = BLOBS, labels: list[int] | None = None) -> PackedDataset:
    dataset = PackedDataset(folder)
    assert [dataset.read(i) for i in range(len(dataset))] == blobs
    assert dataset.labels.tolist() == (labels or [-1] * len(blobs))
    assert read_index(folder / "index.fli").digest == dataset.manifest.index_crc
    assert verify(folder, decode=True) == ([], len(blobs))
    return dataset


def test_a_pack_of_our_own_gives_the_same_index(tmp_path: Path, format_name: str) -> None:
    pack(
        class_tree(tmp_path / "source"),
        tmp_path / "a",
        PackOptions(format=format_name, shard_size=16384, num_proc=1),
    )
    index_files([tmp_path / "a"], tmp_path / "b")
    ours, found = read_index(tmp_path / "a" / "index.fli"), read_index(tmp_path / "b" / "index.fli")
    if format_name == "lmdb":  # names and labels are in our index only
        assert [key[:10] for key in found.keys[:1]] == [b"a-00000-of"]
        for name in set(ours.records.dtype.names) - {"label"}:
            assert ours.records[name].tolist() == found.records[name].tolist()
    else:
        assert ours.records.tolist() == found.records.tolist()
        assert ours.keys == found.keys


@pytest.mark.parametrize("saved", [True, False])
def test_hf_datasets(tmp_path: Path, saved: bool) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "photo": datasets.Image(),
            "kind": datasets.ClassLabel(names=["a", "b", "c"]),
        }
    )
    rows = {
        "text": ["x"] * 16,
        "photo": [{"bytes": b, "path": f"{i}.jpg"} for i, b in enumerate(BLOBS)],
        "kind": LABELS,
    }
    dataset = datasets.Dataset.from_dict(rows, features=features)
    dataset.save_to_disk(str(tmp_path / "hf"), num_shards=2)
    source = tmp_path / "hf" if saved else sorted((tmp_path / "hf").glob("*.arrow"))
    before = snapshot(tmp_path / "hf")
    index_files([source] if saved else source, tmp_path / "out")
    found = check(tmp_path / "out", labels=LABELS)
    assert found.classes == ["a", "b", "c"]
    assert [found.key(i) for i in (0, 15)] == ["0.jpg", "15.jpg"]
    assert snapshot(tmp_path / "hf") == before


def write_arrow(path: Path, table: pa.Table, kind: str = "stream", compression: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opener = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, opener(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("dtype", [pa.binary(), pa.large_binary()])
def test_arrow_with_a_binary_column(tmp_path: Path, kind: str, dtype: pa.DataType) -> None:
    table = pa.table({"jpg": pa.array(BLOBS, dtype), "label": pa.array(LABELS, pa.int16())})
    index_files([write_arrow(tmp_path / "a.arrow", table, kind)], tmp_path / "out")
    assert check(tmp_path / "out", labels=LABELS).key(3) == "a/00000003"


def test_arrow_sliced_batches(tmp_path: Path) -> None:
    batch = pa.record_batch({"image": pa.array([b"junk", *BLOBS, b"junk"])}).slice(1, 16)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    index_files([tmp_path / "a.arrow"], tmp_path / "out")
    check(tmp_path / "out")


def test_arrow_that_cannot_be_indexed(tmp_path: Path) -> None:
    table = pa.table({"image": BLOBS})
    with pytest.raises(FormatError, match=r"compressed record batches"):
        index_files([write_arrow(tmp_path / "z.arrow", table, compression="zstd")], tmp_path / "out")
    paths = pa.table(
        {
            "image": pa.array(
                [{"bytes": None, "path": "a.jpg"}], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            )
        }
    )
    with pytest.raises(FormatError, match="rows without bytes"):
        index_files([write_arrow(tmp_path / "p.arrow", paths)], tmp_path / "out")
    two = write_arrow(tmp_path / "t.arrow", pa.table({"one": BLOBS, "two": BLOBS[::-1], "n": LABELS}))
    with pytest.raises(FormatError, match=r"--column\. Columns: one: binary, two: binary, n: int64"):
        index_files([two], tmp_path / "out")
    index_files([two], tmp_path / "out", IndexOptions(column="two"))
    check(tmp_path / "out", BLOBS[::-1])


def write_lmdb(path: Path, subdir: bool, keys: list[bytes]) -> Path:
    with lmdb.open(str(path), subdir=subdir, map_size=1 << 24) as env:
        for part in (slice(8, 16), slice(0, 8)):  # two transactions, out of order
            with env.begin(write=True) as txn:
                for key, blob in list(zip(keys, BLOBS, strict=True))[part]:
                    txn.put(key, blob)
    return path


@pytest.mark.parametrize("subdir", [True, False])
def test_lmdb(tmp_path: Path, subdir: bool) -> None:
    source = write_lmdb(tmp_path / "theirs.lmdb", subdir, [b"img-%04d" % i for i in range(16)])
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n" + "".join(f"img-{i:04d},{'abc'[LABELS[i]]}\n" for i in range(16)))
    index_files([source], tmp_path / "out")
    check(tmp_path / "out")
    index_files([source], tmp_path / "out", IndexOptions(labels=table, restart=True))
    dataset = check(tmp_path / "out", labels=LABELS)
    assert dataset.key(2) == "img-0002"
    unpack(tmp_path / "out", tmp_path / "back")
    names = sorted(str(p.relative_to(tmp_path / "back")) for p in (tmp_path / "back").rglob("*.*"))
    assert names[:3] == ["a/img-0000.jpg", "a/img-0003.png", "a/img-0006.jpg"]


def test_lmdb_without_a_label_in_the_table(tmp_path: Path) -> None:
    source = write_lmdb(tmp_path / "theirs.lmdb", True, [b"%d" % (100 + i) for i in range(16)])
    (tmp_path / "labels.csv").write_text("100,1\n")
    with pytest.raises(PackError, match="has no label for the record '101'"):
        index_files([source], tmp_path / "out", IndexOptions(labels=tmp_path / "labels.csv"))


def test_damaged_lmdb_never_reaches_the_engine(tmp_path: Path) -> None:
    pytest.importorskip("lmdb.verify")
    source = write_lmdb(tmp_path / "theirs.mdb", False, [b"%02d" % i for i in range(16)])
    data = bytearray(source.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    source.write_bytes(data)
    with pytest.raises(FormatError, match="damaged LMDB"):
        index_files([source], tmp_path / "out")


def test_hdf5_vlen(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        rows = file.create_dataset("images", (16,), h5py.vlen_dtype(np.uint8))
        for i, blob in enumerate(BLOBS):
            rows[i] = np.frombuffer(blob, np.uint8)
        file["y"] = LABELS
    index_files([tmp_path / "a.h5"], tmp_path / "out")
    check(tmp_path / "out", labels=LABELS)


@pytest.mark.parametrize("last", [True, False])
def test_hdf5_flat(tmp_path: Path, last: bool) -> None:
    ends = np.cumsum([len(blob) for blob in BLOBS])
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["data"] = np.frombuffer(b"".join(BLOBS), np.uint8)
        file["offsets"] = np.concatenate([[0], ends if last else ends[:-1]])
        file["labels"] = LABELS
    index_files([tmp_path / "a.hdf5"], tmp_path / "out")
    check(tmp_path / "out", labels=LABELS)


def test_hdf5_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (6, 5, 7, 3), np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = pixels, [1, 0, 1, 0, 1, 0]
    index_files([tmp_path / "a.h5"], tmp_path / "out")
    dataset = check(tmp_path / "out", [image.tobytes() for image in pixels], [1, 0, 1, 0, 1, 0])
    assert set(dataset.records["width"].tolist()) == {7}
    assert set(dataset.records["height"].tolist()) == {5}
    assert dataset.manifest.codecs == {"raw": 6}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"chunks": (1, 5, 7, 3)}, r"'/x' is stored in chunks of \(1, 5, 7, 3\)"),
        ({"compression": "gzip"}, "'/x' is filtered by gzip"),
        ({"compression": "lzf", "shuffle": True}, "'/x' is filtered by lzf, shuffle"),
    ],
)
def test_hdf5_that_is_no_plain_range(tmp_path: Path, extra: dict[str, object], message: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((6, 5, 7, 3), np.uint8), **extra)
    with pytest.raises(FormatError, match=message):
        index_files([tmp_path / "a.h5"], tmp_path / "out")


def test_hdf5_filtered_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("image", (4,), h5py.vlen_dtype(np.uint8), chunks=(2,), compression="gzip")
    with pytest.raises(FormatError, match="'/image' is filtered by deflate"):
        index_files([tmp_path / "a.h5"], tmp_path / "out")


@pytest.mark.parametrize(
    ("offsets", "message"),
    [([0, 9, 5, 20], "does not rise"), ([-1, 5, 20], "does not rise"), ([0, 5, 900], "does not rise")],
)
def test_hdf5_bad_offsets(tmp_path: Path, offsets: list[int], message: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"], file["offset"] = np.zeros(20, np.uint8), offsets
    with pytest.raises(FormatError, match=message):
        index_files([tmp_path / "a.h5"], tmp_path / "out")


def test_records_that_are_no_images(tmp_path: Path) -> None:
    blobs = [BLOBS[0], b"text", b"", BLOBS[1]]
    source = write_arrow(tmp_path / "a.arrow", pa.table({"image": blobs}))
    with pytest.raises(PackError, match=r"2 records .*\n.*record 1 \(a/00000001\): not an image"):
        index_files([source], tmp_path / "out")
    index_files([source], tmp_path / "out", IndexOptions(on_error="skip"))
    dataset = check(tmp_path / "out", [BLOBS[0], BLOBS[1]])
    assert dataset.manifest.skipped == 2
    lines = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert [line["path"] for line in lines] == ["a.arrow: a/00000001", "a.arrow: a/00000002"]


def test_equal_names_in_two_files_are_told_apart(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for name in ("a", "b"):
        rows = pa.array([{"bytes": blob, "path": f"{i}.jpg"} for i, blob in enumerate(BLOBS)], kind)
        write_arrow(tmp_path / f"{name}.arrow", pa.table({"image": rows}))
    index_files([tmp_path / "a.arrow", tmp_path / "b.arrow"], tmp_path / "out")
    dataset = check(tmp_path / "out", BLOBS + BLOBS)
    assert len({dataset.key(i) for i in range(32)}) == 32


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"nothing of the kind, nothing at all")
    (tmp_path / "empty").mkdir()
    write_arrow(tmp_path / "good.arrow", pa.table({"image": BLOBS}))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["n"] = [1, 2, 3]
    cases = [
        (["missing.arrow"], "does not exist"),
        (["a.arrow"], "by its first bytes"),
        (["empty"], "holds no"),
        (["b.h5"], "Found: n"),
        (["good.arrow", "b.h5"], "different formats"),
    ]
    for names, message in cases:
        with pytest.raises(FastloadError, match=message):
            index_files([tmp_path / name for name in names], tmp_path / "out")
    index_files([tmp_path / "good.arrow"], tmp_path / "out")
    write_arrow(tmp_path / "other.arrow", pa.table({"image": BLOBS}))
    with pytest.raises(PackError, match="other files or has other options; --restart"):
        index_files([tmp_path / "other.arrow"], tmp_path / "out")
    pack(class_tree(tmp_path / "source"), tmp_path / "packed", PackOptions(num_proc=1))
    with pytest.raises(PackError, match="packed dataset, not an index"):
        index_files([tmp_path / "good.arrow"], tmp_path / "packed", IndexOptions(restart=True))


def test_the_same_index_again(tmp_path: Path) -> None:
    """What is complete stays; a file that was touched is the same, one of other bytes is not."""
    source, output = write_arrow(tmp_path / "a.arrow", pa.table({"image": BLOBS})), tmp_path / "out"
    index_files([source], output, IndexOptions(entries=None))
    before = snapshot(output)
    later = time.time_ns() + 10**12
    os.utime(source, ns=(later, later))
    index_files([source], output, IndexOptions(entries=None))
    assert snapshot(output) == before
    index_files([source], output)  # the entry points alone are missing
    assert snapshot(output).keys() - before.keys() == {"entries.fli"}
    data = bytearray(source.read_bytes())
    data[data.index(BLOBS[3]) + 100] ^= 1
    source.write_bytes(data)
    os.utime(source, ns=(later, later))
    with pytest.raises(PackError, match=r"a\.arrow has other contents now; --restart"):
        index_files([source], output)
    index_files([source], output, IndexOptions(restart=True))
    assert PackedDataset(output).read(3) != BLOBS[3]


def test_what_no_index_has_made_is_left_alone(tmp_path: Path) -> None:
    source = write_arrow(tmp_path / "a.arrow", pa.table({"image": BLOBS}))
    for name in ("notes.txt", ".fastload-pack/plan.json"):
        folder = tmp_path / name.partition("/")[0]
        path = folder / "out" / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        with pytest.raises(PackError, match=r"is not empty|unfinished pack"):
            index_files([source], folder / "out", IndexOptions(restart=True))
        assert path.read_text() == "mine"
