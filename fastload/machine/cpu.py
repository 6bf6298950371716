"""The CPUs and GPUs that this process may use: quotas, affinity masks, NUMA nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# ---- Where the kernel keeps this process's limits ---------------------------------------------------


def cgroup_folders(controller: str, root: str = "/") -> Iterator[Path]:
    """The cgroup folders of this process that may hold a limit of ``controller``, inmost first.

    Knows cgroup v2, v1 ("cpu", "memory"; mounted together with others, too) and both at once. Not all of the
    folders need exist: in a container the path may be the host's, which is not mounted, or lead out of the
    namespace ("/../x"), and what is mounted is the container's own.
    """
    mount = Path(root) / "sys/fs/cgroup"
    try:
        lines = (Path(root) / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = ["0::/", f"1:{controller}:/"]
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        parts = [] if ".." in parts else parts
        for top in [mount / controllers, mount / controller] if controllers else [mount, mount / "unified"]:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])


# ---- gpu nodes --------------------------------------------------------------------------------------
# Which GPUs this process may use, and which NUMA node and cores are theirs; without initialising CUDA.


def gpu_pci_ids(root: str, environ: Mapping[str, str]) -> list[str]:
    """PCI ids ("0000:3b:00.0") of the visible GPUs, in CUDA's order; empty if that is not known.

    By torch if it has initialised CUDA, else by the driver's list in ``/proc``, which is in PCI order, as
    CUDA's is among equal GPUs, and the numbers in ``CUDA_VISIBLE_DEVICES``.
    """
    torch = sys.modules.get("torch")
    if root == "/" and torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return _from_torch(torch)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    try:
        listed = sorted(path.name for path in (Path(root) / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return []
    if visible is None:
        return listed
    chosen = []
    for name in visible.split(","):
        if not name.strip().isdigit() or int(name) >= len(listed):
            return []  # a UUID, a MIG device or "-1": the list does not tell which
        chosen.append(listed[int(name)])
    return chosen


def _from_torch(torch: Any) -> list[str]:
    found = []
    for device in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(device)
        if not hasattr(facts, "pci_bus_id"):  # torch before 2.7
            return []
        found.append(f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0")
    return found


def node_of(root: str, pci_id: str) -> int | None:
    """NUMA node of a PCI device; None if the machine has no nodes or does not say (-1)."""
    try:
        path = Path(root) / "sys/bus/pci/devices" / pci_id.lower() / "numa_node"
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def node_cpus(root: str, node: int) -> list[int]:
    """CPU numbers of a NUMA node; empty if the system does not say."""
    try:
        path = Path(root) / f"sys/devices/system/node/node{node}/cpulist"
        return parse_cpu_list(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return []


def parse_cpu_list(text: str) -> list[int]:
    """The numbers of a kernel list such as "0-3,8,10-11"."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


# ---- How many decoding threads a rank may run, and on which cores -----------------------------------
# Quota, affinity, NUMA node, local ranks.
#
# The kernel folds cpusets into the affinity mask, so the mask is read and cpusets are not. Quotas are not
# in the mask: every cgroup on the way up from this process may have one, and the smallest counts.
# Everything is read below ``root``, so that tests can give a tree of their own.

_RESERVE_FROM = 3  # cores a rank must have before one is left to the thread that launches GPU work


@dataclass(frozen=True)
class CpuBudget:
    """Threads for one rank, why so many, and the cores to run them on."""

    threads: int
    reason: str
    cpus: tuple[int, ...] = ()  # of the NUMA node of the rank's GPU; empty: threads are not pinned

    def plan(self, wanted: int | None, autotune: bool) -> ThreadPlan:
        """Threads for a loader that asks for ``wanted`` (None: all of the budget; 0 counts as 1).

        A number that is asked for is used as it is, wherever there are cores. Autotune begins there and may
        go up to the budget.
        """
        if wanted is None:
            return ThreadPlan(self.threads, self.threads, self.cpus)
        threads = max(1, wanted)
        return ThreadPlan(threads, max(threads, self.threads) if autotune else threads)


@dataclass(frozen=True)
class ThreadPlan:
    """How many decoding threads a loader uses."""

    threads: int  # at first
    most: int  # autotune goes no higher
    cpus: tuple[int, ...] = ()  # see CpuBudget


def find_budget(
    local_rank: int = 0,
    local_size: int = 1,
    *,
    root: str = "/",
    affinity: Sequence[int] | None = None,
    gpus: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> CpuBudget:
    """The CPU budget of rank ``local_rank`` of the ``local_size`` ranks of this node.

    The cores are those of the affinity mask, no more than the smallest cgroup quota on the way up, divided
    by the local ranks; rounded down, at least 1. With a GPU to feed and 3 cores or more, one is left to the
    thread that launches its work. The cores of the GPU's NUMA node are chosen where that costs no thread:
    not when the other ranks' GPUs are on the same node and another one would lie idle.

    Args:
        local_rank, local_size: as in :class:`fastload.ranks.world.World`.
        root: where ``/proc`` and ``/sys`` are.
        affinity: the allowed CPU numbers; None: this process's mask.
        gpus: PCI ids of the GPUs by local rank; None: torch's if it has initialised CUDA, else the driver's
            list in ``/proc``. Nothing here initialises CUDA.
        environ: for ``CUDA_VISIBLE_DEVICES``; None: ``os.environ``.
    """
    mask = sorted(os.sched_getaffinity(0) if affinity is None else affinity)
    if gpus is None:
        gpus = gpu_pci_ids(root, os.environ if environ is None else environ)
    quota = cgroup_quota(root)
    cores = float(len(mask)) if quota is None else min(float(len(mask)), quota)
    share = cores / local_size
    text = f"{len(mask)} cores in the affinity mask"
    text += "" if quota is None else f", a quota of {quota:g}"
    text += f", {local_size} local ranks" if local_size > 1 else ""
    near = _near_cpus(root, mask, gpus, local_rank, local_size)
    if near:
        text += f", NUMA node {node_of(root, gpus[local_rank])} of the GPU"
    threads = max(1, int(share))
    if gpus and threads >= _RESERVE_FROM:
        threads -= 1
        text += ", one left to the launching thread"
    return CpuBudget(threads, text, near)


def _near_cpus(
    root: str, mask: Sequence[int], gpus: Sequence[str], local_rank: int, local_size: int
) -> tuple[int, ...]:
    """The cores of the mask on the GPU's node, where a fair share of them is no less than one of the mask."""
    if len(gpus) < local_size or local_rank >= len(gpus):
        return ()
    nodes = [node_of(root, gpu) for gpu in gpus[:local_size]]
    node = nodes[local_rank]
    if node is None or None in nodes:
        return ()
    near = tuple(cpu for cpu in node_cpus(root, node) if cpu in set(mask))
    if not near or len(near) == len(mask):
        return ()  # elsewhere than all of the mask, or nothing to choose
    return near if len(near) * local_size >= len(mask) * nodes.count(node) else ()


def cgroup_quota(root: str = "/") -> float | None:
    """CPU quota of this process in cores: the smallest of its cgroup and those above it; None without one.

    Knows cgroup v2 (``cpu.max``), v1 (``cpu.cfs_quota_us`` over ``cpu.cfs_period_us``) and both at once.
    """
    quotas = [quota for folder in cgroup_folders("cpu", root) if (quota := _folder_quota(folder)) is not None]
    return min(quotas, default=None)


def _folder_quota(folder: Path) -> float | None:
    """The quota that one cgroup sets."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / n).read_text(encoding="ascii") for n in names).split()
            if quota not in ("max", "-1") and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return None
