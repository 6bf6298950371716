"""Threads for a rank: cgroup quotas, affinity mask, local ranks and the GPU's NUMA node, made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastload import DataLoader
from fastload import transforms as T
from fastload.loader import assembly as arrangement
from fastload.machine.cpu import (
    CpuBudget,
    cgroup_quota,
    find_budget,
    gpu_pci_ids,
    node_cpus,
    node_of,
    parse_cpu_list,
)

V2, V1 = "0::", "4:cpu,cpuacct:"


def tree(root: Path, files: dict[str, str]) -> str:
    """A fake root with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        (f"{V2}/", {"cpu.max": "150000 100000"}, 1.5),
        (f"{V2}/", {"cpu.max": "max 100000"}, None),
        (f"{V2}/job/step", {"job/step/cpu.max": "max 100000", "job/cpu.max": "400000 100000"}, 4.0),
        (f"{V2}/job/step", {"job/step/cpu.max": "200000 100000", "job/cpu.max": "400000 100000"}, 2.0),
        (f"{V2}/job/step", {"job/step/cpu.max": "800000 100000", "job/cpu.max": "400000 100000"}, 4.0),
        (f"{V2}/job", {"other/cpu.max": "100000 100000"}, None),
        (f"{V2}/docker/1234", {"cpu.max": "300000 100000"}, 3.0),  # the host's path, not mounted here
        (f"{V2}/../x", {"cpu.max": "300000 100000"}, 3.0),
        (f"{V2}/", {"cpu.max": "nonsense"}, None),
        (f"{V1}/", {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        (f"{V1}/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        (
            f"{V1}/a/b",
            {
                "cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/a/cpu.cfs_quota_us": "125000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "50000",
            },
            2.5,
        ),
        (
            f"5:memory:/m\n{V1}/a\n{V2}/b",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "500000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "unified/b/cpu.max": "300000 100000",
            },
            3.0,
        ),
        ("5:memory:/m", {"m/cpu.max": "100000 100000"}, None),
    ],
)
def test_quota(tmp_path: Path, own: str, files: dict[str, str], cores: float | None) -> None:
    """``own``: /proc/self/cgroup; ``files``: below the mount point of the cgroups."""
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert cgroup_quota(tree(tmp_path, {"proc/self/cgroup": own, **files})) == cores


def test_without_proc_and_sys_there_is_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(str(tmp_path)) is None
    assert cgroup_quota(tree(tmp_path, {"sys/fs/cgroup/cpu.max": "150000 100000"})) == 1.5


@pytest.mark.parametrize(
    ("quota", "cores", "ranks", "threads"),
    [
        (None, 16, 1, 16),
        (None, 16, 3, 5),
        (None, 2, 8, 1),
        ("150000 100000", 16, 1, 1),
        ("400000 100000", 128, 1, 4),
        ("400000 100000", 128, 8, 1),
        ("6400000 100000", 4, 2, 2),  # the mask (a cpuset's too) is smaller than the quota
    ],
)
def test_threads(tmp_path: Path, quota: str | None, cores: int, ranks: int, threads: int) -> None:
    root = tree(tmp_path, {} if quota is None else {"sys/fs/cgroup/cpu.max": quota})
    budget = find_budget(0, ranks, root=root, affinity=range(cores), gpus=[])
    assert (budget.threads, budget.cpus) == (threads, ())
    assert f"{cores} cores in the affinity mask" in budget.reason


def two_nodes(root: Path, **nodes: int) -> str:
    """16 cores on two nodes, and GPUs (a to d) on the given ones."""
    files = {f"sys/bus/pci/devices/{gpu_id(name)}/numa_node": str(node) for name, node in nodes.items()}
    lists = {"0": "0-3,8-11", "1": "4-7,12-15"}
    files |= {f"sys/devices/system/node/node{node}/cpulist": cpus for node, cpus in lists.items()}
    return tree(root, files)


def gpu_id(name: str) -> str:
    return f"0000:{name}0:00.0"


@pytest.mark.parametrize("rank", [0, 1])
def test_the_cores_of_the_gpus_node(tmp_path: Path, rank: int) -> None:
    """One rank on each node: 8 cores each, one for the launching thread."""
    budget = find_budget(
        rank, 2, root=two_nodes(tmp_path, a=1, b=0), affinity=range(16), gpus=[gpu_id("a"), gpu_id("b")]
    )
    assert budget.threads == 7
    assert budget.cpus == ((4, 5, 6, 7, 12, 13, 14, 15), (0, 1, 2, 3, 8, 9, 10, 11))[rank]
    assert f"NUMA node {1 - rank} of the GPU" in budget.reason
    assert "one left to the launching thread" in budget.reason


