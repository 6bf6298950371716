"""Nothing to write but DataLoader(...): one program, alone, under torchrun, SLURM and mp.spawn."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import programs
import pytest
from launch import PROGRAMS, finish, forked, results, started, torchrun
from ports import free_port

SAMPLES = 53
BATCH = 3


def steps(ranks: Sequence[Any]) -> list[list[int]]:
    """The ranks' batches of each step, joined in rank order. Fails if a rank has fewer."""
    return [list(itertools.chain(*step)) for step in zip(*ranks, strict=True)]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return list(itertools.chain(*batches))


def check(ranks: Sequence[Any]) -> None:
    """What must hold for any number of ranks, by arithmetic on the labels, which are sample ids."""
    world = len(ranks)
    count = -(-SAMPLES // (world * BATCH))
    first, second, resumed = (
        [found["epochs"][0] for found in ranks],
        [found["epochs"][1] for found in ranks],
        [found["resumed"] for found in ranks],
    )
    for epoch in (first, second):
        assert [len(batches) for batches in epoch] == [count] * world
        repeated = Counter(flat(steps(epoch)))
        assert set(repeated) == set(range(SAMPLES))
        # Only the last batch is filled up, to the same size on all ranks, from the epoch's beginning.
        assert sum(repeated.values()) - SAMPLES < world
        assert max(repeated.values()) <= 2
    assert flat(steps(first)) != flat(steps(second))
    assert steps(resumed) == steps(first)[2:]
    val = steps([found["val"] for found in ranks])
    assert sorted(label for label in flat(val) if label != -100) == list(range(SAMPLES))
    assert flat(val).count(-100) < world
    exact = [len(range(0, SAMPLES, 3)), sum(range(SAMPLES)), SAMPLES]
    assert all(found["metric"] == exact for found in ranks)
    assert [found["length"] for found in ranks] == [count] * world
    assert len({found["seed"] for found in ranks}) == 1


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_torchrun(numbered: Path, tmp_path: Path, world: int) -> None:
    """Many ranks by fork, with torchrun's variables: torchrun's own would import torch once each."""
    if world > 2:
        command = forked("everything", world, numbered, tmp_path)
    else:
        command = torchrun(world, PROGRAMS, "everything", numbered, tmp_path)
    with started(command) as process:
        finish(process)
    ranks = results(tmp_path, world)
    assert [found["world"] for found in ranks] == [[rank, world, rank, world] for rank in range(world)]
    check(ranks)


def test_mp_spawn(numbered: Path, tmp_path: Path) -> None:
    with started([sys.executable, str(PROGRAMS), "spawn", "2", str(numbered), str(tmp_path)]) as process:
        finish(process)
    check(results(tmp_path, 2))


def slurm(rank: int, world: int) -> dict[str, str]:
    """What srun sets for a task (besides much else): two nodes of equally many tasks."""
    local = world // 2
    return {
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": str(world),
        "SLURM_NTASKS_PER_NODE": str(local),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % local),
        "SLURM_NODEID": str(rank // local),
    }


def test_slurm(numbered: Path, tmp_path: Path) -> None:
    """Tasks of srun, which join a group by SLURM's variables."""
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, str(PROGRAMS), "everything_by_slurm", str(numbered), str(tmp_path), address]
    with ExitStack() as stack:
        for job in [stack.enter_context(started(command, **slurm(rank, 2))) for rank in range(2)]:
            finish(job)
    ranks = results(tmp_path, 2)
    assert [found["world"] for found in ranks] == [[0, 2, 0, 1], [1, 2, 0, 1]]
    check(ranks)


def test_slurm_without_a_process_group(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks find their share all the same; nobody sums the metrics then."""
    for rank in range(4):
        with monkeypatch.context() as patch:
            for name, value in slurm(rank, 4).items():
                patch.setenv(name, value)
            with pytest.warns(UserWarning, match="no process group in which to agree on a seed"):
                programs.everything(str(numbered), str(tmp_path))
    ranks = results(tmp_path, 4)
    summed = [sum(values) for values in zip(*(found["metric"] for found in ranks), strict=True)]
    check([{**found, "metric": summed} for found in ranks])
