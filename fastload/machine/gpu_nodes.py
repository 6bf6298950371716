"""Which GPUs this process may use, and which NUMA node and cores are theirs; without initialising CUDA."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["gpu_pci_ids", "node_cpus", "node_of", "parse_cpu_list"]


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
