"""The benchmarks' JSON files made small: medians, ranges, settings, and no path or name of the machine."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["figure_of", "plain", "reasons"]

PATH = re.compile(r"(?<![\w.])/(?:[\w.+@=-]+/)+")  # all of a path but its last part


def plain(text: str, limit: int = 200) -> str:
    """The last line of an error, without folders."""
    line = (text.strip().splitlines() or [""])[-1].strip()
    return PATH.sub("", line)[:limit]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median, extremes and all values, with four digits."""
    rounded = [float(f"{value:.4g}") for value in values]
    middle = float(f"{statistics.median(values):.4g}")
    return {"median": middle, "low": min(rounded), "high": max(rounded), "runs": rounded}


def good_runs(body: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Candidate -> its runs, of those that did not fail."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in body["runs"]:
        if not run["error"] and run["name"] not in body["failures"]:
            found[run["name"]].append(run)
    return found


def reasons(body: Mapping[str, Any]) -> dict[str, str]:
    """Candidate -> why it has no figure."""
    return {name: plain(error) for name, error in body["failures"].items()}


def outside(runs: Sequence[Mapping[str, Any]]) -> float:
    """The cores that other processes took, at most."""
    return round(max(float(run["outside_cores"]) for run in runs), 2)


def loader_jobs(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_loader's: for each job a row for each candidate."""
    jobs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for full, runs in good_runs(body).items():
        job, _, name = full.partition(" | ")
        if not name:
            continue  # what was prepared
        memory = [run["memory"]["anonymous"] + run["memory"]["file"] for run in runs]
        row = {"name": name, **summary([run["values"]["rate"] for run in runs])}
        row["workers"] = runs[0]["values"]["threads"]
        row["versions"] = runs[0]["values"]["versions"]
        row["first_batch_s"] = round(statistics.median(run["values"]["first_batch"] for run in runs), 2)
        row["memory_mb"] = round(statistics.median(memory))
        row["kb_an_image"] = round(body["kb_an_image"][name], 1)
        row["outside_cores"] = outside(runs)
        jobs[job].append(row)
    found: dict[str, Any] = {"jobs": dict(jobs)}
    if body.get("sweep"):
        found["sweep"] = {
            name: {count: rate and round(rate) for count, rate in rates.items()}
            for name, rates in body["sweep"].items()
        }
    return found


def rank_rows(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_ranks' memory: a row for each loader and number of ranks, in MB."""
    rows = []
    for name, runs in good_runs(body).items():
        _, loader, ranks = name.split()
        row: dict[str, Any] = {"name": loader, "ranks": int(ranks[1:])}
        row |= summary([run["values"]["held"] for run in runs])
        for key in ("file", "cache", "processes"):
            row[key] = round(statistics.median(run["values"][key] for run in runs))
        row["outside_cores"] = outside(runs)
        rows.append(row)
    return {"rows": sorted(rows, key=lambda row: (row["ranks"], row["name"]))}


def pack_rows(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_pack's: MB a second of each packer, and the bytes that it wrote of those that it read."""
    rows = []
    for name, runs in good_runs(body).items():
        row: dict[str, Any] = {"name": " ".join(name.split()[:-1]) or name}
        row |= summary([run["values"]["mb_per_s"] for run in runs])
        row["size_ratio"] = round(runs[0]["values"]["size_ratio"], 2)
        row["outside_cores"] = outside(runs)
        rows.append(row)
    return {"rows": sorted(rows, key=lambda row: -row["median"])}


def training_rows(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_starvation's: images a second of each network on each feed, and the time that it waited."""
    rows = []
    for full, runs in good_runs(body).items():
        model, _, name = full.partition(" | ")
        row = {"model": model, "name": name, **summary([run["values"]["rate"] for run in runs])}
        for key in ("step_ms", "wait_ms", "cores"):
            row[key] = float(f"{statistics.median(run['values'][key] for run in runs):.3g}")
        row["wait_share"] = round(statistics.median(run["values"]["wait_share"] for run in runs), 4)
        row["outside_cores"] = outside(runs)
        rows.append(row)
    given = body["arguments"]
    return {"rows": rows, **{name: given[name] for name in ("device_name", "amp", "batch", "threads")}}


def vision_jobs(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_vision's: for each job a row for each way, in pictures per second of CPU time."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for job, ways in body["seconds"].items():
        if "PIL" in ways:  # by CPU time: the others' side is there
            jobs[job] = [
                {
                    "name": f"{'transformers' if way in ('PIL', 'torchvision') else 'fastload'}, {way}",
                    **summary([1 / second for second in seconds]),
                    "outside_cores": round(body["outside_cores"], 2),
                }
                for way, seconds in ways.items()
            ]
    return {"jobs": jobs}


def window_rows(body: Mapping[str, Any]) -> dict[str, Any]:
    """bench_windows': samples a second of each way, and MB of its cameras on the disk."""
    rows = []
    for name, runs in good_runs(body).items():
        row: dict[str, Any] = {"name": name if name.startswith("LeRobot") else f"fastload, {name}"}
        row |= summary([run["values"]["rate"] for run in runs])
        row["mb"] = round(body["megabytes"][name])
        row["outside_cores"] = outside(runs)
        rows.append(row)
    return {"jobs": {"windows": rows}}


#: How a figure is made of its steps' files; the others are bench_loader's.
MAKERS = {
    "memory": rank_rows, "packing": pack_rows, "training": training_rows, "vision": vision_jobs,
    "windows": window_rows,
}  # fmt: skip


def figure_of(step: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the results keep of a step."""
    return MAKERS.get(step.partition(" ")[0], loader_jobs)(body)
