"""From cache= to files: made, attached to, replaced, removed when stale; and the loader that uses them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_pack import plain_pack

import fastload.cache.opening
from fastload import DataLoader, PackedDataset, mix
from fastload._native import _C
from fastload.cache.folder import folder_path
from fastload.cache.opening import open_cache, planned_bytes
from fastload.cache.policy import Room
from fastload.cache.settings import CacheSetting
from fastload.cli import main
from fastload.errors import CacheError

SIDE = 32
COUNT = 400  # records, of 3 KiB


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 3 * SIDE * SIDE, np.uint8).tobytes() for _ in range(COUNT)]


@pytest.fixture
def dataset(tmp_path: Path, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))


def files(root: Path) -> list[str]:
    folder = folder_path(root)
    return sorted(p.name for p in folder.glob("*.flc")) if folder.exists() else []


def on(limit: int | None = None) -> CacheSetting:
    return CacheSetting("on", limit=limit)


def test_the_first_makes_it_and_the_others_attach(
    root: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    plan = planned_bytes([dataset], on())
    assert files(root) == []  # a plan makes nothing
    first = open_cache([dataset], on())
    (file,) = first.files
    assert file.file_bytes <= plan <= file.file_bytes + 3 * 4096
    file.store(3, np.frombuffer(blobs[3], np.uint8), int(dataset.records[3]["crc32c"]))
    for setting in (on(), on(limit=500_000), CacheSetting()):
        again = open_cache([dataset], setting)
        assert again.files[0].find(3) == blobs[3]
        assert "using" in again.stats()["reason"]
        assert planned_bytes([dataset], setting) == file.file_bytes
    assert len(files(root)) == 1


def test_off_uses_nothing(root: Path, dataset: PackedDataset) -> None:
    open_cache([dataset], on())
    use = open_cache([dataset], CacheSetting("off"))
    assert use.files == [None]
    assert use.stats()["reason"] == "switched off"
    assert planned_bytes([dataset], CacheSetting("off")) == 0


def test_an_idle_file_that_is_too_small_is_replaced(root: Path, dataset: PackedDataset) -> None:
    small = open_cache([dataset], on(limit=300_000)).files[0].file_bytes
    assert small <= 300_000
    large = open_cache([dataset], on())
    assert large.files[0].room_records == COUNT
    # Not while it is in use; and a larger one will always do.
    assert open_cache([dataset], on(limit=300_000)).files[0].room_records == COUNT
    assert len(files(root)) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 60_000), min_size=1, max_size=40),
    st.integers(1000, 1_000_000),
    st.integers(0, 100),
)
def test_a_file_is_not_made_again_for_the_same_setting(
    root: Path, lengths: list[int], limit: int, share: int
) -> None:
    """However little of the limit its records can use: header, table or one record may take most of it."""
    with tempfile.TemporaryDirectory() as folder:
        cut = len(lengths) * share // 100
        halves = [half for half in (lengths[:cut], lengths[cut:]) if half]
        parts = [
            plain_pack(Path(folder) / str(i), [bytes([i]) * length for length in half], probe=False)
            for i, half in enumerate(halves)
        ]
        try:
            paths = [file.path for file in open_cache(parts, on(limit=limit)).files]
        except CacheError:
            return  # less than one record
        made = [os.open(path, os.O_RDONLY) for path in paths]
        again = open_cache(parts, on(limit=limit))
        assert [file.path for file in again.files] == paths
        assert [os.fstat(descriptor).st_nlink for descriptor in made] == [1] * len(made)
        for descriptor, path in zip(made, paths, strict=True):
            os.close(descriptor)
            os.unlink(path)


def test_a_small_file_in_use_stays(root: Path, dataset: PackedDataset) -> None:
    small = open_cache([dataset], on(limit=300_000))
    assert open_cache([dataset], on()).files[0].path == small.files[0].path
    assert open_cache([dataset], on()).files[0].room_records == small.files[0].room_records < COUNT


def test_a_damaged_idle_file_is_replaced(root: Path, dataset: PackedDataset) -> None:
    path = Path(open_cache([dataset], on()).files[0].path)
    path.write_bytes(b"FLCACHE1" + bytes(20_000))
    path.chmod(0o600)
    assert open_cache([dataset], on()).files[0].room_records == COUNT


def test_auto_makes_none_for_a_local_set_and_says_so(
    root: Path, dataset: PackedDataset, caplog: pytest.LogCaptureFixture
) -> None:
    if any(_C.file_system(str(dataset.folder)).values()):
        pytest.skip("temporary files are not on a local disk")
    with caplog.at_level(logging.INFO, "fastload"):
        use = open_cache([dataset], CacheSetting())
    assert use.files == [None]
    assert "page cache" in use.stats()["reason"]
    assert [str(dataset.folder) in record.message for record in caplog.records] == [True]
    assert os.listdir(root) == []


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are on a network file system, it seems."""

    class Fake:
        def file_system(self, path: str) -> dict[str, bool]:
            return {**_C.file_system(path), "in_memory": False, "remote": True}

    monkeypatch.setattr(fastload.cache.opening, "_C", Fake())


