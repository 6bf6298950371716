"""The runs of bench_cache in their smallest form, and its tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_cache
import pytest
from harness.children import child
from harness.measure import Run
from harness.throttle import NoThrottle, device_of, throttled
from runs.cache import rank_memory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *filter(None, sys.path)])}
COUNT = 200  # records of 110 KB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random") / "set"
    write = f"write_random(Path({str(folder)!r}), 'lmdb', {COUNT}, 1 << 23)"
    code = f"from pathlib import Path; from sets.random_set import *; {write}"
    subprocess.run([sys.executable, "-c", code], env=ENV, check=True, timeout=280)
    return folder


def run(folder: Path, action: str, *arguments: object) -> dict[str, Any]:
    command = child("runs.cache", action, folder, *arguments)
    line = [*command, "--threads", "1"]
    done = subprocess.run(line, env=ENV, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_two_ranks_hold_the_set_once(folder: Path) -> None:
    values = run(folder, "ranks", "--cache", "64MB", "--counts", "1,2")
    one, two, size = values["x1"]["shared"], values["x2"]["shared"], COUNT * 0.110592
    assert size < values["file"] < size + 1
    assert size < one < size + 8
    assert size < two < size + 8
    assert values["x1"]["anonymous"] > values["idle"] > 0
    assert values["samples"] == 2 * COUNT


def test_epochs(folder: Path) -> None:
    values = run(folder, "epochs", "--cache", "64MB", "--epochs", "7")
    first, *later = values["epochs"]
    assert first["stored"] == COUNT
    # The last epoch may have been read, and counted, before the one before it was over.
    assert sum(epoch["hits"] for epoch in later) > 0
    assert later[-1]["misses"] == 0
    assert values["held"] > COUNT * 0.11


@pytest.mark.parametrize(("action", "processes"), [("cp", 1), ("cp", 2), ("warm", 2), ("fillers", 2)])
def test_copies(folder: Path, action: str, processes: int) -> None:
    values = run(folder, action, "--processes", processes)
    assert values["rate"] > 0
    assert values["read"] < 1.1


def test_memory_is_told_by_kind() -> None:
    memory = rank_memory()
    assert set(memory) == {"anonymous", "shared", "files", "tables"}
    assert memory["anonymous"] > 1
    assert memory["tables"] > 0


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    epoch = {"seconds": 2.0, "cpu": 1.0, "rate": 500.0, "hits": 300, "misses": 100, "stored": 0}
    kinds = {"shared": 100.0, "anonymous": 300.0, "files": 50.0, "tables": 2.0}
    more = {**kinds, "anonymous": 650.0}
    ranks = {"file": 100.0, "idle": 250.0, "plan": 80.0, "x1": kinds, "x2": more}
    runs = []
    for number in range(5):
        runs.append(Run("ranks", number, ranks))
        for name in (bench_cache.DECODE, "slow, cache"):
            runs.append(Run(name, number, {"epochs": [epoch, epoch], "stayed": 0.0}))
        runs.append(Run("cp x1, disk", number, {"rate": 1e9, "cpu": 0.1, "read": 1.0}))
        runs.append(Run("warm x1, disk", number, {"rate": 0.95e9, "cpu": 0.2, "read": 1.0}))
    arguments = bench_cache.parse(["--workdir", "x", "--ranks", "1,2"])
    bench_cache.report(runs, arguments, "by hand")
    printed = capsys.readouterr().out
    assert "| 2 | 100 [100-100] | 650 [650-650] | 100 [100-100] | 1.0 [1.0-1.0] |" in printed
    assert "| slow, cache | 2.00 [2.00-2.00] | 1.00 [1.00-1.00] | 1.00 |" in printed
    assert "| 0.750 |" in printed
    assert "| warm x1, disk | 950 [950-950] | 0.95 |" in printed


def test_what_holds_a_disk_back(tmp_path: Path) -> None:
    """Whole disks are, partitions by the disk that they are on; a file system on no disk is refused."""
    device = tmp_path.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    with pytest.raises(NoThrottle, match=f"device {name}, which is no disk"):
        device_of(tmp_path, str(tmp_path))
    disk = tmp_path / "sys" / "devices" / "disk"
    (disk / "part").mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    links = tmp_path / "sys" / "dev" / "block"
    links.mkdir(parents=True)
    (links / name).symlink_to(disk / "part")
    assert device_of(tmp_path, str(tmp_path)) == name
    (disk / "part" / "partition").write_text("1\n")
    assert device_of(tmp_path, str(tmp_path)) == "8:0"
    with pytest.raises(NoThrottle, match="none mounted"), throttled(tmp_path, 1, str(tmp_path)):
        pass