def test_a_node_is_not_chosen_where_that_costs_threads(tmp_path: Path) -> None:
    root = two_nodes(tmp_path, a=0, b=0)
    crowded = find_budget(0, 2, root=root, affinity=range(16), gpus=[gpu_id("a"), gpu_id("b")])
    assert (crowded.threads, crowded.cpus) == (7, ())
    alone = find_budget(0, 1, root=root, affinity=range(16), gpus=[gpu_id("a"), gpu_id("b")])
    assert (alone.threads, alone.cpus) == (15, ())


def test_a_node_never_widens_the_mask(tmp_path: Path) -> None:
    root = two_nodes(tmp_path, a=1, b=0)
    gpus = [gpu_id("a"), gpu_id("b")]
    assert find_budget(0, 2, root=root, affinity=[0, 4, 5, 6], gpus=gpus).cpus == (4, 5, 6)
    assert find_budget(1, 2, root=root, affinity=[0, 4, 5, 6], gpus=gpus).cpus == ()
    assert find_budget(1, 2, root=root, affinity=[4, 5], gpus=gpus).cpus == ()


@pytest.mark.parametrize("gpus", [["a"], ["a", "c"], ["c", "a"]])
def test_unknown_gpus_and_nodes_choose_nothing(tmp_path: Path, gpus: list[str]) -> None:
    root = two_nodes(tmp_path, a=1, c=-1)
    ids = [gpu_id(name) for name in gpus]
    assert find_budget(1, 2, root=root, affinity=range(16), gpus=ids).cpus == ()
    assert node_of(root, gpu_id("c")) is None
    assert node_of(root, gpu_id("d")) is None
    assert node_cpus(root, 7) == []


def test_nothing_is_reserved_where_there_is_little(tmp_path: Path) -> None:
    found = [
        find_budget(0, 1, root=str(tmp_path), affinity=range(n), gpus=["x"]).threads for n in range(1, 6)
    ]
    assert found == [1, 2, 2, 3, 4]


def test_kernel_lists() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_cpu_list("\n") == []


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["a", "b", "c"]),
        ("2,0", ["c", "a"]),
        ("", []),
        ("-1", []),
        ("3", []),
        ("GPU-8932f937", []),
    ],
)
def test_the_drivers_list_of_gpus(tmp_path: Path, visible: str | None, names: list[str]) -> None:
    root = tree(tmp_path, {f"proc/driver/nvidia/gpus/{gpu_id(n)}/information": "" for n in "bac"})
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_pci_ids(root, environ) == [gpu_id(name) for name in names]
    assert gpu_pci_ids(str(tmp_path / "elsewhere"), environ) == []


def test_this_machine_gives_something() -> None:
    budget = find_budget()
    assert 1 <= budget.threads <= len(os.sched_getaffinity(0))
    assert set(budget.cpus) <= os.sched_getaffinity(0)
    assert find_budget(0, 10_000).threads == 1


def test_the_affinity_mask_of_the_process_counts() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    code += "from fastload.machine.cpu import find_budget; print(find_budget().threads)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


def test_a_loader_looks_for_its_budget_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads /proc and /sys, and a loader is asked for its length and state often."""
    looked = []

    def counted(*ranks: int) -> CpuBudget:
        looked.append(ranks)
        return find_budget(*ranks)

    monkeypatch.setattr(arrangement, "find_budget", counted)
    loader = DataLoader(folder, transform=T.RandomResizedCrop(8), seed=0)
    assert "thread" in repr(loader)
    loader.state_dict()
    loader.memory_plan()
    next(iter(loader))
    assert looked == [(0, 1)]


def test_num_workers_overrides(folder: Path) -> None:
    loader = DataLoader(folder, transform=T.RandomResizedCrop(8), seed=0)
    assert loader.num_workers == find_budget().threads
    assert DataLoader(folder, num_workers=37, transform=T.RandomResizedCrop(8), seed=0).num_workers == 37
    assert DataLoader(folder, num_workers=0, transform=T.RandomResizedCrop(8), seed=0).num_workers == 0
