"""A byte that changes on its way from a store: what has a checksum is asked for again, and only what comes
wrong each time is an error. On this machine's own disk it is an error at once."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import memory_folder
from fault_server import Fault, FaultServer, Rule
from pictures import encoded
from PIL import Image
from plain_pack import plain_pack

from fastload import Cache, DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cli import main
from fastload.errors import ChecksumError, FastloadError, FormatError, SampleError
from fastload.packing.entries import build_entries
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

COUNT = 24
SHARD = "data.bin"
CHAIN = T.Compose([T.RandomResizedCrop(32, scale=(0.01, 0.3))])


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (900, 800, 3), np.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records that are read in parts, and small ones."""
    small = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    pictures = [
        encoded(noise(i), quality=97) if i % 4 == 0 else encoded(Image.fromarray(small)) for i in range(COUNT)
    ]
    dataset = plain_pack(tmp_path_factory.mktemp("damaged") / "set", pictures, range(COUNT))
    build_entries(dataset, 64, 2)
    return dataset.folder


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    with memory_folder(tmp_path) as found:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(found.path))
        yield


@pytest.fixture
def server(folder: Path) -> Iterator[FaultServer]:
    with FaultServer({f"/a/{path.name}": path.read_bytes() for path in folder.iterdir()}) as running:
        yield running


def damaged(path: str, **when: int) -> Rule:
    return Rule(Fault(damage=True), path, **when)


def batches(dataset: Any, cache: Any) -> list[bytes]:
    with DataLoader(
        dataset, 4, shuffle=True, seed=1, num_workers=2, transform=CHAIN, cache=cache, on_error="raise"
    ) as loader:
        found = [images.numpy().tobytes() for _ in range(3) for images, _ in loader]
        assert len(found) == 3 * COUNT // 4
        return found


def caches(tmp_path: Path) -> dict[str, Any]:
    return {
        "no cache": "off",
        "memory": "30MB",
        "memory that holds little": "200kB",
        "disk": Cache(None, disk=f"{tmp_path}/tier:60MB"),
    }


@pytest.mark.parametrize("kind", ["no cache", "memory", "memory that holds little", "disk"])
@pytest.mark.parametrize("every", [5, 7, 11])
def test_an_epoch_is_that_of_the_files(
    folder: Path, server: FaultServer, tmp_path: Path, kind: str, every: int
) -> None:
    dataset = PackedDataset(f"{server.url}/a")
    # The first one and every so-many-th: how many requests there are depends on how fast answers come. The
    # same record comes well at least once in four times, which is how often it is asked for.
    rules = [damaged(SHARD, times=1), damaged(SHARD, every=every, most=2)]
    server.rules += rules
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = batches(dataset, caches(tmp_path)[kind])
    assert all(rule.done for rule in rules)
    assert found == batches(PackedDataset(folder), "off")
    counted = dataset.store.core().counts()["damaged"]
    words = [str(one.message) for one in said if "damages data" in str(one.message)]
    # What comes wrong in parts is fetched whole, and that alone was no damage to a record.
    assert len(words) == (1 if counted else 0)


def test_each_record_by_itself(folder: Path, server: FaultServer) -> None:
    local, far = PackedDataset(folder), PackedDataset(f"{server.url}/a")
    server.rules.append(damaged(SHARD, every=2))
    with pytest.warns(UserWarning, match=r"/a/.*bytes of a record at offset \d+: they came with other bytes"):
        assert [far.read(i) for i in range(COUNT)] == [local.read(i) for i in range(COUNT)]
    assert far.store.core().counts()["damaged"] >= COUNT // 3


def test_what_stays_wrong_is_an_error_that_says_so(server: FaultServer) -> None:
    far = PackedDataset(f"{server.url}/a")
    rule = damaged(SHARD)
    server.rules.append(rule)
    with pytest.raises(ChecksumError, match="have CRC-32C.*They were asked for 4 times"):
        far.reader.read(1)
    assert rule.done == 4
    with (
        DataLoader(far, 4, num_workers=1, transform=T.CenterCrop(8), cache="off") as loader,
        pytest.raises(SampleError, match="have CRC-32C.*They were asked for 4 times.*on_error="),
    ):
        next(iter(loader))
    with DataLoader(far, 4, num_workers=1, transform=T.CenterCrop(8), cache="off", on_error="skip") as loader:
        _, labels = next(iter(loader))
        assert (labels == -100).any()


def test_a_file_is_not_asked_twice(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    shard = copy / SHARD
    data = bytearray(shard.read_bytes())
    at = int(PackedDataset(copy).records[1]["offset"])
    data[at + 40] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ChecksumError, match=r"packed was \d+\. Restore the shard from a copy\.$"):
        PackedDataset(copy).reader.read(1)


@pytest.mark.parametrize("name", ["dataset.json", "index.fli", "entries.fli"])
def test_a_set_is_opened(folder: Path, server: FaultServer, name: str) -> None:
    rule = damaged(name, times=1)
    server.rules.append(rule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = PackedDataset(f"{server.url}/a")
    assert rule.done == 1
    assert dataset.entries is not None
    assert dataset.manifest == PackedDataset(folder).manifest
    assert [dataset.read(i) for i in range(3)] == [PackedDataset(folder).read(i) for i in range(3)]


@pytest.mark.parametrize(
    ("name", "kind", "times"), [("dataset.json", FormatError, 2), ("index.fli", FastloadError, 4)]
)
def test_a_set_that_is_damaged_there_is_not(
    server: FaultServer, name: str, kind: type[Exception], times: int
) -> None:
    rule = damaged(name)
    server.rules.append(rule)
    with pytest.raises(kind, match=name):
        PackedDataset(f"{server.url}/a")
    assert rule.done == times  # of the manifest the same bytes came again


def commands() -> dict[str, Callable[[str, Path], None]]:
    def unpacked(url: str, out: Path) -> None:
        unpack(url, out)

    def verified(url: str, out: Path) -> None:
        assert verify(url, decode=True) == ([], COUNT)

    return {"unpack": unpacked, "verify": verified}


@pytest.mark.parametrize("command", commands())
def test_commands(folder: Path, server: FaultServer, tmp_path: Path, command: str) -> None:
    rule = damaged(SHARD, times=1)
    server.rules.append(rule)
    commands()[command](f"{server.url}/a", tmp_path / "out")
    assert rule.done == 1
    if command == "unpack":
        unpack(folder, tmp_path / "reference")
        assert snapshot(tmp_path / "out") == snapshot(tmp_path / "reference")
    rule.times = None
    if command == "verify":
        problems, _ = verify(f"{server.url}/a")
        assert any("CRC" in problem.reason for problem in problems)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_warming_a_node(folder: Path, server: FaultServer, capsys: pytest.CaptureFixture[str]) -> None:
    rule = damaged(SHARD, times=1)
    server.rules.append(rule)
    assert main(["warm", f"{server.url}/a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sets"][0]["records"] == COUNT
    assert rule.done == 1
    requests = len(server.requests)
    assert batches(PackedDataset(f"{server.url}/a"), "auto") == batches(PackedDataset(folder), "off")
    assert not any(SHARD in request.path for request in server.requests[requests:])
