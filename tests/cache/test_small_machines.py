"""Little shared memory, a memory limit, folders that cannot be written: it works with what there is, or one
error names the limit and the option."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cache_sets import SIDE, pixels, raw_set, sparse_set
from mounts import bound_read_only, memory_group, tmpfs
from process import in_child

from fastload import DataLoader, PackedDataset
from fastload.cli import main as command_line
from fastload.errors import CacheError
from fastload.machine.memory import available_memory

COUNT = 6600  # 81 MB
MOST = 64 << 20
SMALL = 400
LIMITED = 2100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than a container's 64 MB of shared memory."""
    return raw_set(tmp_path_factory.mktemp("large") / "set", COUNT).folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 MB."""
    return raw_set(tmp_path_factory.mktemp("small") / "set", SMALL).folder


def epoch(folder: Path, cache: Any) -> dict[str, Any]:
    """Every record comes once, and is the source's; the cache's counters.

    They may count the first batches of the next epoch, too, which are in work before they are asked for.
    """
    dataset = PackedDataset(folder)  # counts are kept with it
    truth, seen = pixels(len(dataset)), []
    with DataLoader(dataset, 100, shuffle=True, num_workers=1, cache=cache, seed=0) as loader:
        for images, labels in loader:
            assert (images.permute(0, 2, 3, 1).numpy() == truth[labels.numpy()]).all()
            seen += labels.tolist()
        assert sorted(seen) == list(range(len(dataset)))
        return dict(loader.stats()["cache"])


def share_of_hits(stats: dict[str, Any]) -> float:
    return float(stats["hits"] / (stats["hits"] + stats["misses"]))


def test_shared_memory_of_a_container(large: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """64 MB: a folder takes what is not left to others; a size that cannot be had is an error."""
    with tmpfs(tmp_path / "shm", f"size={MOST}") as memory:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
        numbers = r"needs 80.0 MB of memory.*67\.1 MB in all\) leaves 67.*--shm-size.*cache="
        with pytest.raises(CacheError, match=numbers) as error:
            epoch(large, "80MB")
        assert str(memory) in str(error.value)
        first = epoch(large, memory)
        assert first["ready_records"] == first["room_records"]
        assert 0.35 * COUNT < first["room_records"] < MOST // (3 * SIDE * SIDE)
        second = epoch(large, memory)
        assert second["stored"] == 0
        assert second["misses"] >= COUNT - second["room_records"]
        assert share_of_hits(second) == pytest.approx(second["room_records"] / COUNT, abs=0.02)


def test_auto_in_a_container(large: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with tmpfs(tmp_path / "shm", f"size={MOST}") as memory:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
        assert epoch(large, "auto")["reason"]


def limited(folder: Path, group: Path) -> None:
    """In a group of 2 GB: as much as was asked for is an error that names the limit, auto stays below it."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    with pytest.raises(CacheError, match=r"(?s)memory\.(max|limit_in_bytes).*cache="):
        next(iter(DataLoader(folder, 16, num_workers=1, cache="3GB")))
    for share in (0.0, 1.0):
        with DataLoader(folder, 16, num_workers=1, shuffle=True, cache="50%", seed=0) as loader:
            seen = 0
            for _, labels in loader:
                seen += len(labels)
                if share and seen > LIMITED // 3:
                    break
            stats = loader.stats()["cache"]
        room = stats["room_records"] / LIMITED
        assert 0.2 < room < 0.55
        assert share_of_hits(stats) == pytest.approx(share * room, abs=0.03), stats


def test_a_memory_limit_of_2_gb(tmp_path: Path, monkeypatch: Any) -> None:
    if available_memory() < 4 << 30:
        pytest.skip("less than 4 GB of memory: the limit of 2 GB would not be the least")
    folder = sparse_set(tmp_path / "set", LIMITED, 592).folder  # 2.2 GB, on the disk nothing
    with tmpfs(tmp_path / "shm", "size=4g") as memory, memory_group(2 << 30) as group:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
        assert in_child(lambda: limited(folder, group)) == 0


def test_read_only_data(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Nothing is written beside the data."""
    with (
        bound_read_only(small, tmp_path / "data") as data,
        tmpfs(tmp_path / "shm", "size=32m") as memory,
    ):
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
        assert epoch(data, "16MB")["ready_records"] == SMALL
        assert share_of_hits(epoch(data, "auto")) == 1
        assert command_line(["cache", "clear"]) == 0
        assert command_line(["warm", str(data), "--to", str(memory)]) == 0
        assert share_of_hits(epoch(data, "auto")) == 1


@pytest.mark.parametrize("kind", ["absent", "read-only"])
def test_no_shared_memory(small: Path, tmp_path: Path, monkeypatch: Any, kind: str) -> None:
    """auto and "off" work without; what was asked for and cannot be had is an error that says how."""
    with shared(tmp_path / "shm", kind) as memory:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
        for setting in ("auto", "off"):
            stats = epoch(small, setting)
            assert stats["reason"]
            assert stats.get("hits", 0) == 0
        for setting in ("16MB", "50%", memory):
            with pytest.raises(CacheError, match=r"cache=.*FASTLOAD_CACHE_DIR") as caught:
                epoch(small, setting)
            assert str(memory) in str(caught.value)


@contextmanager
def shared(folder: Path, kind: str) -> Iterator[Path]:
    if kind == "absent":
        yield folder
        return
    with tmpfs(folder, "size=32m,ro") as memory:
        yield memory
