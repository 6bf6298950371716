"""Two and three hosts: every sample once; one of them cut off or killed, and the others raise."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import PORT, network, ranks_on
from launch import HANG, PROGRAMS, Job, finish, forked, results, started, torchrun
from test_torchrun import check


def wait_until(true: Callable[[], bool], processes: list[Job]) -> None:
    """Poll; fails if a process ends meanwhile, or after the hang bound."""
    end = time.monotonic() + HANG
    while not true():
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, ended[0].communicate()[0]
        assert time.monotonic() < end, "hangs"
        time.sleep(0.05)


def progress(folder: Path, rank: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / f"step{rank}").read_text())
    return 0


def test_two_hosts_by_torchrun(numbered: Path, tmp_path: Path) -> None:
    with network(2) as hosts, contextlib.ExitStack() as stack:
        processes = []
        for host in hosts:
            where = ["--nnodes", "2", "--node-rank", str(host.number)]
            where += ["--master-addr", hosts[0].address, "--master-port", str(PORT)]
            command = torchrun(2, PROGRAMS, "everything", numbered, tmp_path, options=where)
            processes.append(stack.enter_context(started(host.command(*command), GLOO_SOCKET_IFNAME="eth0")))
        for process in processes:
            finish(process)
    ranks = results(tmp_path, 4)
    assert [found["world"] for found in ranks] == [[0, 4, 0, 2], [1, 4, 1, 2], [2, 4, 0, 2], [3, 4, 1, 2]]
    check(ranks)


def test_three_hosts_and_one_is_cut_off(numbered: Path, tmp_path: Path) -> None:
    """No packet says so: the group's timeout does. All ranks raise, and their loaders still work."""
    with network(3) as hosts, ranks_on(hosts, 1, "steps", numbered, tmp_path, 15) as processes:
        wait_until(lambda: all(progress(tmp_path, rank) >= 3 for rank in range(3)), processes)
        hosts[2].cut_off()
        for process in processes:
            finish(process)
    for found in results(tmp_path, 3):
        assert found["batches_afterwards"] == 9  # 53 samples, 3 ranks, 2 a batch
        assert "WorldError" not in found["error"]


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_killed_rank_is_an_error_on_the_others(
    numbered: Path, tmp_path: Path, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets are closed, which tells one at least; gloo may miss it, and then the timeout tells."""
    before, memory = sorted(path.name for path in numbered.iterdir()), tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory))
    with contextlib.ExitStack() as stack:
        if hosts == 1:
            processes = [stack.enter_context(started(forked("steps", 3, numbered, tmp_path, 100)))]
        else:
            places = stack.enter_context(network(3))
            processes = stack.enter_context(ranks_on(places, 1, "steps", numbered, tmp_path, 100))
        wait_until(lambda: all(progress(tmp_path, rank) >= 3 for rank in range(3)), processes)
        os.kill(int((tmp_path / "pid1").read_text()), signal.SIGKILL)
        for process in processes:
            process.communicate(timeout=HANG)
    assert not (tmp_path / "rank1.json").exists()
    survivors = [path for path in (tmp_path / "rank0.json", tmp_path / "rank2.json") if path.exists()]
    assert len(survivors) == 2
    found = [json.loads(path.read_text()) for path in survivors]
    assert [result["batches_afterwards"] for result in found] == [9, 9]
    assert any("Timed out" not in result["error"] for result in found)
    assert sorted(path.name for path in numbered.iterdir()) == before  # nothing to clean up
    assert list(memory.iterdir()) == []


def test_a_host_cut_off_before_the_first_batch(numbered: Path, tmp_path: Path) -> None:
    """The handshake cannot be completed, and says so in time, also where the store is out of reach."""
    with network(2) as hosts, ranks_on(hosts, 1, "meet_when_told", numbered, tmp_path) as processes:
        wait_until(lambda: all((tmp_path / f"joined{rank}").exists() for rank in range(2)), processes)
        hosts[1].cut_off()
        (tmp_path / "go").touch()
        for process in processes:
            finish(process)
    here, cut_off = results(tmp_path, 2)
    assert "rank 1 did not come to the first batch" in here
    assert "After 4 s the process group's store did not answer" in cut_off
