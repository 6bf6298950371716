"""One row a scenario, each from a process of its own: what bench_doctor.py and bench_autotune.py share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.children import child
from harness.provenance import provenance
from harness.rounds import SKIPPED

__all__ = ["measure_rows", "write_rows"]

ERROR_CHARACTERS = 2000  # of a failed scenario's output that are kept


def measure_rows(
    names: Sequence[str], program: str, options: argparse.Namespace, passed: Sequence[str], limit: float
) -> list[dict[str, Any]]:
    """The rows of these scenarios; ``skipped`` or ``failed`` says why one has no figures.

    Args:
        names: the scenarios.
        program: a module that measures one of them and prints its row as JSON.
        options: has ``images``, ``workdir`` and those of ``passed``.
        passed: names of options that the program has, too.
        limit: seconds of one scenario.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = (options.workdir or Path(folder)).resolve()
        shared = ["--images", str(options.images.resolve()), "--work", str(work)]
        for option in passed:
            shared += [f"--{option}", str(getattr(options, option))]
        for name in names:
            rows.append(_row(name, child(program, name, *shared), limit))
            row = rows[-1]
            said = row.get("words") or row.get("skipped") or row.get("failed") or "done"
            print(f"{name}: {said}", file=sys.stderr, flush=True)
    return rows


def _row(name: str, line: list[str], limit: float) -> dict[str, Any]:
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"name": name, "failed": f"not done after {limit:.0f} s"}
    if done.returncode == SKIPPED:
        return {"name": name, "skipped": done.stderr.strip().splitlines()[-1]}
    if done.returncode != 0:
        return {"name": name, "failed": done.stderr.strip()[-ERROR_CHARACTERS:]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def write_rows(rows: list[dict[str, Any]], output: Path) -> int:
    """Write them with date, commit, versions and machine; the exit status: 1 where one failed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"rows": rows, **provenance()}, indent=1))
    return 1 if any("failed" in row for row in rows) else 0
