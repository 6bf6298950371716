"""One run of bench_columns: opens a set, and gathers batches of random samples' boxes.

Prints one JSON line: milliseconds to open the set and its columns, for the first batch and for a later one
(median), and the memory that came with all of it: MB of the process's own, and of the file's pages.
With ``--processes`` it does so in as many at once; the line has the largest time and the mean memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.children import child

from fastload.shard.dataset import PackedFiles

BATCH, BATCHES = 256, 40


def memory() -> dict[str, float]:
    """MB of this process: its own pages, and those it shares with files."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"own": found["Anonymous"], "mapped": found["Rss"] - found["Anonymous"]}


def alone(folder: Path, seed: int) -> dict[str, float]:
    """What one process measures."""
    before = memory()
    began = time.perf_counter()
    dataset = PackedFiles(folder)
    columns = [dataset.columns[name] for name in dataset.columns]
    opened = time.perf_counter() - began
    rng, seconds = np.random.default_rng(seed), []
    for _ in range(BATCHES):
        ids = rng.integers(0, len(dataset), BATCH)
        began = time.perf_counter()
        for column in columns:
            column.gather(ids)
        seconds.append(time.perf_counter() - began)
    after = memory()
    return {
        "open_ms": opened * 1e3,
        "first_ms": seconds[0] * 1e3,
        "later_ms": statistics.median(seconds[1:]) * 1e3,
        "own_mb": after["own"] - before["own"],
        "mapped_mb": after["mapped"] - before["mapped"],
    }


def several(folder: Path, processes: int) -> dict[str, Any]:
    """What several at once measure."""
    line = child("runs.columns", folder, "--seed")
    lines = [[*line, str(number)] for number in range(processes)]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
    found = [json.loads(process.communicate()[0]) for process in running]
    together = {key: statistics.mean if key.endswith("mb") else max for key in found[0]}
    return {key: join([one[key] for one in found]) for key, join in together.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.processes > 1:
        print(json.dumps(several(arguments.folder, arguments.processes)))
    else:
        print(json.dumps(alone(arguments.folder, arguments.seed)))


if __name__ == "__main__":
    main()
