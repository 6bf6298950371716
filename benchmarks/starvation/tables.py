"""bench_starvation's result as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from harness.measure import Run, failures, ratio, summarize, table, values_of
from harness.rounds import SKIPPED

__all__ = ["failed_feeds", "reason_of", "tables"]

COLUMNS = (
    "feed",
    "step, ms",
    "data wait, ms",
    "share",
    "images/s",
    "of synthetic",
    "CPU cores",
    "copies, ms a step",
    "hidden",
    "outside cores",
)
BOUND = "synthetic"


def reason_of(error: str) -> str:
    """The reason of a run that said "skipped: ..."; empty where it really failed."""
    if not error.startswith(f"exit status {SKIPPED}:"):
        return ""
    return error.strip().splitlines()[-1].rpartition("skipped: ")[2]


def failed_feeds(runs: Sequence[Run]) -> dict[str, str]:
    """Those that failed, without those that could not run here."""
    return {name: error for name, error in failures(runs).items() if not reason_of(error)}


def tables(runs: Sequence[Run], options: argparse.Namespace) -> str:
    """A table a model, then what did not run and why."""
    sections = []
    for model in options.models:
        names = [name for name in dict.fromkeys(run.name for run in runs) if name.startswith(f"{model} | ")]
        rows = [row(runs, name, f"{model} | {BOUND}") for name in names if name not in failures(runs)]
        title = (
            f"### {model}, batches of {options.batch}, {options.size}x{options.size}, AMP {options.amp}, "
            f"{options.device}, {options.threads} threads"
        )
        sections.append(f"{title}\n\n{table(COLUMNS, rows)}")
    missing = [
        f"- {name}: {reason_of(error) or 'FAILED: ' + error.strip().splitlines()[-1]}"
        for name, error in failures(runs).items()
    ]
    if missing:
        sections.append("Not measured:\n\n" + "\n".join(missing))
    return "\n\n".join(sections)


def row(runs: Sequence[Run], name: str, bound: str) -> list[str]:
    """One feed's figures."""
    mine = [run for run in runs if run.name == name]
    rate = summarize(values_of(runs, name, "rate"))
    bounds = values_of(runs, bound, "rate") if bound not in failures(runs) else []
    share = summarize([100 * value for value in values_of(runs, name, "wait_share")])
    copies = [run.values for run in mine if "copy_ms" in run.values]
    return [
        name.partition(" | ")[2],
        summarize(values_of(runs, name, "step_ms")).text(2),
        summarize(values_of(runs, name, "wait_ms")).text(2),
        f"{share.median:.1f}% [{share.low:.1f}-{share.high:.1f}]",
        rate.text(),
        f"{ratio(rate, summarize(bounds)):.3f}" if bounds else "-",
        summarize(values_of(runs, name, "cores")).text(1),
        f"{copies[0]['copy_ms']:.2f}" if copies else "-",
        f"{copies[0]['copy_hidden']:.0%}" if copies and "copy_hidden" in copies[0] else "-",
        f"{max(run.outside_cores for run in mine):.2f}",
    ]
