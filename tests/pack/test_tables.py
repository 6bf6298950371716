"""Tables with any columns: CSV, JSONL and Parquet become the same set, by what their columns hold."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from field_samples import photo, sample
from pack_trees import run_cli, snapshot
from PIL import Image as Pillow

import fastload
from fastload.errors import PackError
from fastload.packing import PackOptions, dry_run, pack
from fastload.packing.table_files import open_rows
from fastload.packing.table_samples import open_table, told_by
from fastload.packing.verify import verify
from fastload.sample.fields import KINDS
from fastload.sample.plain import plain_value
from fastload.shard.dataset import PackedFiles

SUFFIXES = ("csv", "jsonl", "parquet")
FOUND = (
    "image=image, mask=mask, label=label, boxes=boxes(xywh), age=scalar(float64), caption=text, "
    "n=scalar(int64), good=scalar(bool), facts=json"
)


def rows_of(folder: Path, count: int = 30) -> list[dict[str, Any]]:
    """Rows of a table in ``folder``, and the files that they name."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(count):
        given = sample(i)
        (folder / "files" / f"{i}.jpeg").write_bytes(given["image"])  # by contents, some are PNG
        Pillow.fromarray(given["mask"]).save(folder / "files" / f"{i}.mask.png")
        rows.append(
            {
                "path": f"files/{i}.jpeg",
                "mask": f"files/{i}.mask.png",
                "label": ["dog", "cat"][i % 2],
                "boxes": given["boxes"].tolist(),
                "age": None if i == 20 else i / 2,
                "caption": given["caption"] or 'a, "quoted"\nline',
                "n": i,
                "good": i % 3 == 0,
                "facts": {"i": i},
            }
        )
    return rows


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the format of the path's suffix."""
    if path.suffix == ".parquet":
        texts = [{**row, "facts": json.dumps(row["facts"])} if "facts" in row else row for row in rows]
        parquet.write_table(pa.Table.from_pylist(texts), path, row_group_size=7)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0])
            writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return path


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, dict, bool)) else value


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_columns(tmp_path: Path, suffix: str, format_name: str) -> None:
    rows = rows_of(tmp_path)
    path = write_table(tmp_path / f"table.{suffix}", rows)
    fields = (("facts", "text"),) if suffix == "parquet" else ()  # nobody can know that this text is JSON
    options = PackOptions(format=format_name, shard_size=8192, fields=fields)
    [found] = dry_run(path, tmp_path / "set", options)
    schema = FOUND.replace("facts=json", "facts=text") if fields else FOUND
    assert (str(found.schema), found.records, found.classes) == (schema, 30, 2)
    assert not (tmp_path / "set").exists()
    [result] = pack(path, tmp_path / "set", options)
    assert len(result.manifest.shards) > 3
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.classes == ["cat", "dog"]
    for i, row in enumerate(rows):
        assert dataset.read(i) == (tmp_path / row["path"]).read_bytes()
        assert dataset.value_bytes("mask", i) == (tmp_path / row["mask"]).read_bytes()
        assert dataset.key(i) == row["path"]
        for name in ("label", "boxes", "caption", "n", "good"):
            assert plain_value(dataset.schema[name], dataset.value_bytes(name, i)) == row[name]
        age = dataset.value("age", i)
        assert age == row["age"] or (row["age"] is None and np.isnan(age))
        facts = dataset.value("facts", i)
        assert (json.loads(facts) if fields else facts) == row["facts"]
    assert verify(tmp_path / "set") == ([], 30)


def test_formats_of_tables_change_nothing(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "facts"} for row in rows_of(tmp_path, 600)]
    sets = {}
    for suffix in SUFFIXES:
        path = write_table(tmp_path / f"table.{suffix}", rows)
        output = tmp_path / suffix / "set"
        pack(path, output, PackOptions(shard_size=100_000, num_proc=1, entries=None))
        found = snapshot(output)
        del found["dataset.json"]  # it has the table's hash
        sets[suffix] = (PackedFiles(output).id, found)
    assert len(sets) == 3
    assert all(found == sets["csv"] for found in sets.values())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_from_anywhere(tmp_path: Path, suffix: str) -> None:
    rows = [{"a": f'line\n"{i}",', "n": i} for i in range(3000)]
    table = open_rows(write_table(tmp_path / f"table.{suffix}", rows))
    whole = list(table.walk())
    assert len(whole) == 3000
    assert [row["a"] for row in whole] == [row["a"] for row in rows]
    for start in (0, 1, 1023, 1024, 1025, 2999, 3000):
        assert list(table.walk(start)) == whole[start:]


