"""The CPUs and GPUs that this process may use: quotas, affinity masks, NUMA nodes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# ---- Control groups ----


def cgroup_folders(controller: str, root: str = "/") -> Iterator[Path]:
    """Yield this process's cgroup folders that may hold a limit of ``controller``, innermost first.

    Knows cgroup v2, v1 ("cpu", "memory"; also mounted together with others) and both at once. A folder need
    not exist: in a container the path may be the host's, which is not mounted, or lead out of the namespace
    ("/../x"), while the container's own is mounted.
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


# ---- GPUs and NUMA nodes, without initialising CUDA ----


def gpu_pci_ids(root: str, environ: Mapping[str, str]) -> list[str]:
    """Return PCI ids ("0000:3b:00.0") of the visible GPUs, in CUDA's order; empty if unknown.

    They come from torch if it has initialised CUDA, else from the driver's list in ``/proc``, which is in PCI
    order, like CUDA's for equal GPUs, and from the numbers in ``CUDA_VISIBLE_DEVICES``.
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
            return []  # a UUID, a MIG device or "-1": the list does not show which GPU it is
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
    """Return a PCI device's NUMA node; None if the machine has no nodes or does not report one (-1)."""
    try:
        path = Path(root) / "sys/bus/pci/devices" / pci_id.lower() / "numa_node"
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def node_cpus(root: str, node: int) -> list[int]:
    """Return the CPU numbers of a NUMA node; empty if the system does not report them."""
    try:
        path = Path(root) / f"sys/devices/system/node/node{node}/cpulist"
        return parse_cpu_list(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return []


def parse_cpu_list(text: str) -> list[int]:
    """Return the numbers in a kernel list such as "0-3,8,10-11"."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def cpu_model(root: str = "/") -> str:
    """Return what the system calls the processor, or its kind where it has no name (64-bit Arm)."""
    try:
        lines = (Path(root) / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


# ---- The CPU budget ----
# The kernel folds cpusets into the affinity mask, so only the mask is read. Quotas are not in the mask:
# this process's cgroup and all those above it may have one, and the smallest counts. Everything is read
# below ``root``, so that tests can provide a tree.

_RESERVE_FROM = 3  # with fewer cores, a rank leaves none to the thread that launches GPU work


@dataclass(frozen=True)
class CpuBudget:
    """Threads for one rank, the reason for their number, and the cores to run them on."""

    threads: int
    reason: str
    cpus: tuple[int, ...] = ()  # of the NUMA node of the rank's GPU; empty: threads are not pinned

    def plan(self, wanted: int | None, autotune: bool) -> ThreadPlan:
        """Plan the threads of a loader that asks for ``wanted`` (None: all of the budget; 0 counts as 1).

        A number is used as it is, however many cores there are. Autotune starts there and may go up to the
        budget.
        """
        if wanted is None:
            return ThreadPlan(self.threads, self.threads, self.cpus)
        threads = max(1, wanted)
        return ThreadPlan(threads, max(threads, self.threads) if autotune else threads)


@dataclass(frozen=True)
class ThreadPlan:
    """How many decoding threads a loader uses."""

    threads: int  # at first
    most: int  # autotune's maximum
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
    """Find the CPU budget of rank ``local_rank`` of the ``local_size`` ranks of this node.

    The cores are those of the affinity mask, at most the smallest cgroup quota from here up, divided by the
    local ranks and rounded down, at least 1. With a GPU to feed and 3 cores or more, one is left to the
    thread that launches its work. The cores are on the GPU's NUMA node if that costs no thread: they are not
    if the other ranks' GPUs are on the same node and another node would be idle.

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
    """Return the mask's cores on the GPU's node, if a fair share of them is no smaller than of the mask."""
    if len(gpus) < local_size or local_rank >= len(gpus):
        return ()
    nodes = [node_of(root, gpu) for gpu in gpus[:local_size]]
    node = nodes[local_rank]
    if node is None or None in nodes:
        return ()
    near = tuple(cpu for cpu in node_cpus(root, node) if cpu in set(mask))
    if not near or len(near) == len(mask):
        return ()  # none of the mask is there, or all of it is
    return near if len(near) * local_size >= len(mask) * nodes.count(node) else ()


def cgroup_quota(root: str = "/") -> float | None:
    """Return this process's CPU quota in cores, the smallest of its cgroup and those above; None: no quota.

    Knows cgroup v2 (``cpu.max``), v1 (``cpu.cfs_quota_us`` over ``cpu.cfs_period_us``) and both at once.
    """
    quotas = [quota for folder in cgroup_folders("cpu", root) if (quota := _folder_quota(folder)) is not None]
    return min(quotas, default=None)


def _folder_quota(folder: Path) -> float | None:
    """Return the quota of one cgroup."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / n).read_text(encoding="ascii") for n in names).split()
            if quota not in ("max", "-1") and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return None
