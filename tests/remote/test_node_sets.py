"""The indexes that the node keeps of sets in stores: listed, in use, removed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer

from fastload import PackedDataset
from fastload.cli import main
from fastload.remote.node_folder import NodeFolder
from fastload.shard.dataset import PackedFiles
from fastload.shard.node_sets import node_sets, remove_node_set


@pytest.fixture
def url(packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A set on a web server."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(tmp_path / "memory"))
    files = {
        f"/set/{path.relative_to(packed.folder).as_posix()}": path.read_bytes()
        for path in packed.folder.rglob("*")
        if path.is_file()
    }
    with FaultServer(files) as server:
        yield f"{server.url}/set"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["cache", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def settled() -> None:
    """Wait for what brings tables to the disk: until then their set is in use."""
    for thread in threading.enumerate():
        if thread.name == "fastload-settle":
            thread.join()


def test_they_are_listed_and_cleared(
    url: str, packed: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_sets() == []
    dataset = PackedFiles(url)
    [found] = node_sets()
    assert (found.path, found.source, found.in_use) == (dataset.folder, url, True)
    assert found.bytes >= packed.manifest.index_size
    assert said(capsys, "ls")[1]["indexes"][0]["source"] == url
    assert main(["cache", "ls"]) == 0
    assert "indexes of 1 set in stores" in capsys.readouterr().out
    assert said(capsys, "clear")[1]["in_use"] == [str(dataset.folder)]
    assert dataset.read(3) == packed.read(3)
    folder = dataset.folder
    del dataset
    settled()
    assert not node_sets()[0].in_use
    assert said(capsys, "clear", "--stale")[1]["removed"] == []  # nobody can say that one is stale
    status, facts = said(capsys, "clear")
    assert (status, facts["removed"]) == (0, [str(folder)])
    assert facts["bytes"] >= found.bytes  # its manifest came in the background
    assert not folder.exists()
    assert PackedFiles(url).read(5) == packed.read(5)


def test_one_that_is_named_is_cleared(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = PackedFiles(url)
    assert said(capsys, "clear", url)[0] == 1
    assert dataset.folder.exists()
    other = tmp_path / "sets" / "notes"
    other.mkdir()
    folder = dataset.folder
    del dataset
    settled()
    assert said(capsys, "clear", url)[1]["removed"] == [str(folder)]
    assert other.exists()  # not one of ours


def test_one_whose_tables_are_not_on_the_disk_yet_is_in_use(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def write(self: NodeFolder, name: str, data: bytes, former: Any = NodeFolder.write) -> None:
        go_on.wait()
        former(self, name, data)

    monkeypatch.setattr(NodeFolder, "write", write)
    dataset = PackedFiles(url)
    folder = dataset.folder
    del dataset
    try:
        assert not remove_node_set(node_sets()[0])
    finally:
        go_on.set()
    settled()
    assert (folder / "dataset.json").exists()
    [found] = node_sets()
    assert remove_node_set(found)
    assert not folder.exists()
    assert remove_node_set(found)  # as when another process has removed it meanwhile


def test_other_processes_count_until_they_are_killed(url: str) -> None:
    lines = "import signal; from fastload.shard.dataset import PackedFiles\n"
    lines += f"dataset = PackedFiles({url!r}); print('opened', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        [found] = node_sets()
        assert found.in_use
        assert not remove_node_set(found)
        process.kill()
    assert not node_sets()[0].in_use
    assert remove_node_set(found)
    assert node_sets() == []


def test_opening_and_clearing_at_once(url: str, packed: PackedDataset) -> None:
    stop, errors = threading.Event(), []

    def clear() -> None:
        while not stop.is_set():
            for found in node_sets():
                remove_node_set(found)

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for sample in range(40):
            dataset = PackedFiles(url)
            if dataset.read(sample) != packed.read(sample) or not (dataset.folder / "index.fli").exists():
                errors.append(sample)
    finally:
        stop.set()
        thread.join()
    assert errors == []
