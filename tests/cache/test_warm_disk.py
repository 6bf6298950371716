"""``fastload warm --cache DIR:SIZE``: a tier on disk has what a job on this node reads, before it begins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disk_sets import bytes_for, opened
from fault_server import Fault, FaultServer, Rule
from field_sets import RICH, rich_samples, write_field_set
from node_stores import RECORD, Cluster, numbered_set

from fastload import Block, DataLoader, PackedDataset
from fastload.cli import main

COUNT = 96
BLOCKS = ("--shuffle", "block", "--block", "4", "--window", "32", "--nodes", "2", "--seed", "1")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return numbered_set(tmp_path_factory.mktemp("numbered") / "set", COUNT)


def warm(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and what it says of the first stream."""
    status = main(["warm", *map(str, words), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["sets"][0]
    return status, found


def held(dataset: PackedDataset, root: Path, limit: int) -> set[int]:
    with opened(dataset, root, limit) as tier:
        return {sample for sample in range(COUNT) if tier.find(sample, RECORD) is not None}


def test_warmed_twice_reads_once(
    numbered: PackedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = bytes_for([RECORD] * COUNT, COUNT)
    place = f"{tmp_path}/disk:{limit}B"
    status, first = warm(capsys, numbered.folder, "--cache", place)
    assert status == 0
    assert (first["place"], first["whole"], first["there_records"]) == ("disk", True, 0)
    assert (first["put_records"], first["put_bytes"], first["records"]) == (COUNT, COUNT * RECORD, COUNT)
    assert first["read_bytes"] == COUNT * RECORD  # neighbours by one request
    assert first["requests"] < 4
    assert Path(first["path"]).is_file()
    status, again = warm(capsys, numbered.folder, "--cache", place)
    assert (status, again["requests"], again["read_bytes"], again["put_records"]) == (0, 0, 0, 0)
    assert again["there_records"] == COUNT
    with DataLoader(numbered, 8, cache=["off", place], shuffle=True, seed=0) as loader:
        labels = [int(label) for _, labels in loader for label in labels]
        tier = loader.stats()["cache"]["disk"]
    assert sorted(labels) == list(range(COUNT))
    assert tier["misses"] == tier["stored"] == 0
    assert main(["warm", str(numbered.folder), "--cache", place]) == 0
    assert "already there" in capsys.readouterr().out


def test_a_node_of_a_job_is_warmed_from_a_store(
    numbered: PackedDataset,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its part and no more; and then no rank of it asks the store for a record, in any epoch."""
    cluster = Cluster(numbered, tmp_path, 2, Block(4, 32, nodes=2), COUNT // 2, own=2)
    objects = {f"/set/{path.name}": path.read_bytes() for path in numbered.folder.iterdir()}
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    with FaultServer(objects) as server:
        for node in range(2):
            place = f"{cluster.folder(node)}:{cluster.limit}B"
            ranks = f"{2 * node}-{2 * node + 1}/4"
            status, found = warm(capsys, f"{server.url}/set", "--cache", place, "--ranks", ranks, *BLOCKS)
            assert (status, found["put_records"], found["no_room_records"]) == (0, COUNT // 2, 0)
            asked = [
                each for each in server.requests if each.path == "/set/data.bin" and "range" in each.headers
            ]
            assert len(asked) == found["requests"] < COUNT // 2
            status, found = warm(capsys, f"{server.url}/set", "--cache", place, "--ranks", ranks, *BLOCKS)
            assert (status, found["requests"]) == (0, 0)
            server.requests.clear()
    parts = [held(numbered, cluster.folder(node), cluster.limit) for node in range(2)]
    assert len(parts[0]) == len(parts[1]) == COUNT // 2
    assert parts[0] | parts[1] == set(range(COUNT))
    for epoch in (0, 5):
        ranks_ = cluster.run([epoch])
        assert [asked for _, asked, _ in ranks_] == [[]] * 4
        assert sorted(one for ids, _, _ in ranks_ for one in ids) == list(range(COUNT))


def test_what_is_wanted_takes_the_place_of_the_rest(
    numbered: PackedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = bytes_for([RECORD] * COUNT, COUNT // 4)
    place = f"{tmp_path}/disk:{limit}B"
    status, found = warm(capsys, numbered.folder, "--cache", place)
    assert status == 3
    assert (found["put_records"], found["no_room_records"], found["records"]) == (24, 72, 24)
    kept = held(numbered, tmp_path / "disk", limit)
    status, found = warm(capsys, numbered.folder, "--cache", place, "--ranks", "1/2", *BLOCKS)
    assert status == 3
    wanted = held(numbered, tmp_path / "disk", limit)
    assert len(wanted) == 24
    sampler = DataLoader(numbered.folder, 1, shuffle=Block(4, 32, nodes=2), seed=1).sampler.core
    parts = np.empty(COUNT, np.int64)
    parts[sampler.order.ids(np.arange(COUNT), 0)] = np.arange(COUNT) % 2
    assert set(parts[sorted(kept)].tolist()) == {0, 1}
    assert set(parts[sorted(wanted)].tolist()) == {1}


def test_damage_is_told(numbered: PackedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the disk for good, and on the way from a store: that is fetched again."""
    folder = tmp_path / "damaged"
    shutil.copytree(numbered.folder, folder)
    with (folder / "data.bin").open("r+b") as file:
        file.seek(7 * RECORD + 5)
        file.write(b"\xff\xfe")
    place = f"{tmp_path}/disk:{bytes_for([RECORD] * COUNT, COUNT)}B"
    status, found = warm(capsys, folder, "--cache", place)
    assert (status, found["failed_records"], found["put_records"]) == (4, 1, COUNT - 1)
    assert [each["sample"] for each in found["failures"]] == [7]
    objects = {f"/set/{path.name}": path.read_bytes() for path in numbered.folder.iterdir()}
    with FaultServer(objects) as server:
        server.rules.append(Rule(Fault(damage=True), "/set/data.bin", times=1))
        other = f"{tmp_path}/other:{bytes_for([RECORD] * COUNT, COUNT)}B"
        status, found = warm(capsys, f"{server.url}/set", "--cache", other)
    assert (status, found["failed_records"], found["put_records"]) == (0, 0, COUNT)


def test_all_pictures_of_a_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_field_set(tmp_path / "fields", RICH, rich_samples(40))
    place = f"{tmp_path}/disk:1GB"
    for status_, requests in ((0, True), (0, False)):
        assert main(["warm", str(folder), "--cache", place, "--json"]) == status_
        found = json.loads(capsys.readouterr().out)["sets"]
        assert len(found) > 1
        assert all(one["whole"] for one in found)
        assert any(one["requests"] for one in found) == requests
    with DataLoader(folder, 4, cache=["off", place], collate="ragged") as loader:
        assert len(list(loader)) == 10
        tier = loader.stats()["cache"]["disk"]
    assert tier["hits"] > 40
    assert tier["misses"] == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cache", "800GB"), "a folder on a local disk and a size"),
        (("--cache", "/nvme"), "a folder on a local disk and a size"),
        (("--cache", "/nvme:1GB", "--limit", "1GB"), "--cache DIR:SIZE has a size. Leave out --limit"),
        (("--cache", "/nvme:1GB", "--decoded", "64"), "leave out --cache"),
        (("--cache", "/nvme:1GB", "--coefficients"), "--coefficients and --cache exclude each other"),
        (("--cache", "/nvme:1GB", "--to", "/dev/shm"), "not allowed with argument"),
        (("--nodes", "2"), "--nodes only says which blocks --shuffle block reads"),
        (("--ranks", "0/2", "--block", "2", "--window", "3"), "--block, --window only says which blocks"),
    ],
)
def test_wrong_usage(
    numbered: PackedDataset, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert main(["warm", str(numbered.folder), *words]) in (1, 2)
    assert reason in capsys.readouterr().err