def test_fields_that_are_said(tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.csv", rows_of(tmp_path))
    done = run_cli(
        "pack", path, tmp_path / "set", "--quiet", "--field", "label=text", "--field", "boxes=boxes(xyxy)",
        "--field", "good=none", "--field", "age=float32", "--field", "n=label(classes=['x'])",
        "--on-error", "skip",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    dataset = PackedFiles(tmp_path / "set")
    found = "label=text, boxes=boxes, age=scalar(float32), caption=text, n=label, facts=json"
    assert found in str(dataset.schema)
    reasons = [
        json.loads(line)["reason"] for line in (tmp_path / "set" / "skipped.jsonl").read_text().splitlines()
    ]
    assert len(reasons) + len(dataset) == 30
    assert len(dataset) == 1  # only class 0 has a name, and that sample has no boxes
    assert sum("x1 <= x2" in reason for reason in reasons) > 5
    for said, message in (
        ("nothing=text", "has no column 'nothing'; its columns: path, mask"),
        ("label=words", "must be one of image, mask"),
        ("label", "--field takes NAME=KIND"),
    ):
        done = run_cli("pack", path, tmp_path / "no", "--field", said)
        assert done.returncode == 1
        assert message in done.stderr
    done = run_cli("pack", tmp_path, tmp_path / "no", "--field", "label=text")
    assert "is not a table" in done.stderr


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_schema_in_python_is_what_field_says(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"table.{suffix}", rows_of(tmp_path))
    schema = {"label": "text", "image": "image", "age": "float32"}
    [found] = fastload.pack(path, tmp_path / "a" / "set", schema, entries=None)
    assert str(found.manifest.schema) == "label=text, image=image, age=scalar(float32)"
    others = ("mask", "boxes", "caption", "n", "good", "facts")
    named = [word for name in others for word in ("--field", f"{name}=none")]
    done = run_cli("pack", path, tmp_path / "b" / "set", "--quiet", "--entries", "none", *named,
                   "--field", "label=text", "--field", "age=float32")  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours, theirs = PackedFiles(tmp_path / "a" / "set"), PackedFiles(tmp_path / "b" / "set")
    assert len(ours) == len(theirs) == 30
    for name in schema:
        assert [ours.value_bytes(name, i) for i in range(30)] == [
            theirs.value_bytes(name, i) for i in range(30)
        ]
    with pytest.raises(PackError, match="has no column 'nothing'; its columns: "):
        fastload.pack(path, tmp_path / "no", {"image": "image", "nothing": "text"})
    with pytest.raises(PackError, match="is not a table; only a table's columns have kinds"):
        fastload.pack(tmp_path, tmp_path / "no", schema)


def test_the_dry_run_prints_the_schema(tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.jsonl", rows_of(tmp_path, 5))
    done = run_cli("pack", path, tmp_path / "set", "--dry-run")
    assert "image=image, mask=mask, label=label, boxes=boxes" in done.stdout
    done = run_cli("pack", path, tmp_path / "set", "--dry-run", "--json")
    assert json.loads(done.stdout)["dry_run"][0]["schema"].startswith("image=image, mask=mask, label=label")


def test_the_last_row_counts_as_the_first(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(photo(1, "PNG"))
    values = {"a": ("1", "2.5", "scalar(float64)"), "b": ("1", "x", "text"), "c": ("1", "007", "text")}
    values |= {"d": ("[1, 2]", "[3]", "array(int64, (None,))"), "e": ("[1]", "[1.5]", "array(float64, (1,))")}
    values |= {
        "f": ("1", "", "scalar(float64)"),
        "g": ("true", "false", "scalar(bool)"),
        "h": ("[", "]", "text"),
    }
    rows = [{"image": "1.png"} | {name: first for name, (first, _, _) in values.items()} for _ in range(200)]
    rows.append({"image": "1.png"} | {name: last for name, (_, last, _) in values.items()})
    table = open_table(write_table(tmp_path / "t.csv", rows), {})
    assert {field.name: str(field).partition("=")[2] for field in table.schema} == {
        "image": "image", **{name: kind for name, (_, _, kind) in values.items()}
    }  # fmt: skip


def test_image_and_label_of_a_parquet_table_are_a_plain_set(tmp_path: Path) -> None:
    features = {"image": {"_type": "Image"}, "label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}
    rows = [{"image": {"bytes": photo(i), "path": f"{i}.jpg"}, "label": i % 2} for i in range(9)]
    table = pa.Table.from_pylist(rows)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "t.parquet")
    [result] = pack(tmp_path / "t.parquet", tmp_path / "set")
    assert result.manifest.fields == ()
    assert result.manifest.classes == ("a", "b", "c")
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(i) for i in range(9)] == [photo(i) for i in range(9)]
    assert [dataset.key(i) for i in range(9)] == [f"{i}.jpg" for i in range(9)]
    assert dataset.labels.tolist() == [i % 2 for i in range(9)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "image,image,a\n1,2,3\n", "must name the columns, each its own"),
        ("t.csv", "image,a\n1.png\n", "record 1 has 1 columns"),
        ("t.csv", "image,a\n1.png,x\n2.png,y", "No such file or directory"),
        ("t.jsonl", '{"image": "1.png", "a": 1}\n[]', "record 2 is not an object"),
        ("t.jsonl", '{"image": "1.png", "a": 1}\n{"image"', "record 2"),
        ("t.jsonl", '{"path": "1.png", "a": 1' + "0" * 400 + "}", "which no field can hold"),
        ("t.jsonl", '{"a": 1, "b": 2}', "neither pictures nor texts"),
        ("t.parquet", "PAR1", "is not a whole Parquet file"),
    ],
)
def test_tables_that_cannot_be_packed(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / "1.png").write_bytes(photo(1, "PNG"))
    (tmp_path / name).write_text(text)
    with pytest.raises(PackError, match=message):
        pack(
            tmp_path / name,
            tmp_path / "set",
            PackOptions(fields=(("image", "image"),) if "2.png" in text else ()),
        )


def test_the_kinds_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "packing.md").read_text(encoding="utf-8")
    table = text.split("| kind | examples |\n")[1].split("\n\n")[0]
    words = re.findall(r"`([^`]+)`", table)
    assert len(words) > 15
    found = told_by({word: word for word in words})
    assert {told.kind.name for told in found.values() if told is not None} == {*KINDS}
    assert found["none"] is None


def test_kinds_are_words() -> None:
    assert told_by({"a": "none"}) == {"a": None}
    with pytest.raises(PackError, match="must be one of"):
        told_by({"a": "picture"})
