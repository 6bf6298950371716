"""Does a process that lives long stay as it is? Memory, descriptors, threads, mappings, children over time.

The processes of ``soak_steady`` note themselves at quiet points: behind an epoch, behind a round of opening
and closing. Looked at is the second half of their time; by then everything has been imported and every kind
of loader has been opened.

*Counts* (descriptors, threads, mappings, children) may differ from one quiet point to the next, as caches
and pools come and go, but their least value of a stretch may not grow: a leak of one a round grows by
hundreds.

*Memory* is the process's anonymous memory and its shared memory, not mapped shards, which belong to the page
cache. A line is fitted to the means of 20 stretches. Its slope may be BYTES_A_ROUND at most beyond what
chance explains (three standard errors): 2 MB in 1,000 rounds. A kept loader holds some 100 kB (slots, index,
Python objects) and a kept batch 20 to 80 kB, so that one in forty rounds is found. In a short run nothing
has settled, and memory is noted and not judged.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BYTES_A_ROUND = 2048
STRETCHES = 20
COUNTS = ("descriptors", "threads", "mappings", "children")
SLACK = {"descriptors": 1, "threads": 1, "mappings": 8, "children": 1}
UNSETTLED = 8  # times the slack, while libraries are still being loaded
LEAST = 16  # notes


def look(round_: int) -> dict[str, int]:
    """This process, now."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kb = {name: int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem", "RssFile")}
    rolled = Path("/proc/self/smaps_rollup").read_text().splitlines()
    pss = next(int(line.split()[1]) << 10 for line in rolled if line.startswith("Pss:"))
    tasks = os.listdir("/proc/self/task")
    children = [Path(f"/proc/self/task/{task}/children") for task in tasks]
    return {
        "round": round_,
        "anonymous": kb["RssAnon"],
        "shared": kb["RssShmem"],
        "file": kb["RssFile"],
        "pss": pss,
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "threads": len(tasks),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "children": sum(len(path.read_text().split()) for path in children if path.exists()),
    }


def stretches(values: Sequence[float], count: int) -> list[list[float]]:
    """The values in ``count`` stretches of about equal length."""
    size = len(values) / count
    return [list(values[round(i * size) : round((i + 1) * size)]) for i in range(count)]


def slope(rounds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """A line's slope by least squares, and its standard error; of points that are means of stretches."""
    n = len(rounds)
    x, y = sum(rounds) / n, sum(values) / n
    spread = sum((one - x) ** 2 for one in rounds)
    if not spread:
        return 0.0, math.inf
    found = sum((a - x) * (b - y) for a, b in zip(rounds, values, strict=True)) / spread
    left = sum((b - y - found * (a - x)) ** 2 for a, b in zip(rounds, values, strict=True))
    return found, math.sqrt(left / max(n - 2, 1) / spread)


def judge(name: str, notes: Sequence[dict[str, Any]], settled: bool) -> tuple[dict[str, Any], list[str]]:
    """A process by its notes: the numbers, and what is wrong.

    Args:
        settled: whether it has lived so long that its second half must be quiet: memory is judged, and few
            notes are wrong.
    """
    if len(notes) < LEAST:
        few = f"{name}: {len(notes)} quiet points are too few to judge it by"
        return {"notes": len(notes)}, [few] if settled else []
    half = list(notes[len(notes) // 2 :])
    bad: list[str] = []
    report: dict[str, Any] = {"notes": len(notes), "rounds": notes[-1]["round"]}
    for kind in COUNTS:
        first, *_, last = [min(part) for part in stretches([note[kind] for note in half], 4)]
        report[kind] = [first, last]
        if last > first + SLACK[kind] * (1 if settled else UNSETTLED):
            bad.append(f"{name}: {kind} grew from {first} to {last}")
    count = min(STRETCHES, len(half) // 2)
    rounds = [sum(part) / len(part) for part in stretches([note["round"] for note in half], count)]
    for kind in ("anonymous", "shared"):
        means = [sum(part) / len(part) for part in stretches([note[kind] for note in half], count)]
        found, error = slope(rounds, means)
        report[kind] = {
            "first_mb": round(means[0] / 1e6, 2),
            "last_mb": round(means[-1] / 1e6, 2),
            "bytes_a_round": round(found, 1),
            "standard_error": round(error, 1),
        }
        if settled and found - 3 * error > BYTES_A_ROUND:
            bad.append(f"{name}: {kind} memory grows by {found:.0f} (+-{error:.0f}) bytes a round")
    report["pss_mb"] = [round(note["pss"] / 1e6, 1) for note in (half[0], half[-1])]
    report["file_mb"] = [round(note["file"] / 1e6, 1) for note in (half[0], half[-1])]
    return report, bad
