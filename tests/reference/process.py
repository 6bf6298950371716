"""What this process holds."""

from __future__ import annotations

import gc
import os


def threads() -> int:
    """Threads of this process, C++ ones too, but for those of loaders that are garbage."""
    gc.collect()
    return len(os.listdir("/proc/self/task"))


def resident() -> int:
    """Bytes of memory this process holds (its proportional share of what it maps)."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
