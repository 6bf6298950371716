"""Annotated sets, tables and tars by URL are packed as those on disk are."""

from __future__ import annotations

import contextlib
import csv
import gc
import io
import json
import pickle
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotated_trees import ids_of, write_mask, write_photo, write_voc, write_yolo
from fault_server import FaultServer
from made_detection import made_set
from object_server import ObjectServer
from pack_trees import encoded, make_tree, run_cli, snapshot
from tar_reference import captioned

from fastload.errors import FastloadError, PackError, RemoteError
from fastload.packing import Observer, PackOptions, dry_run, pack, stored_rows
from fastload.packing.annotations import coco_file
from fastload.packing.annotations.coco_file import CocoFile
from fastload.packing.cut import Plan
from fastload.packing.opened import opened
from fastload.packing.packer import pack_shares, publish_shares
from fastload.packing.rows import Rows
from fastload.packing.shares import ShardRanges
from fastload.packing.spread import BadFiles
from fastload.packing.target import Folder
from fastload.packing.work import ShardWork, write_one
from fastload.remote.local import LocalStore


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
    gc.collect()
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


@pytest.mark.parametrize("kind", ["coco", "pairs", "csv", "tar.gz"])
def test_shares_from_a_store(tmp_path: Path, object_server: ObjectServer, kind: str) -> None:
    make, more = KINDS[kind]
    source, asked = make(tmp_path / "source"), options(**more)
    pack(source, tmp_path / "disk" / "set", asked)
    bucket = f"shares-{kind.replace('.', '-')}"
    files = {f"data/{name}": data for name, data in snapshot(tmp_path / "source").items()}
    object_server.make_bucket(bucket, files)
    url = f"s3://{bucket}/data" + ("" if source.is_dir() else f"/{source.name}")
    output = f"file://{tmp_path}/url/set" if kind == "csv" else str(tmp_path / "url" / "set")
    asked = replace(asked, storage_options=object_server.storage_options)
    pack_shares(url, output, ShardRanges.parse("0/3"), asked)
    layout = ("--as", more["layout"]) if more else ()
    done = run_cli(
        "pack", url, output, *layout, "--shard-size", "4096", "--num-proc", "2", "--shards", "1-99",
        **object_server.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    publish_shares(url, output, asked)
    assert contents(tmp_path / "url") == contents(tmp_path / "disk")


def packed(rows: Rows, output: Path, asked: PackOptions) -> dict[str, Any]:
    """Pack rows as a worker on another machine does."""
    target = Folder(output / "set")
    with target.opened(rows, asked, Observer()) as plan:
        assert isinstance(plan, Plan)
        for number in range(len(plan.shards)):
            assert write_one(ShardWork(rows, plan, target, asked), number)
        target.publish(plan, asked, Observer())
    return contents(output)


@pytest.mark.parametrize("kind", ["coco", "panoptic"])
def test_rows_of_a_shared_folder_reach_another_machine(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, more = KINDS[kind]
    source, asked = make(tmp_path / "source"), options(**more)
    split = opened(source, asked)[0]
    data, expected = pickle.dumps(split.rows), packed(split.rows, tmp_path / "here", asked)
    for path in (tmp_path / "tmp").glob("fastload-coco-*"):  # another machine has no such folders
        shutil.rmtree(path)
    scanned, scan = [], CocoFile._scan
    monkeypatch.setattr(CocoFile, "_scan", lambda file: scanned.append(file.path) or scan(file))
    for name in ("there", "again"):
        assert packed(pickle.loads(data), tmp_path / name, asked) == expected
    assert len(scanned) == len({*scanned}) > 0  # each once
    coco_file._here.clear()
    for document in source.rglob("*.json"):
        document.write_text(" " + document.read_text())
    with pytest.raises(PackError, match=r"\.json has changed since the pack began"):
        pickle.loads(data)
    coco_file._here.clear()


@pytest.mark.parametrize("kind", ["coco", "panoptic", "voc", "jsonl"])
def test_rows_reach_another_machine(tmp_path: Path, kind: str) -> None:
    make, more = KINDS[kind]
    source, asked = make(tmp_path / "source"), options(**more)

    split = opened(f"file://{source}", asked)[0]
    data, expected = pickle.dumps(split.rows), packed(split.rows, tmp_path / "here", asked)
    del split
    gc.collect()
    assert not list((tmp_path / "tmp").iterdir())
    rows = pickle.loads(data)
    assert packed(rows, tmp_path / "there", asked) == expected
    assert pickle.loads(data) is rows  # the source is opened once
    stored_rows._opened.clear()
    del rows
    if kind == "jsonl":
        with open(source, "a") as file:
            file.write('{"path": "photos/0.jpg", "text": "", "boxes": []}')
        with pytest.raises(PackError, match="has changed .* file:///.*/source has other samples"):
            pickle.loads(data)
        stored_rows._opened.clear()


def test_interrupted(
    tmp_path: Path, given: tuple[Path, PackOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, asked = given
    pack(source, tmp_path / "disk" / "set", asked)
    get, seen, most = LocalStore.get, 0, 0

    def failing(store: LocalStore, path: str, *more: Any) -> bytes:
        nonlocal seen
        seen += 1
        if seen == most:
            raise RemoteError(f"{path} cannot be read: the store answers 503.")
        return get(store, path, *more)

    monkeypatch.setattr(LocalStore, "get", failing)
    for most in (1, 3, 9, 20):  # a tar is not asked for as often
        seen = 0
        failed = pytest.raises((RemoteError, PackError), match="answers 503")
        with failed if most < 9 else contextlib.suppress(RemoteError, PackError):
            pack(f"file://{source}", tmp_path / "url" / "set", asked)
    monkeypatch.setattr(LocalStore, "get", get)
    pack(f"file://{source}", tmp_path / "url" / "set", asked)
    assert contents(tmp_path / "url") == contents(tmp_path / "disk")


def test_files_that_change(tmp_path: Path) -> None:
    source = pairs(tmp_path / "source")
    url, output = f"file://{source}", tmp_path / "set"
    pack_shares(url, output, ShardRanges.parse("0"), options())
    *_, last = sorted(source.glob("images/*/*.jpg"))
    last.write_bytes(last.read_bytes() + b"\0")
    changed = r"has changed .*: file:///\S*/source/images/a1/7.jpg had \d+ bytes, and has \d+"
    with pytest.raises(PackError, match=changed):
        pack_shares(url, output, ShardRanges.parse("0-99"), options())
    [run] = opened(url, options())  # what goes after the listing
    last.unlink()
    with pytest.raises(BadFiles) as raised:
        packed(run.rows, tmp_path / "gone", options())
    [(key, reason)] = raised.value.failures
    assert key == "images/a1/7.jpg"
    assert re.search(r"No such file or directory: file:///\S*/source/images/a1/7\.jpg", reason)


@pytest.mark.parametrize("where", ["disk", "url"])
def test_files_that_come_between_shares(tmp_path: Path, where: str) -> None:
    source = pairs(tmp_path / "source")
    place = source if where == "disk" else f"file://{source}"
    pack_shares(place, tmp_path / "set", ShardRanges.parse("0"), options())
    write_photo(source / "images" / "a0" / "00.jpg", 77)
    write_mask(source / "masks" / "a0" / "00.png", ids_of(77, most=999))
    with pytest.raises(PackError, match=r"have come or gone, and sample \d is images/a0/\S+\.jpg now"):
        pack_shares(place, tmp_path / "set", ShardRanges.parse("1-99"), options())


def test_what_is_beside_the_pictures(tmp_path: Path) -> None:
    source = coco(tmp_path / "source")
    url, jsons = f"file://{source}", tuple(f"annotations/{name}.json" for name in ("instances", "captions"))
    here, urls = tuple(str(source / name) for name in jsons), tuple(f"{url}/{name}" for name in jsons)
    for below, given in (("", jsons), ("/images", urls), ("/images", tuple(f"../{name}" for name in jsons))):
        pack(f"{source}{below}", tmp_path / "disk" / "set", options(annotations=here, restart=True))
        pack(f"{url}{below}", tmp_path / "url" / "set", options(annotations=given, restart=True))
        assert contents(tmp_path / "url") == contents(tmp_path / "disk")
    pack(source / "images", tmp_path / "m" / "set", options(masks=str(source / "masks")))
    pack(f"{url}/images", tmp_path / "n" / "set", options(masks="../masks"))
    assert contents(tmp_path / "n") == contents(tmp_path / "m")
    for given in (f"s3://other/{jsons[0]}", str(source / jsons[0])):
        with pytest.raises(FastloadError, match="is not (in|a path within) file://"):
            pack(url, tmp_path / "no", options(annotations=(given,)))


@pytest.mark.parametrize(
    ("kind", "change", "found"),
    [
        (
            "csv",
            {"table.csv": b"image,n\n/etc/x.jpg,1\n"},
            "/etc/x.jpg does not lie in file:///.*/source, and",
        ),
        ("list", {"table.csv": b"path,label\n../x.jpg,a\n"}, "x.jpg does not lie in file:///.*/source, and"),
        ("csv", {"table.csv": b"path,n,n\n"}, r"^file:///\S*/source/table\.csv: the first line must name"),
        (
            "coco",
            {"annotations/instances.json": b"{"},
            r"^file:///\S*/source/annotations/instances\.json cannot",
        ),
        (
            "yaml",
            {"data.yaml": b"train: x\nnames: [a]"},
            r"^file:///\S*/data\.yaml: .*file:///\S*/x does not exist",
        ),
        ("voc", {"JPEGImages/2007_000000.jpg": b"no"}, r"2007_000000\.jpg: not an image"),
        ("tar", {"train/0.tar": b"no tar" * 99}, r"^file:///\S*/train/0\.tar is not a whole tar"),
    ],
)
def test_messages_name_the_url(tmp_path: Path, kind: str, change: dict[str, bytes], found: str) -> None:
    make, more = KINDS[kind]
    source = make(tmp_path / "source")
    make_tree(tmp_path / "source", change)
    if kind == "csv":
        more = {"fields": (("image", "image"),)}
    if kind == "coco":
        more = {**more, "annotations": ("annotations/instances.json",)}
    with pytest.raises(PackError, match=found) as raised:
        pack(f"file://{source}", tmp_path / "set", options(**more))
    assert "fastload-source" not in str(raised.value)
    assert ".tmp-files" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_tars_by_braces(tmp_path: Path, scheme: str) -> None:
    source = tars(tmp_path / "source") / "train"
    pack(f"{source}/{{0..1}}.tar", tmp_path / "disk" / "set", options(layout="wds"))
    objects = {f"/{path.name}": path.read_bytes() for path in source.iterdir()}
    with FaultServer(objects) as web:
        url = f"{web.url}/{{0..1}}.tar" if scheme == "http" else f"file://{source}/{{0..1}}.tar"
        pack(url, tmp_path / "url" / "set", options(layout="wds", num_proc=2))
    assert contents(tmp_path / "url") == contents(tmp_path / "disk")
    changed = sorted(source.iterdir())[0]
    changed.write_bytes(changed.read_bytes() + bytes(512))
    if scheme == "file":
        with pytest.raises(PackError, match="holds a pack of other samples"):
            pack(url, tmp_path / "url" / "set", options(layout="wds"))
