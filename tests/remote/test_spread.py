"""``verify`` and ``index`` of what is in a store, spread over processes: what one process finds."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fault_server import FaultServer
from field_sets import RICH, rich_samples, write_field_set
from pickled_tasks import PickledTasks
from tar_reference import captioned, write_tar

import fastload.cli.index
import fastload.cli.verify
from fastload import PackedDataset
from fastload.cli import main
from fastload.errors import PackError
from fastload.packing import fetched
from fastload.packing import verify as verify_module
from fastload.packing.entries import _entries_of_span, entries_by, index_stored_entries
from fastload.packing.foreign import IndexOptions, index_entries, index_files
from fastload.packing.verify import Problem, verify

COUNT = 9


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of every kind of field, with pictures in several."""
    return write_field_set(tmp_path_factory.mktemp("fields"), RICH, rich_samples(COUNT))


@pytest.fixture(autouse=True)
def small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for indexes, and parts of a few records."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    monkeypatch.setattr(verify_module, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(fetched, "_BYTES", 3000)
    fetched.check_seen.cache_clear()
    fetched._opened.clear()


def flip(path: Path, *places: float) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def said(found: tuple[list[Problem], int]) -> tuple[list[Problem], int]:
    """The same without names of temporary files, and the ranges of requests that fail."""
    problems, count = found
    return [
        replace(one, reason=re.sub(r"fastload-verify-[\w-]+|/fd/\d+|\.tmp-\w+|\d+-\d+", "", one.reason))
        for one in problems
    ], count


def flip_column(shard: Path) -> None:
    """A value of a further field; a set without one gets a wrong record."""
    path = next(shard.parent.glob("field-02.fli"), None)
    flip(path or shard, 0.5 if path is None else 4097 / (path.stat().st_size - 1))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "none": lambda shard: None,
    "records": lambda shard: flip(shard, 0.1, 0.3, 0.5, 0.6, 0.9),
    "cut": cut,
    "missing": lambda shard: shard.unlink(),
    "index": lambda shard: flip(shard.parent / "index.fli", 0.9),
    "column": lambda shard: flip_column(shard),
    "no points": lambda shard: (shard.parent / "entries.fli").write_bytes(b"none"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["packed", "fields"])
def test_the_same_problems(
    packed: PackedDataset, fields: Path, tmp_path: Path, damage: str, name: str
) -> None:
    """In a folder and in a store, with each option."""
    folder = tmp_path / "set"
    shutil.copytree(packed.folder if name == "packed" else fields, folder)
    index_entries(folder, 16)
    DAMAGE[damage](folder / PackedDataset(folder).manifest.shards[0].file)
    with FaultServer(folder=tmp_path) as server:
        for place in (str(folder), f"{server.url}/set"):
            for decode, entries in ((False, False), (True, True)):
                tasks = PickledTasks()
                found = verify(place, decode, entries, tasks.in_order)
                assert said(found) == said(verify(place, decode, entries))
                assert (found[0] == []) == (damage == "none")
                assert tasks.count > 3 or damage in ("missing", "index")


def test_many_problems_are_listed_alike(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "LISTED", 5)
    monkeypatch.setattr(verify_module.Problems.__init__, "__defaults__", (5,))
    folder = tmp_path / "set"
    shutil.copytree(packed.folder, folder)
    flip(folder / packed.manifest.shards[0].file, *np.linspace(0, 1, 60))
    with FaultServer(folder=tmp_path) as server:
        found = verify(f"{server.url}/set", spread=PickledTasks().in_order)
        assert found == verify(f"{server.url}/set")
    assert len(found[0]) == 6
    assert found[0][-1].count > 10


