"""tools/train.py killed and stopped at any step, and continued by other numbers of ranks: each sample once.

What is counted: the samples of the steps that the chain of checkpoints holds, by ``--trace`` (whose labels
are sample ids here). What a start did after the last checkpoint is done again by the next one, so a step's
samples are those of the last start that has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hosts import PORT, network
from launch import HANG, Job, finish, started, torchrun
from pictures import encoded, picture
from plain_pack import plain_pack

TRAIN = Path(__file__).resolve().parents[2] / "tools" / "train.py"
SAMPLES, GLOBAL_BATCH, EPOCHS = 120, 24, 12  # 24 has all the numbers of ranks as divisors
STEPS = SAMPLES // GLOBAL_BATCH


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder with train/ only; sample i has label i."""
    folder = tmp_path_factory.mktemp("elastic")
    blobs = [encoded(picture(i, 24, 20)) for i in range(SAMPLES)]
    plain_pack(folder / "train", blobs, range(SAMPLES), [f"{i:03d}" for i in range(SAMPLES)])
    return folder


# Without it torchrun's agent keeps one store for all restarts, in which the process group finds the addresses
# of ranks that are gone, and hangs (pytorch issue 135712).
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def arguments(data: Path, folder: Path, epochs: int = EPOCHS) -> list[object]:
    training = ["--model", "resnet8", "--size", 64, "--device", "cpu", "--threads", 1, "--epochs", epochs]
    kept = ["--checkpoint", folder / "checkpoint", "--save-every", 3, "--resume", "--trace", folder / "trace"]
    return [data, *training, "--global-batch", GLOBAL_BATCH, *kept]


def read_trace(folder: Path) -> list[tuple[int, list[dict[str, Any]]]]:
    """(start, lines) of each file; a line that is still being written is left out."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        whole = path.read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines:
            found.append((int(path.name.partition("-")[0]), lines))
    return found


def check(folder: Path, epochs: int = EPOCHS) -> list[int]:
    """Every sample once in every epoch; the world sizes of the starts, in order."""
    last: dict[tuple[int, int], tuple[int, list[int]]] = {}
    worlds: dict[int, int] = {}
    for start, (header, *lines) in sorted(read_trace(folder), key=lambda pair: pair[0]):
        worlds[start] = header["world_size"]
        for line in lines:
            place = line["epoch"], line["step"]
            if place not in last or last[place][0] < start:
                last[place] = start, []
            last[place][1].extend(line["labels"])
    assert sorted(last) == [(epoch, step) for epoch in range(epochs) for step in range(STEPS)]
    for epoch in range(epochs):
        seen = [label for step in range(STEPS) for label in last[epoch, step][1]]
        assert sorted(seen) == list(range(SAMPLES)), f"epoch {epoch}"
    return list(worlds.values())


def steps_of(folder: Path, start: int) -> int:
    """Batches that the latest start has noted, if it is later than ``start``."""
    found = read_trace(folder)
    latest = max((number for number, _ in found), default=0)
    return max(len(lines) - 1 for number, lines in found if number == latest) if latest > start else 0


def latest(folder: Path) -> tuple[int, int]:
    """The latest start and its world size."""
    return max((number, int(header["world_size"])) for number, (header, *_) in read_trace(folder))


def wait_for_steps(folder: Path, process: Job, start: int, steps: int) -> bool:
    """Wait until a start after ``start`` has begun ``steps`` steps; False if the run ends before."""
    end = time.monotonic() + HANG
    while steps_of(folder, start) < steps:
        if process.poll() is not None:
            return False
        assert time.monotonic() < end, "hangs"
        time.sleep(0.01)
    return True


def test_ranks_killed_at_random_under_torchruns_agent(data: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    trace, kills, start = tmp_path / "trace", 0, 0
    options = ["--standalone", "--max-restarts", "3"]
    with started(torchrun(2, TRAIN, *arguments(data, tmp_path), options=options), **NEW_STORE) as process:
        while kills < 2 and wait_for_steps(trace, process, start, chance.randrange(1, 12)):
            start = latest(trace)[0]
            pids = [lines[0]["pid"] for number, lines in read_trace(trace) if number == start]
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(chance.choice(pids), signal.SIGKILL)
                kills += 1
        finish(process)
    assert check(trace) == [2] * (1 + kills)
    assert kills >= 1


def test_the_next_start_has_another_number_of_ranks(data: Path, tmp_path: Path) -> None:
    """Killed altogether (agent and ranks), then stopped by SIGTERM; the last start ends the run."""
    start, worlds = 0, [2, 3, 1]
    for turn, world in enumerate(worlds):
        with started(torchrun(world, TRAIN, *arguments(data, tmp_path))) as process:
            if turn == len(worlds) - 1:
                finish(process)
                break
            assert wait_for_steps(tmp_path / "trace", process, start, 9)
            start = latest(tmp_path / "trace")[0]
            if turn == 0:
                process.kill_all()
            else:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=HANG)
    assert check(tmp_path / "trace") == worlds


def test_a_host_is_killed_and_the_other_goes_on_alone(data: Path, tmp_path: Path) -> None:
    """torchrun's elastic agents on two hosts; one dies with all that runs on it."""
    trace = tmp_path / "trace"
    with network(2) as hosts, contextlib.ExitStack() as stack:
        processes = []
        for host in hosts:
            options = ["--nnodes", "1:2", "--max-restarts", "3", "--local-addr", host.address]
            options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:{PORT}"]
            conf = f"is_host={host.number == 0},last_call_timeout=3"
            options += ["--rdzv-id", "elastic", "--rdzv-conf", conf]
            command = host.command(*torchrun(1, TRAIN, *arguments(data, tmp_path), options=options))
            processes.append(stack.enter_context(started(command, GLOO_SOCKET_IFNAME="eth0", **NEW_STORE)))
        alone = 0  # a start before the second agent was there
        while wait_for_steps(trace, processes[0], alone, 5) and latest(trace)[1] == 1:
            alone = latest(trace)[0]
        assert latest(trace)[1] == 2
        processes[1].kill_all()
        finish(processes[0])
    *before, last = check(trace)
    assert 2 in before
    assert last == 1
