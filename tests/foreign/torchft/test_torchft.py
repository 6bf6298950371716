"""A replica group is killed in a step and comes back, by torchft's own manager: no sample is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from foreign_jobs import environment
from numbered_set import ROWS, make_numbered_set
from torchft.coordination import LighthouseServer

EPOCHS = 4
PATIENCE = 120.0  # seconds


def start(folder: Path, number: int, life: int, **given: Any) -> subprocess.Popen[bytes]:
    """A replica group; what it prints goes into a file."""
    own = {"folder": str(folder), "set": str(folder / "set"), "number": number, "life": life}
    job = {**own, "epochs": EPOCHS, **given}
    with (folder / f"log-{number}-{life}").open("wb") as log:
        command = [sys.executable, str(Path(__file__).with_name("job.py")), json.dumps(job)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment())


def logs(folder: Path) -> str:
    return "\n".join(path.name + ":\n" + path.read_text()[-3000:] for path in sorted(folder.glob("log-*")))


def read_end(folder: Path, number: int, life: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a replica group saw."""
    path, end = folder / f"end-{number}-{life}.json", time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, logs(folder)
        assert time.monotonic() < end, logs(folder)
        time.sleep(0.05)
    time.sleep(0.1)
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize("is_async", [False, True], ids=["quorum first", "quorum beside the step"])
def test_a_replica_group_dies_and_comes_back(tmp_path: Path, is_async: bool) -> None:
    make_numbered_set(tmp_path / "set")
    lighthouse = LighthouseServer("[::]:0", min_replicas=1, join_timeout_ms=2_000, heartbeat_timeout_ms=1_000)
    given = {"lighthouse": lighthouse.address(), "is_async": is_async}
    survivor = start(tmp_path, 0, 0, **given, dies_at=-1, waits={"3": "ready-1-0", "20": "ready-1-1"})
    processes = [survivor, start(tmp_path, 1, 0, **given, dies_at=9, waits={})]
    try:
        processes[1].wait(PATIENCE)
        processes.append(start(tmp_path, 1, 1, **given, dies_at=-1, waits={}))
        ends = [read_end(tmp_path, 0, 0, survivor), read_end(tmp_path, 1, 1, processes[2])]
        (tmp_path / "done").touch()
        assert [process.wait(PATIENCE) for process in processes] == [0, -9, 0], logs(tmp_path)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        lighthouse.shutdown()
    first, second = ends
    assert first["counts"] == second["counts"] == [EPOCHS] * ROWS
    assert first["loader"] == second["loader"]
    assert first["step"] == second["step"]
    assert {1, 2} == set(first["worlds"])
    assert first["failed"] >= 1  # the step in which the other one died
    assert first["stats"]["changes"] >= 3
