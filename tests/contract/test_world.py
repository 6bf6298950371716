"""Rank and world size: arguments, process group, torchrun, SLURM, alone; half-set variables are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from picklable import rank_with_loader
from pictures import jpegs
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import WorldError
from fastload.ranks.world import World, find_world

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
    with pytest.raises(WorldError, match="both rank and world_size, or neither"):
        find_world(rank=1, environ={})
    with pytest.raises(WorldError, match=r"rank must be in \[0, world_size\). Found: rank=2, world_size=2"):
        find_world(2, 2, environ={})
    with pytest.raises(WorldError, match="RANK must be an integer. Found: 'x'"):
        find_world(environ={"RANK": "x", "WORLD_SIZE": "2"})


def test_the_loader_uses_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert len(DataLoader(folder, 2, transform=T.RandomResizedCrop(8), seed=0)) == 4


def test_a_loader_from_before_the_process_group_has_its_rank(packed: PackedDataset, tmp_path: Path) -> None:
    """As in mp.spawn and Lightning's ddp_spawn: the loader comes with the arguments."""
    labels = plain_pack(tmp_path / "numbered", jpegs(21), range(21)).folder
    loader = DataLoader(labels, 4, shuffle=True, num_workers=1, transform=T.CenterCrop(8), padding="drop")
    assert len(loader) == 6
    arguments = (loader, str(tmp_path / "store"), str(tmp_path / "found"))
    torch.multiprocessing.spawn(rank_with_loader, arguments, nprocs=2)
    found = [json.loads((tmp_path / f"found{rank}").read_text()) for rank in range(2)]
    assert sorted(found[0][0] + found[1][0]) == list(range(21))
    assert [length for _, length, _ in found] == [3, 3]
    assert found[0][2] == found[1][2]


def test_a_loader_that_began_alone_refuses_another_world(folder: Path, tmp_path: Path) -> None:
    loader = DataLoader(folder, 8, transform=T.CenterCrop(8))
    next(iter(loader))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "1")
        patch.setenv("WORLD_SIZE", "2")
        with pytest.raises(WorldError, match="began as rank 0 of 1, now the process is rank 1 of 2"):
            next(iter(loader))
    assert len(list(loader)) == 7


def test_half_set_variables_do_not_matter_where_a_group_or_arguments_say_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's own launcher sets WORLD_SIZE and LOCAL_RANK, and no RANK."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_world(1, 2) == World(1, 2, 1, 2)
    loader = DataLoader(folder, 8, transform=T.CenterCrop(8))
    with pytest.raises(WorldError, match="only partly set: RANK is missing"):
        next(iter(loader))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert len(list(loader)) == 7
    finally:
        dist.destroy_process_group()
