"""``--root``: the folder that a table's paths start from, and do not leave."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from fault_server import FaultServer
from field_samples import photo

import fastload
from fastload.cli import main
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.shard.dataset import PackedFiles

Write = Callable[[Path, list[dict[str, Any]]], Path]


def write_jsonl(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as lines."""
    path = folder / "llava.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_json(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as one list."""
    path = folder / "llava.json"
    path.write_text(json.dumps(rows))
    return path


def write_csv(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a table of texts."""
    path = folder / "a.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a typed table."""
    path = folder / "a.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder for the table, and one of pictures somewhere else."""
    table, pictures = tmp_path / "table", tmp_path / "pictures"
    table.mkdir()
    (pictures / "coco").mkdir(parents=True)
    for number in range(4):
        (pictures / "coco" / f"{number}.jpg").write_bytes(photo(number))
    (tmp_path / "outside.jpg").write_bytes(photo(9))
    return table, pictures


@pytest.mark.parametrize("write", [write_jsonl, write_json, write_parquet, write_csv])
def test_paths_start_from_the_root(write: Write, places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    rows = [{"image": f"coco/{n}.jpg", "text": f"text {n}"} for n in range(4)]
    path = write(table, rows)
    pack(path, tmp_path / "set", PackOptions(root=str(pictures), num_proc=1))
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(n) for n in range(4)] == [photo(n) for n in range(4)]
    assert [dataset.key(n) for n in range(4)] == [f"coco/{n}.jpg" for n in range(4)]
    assert dataset.value("text", 3) == "text 3"
    with pytest.raises(PackError, match=r"coco/0.jpg"):
        pack(path, tmp_path / "no", PackOptions(fields=(("image", "image"),)))


@pytest.mark.parametrize("write", [write_jsonl, write_json, write_parquet])
def test_lists_of_paths_by_the_command(write: Write, places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    rows = [{"image": [f"coco/{n}.jpg"] * n, "id": str(n)} for n in (1, 2, 3)]
    words = ["pack", str(write(table, rows)), str(tmp_path / "set"), "--root", str(pictures)]
    assert main([*words, "--field", "image=images", "--quiet"]) == 0
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.value("image", n) for n in range(3)] == [[photo(n)] * n for n in (1, 2, 3)]


def test_a_list_of_paths_and_labels(places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    (table / "list.csv").write_text("path,label\ncoco/0.jpg,cat\ncoco/1.jpg,dog\n")
    fastload.pack(table / "list.csv", tmp_path / "set", root=pictures)
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(n) for n in range(2)] == [photo(0), photo(1)]
    assert (dataset.is_plain, dataset.classes) == (True, ["cat", "dog"])
    (table / "list.csv").write_text("path,label\n../outside.jpg,cat\n")
    with pytest.raises(PackError, match=r"list.csv: '../outside.jpg' leads out of .*pictures, the root"):
        fastload.pack(table / "list.csv", tmp_path / "no", root=pictures)
    (table / "list.csv").write_text("path,label\ncoco/7.jpg,cat\n")
    with pytest.raises(PackError, match=r"coco/7.jpg"):
        fastload.pack(table / "list.csv", tmp_path / "no", root=pictures)


@pytest.mark.parametrize("write", [write_jsonl, write_json, write_parquet])
@pytest.mark.parametrize("lost", ["../outside.jpg", "/ABSOLUTE/outside.jpg", "coco/../../outside.jpg"])
def test_paths_that_leave_are_named(
    write: Write, lost: str, places: tuple[Path, Path], tmp_path: Path
) -> None:
    table, pictures = places
    lost = lost.replace("/ABSOLUTE", str(tmp_path))
    assert os.path.exists(pictures / lost)
    for value, kind in ((lost, "image"), (["coco/1.jpg", lost], "images")):
        first: Any = "coco/0.jpg" if kind == "image" else ["coco/0.jpg"]
        path = write(table, [{"image": first, "t": "a"}, {"image": value, "t": "b"}])
        options = {"root": str(pictures), "fields": (("image", kind),), "num_proc": 1}
        with pytest.raises(
            PackError, match=rf"field 'image', row 2: '{lost}' leads out of .*pictures, the root"
        ):
            pack(path, tmp_path / f"no-{kind}", PackOptions(**options))  # type: ignore[arg-type]
        pack(path, tmp_path / kind, PackOptions(**options, on_error="skip"))  # type: ignore[arg-type]
        assert len(PackedFiles(tmp_path / kind)) == 1
        assert PackedFiles(tmp_path / kind).manifest.skipped == 1


def test_paths_that_lead_back_stay(places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    rows = [{"image": str(pictures / "coco" / "1.jpg")}, {"image": "coco/../coco/2.jpg"}]
    rows = [{**row, "text": "a"} for row in rows]
    fastload.pack(write_jsonl(table, rows), tmp_path / "set", root=pictures)
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(n) for n in range(2)] == [photo(1), photo(2)]
    assert [dataset.key(n) for n in range(2)] == ["coco/1.jpg", "coco/2.jpg"]


def test_a_picture_that_is_not_there_is_named(places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    path = write_jsonl(table, [{"image": ["coco/0.jpg", "coco/7.jpg"], "text": "a"}])
    with pytest.raises(PackError, match=r"field 'image': .*coco/7.jpg"):
        fastload.pack(path, tmp_path / "set", root=pictures, schema={"image": "images", "text": "text"})
    path = write_jsonl(table, [{"image": "coco/7.jpg", "text": "a"}])
    with pytest.raises(PackError, match=r"'coco/7.jpg' is none below .*pictures. Give the folder .* --root"):
        fastload.pack(path, tmp_path / "set", root=pictures)


def test_what_has_no_paths_takes_no_root(places: tuple[Path, Path], tmp_path: Path) -> None:
    table, pictures = places
    with pytest.raises(
        PackError, match=r"root says where the paths of a table start. Found: .*pictures, which"
    ):
        fastload.pack(pictures, tmp_path / "set", root=table)
    with pytest.raises(PackError, match=r"root is for a table. Found: list"):
        fastload.pack([{"image": photo(0)}], tmp_path / "set", schema={"image": "image"}, root=table)
    path = write_jsonl(table, [{"image": "coco/0.jpg", "text": "a"}])
    with pytest.raises(PackError, match=r"root: .*nothing is no folder. Give the one"):
        fastload.pack(path, tmp_path / "set", root=tmp_path / "nothing")
    with (
        FaultServer(folder=tmp_path) as server,
        pytest.raises(PackError, match=r"root is for a table on this machine.* Found: http"),
    ):
        fastload.pack(f"{server.url}/table/llava.jsonl", tmp_path / "set", root=pictures)
