"""`make faults`: every instrument in its whole form, and what came out of it as docs/measured/faults.md.

``campaign.py [--only NAME,...] [--seed N] [--points N] [--page FILE]``. Each instrument's result is kept in
build/faults until it runs again, so that a campaign of some hours can be made in pieces; the page says of
each when and of which commit it is. Ends with 1 where something was bad.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import failing_calls
from judged import SMALL_POOLS

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "faults"
MEMORY = Path("/dev/shm")  # node caches must be in memory, and packs are renames and unlinks


@dataclass(frozen=True)
class Instrument:
    """One program.

    Attributes:
        name: its file's.
        what: what it attacks, as the page says it.
        given: beside seed and folder.
        shim: failing_calls.so is preloaded.
        disk: its folder is on disk.
    """

    name: str
    what: str
    given: Mapping[str, Any]
    shim: bool = False
    disk: bool = False


ALL, MANY = {"points": 0}, {"points": 150}
INSTRUMENTS = (
    Instrument("call_faults", "calls of libc fail, are cut short or are the last one", ALL, shim=True),
    Instrument("power_faults", "the power is cut at every change on disk", ALL, shim=True),
    Instrument("allocations", "allocations of the core and of its libraries fail", ALL),
    Instrument("cache_schedules", "processes at one cache, in every order", ALL),
    Instrument("epoch_steps", "fork, signals, exits and dead workers at steps of an epoch", ALL),
    Instrument("hostile_inputs", "named attacks", ALL),
    Instrument("mutated_files", "files of every kind with something changed", {"points": 2000}),
    Instrument("mutants", "small errors in Python modules, which tests must notice", ALL, disk=True),
    Instrument("core_mutants", "small errors in the core, which tests must notice", MANY, disk=True),
    Instrument("planted", "defects of the past, put back one by one", ALL),
)


def run(instrument: Instrument, seed: int, points: int | None = None) -> dict[str, Any]:
    """What one instrument found; kept in build/faults. ``points``: a sample, in place of the whole."""
    program = Path(__file__).with_name(f"{instrument.name}.py")
    folder = Path(tempfile.mkdtemp(prefix="fastload-faults-", dir=None if instrument.disk else MEMORY))
    variables = {
        **os.environ,
        **SMALL_POOLS,
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
    }
    began, commit = time.monotonic(), commit_of()
    try:
        if instrument.shim:
            variables["LD_PRELOAD"] = str(failing_calls.build(folder))
        (folder / "work").mkdir()
        given = {
            **instrument.given,
            **({} if points is None else {"points": points}),
            "seed": seed,
            "folder": str(folder / "work"),
        }
        command = [sys.executable, str(program), json.dumps(given)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, errors="replace", env=variables, check=False, cwd=ROOT
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        told = dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        told = {"points": {}, "bad": [[instrument.name, f"ended with {done.returncode} and no result"]]}
    told |= {"instrument": instrument.name, "seed": seed, "minutes": (time.monotonic() - began) / 60}
    told["sample"] = points
    told |= {"date": datetime.date.today().isoformat(), "commit": commit}
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{instrument.name}.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    return told


def commit_of() -> str:
    """The commit, and a plus where files differ from it."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return commit.stdout.strip() or "unknown"


def kept() -> dict[str, dict[str, Any]]:
    """All results that are kept, by instrument."""
    known = [each.name for each in INSTRUMENTS if (KEPT / f"{each.name}.json").exists()]
    return {name: json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8")) for name in known}


def kept_counts() -> dict[str, int]:
    """How many points each had."""
    return {name: sum(told["points"].values()) for name, told in kept().items()}


def page() -> str:
    """The page of all results that are kept."""
    results = kept()
    known = [each for each in INSTRUMENTS if each.name in results]
    lines = [
        "# Faults: the last campaign\n",
        "Written by `make faults`; `make faults ONLY=NAME SEED=N` repeats one. What each instrument is and",
        "which promise it attacks is in [reliability.md](../reliability.md).\n",
        "| instrument | what happens | points | of each kind | bad | seed | minutes | date | commit |",
        "|---|---|---:|---|---:|---:|---:|---|---|",
    ]
    for each in known:
        told = results[each.name]
        lines.append(
            f"| {each.name} | {each.what} | {sum(told['points'].values()):,} "
            f"| {f'at most {sample:,}' if (sample := told.get('sample')) else 'all'} | {len(told['bad'])} "
            f"| {told['seed']} | {told['minutes']:.0f} | {told['date']} | {told['commit']} |"
        )
    for each in known:
        lines += ["", f"## {each.name}", "", "| kind | points |", "|---|---:|"]
        lines += [f"| {kind} | {count:,} |" for kind, count in grouped(results[each.name]["points"]).items()]
        lines += [f"\nBad: {where}: {what}" for where, what in results[each.name]["bad"]]
    return "\n".join(lines) + "\n"


def with_counts(text: str, counts: Mapping[str, int]) -> str:
    """The text of docs/project/reliability.md, where an instrument's last cell is its number of points."""
    for name, count in counts.items():
        text = re.sub(rf"(?m)^(\| `{name}` \|.*\|) [^|]* \|$", rf"\g<1> {count:,} |", text)
    return text


def grouped(points: Mapping[str, int]) -> dict[str, int]:
    """Many kinds of points of one verb as one."""
    if len(points) <= 40:
        return dict(points)
    sums: dict[str, int] = {}
    for kind, count in points.items():
        first = kind.split(": ")[0]
        sums[first] = sums.get(first, 0) + count
    return sums


def main() -> int:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="instruments, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", type=int, help="of each kind, drawn by the seed (default: all)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "measured" / "faults.md")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name]
    unknown = set(names) - {each.name for each in INSTRUMENTS}
    if unknown:
        parser.error(f"no such instrument: {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(each.name for each in INSTRUMENTS)}")  # fmt: skip
    bad = 0
    for each in INSTRUMENTS:
        if names and each.name not in names:
            continue
        told = run(each, given.seed, given.points)
        bad += len(told["bad"])
        points, minutes = sum(told["points"].values()), told["minutes"]
        sys.stdout.write(f"{each.name}: {points:,} points, {len(told['bad'])} bad, {minutes:.1f} min\n")
        sys.stdout.writelines(f"  BAD {where}: {what}\n" for where, what in told["bad"])
        sys.stdout.flush()
    given.page.write_text(page(), encoding="utf-8")
    promises = given.page.parents[1] / "reliability.md"
    if promises.exists():
        promises.write_text(
            with_counts(promises.read_text(encoding="utf-8"), kept_counts()), encoding="utf-8"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
