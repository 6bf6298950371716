"""Shards of any fields: stock libraries read each field, as the values that were given."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
from field_samples import SCHEMA, sample
from PIL import Image as Pillow

from fastload.packing.cut import RunningCut
from fastload.packing.options import PackOptions
from fastload.packing.sample_rows import Encoder
from fastload.packing.shard_writer import ShardPart
from fastload.sample.plain import plain_value
from fastload.sample.schema import Field
from fastload.shard.formats import format_of

COUNT = 40
PICTURES = ("image", "mask", "depth", "bands")


@pytest.fixture
def shards(tmp_path: Path, format_name: str) -> list[Path]:
    """The samples in several shards of a format."""
    options = PackOptions(format=format_name, shard_size=20000)
    written = RunningCut(tmp_path, SCHEMA, options, lambda n, size: None)
    encoder = Encoder(SCHEMA, bytes(tmp_path), format_name == "hdf5")
    written.write(encoder.encode(0, (sample(i) for i in range(COUNT))))
    assert written.number > 3
    return [written.path(number) for number in range(written.number)]


def expected(field: Field, i: int) -> Any:
    """What a stock library should say of a value that is no picture."""
    value = sample(i)[field.name]
    if field.kind.name == "label":
        return -1 if value is None else field.kind.indices.get(value, value)  # type: ignore[attr-defined]
    return value if field.kind.name == "bytes" else plain_value(field, field.encode(value))


def check_picture(name: str, i: int, data: bytes) -> None:
    """The bytes of a picture are the file that was given, or have the pixels that were given."""
    given = sample(i)[name]
    if name == "image":
        assert data == given
    elif name == "bands":
        assert data == given.tobytes()
    else:
        assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(data))), given)


def check_rows(rows: list[dict[str, Any]]) -> None:
    """The samples' rows, as a stock library gives them."""
    assert len(rows) == COUNT
    for i, row in enumerate(rows):
        assert list(row) == list(SCHEMA.names)
        for field in SCHEMA:
            if field.name in PICTURES:
                check_picture(field.name, i, row[field.name])
            else:
                assert row[field.name] == expected(field, i), (i, field.name)


def test_parts_say_where_the_pictures_lie(shards: list[Path], format_name: str) -> None:
    i = 0
    pictures = [(k, field.name) for k, (_, field) in enumerate(SCHEMA.columns) if field.storage == "record"]
    assert [name for _, name in pictures] == ["mask", "depth", "bands"]
    for path in shards:
        part = ShardPart.read(path.with_suffix(".part"))
        data = format_of(format_name).data_file(path).read_bytes()
        columns = {"image": part.records}
        columns |= {name: ShardPart.read_column(path.with_suffix(".part"), k).records for k, name in pictures}
        for row in range(len(part.records)):
            for name, records in columns.items():
                start = int(records[row]["offset"])
                check_picture(name, i, data[start : start + int(records[row]["length"])])
            i += 1
    assert i == COUNT


@pytest.mark.parametrize("format_name", ["arrow"])
def test_arrow(shards: list[Path], format_name: str) -> None:
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(path))).read_all() for path in shards])
    table.validate(full=True)
    rows = table.to_pylist()
    assert [row["image"]["path"] for row in rows[:2]] == ["00000000.jpg", "00000001.png"]
    assert (rows[5]["bands"]["height"], rows[5]["bands"]["width"]) == (4, 4)
    for row in rows:
        row["facts"] = None if row["facts"] is None else json.loads(row["facts"])
        for name in PICTURES:
            row[name] = row[name]["bytes"]
    check_rows(rows)


@pytest.mark.parametrize("format_name", ["arrow"])
def test_hugging_face_datasets(shards: list[Path], format_name: str) -> None:
    datasets = pytest.importorskip("datasets")
    found = datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in shards])
    assert len(found) == COUNT
    assert found.features["label"].names == ["cat", "dog"]
    for i in (0, 5, 7):
        row, given = found[i], sample(i)
        assert row["image"].size == Pillow.open(io.BytesIO(given["image"])).size
        assert np.array_equal(np.asarray(row["mask"]), given["mask"])
        assert np.array_equal(np.asarray(row["depth"]), given["depth"])
        assert row["bands"]["bytes"] == given["bands"].tobytes()
        for name in ("label", "boxes", "points", "outlines", "caption", "pose", "flag", "age"):
            assert row[name] == expected(SCHEMA[name], i)


@pytest.mark.parametrize("format_name", ["hdf5"])
def test_hdf5(shards: list[Path], format_name: str) -> None:
    rows = []
    for path in shards:
        with h5py.File(path) as file:
            assert len(file["path"]) == len(file["image"])
            rows += [
                {name: _from_hdf5(file, name, i) for name in SCHEMA.names} for i in range(len(file["path"]))
            ]
            assert file["bands_width"][0] == file["bands"][0].size // 20
    check_rows(rows)


def _from_hdf5(file: h5py.File, name: str, i: int) -> Any:
    value = file[name][i]
    kind = SCHEMA[name].kind
    if kind.name in ("text", "json", "polygons"):
        text = value.decode()
        return text if kind.name == "text" else json.loads(text) if text else None
    if name in PICTURES or kind.name == "bytes":
        return value.tobytes()
    if "row" in file[name].attrs:
        return value.reshape(-1, *file[name].attrs["row"]).tolist()
    return value.tolist()


@pytest.mark.parametrize("format_name", ["lmdb"])
def test_lmdb(shards: list[Path], format_name: str) -> None:
    rows = []
    for path in shards:
        with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
            assert txn.stat()["entries"] % len(SCHEMA) == 0
            for i in range(txn.stat()["entries"] // len(SCHEMA)):
                rows.append({name: _from_lmdb(txn, name, i) for name in SCHEMA.names})
    check_rows(rows)


def _from_lmdb(txn: Any, name: str, i: int) -> Any:
    data = txn.get(b"%08d" % i if name == "image" else b"%08d/%s" % (i, name.encode()))
    field = SCHEMA[name]
    if name in PICTURES or field.kind.name == "bytes":
        return data
    if field.kind.name == "label":
        return field.decode(data)
    return plain_value(field, data)
