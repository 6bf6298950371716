"""Annotated sets, tables and tars by URL are packed as those on disk are."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotated_trees import ids_of, write_mask, write_photo, write_voc, write_yolo
from made_detection import made_set
from pack_trees import encoded, make_tree, snapshot
from tar_reference import captioned

from fastload.packing import PackOptions, dry_run, pack


def options(**extra: Any) -> PackOptions:
    return PackOptions(**{"shard_size": 4096, "num_proc": 1, **extra})


def coco(root: Path) -> Path:
    made_set(root, 8, seed=3)
    for path in (root / "images").iterdir():  # deep ones, which only their headers tell
        write_mask(root / "annotations" / "instances_pixelmaps" / f"{path.stem}.png", ids_of(1, most=999))
    return root


def pairs(root: Path) -> Path:
    for number in range(9):
        write_photo(root / "images" / f"a{number % 2}" / f"{number}.jpg", number)
        write_mask(root / "masks" / f"a{number % 2}" / f"{number}.png", ids_of(number, most=999))
    return root


def listed(root: Path, header: list[str]) -> Path:
    names = [f"photos/{number}.jpg" for number in range(9)]
    make_tree(root, {name: encoded(number) for number, name in enumerate(names)})
    rows = [[name, f"c{number % 3}", number][: len(header)] for number, name in enumerate(names)]
    with open(root / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return root / "table.csv"


def jsonl(root: Path) -> Path:
    listed(root, ["path"]).unlink()
    rows = [{"path": f"photos/{i}.jpg", "text": f"no. {i}", "boxes": [[0, 0, 1, i + 1]]} for i in range(9)]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root / "table.jsonl"


def parquet(root: Path) -> Path:
    root.mkdir(parents=True)
    for part in range(2):
        rows = {"image": [encoded(10 * part + i) for i in range(6)], "label": list(range(6))}
        pq.write_table(pa.table(rows), root / f"{part:04d}.parquet", row_group_size=2)
    return root


def tars(root: Path, suffix: str = "tar") -> Path:
    for split in ("train", "val"):
        (root / split).mkdir(parents=True)
        for number in range(2):
            with tarfile.open(root / split / f"{number}.{suffix}", "w:gz" if "gz" in suffix else "w") as file:
                for name, data in captioned(7):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    file.addfile(info, io.BytesIO(data))
    return root


def panoptic(root: Path) -> Path:
    made_set(root, 6, seed=3)
    for name in ("instances", "captions"):
        (root / "annotations" / f"{name}.json").unlink()
    return root


KINDS: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "coco": (coco, {"layout": "coco"}),
    "panoptic": (panoptic, {"layout": "coco"}),
    "yolo": (lambda root: write_yolo(root, 5, "outlines").parent, {}),
    "yaml": (lambda root: write_yolo(root, 5, "points"), {}),
    "voc": (lambda root: write_voc(root, 8, masks=8), {}),
    "pairs": (pairs, {}),
    "list": (lambda root: listed(root, ["path", "label"]), {}),
    "csv": (lambda root: listed(root, ["path", "class", "number"]), {}),
    "jsonl": (jsonl, {}),
    "parquet": (parquet, {}),
    "tar": (tars, {"layout": "wds"}),
    "tar.gz": (lambda root: tars(root, "tar.gz"), {"layout": "wds"}),
}


def contents(folder: Path) -> dict[str, Any]:
    """All files of a set; of what tells its source from others only that there is something."""
    files: dict[str, Any] = snapshot(folder)
    for name in files:
        if name.endswith("dataset.json"):
            files[name] = json.loads(files[name])
            options = files[name]["options"]
            options["given"] = "given" in options
    return files


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    yield
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture(params=KINDS)
def given(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, PackOptions]:
    make, more = KINDS[request.param]
    return make(tmp_path / "source"), options(**more)


def test_the_same_as_on_disk(tmp_path: Path, given: tuple[Path, PackOptions]) -> None:
    source, asked = given
    pack(source, tmp_path / "disk" / "set", asked)
    url, expected = f"file://{source}", contents(tmp_path / "disk")
    pack(url, tmp_path / "url" / "set", asked)
    assert contents(tmp_path / "url") == expected
    assert all(result.was_complete for result in pack(url, tmp_path / "url" / "set", asked))
    pack(url, f"file://{tmp_path}/store/set", asked)
    assert contents(tmp_path / "store") == expected
    assert [run.records for run in dry_run(url, f"file://{tmp_path}/x/set", asked)] == [
        run.records for run in dry_run(source, tmp_path / "x", asked)
    ]