def test_auto_makes_one_for_a_network_file_system(root: Path, dataset: PackedDataset, remote: None) -> None:
    use = open_cache([dataset], CacheSetting())
    assert use.files[0] is not None
    assert "network" in use.stats()["reason"]


def test_auto_raises_nothing(root: Path, dataset: PackedDataset, remote: None, tmp_path: Path) -> None:
    folder_path(root).mkdir(mode=0o755)
    folder_path(root).chmod(0o755)
    use = open_cache([dataset], CacheSetting())
    assert use.files == [None]
    assert "open to other users" in use.stats()["reason"]
    with pytest.raises(CacheError, match="open to other users"):
        open_cache([dataset], on())
    assert planned_bytes([dataset], CacheSetting(root=tmp_path / "none")) == 0


def test_an_explicit_size_that_is_not_there_is_an_error(
    root: Path, dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = Room(1000, 1000, 10**9, "the file system of /dev/shm", "docker run --shm-size")
    monkeypatch.setattr(fastload.cache.opening, "find_room", lambda *_, **__: little)
    loader = DataLoader(dataset, 8, cache="1GB")
    with pytest.raises(CacheError, match=r"cache='1GB' .* --shm-size"):
        loader.memory_plan()
    for _ in range(2):  # the second try is no better
        with pytest.raises(CacheError, match=r"cache='1GB' .* --shm-size"):
            next(iter(loader))
    loader.close()
    assert files(root) == []


def test_lack_of_memory_while_it_is_made(
    root: Path, dataset: PackedDataset, remote: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CacheError, match="No space left"):
        open_cache([dataset], on())
    assert "No space left" in open_cache([dataset], CacheSetting()).stats()["reason"]
    assert files(root) == []


def test_stale_sets_make_room_and_valid_ones_stay(
    root: Path, tmp_path: Path, blobs: list[bytes], dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = plain_pack(tmp_path / "old", blobs[:50], raw_size=(SIDE, SIDE))
    gone = plain_pack(tmp_path / "gone", blobs[:60], raw_size=(SIDE, SIDE))
    kept = plain_pack(tmp_path / "kept", blobs[:70], raw_size=(SIDE, SIDE))
    used = plain_pack(tmp_path / "used", blobs[:80], raw_size=(SIDE, SIDE))
    in_use = open_cache([old, gone, kept, used], on())
    names = [Path(file.path).name for file in in_use.files]
    in_use.parts[:3] = []
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "used")
    shutil.rmtree(tmp_path / "old")
    plain_pack(tmp_path / "old", blobs[1:51], raw_size=(SIDE, SIDE))
    real = fastload.cache.opening.find_room
    full = real(folder_path(root))
    held = sum(path.stat().st_blocks * 512 for path in folder_path(root).glob("*.flc"))

    def find_room(folder: Path, root: str = "/", returned: int = 0) -> Room:
        now = sum(path.stat().st_blocks * 512 for path in folder.glob("*.flc"))
        free = held - now + returned + 1_000_000
        return Room(free, free, full.available, "limit", "advice")

    monkeypatch.setattr(fastload.cache.opening, "find_room", find_room)
    made = open_cache([dataset], CacheSetting("on", root=root))
    assert made.files[0] is not None
    left = files(root)
    assert names[2] in left  # valid
    assert names[3] in left  # stale, but in use
    assert names[0] not in left
    assert names[1] not in left


def test_a_mix_divides_the_limit(root: Path, tmp_path: Path, blobs: list[bytes]) -> None:
    parts = [
        plain_pack(tmp_path / "a", blobs[:100], raw_size=(SIDE, SIDE)),
        plain_pack(tmp_path / "b", blobs[100:], raw_size=(SIDE, SIDE)),
    ]
    use = open_cache(parts, on(limit=800_000))
    sizes = [file.file_bytes for file in use.files]
    assert sum(sizes) <= 800_000
    assert sizes[1] / sizes[0] == pytest.approx(3, rel=0.1)
    loader = DataLoader(mix(parts), 10, num_workers=1, cache=on(limit=800_000))
    assert sum(len(labels) for _, labels in loader) == COUNT
    found = loader.stats()["cache"]
    loader.close()
    assert found["stored"] == found["room_records"] == found["ready_records"]


def test_the_loader_fills_it_and_then_reads_from_it(
    root: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    with DataLoader(dataset, 16, shuffle=True, num_workers=2, cache=root, seed=0) as loader:
        planned = loader.memory_plan()["cache_bytes"]
        assert files(root) == []  # before the first batch
        for epoch in (1, 2):
            for images, labels in loader:
                for image, label in zip(images, labels.tolist(), strict=True):
                    assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
            found = loader.stats()["cache"]
            assert found["stored"] == COUNT
            # Each is read once, ever, but for those that the next epoch begins with while they are read.
            assert COUNT <= found["misses"] < COUNT + 16
            assert found["hits"] >= (epoch - 1) * COUNT
        assert found["ready_records"] == COUNT
        assert found["bytes"] <= planned
    # Later jobs find it by themselves.
    with DataLoader(dataset.folder, 16, num_workers=1) as loader:
        assert loader.memory_plan()["cache_bytes"] == found["bytes"]
        for _ in loader:
            pass
        later = loader.stats()["cache"]
        assert later["hits"] >= COUNT  # and some that the next epoch begins with
        assert later["misses"] == 0


def test_a_setting_is_understood_when_the_loader_is_made(dataset: PackedDataset) -> None:
    with pytest.raises(ValueError, match="Legal"):
        DataLoader(dataset, cache="lots")


def test_a_torch_dataset_has_no_cache() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4))
    with pytest.warns(UserWarning, match="ignores cache='64GB'"):
        loader = DataLoader(data, 2, cache="64GB")
    assert len(list(loader)) == 2
    assert loader.stats()["cache"] == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for setting in ("auto", "off", None):
            DataLoader(data, 2, cache=setting)


