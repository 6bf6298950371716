"""Does autotune find the best setting? Against fixed numbers of threads and depths of prefetch, by sweeping.

    python benchmarks/bench_autotune.py IMAGES [--only NAME ...] [--seconds 1] [--workdir FOLDER]

Each scenario (of doctor/scenarios.py, and two more in doctor/autotune.py) runs in its own process. Fixed
settings are swept; a loader with autotune starts at the scenario's setting; then the best fixed loader and
that loader, both open, take turns. Columns: the best fixed setting and its rate, autotune's rate as a share
of it, seconds until autotune came within 3%, its changes of setting, and those in the last third. IMAGES is a
folder of some hundred JPEGs in class folders. What needs root (a slow disk, a CPU quota) is skipped without
it, with a message.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from doctor.autotune import ALL
from doctor.rows import measure_rows, write_rows

ROOT = Path(__file__).parents[1]
RUN = "doctor.autotune"
TIME_LIMIT = 200.0  # seconds of one scenario


def parse(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="scenarios to run")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per run of a loop")
    parser.add_argument("--tune", type=float, default=12.0, help="seconds that autotune gets at first")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the best fixed setting and autotune")
    parser.add_argument("--workdir", type=Path, help="folder that keeps the sets made of the images")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "autotune.json")
    return parser.parse_args(given)


def report(rows: list[dict[str, Any]]) -> None:
    """The table, and what it comes to."""
    print("| scenario | best fixed | images/s | autotune | reached after | changes | in the last third |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        if "best" not in row:
            print(f"| {row['name']} | {row.get('skipped') or row['failed'].splitlines()[-1]} | | | | | |")
            continue
        best = row["best"]
        cells = [row["name"], f"{best['num_workers']} threads, prefetch {best['prefetch_factor']}"]
        cells += [f"{row['best_rate']:.0f}", f"{row['ratio']:.2f}"]
        cells += ["never" if row["reached"] is None else f"{row['reached']:.1f} s"]
        cells += [str(len(row["changes"])), str(row["late_changes"])]
        print("| " + " | ".join(cells) + " |")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        print(f"\nOf the best fixed: {statistics.median(ratios):.2f} (median), {min(ratios):.2f} at worst")


def main(given: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse(given)
    names = [one.name for one in ALL if not options.only or one.name in options.only]
    rows = measure_rows(names, RUN, options, ("seconds", "tune", "rounds"), TIME_LIMIT)
    report(rows)
    return write_rows(rows, options.output)


if __name__ == "__main__":
    raise SystemExit(main())
