"""Packing, entry points and verifying as Ray tasks: the same bytes and problems, whoever is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from fault_server import FaultServer
from PIL import Image
from tar_reference import captioned, write_tar

from fastload.errors import PackError
from fastload.packing import Observer, PackOptions, pack
from fastload.packing.entries import entries_by, index_stored_entries
from fastload.packing.foreign import index_entries, index_files
from fastload.packing.ray import RayCluster
from fastload.packing.verify import verify

OPTIONS = PackOptions(shard_size=100_000, num_proc=1)
SHARD = ("--shard-size", "100000", "--quiet")


def encoded(seed: int) -> bytes:
    rng, out = np.random.default_rng(seed), io.BytesIO()
    pixels = rng.integers(0, 255, (25, 40, 3), np.uint8)
    Image.fromarray(pixels).resize((400, 250)).save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    pictures = [encoded(seed) for seed in range(20)]
    for number in range(240):
        path = root / f"class {number % 3}" / f"{number:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pictures[number % 20])
    return root


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("whole") / "set"
    pack(source, output, OPTIONS)
    return snapshot(output)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One for all tests that kill nobody."""
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.usefixtures("cluster")
def test_the_same_bytes(source: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    output, done = tmp_path / "set", []

    class Counting(Observer):
        def advanced(self, count: int, size: int = 0) -> None:
            done.extend([count] * (size > 0))  # not of the entry points

    [result] = pack(source, output, PackOptions(shard_size=100_000), Counting(), ray="local")
    assert snapshot(output) == expected
    assert sum(done) == 240
    assert len(done) == len(result.manifest.shards) > 10
    assert result.written_bytes == sum(path.stat().st_size for path in source.rglob("*.jpg"))
    [again] = pack(source, output, PackOptions(shard_size=100_000), ray="local")
    assert again.was_complete
    assert sum(done) == 240
    [anew] = pack(source, output, PackOptions(shard_size=100_000, restart=True), ray="local")
    assert not anew.was_complete
    assert snapshot(output) == expected


@pytest.mark.usefixtures("cluster")
def test_splits_and_bad_files(source: Path, tmp_path: Path) -> None:
    root, output = tmp_path / "source", tmp_path / "set"
    for split in ("train", "val"):
        (root / split).mkdir(parents=True)
        for folder in source.iterdir():
            (root / split / folder.name).symlink_to(folder)
    (root / "val" / "class 9").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (root / "val" / "class 9" / name).write_bytes(b"no image")
    with pytest.raises(PackError, match=r"2 files cannot be packed:\n  class 9/a\.jpg.*\n  class 9/b\.jpg"):
        pack(root, output, OPTIONS, ray="local")
    skipping = PackOptions(shard_size=100_000, on_error="skip")
    pack(root, output, skipping, ray="local")
    pack(root, tmp_path / "whole", skipping)
    assert snapshot(output) == snapshot(tmp_path / "whole")


@pytest.mark.usefixtures("cluster")
def test_entry_points_and_verifying(source: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    output = tmp_path / "set"
    pack(source, output, PackOptions(shard_size=100_000, num_proc=1, entries=None))
    with RayCluster("local") as found:
        index_entries(output, 64, None, entries_by(found.in_order, Observer()))
        assert snapshot(output) == expected
        assert verify(output, True, True, found.in_order) == ([], 240)
        shard = next(output.glob("*.arrow"))
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        problems = verify(output, True, False, found.in_order)
        assert problems == verify(output, True, False)
        assert len(problems[0]) == 1


@pytest.mark.usefixtures("cluster")
def test_a_set_in_a_store(
    source: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verified, its entry points made, and tars indexed by URL: as by one process."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    output = tmp_path / "set"
    pack(source, output, PackOptions(shard_size=100_000, num_proc=1, entries=None))
    write_tar(tmp_path / "a.tar", captioned(7, 0), tarfile.PAX_FORMAT)
    write_tar(tmp_path / "b.tar", captioned(7, 7), tarfile.PAX_FORMAT)
    with RayCluster("local") as found, FaultServer(folder=tmp_path) as server:
        url = f"{server.url}/set"
        assert "read only" in index_stored_entries(url, None, 64, None, entries_by(found.in_order))
        [made] = (tmp_path / "sets").rglob("entries.fli")
        assert made.read_bytes() == expected["entries.fli"]
        assert verify(url, True, False, found.in_order) == ([], 240)
        shard = next(output.glob("*.arrow"))
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        problems = verify(url, True, False, found.in_order)
        assert problems == verify(url, True, False)
        assert len(problems[0]) == 1
        tars = [f"{server.url}/{name}.tar" for name in "ab"]
        made_by = entries_by(found.in_order)
        index_files(tars, tmp_path / "many", None, None, made_by, found.as_finished)
        index_files(tars, tmp_path / "one")
    one, many = snapshot(tmp_path / "one"), snapshot(tmp_path / "many")
    assert {name: data for name, data in many.items() if name.endswith(".fli")} == {
        name: data for name, data in one.items() if name.endswith(".fli")
    }


@pytest.mark.usefixtures("cluster")
def test_from_url_to_url(source: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    url, given = f"file://{tmp_path}/store/set", PackOptions(shard_size=100_000)
    [result] = pack(f"file://{source}", url, given, ray="local")
    assert snapshot(tmp_path / "store" / "set") == expected
    assert result.written_bytes > 0
    assert pack(f"file://{source}", url, given, ray="local")[0].was_complete


@pytest.mark.usefixtures("cluster")
def test_no_cluster_there(source: Path, tmp_path: Path) -> None:
    ray.shutdown()
    try:
        with pytest.raises(PackError, match=r"no Ray cluster at 'nowhere:1'.*--ray local"):
            pack(source, tmp_path / "set", OPTIONS, ray="nowhere:1")
    finally:
        ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)


def started(source: Path, output: Path) -> subprocess.Popen[str]:
    local = ("--ray", "local", "--num-proc", "2", "--json")
    return subprocess.Popen(
        [sys.executable, "-m", "fastload", "pack", source, output, *SHARD, *local],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip


def workers(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    """Those at work below a driver."""
    found = []
    try:
        for process in psutil.Process(driver.pid).children(recursive=True):
            if process.name() == "ray::_guarded":  # Ray names them by the task
                found.append(process)
    except psutil.NoSuchProcess:
        pass
    return found


def parts(output: Path) -> int:
    return len(list((output / ".fastload-pack").glob("[!.]*.part")))


def wait_for(condition: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_workers(source: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    output, killed = tmp_path / "set", 0
    driver = started(source, output)
    wait_for(lambda: parts(output) > 0 or driver.poll() is not None)
    for _ in range(3):
        for process in workers(driver)[:1]:
            process.send_signal(signal.SIGKILL)
            killed += 1
        time.sleep(0.2)
    stdout, stderr = driver.communicate(timeout=120)
    assert driver.returncode == 0, stderr
    assert killed > 0
    assert json.loads(stdout)["datasets"][0]["records"] == 240
    assert snapshot(output) == expected


def test_killed_driver(source: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    output = tmp_path / "set"
    driver = started(source, output)
    wait_for(lambda: parts(output) > 1 or driver.poll() is not None)
    driver.kill()
    driver.communicate()
    assert not (output / "dataset.json").exists()
    before = {path.name: path.stat().st_ino for path in output.glob("[!.]*.arrow")}
    assert before
    again = started(source, output)  # workers of the dead driver may still be writing
    _, stderr = again.communicate(timeout=120)
    assert again.returncode == 0, stderr
    assert snapshot(output) == expected
    after = {path.name: path.stat().st_ino for path in output.glob("[!.]*.arrow")}
    assert sum(after[name] == node for name, node in before.items()) >= len(before) - 2