def test_the_command_lists_and_clears(
    root: Path, dataset: PackedDataset, tmp_path: Path, blobs: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: object) -> dict[str, object]:
        status = main(["cache", *map(str, words), "--json"])
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return {**found, "status": status}

    assert command("ls")["sets"] == []
    assert command("path")["paths"] == [str(folder_path(root))]
    gone = plain_pack(tmp_path / "gone", blobs[:50], raw_size=(SIDE, SIDE))
    use = open_cache([dataset, gone], on())
    path = use.files[0].path
    assert command("path", dataset.folder)["paths"] == [path]
    shutil.rmtree(gone.folder)
    del use.parts[1]
    sets = {entry["dataset"]: entry for entry in command("ls")["sets"]}  # type: ignore[attr-defined]
    own, other = sets[str(dataset.folder)], sets[str(gone.folder)]
    assert (own["path"], own["in_use"], own["pids"], own["stale"]) == (path, True, [os.getpid()], None)
    assert (own["owner"], own["bytes"]) == (os.geteuid(), os.stat(path).st_blocks * 512)
    assert (own["room_records"], own["ready_records"], own["ready_bytes"]) == (COUNT, 0, 0)
    assert not other["in_use"]
    assert "no longer exists" in other["stale"]
    assert main(["cache", "ls"]) == 0
    text = capsys.readouterr().out
    assert f"in use by 1 process: {os.getpid()}" in text
    assert "stale" in text
    assert len(command("clear", "--stale")["removed"]) == 1  # type: ignore[arg-type]
    assert command("clear", dataset.folder) | {"folder": 0} == {
        "folder": 0, "bytes": 0, "removed": [], "in_use": [path], "status": 1
    }  # fmt: skip
    assert command("clear")["status"] == 0
    del use.parts[0]
    assert main(["cache", "ls"]) == 0
    assert " in 1 set\n" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert ": 1 set removed, " in capsys.readouterr().out
    assert files(root) == []


@pytest.mark.parametrize("setting", [on(limit=2_000_000), CacheSetting()], ids=["a size", "auto"])
def test_room_that_another_process_takes_for_the_same_file(
    root: Path, dataset: PackedDataset, setting: CacheSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes the file between our look for the file and our look for room, of which there is none then."""
    opening = fastload.cache.opening
    real, others = opening.find_room, []

    def another_makes_it(*_: object, **__: object) -> Room:
        if not others:
            monkeypatch.setattr(opening, "find_room", real)
            others.append(open_cache([dataset], on(limit=2_000_000)))
            monkeypatch.setattr(opening, "find_room", another_makes_it)
        return Room(0, 0, 0, "the machine's memory", "Free memory")

    monkeypatch.setattr(opening, "find_room", another_makes_it)
    use = open_cache([dataset], setting)
    assert len(others) == 1
    assert use.files[0] is not None
    assert use.files[0].path == others[0].files[0].path


def test_what_a_killed_process_left_takes_no_room(
    root: Path, dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stripes of a file that has not got its name, whose memory is as good as promised."""
    folder = folder_path(root)
    folder.mkdir(mode=0o700)
    left = folder / f"{dataset.id}-encoded-1.flc.0"
    left.touch(mode=0o600)
    os.truncate(left, 1 << 20)

    def room(*_: object, returned: int = 0) -> Room:
        free = planned + returned
        return Room(free, free, 1 << 40, "the machine's memory", "Free memory")

    planned = planned_bytes([dataset], on())
    monkeypatch.setattr(fastload.cache.opening, "find_room", room)
    assert planned_bytes([dataset], on(limit=planned)) == planned
    use = open_cache([dataset], on(limit=planned))
    assert use.files[0] is not None
    assert use.files[0].room_records == COUNT
    assert not left.exists()
