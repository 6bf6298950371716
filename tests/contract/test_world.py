"""Rank and world size: arguments, process group, torchrun, SLURM, alone; half-set variables are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from fastload import DataLoader
from fastload import transforms as T
from fastload.errors import WorldError
from fastload.world import World, find_world

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2"}


def test_alone() -> None:
    assert find_world(environ={}) == World(0, 1, 0, 1)


def test_torchrun_comes_before_slurm() -> None:
    assert find_world(environ={**SLURM, **TORCHRUN}) == World(3, 8, 1, 2)
    assert find_world(environ=SLURM) == World(5, 6, 1, 2)
    assert find_world(environ={**SLURM, "SLURM_NTASKS_PER_NODE": "2(x3)"}) == World(5, 6, 1, 1)


def test_a_slurm_batch_script_is_one_process() -> None:
    assert find_world(environ={"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}) == World()


def test_the_step_counts_not_the_job() -> None:
    """The shell that salloc opens is a step of one task in a job of several."""
    shell = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}
    assert (find_world(environ=shell).rank, find_world(environ=shell).size) == (0, 1)


def test_arguments_come_first() -> None:
    assert find_world(1, 2, environ=TORCHRUN) == World(1, 2, 1, 2)


def test_the_process_group_comes_before_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert find_world() == World(0, 1, 1, 2)
    finally:
        dist.destroy_process_group()


def test_half_set_is_refused() -> None:
    with pytest.raises(WorldError, match="WORLD_SIZE is missing"):
        find_world(environ={"RANK": "0"})
    with pytest.raises(WorldError, match="Pass both rank and world_size"):
        find_world(rank=1, environ={})
    with pytest.raises(WorldError, match=r"rank must be in \[0, world_size\). Found: rank=2, world_size=2"):
        find_world(2, 2, environ={})
    with pytest.raises(WorldError, match="RANK must be an integer. Found: 'x'"):
        find_world(environ={"RANK": "x", "WORLD_SIZE": "2"})


def test_the_loader_uses_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert len(DataLoader(folder, 2, transform=T.RandomResizedCrop(8), seed=0)) == 4