def test_wrong_entry_points_are_found(packed: PackedDataset, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(packed.folder, folder)
    index_entries(folder, 16)
    with FaultServer(folder=tmp_path) as server:
        url = f"{server.url}/set"
        assert verify(url, entries=True, spread=PickledTasks().in_order) == ([], len(packed))
        before = (folder / "entries.fli").read_bytes()
        index_entries(folder, 32)
        assert (folder / "entries.fli").read_bytes() != before
        assert verify(url, entries=True, spread=PickledTasks().in_order) == ([], len(packed))


def test_a_worker_with_another_set_is_an_error(
    packed: PackedDataset, fields: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "set"
    shutil.copytree(packed.folder, folder)

    class Elsewhere(PickledTasks):
        def in_order(self, function, common, items):  # type: ignore[no-untyped-def]
            here = list(items)
            shutil.rmtree(folder)
            shutil.copytree(fields, folder)
            yield from super().in_order(function, common, here)

    with pytest.raises(PackError, match="[Aa]ll must see the same set"):
        verify(folder, spread=Elsewhere().in_order)
    shutil.rmtree(folder)
    shutil.copytree(packed.folder, folder)
    with pytest.raises(PackError, match="[Aa]ll must see the same set"):
        index_entries(folder, 16, None, entries_by(Elsewhere().in_order))


def test_entry_points_of_a_store(packed: PackedDataset, tmp_path: Path) -> None:
    folder, store = tmp_path / "here", tmp_path / "store"
    shutil.copytree(packed.folder, folder)
    shutil.copytree(packed.folder, store)
    index_entries(folder, 16)
    tasks = PickledTasks()
    with FaultServer(folder=tmp_path) as server:
        why = index_stored_entries(f"{server.url}/store", None, 16, None, entries_by(tasks.in_order))
        assert "read only" in why
    assert tasks.count > 3
    [made] = (tmp_path / "sets").rglob("entries.fli")
    assert made.read_bytes() == (folder / "entries.fli").read_bytes()


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tars, and an index of them where they are."""
    folder = tmp_path_factory.mktemp("tars")
    for k in range(3):
        write_tar(folder / f"{k:03d}.tar", captioned(7, 7 * k), tarfile.PAX_FORMAT)
    index_files([folder], folder / "index")
    return folder


@pytest.mark.parametrize("by_url", [False, True])
def test_tars_are_indexed_one_a_task(tars: Path, tmp_path: Path, by_url: bool) -> None:
    tasks = PickledTasks()
    objects = {f"/tars/{path.name}": path.read_bytes() for path in tars.glob("*.tar")}
    with FaultServer(objects) as server:
        place = f"{server.url}/tars/{{000..002}}.tar" if by_url else str(tars)
        source = [place] if by_url else [str(path) for path in sorted(tars.glob("*.tar"))]
        made, finished = entries_by(tasks.in_order), tasks.as_finished
        manifest = index_files(source, tmp_path / "out", IndexOptions(), None, made, finished)
        tables = sorted(path.name for path in (tars / "index").glob("*.fli"))
        assert len(tables) == 4
        for name in tables:
            assert (tmp_path / "out" / name).read_bytes() == (tars / "index" / name).read_bytes()
        assert tasks.count > 3
        alone = index_files(source, tmp_path / "alone")
        assert (manifest.id, manifest.shards) == (alone.id, alone.shards)
        assert not (tmp_path / "out" / ".fastload-pack").exists()


def test_a_tar_that_cannot_be_indexed_is_the_same_error(tars: Path, tmp_path: Path) -> None:
    objects = {f"/tars/{path.name}": path.read_bytes() for path in tars.glob("*.tar")}
    damaged = bytearray(objects["/tars/001.tar"])
    at = damaged.index(b"\xff\xd8\xff")
    damaged[at : at + 3] = b"abc"
    objects["/tars/001.tar"] = bytes(damaged)
    reasons = []
    with FaultServer(objects) as server:
        source = [f"{server.url}/tars/{{000..002}}.tar"]
        for spread in (None, PickledTasks().as_finished):
            with pytest.raises(PackError) as raised:
                index_files(source, tmp_path / "out", IndexOptions(num_proc=1), spread=spread)
            reasons.append(str(raised.value))
        assert reasons[0] == reasons[1]
        skipping = IndexOptions(on_error="skip", num_proc=1)
        one = index_files(source, tmp_path / "one", skipping)
        many = index_files(source, tmp_path / "many", skipping, spread=PickledTasks().as_finished)
        assert one.skipped == many.skipped == 1
        for name in ("index.fli", "skipped.jsonl"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_commands(
    packed: PackedDataset,
    tars: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = PickledTasks()
    monkeypatch.setattr(fastload.cli.verify, "ray_cluster", tasks.at)
    monkeypatch.setattr(fastload.cli.index, "ray_cluster", tasks.at)
    shutil.copytree(packed.folder, tmp_path / "set")
    with FaultServer(folder=tmp_path) as server:
        assert main(["verify", f"{server.url}/set", "--ray", "auto", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["records"] == len(packed)
        before = tasks.count
        assert before > 3
        assert main(["index", f"{server.url}/set", "--entries", "16", "--ray", "auto"]) == 0
        assert tasks.count > before
    before = tasks.count
    assert (
        main(
            [
                "index",
                str(tars / "000.tar"),
                str(tars / "001.tar"),
                "--output",
                str(tmp_path / "out"),
                "--ray",
                "auto",
            ]
        )
        == 0
    )
    assert tasks.count >= before + 2


def test_an_error_leaves_no_threads_to_a_garbage_collection(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come while a thread starts, and waiting for other threads then hangs."""
    shutil.copytree(packed.folder, tmp_path / "set")

    def failing(*arguments: object) -> list[object]:
        raise PackError("no memory")

    monkeypatch.setattr("fastload.packing.entries.entries_of", failing)
    with FaultServer(folder=tmp_path) as server:
        dataset = PackedDataset(f"{server.url}/set")
        with pytest.raises(PackError) as kept:
            _entries_of_span((dataset.where, dataset.manifest.seal, None, 16), (0, len(dataset)))
        left = [thread.name for thread in threading.enumerate()]
        assert not [name for name in left if name.startswith(("fetch", "windows"))]
    assert kept.value
