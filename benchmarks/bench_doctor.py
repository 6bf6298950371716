"""Is the doctor right? Loops with one thing wrong: its cause, its prediction, and what the fix gives.

    python benchmarks/bench_doctor.py IMAGES [--only NAME ...] [--seconds 3] [--rounds 3] [--workdir FOLDER]
    python benchmarks/bench_doctor.py IMAGES --device cuda

Each scenario (doctor/scenarios.py) runs in its own process: a training loop runs and is watched, the doctor
examines it, then the loop as it is and the mended one take turns. The step waits as for a GPU, or computes;
with --device the scenarios of doctor/training.py run in place of these, whose step trains a network there.
IMAGES is a folder of some hundred JPEGs in class folders. What needs root (a slow disk, a CPU quota) or
torchvision is skipped without it, with a message.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from doctor.rows import measure_rows, write_rows
from doctor.scenarios import SCENARIOS
from doctor.training import TRAINING

ROOT = Path(__file__).parents[1]
RUN = "doctor.run"
TIME_LIMIT = 400.0  # seconds of one scenario


def parse(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="scenarios to run")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="train there, in other scenarios")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per run of a loop")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the loop as it is and mended")
    parser.add_argument("--limit", type=float, default=60.0, help="the doctor's time limit in seconds")
    parser.add_argument("--workdir", type=Path, help="folder that keeps the sets made of the images")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "doctor.json")
    return parser.parse_args(given)


def off_by(row: dict[str, Any]) -> float | None:
    """By how much the prediction of the gain's rate is wrong; None where nothing was predicted."""
    if not row.get("predicted") or not row.get("reached"):
        return None
    return float(row["predicted"] / row["reached"] - 1)


def spread(row: dict[str, Any], name: str) -> str:
    """The median, and the lowest and the highest rate."""
    rates = row[f"{name}_rates"]
    return f"{row[name]:.0f} [{min(rates):.0f}-{max(rates):.0f}]"


def report(rows: list[dict[str, Any]]) -> None:
    """The table, and what it comes to."""
    print("| scenario | cause found | fix | as it is | predicted | reached | off by | s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        if "cause" not in row:
            print(f"| {row['name']} | {row.get('skipped') or row['failed'].splitlines()[-1]} | | | | | | |")
            continue
        off = off_by(row)
        cause = row["cause"] + ("" if row["right"] else " (wrong)")
        cells = [row["name"], cause, row["fix"] or "nothing", spread(row, "before")]
        cells += [f"{row['predicted']:.0f}" if row["predicted"] else "-"]
        cells += [spread(row, "reached") if row["reached"] else "-"]
        cells += [f"{off:+.0%}" if off is not None else "-", f"{row['seconds']:.0f}"]
        print("| " + " | ".join(cells) + " |")
    asked = [row for row in rows if "cause" in row]
    errors = [abs(off) for row in asked if (off := off_by(row)) is not None]
    print(f"\nRight cause: {sum(row['right'] for row in asked)} of {len(asked)}.", end=" ")
    if errors:
        print(f"Predictions off by {statistics.median(errors):.0%} (median), {max(errors):.0%} (worst).")


def main(given: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse(given)
    scenarios = TRAINING if options.device else SCENARIOS
    names = [one.name for one in scenarios if not options.only or one.name in options.only]
    passed = ("seconds", "rounds", "limit", *(["device"] if options.device else []))
    rows = measure_rows(names, RUN, options, passed, TIME_LIMIT)
    report(rows)
    return write_rows(rows, options.output)


if __name__ == "__main__":
    raise SystemExit(main())
