"""Samples of any fields, unpacked, are files and a table that pack to the same set again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from field_samples import SCHEMA, Samples, photo, sample
from pack_trees import run_cli, snapshot
from PIL import Image as Pillow

import fastload
from fastload.errors import FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.unpack import TABLES, TableFormat, unpack
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles

SIZE = 20_000


def packed(folder: Path, samples: Any, schema: Any = SCHEMA, **options: Any) -> PackedFiles:
    """A set called ``set`` in a folder."""
    fastload.pack(samples, folder / "set", schema, shard_size=SIZE, entries=None, **options)
    return PackedFiles(folder / "set")


def again(folder: Path, table: Path, **options: Any) -> PackedFiles:
    """What a table packs to."""
    pack(table, folder / "set", PackOptions(shard_size=SIZE, entries=None, **options))
    return PackedFiles(folder / "set")


def same(first: PackedFiles, second: PackedFiles) -> None:
    """Two sets are the same, all but what the packs were made from."""
    assert first.id == second.id
    files, others = snapshot(first.folder), snapshot(second.folder)
    assert len(files) > 3
    del files["dataset.json"], others["dataset.json"]
    assert files == others


def test_every_table_format_is_there() -> None:
    assert get_args(TableFormat) == TABLES


def same_samples(first: PackedFiles, second: PackedFiles) -> None:
    """Two sets have the same keys and stored values; a sequence is cut into other shards than a table is."""
    assert [first.key(i) for i in range(40)] == [second.key(i) for i in range(40)]
    for field in SCHEMA:
        if field.storage == "record":
            name = None if field == SCHEMA.index_field else field.name
            assert all(bytes(first.stored(i, name)) == bytes(second.stored(i, name)) for i in range(40)), name
        elif field == SCHEMA.label_field:
            assert first.records["label"].tolist() == second.records["label"].tolist()
        else:
            columns = [set_.columns[field.name].gather(np.arange(40)) for set_ in (first, second)]
            assert all(np.array_equal(*pair) for pair in zip(*columns, strict=True)), field.name


@pytest.mark.parametrize("table", TABLES)
def test_all_kinds_come_back(tmp_path: Path, table: TableFormat, format_name: str) -> None:
    before = packed(tmp_path / "a", Samples(40), format=format_name)
    assert unpack(tmp_path / "a" / "set", tmp_path / "files", table=table) == 40
    assert Schema.from_json((tmp_path / "files" / "samples.schema.json").read_text()) == SCHEMA
    after = again(tmp_path / "b", tmp_path / "files" / f"samples.{table}", format=format_name)
    assert after.schema == SCHEMA
    same_samples(before, after)


def test_what_is_in_the_files(tmp_path: Path) -> None:
    packed(tmp_path, Samples(6))
    unpack(tmp_path / "set", tmp_path / "files")
    rows = [json.loads(line) for line in (tmp_path / "files" / "samples.jsonl").read_text().splitlines()]
    assert [row["image"] for row in rows[:2]] == ["00000000.jpg", "00000001.png"]
    assert rows[0]["mask"] == "mask/00000000.jpg.png"
    for i, row in enumerate(rows):
        given = sample(i)
        assert list(row) == list(SCHEMA.names)
        assert (tmp_path / "files" / row["image"]).read_bytes() == given["image"]
        assert np.array_equal(np.load(tmp_path / "files" / row["bands"]), given["bands"])
        for name in ("mask", "depth"):
            assert np.array_equal(np.asarray(Pillow.open(tmp_path / "files" / row[name])), given[name])
        assert (row["caption"], row["label"], row["boxes"]) == (
            given["caption"], given["label"], given["boxes"].tolist()
        )  # fmt: skip


def test_tables_come_back_with_the_names_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "source" / "mask").mkdir(parents=True)
    rows = []
    for i in range(9):
        path = f"mask/{i}.jpg"  # a folder with the name of a field
        (tmp_path / "source" / path).write_bytes(photo(i))
        Pillow.fromarray(sample(i)["mask"]).save(tmp_path / "source" / f"{i}.png")
        rows.append({"path": path, "mask": f"{i}.png", "text": "1", "label": [None, "7", "b"][i % 3], "x": i})
    (tmp_path / "source" / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = again(tmp_path / "a", tmp_path / "source" / "t.jsonl")
    for table in TABLES:
        done = run_cli("unpack", tmp_path / "a" / "set", tmp_path / table, "--table", table)
        assert done.returncode == 0, done.stderr
        after = again(tmp_path / f"again {table}", tmp_path / table / f"samples.{table}")
        same(before, after)
        assert [after.key(i) for i in range(9)] == [row["path"] for row in rows]
        assert (tmp_path / table / "mask_" / "mask" / "3.jpg.png").exists()


def test_samples_of_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.jpg").write_bytes(photo(1))
    monkeypatch.chdir(tmp_path)
    schema = {"image": "image", "mask": "mask", "question": "text"}
    samples = [{"image": "1.jpg", "mask": sample(i)["mask"], "question": str(i)} for i in range(3)]
    before = packed(tmp_path / "a", samples, schema)
    unpack(tmp_path / "a" / "set", tmp_path / "files")
    assert sorted(snapshot(tmp_path / "files")) == [
        "1.jpg", "mask/00000001.png", "mask/00000002.png", "mask/1.jpg.png", "samples.jsonl",
        "samples.schema.json",
    ]  # fmt: skip
    same(before, again(tmp_path / "b", tmp_path / "files" / "samples.jsonl"))
    (tmp_path / "1.jpg").write_bytes(photo(2))
    samples += [{"image": {"bytes": photo(3), "path": "1.jpg"}, "mask": sample(4)["mask"], "question": ""}]
    packed(tmp_path / "c", samples, schema)
    with pytest.raises(PackError, match="two records have the name '1.jpg'"):
        unpack(tmp_path / "c" / "set", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_keys_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    samples = [{"image": {"bytes": photo(0), "path": "x\0y"}, "n": 1}]
    packed(tmp_path, samples, {"image": "image", "n": "int64"})
    with pytest.raises(FormatError, match="is no path below a folder"):
        unpack(tmp_path / "set", tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_a_set_of_masks_alone(tmp_path: Path) -> None:
    samples = [{"mask": sample(i)["mask"], "n": np.uint64(2**64 - 1 - i)} for i in range(5)]
    before = packed(tmp_path / "a", samples, {"mask": "mask", "n": "uint64"})
    for table in TABLES:
        unpack(tmp_path / "a" / "set", tmp_path / table, table=table)
        same(before, again(tmp_path / f"again {table}", tmp_path / table / f"samples.{table}"))
