"""bench_loader's result as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.measure import MINIMUM_REPEATS, Candidate, Run, failures, ratio, summarize, table, values_of

__all__ = ["tables"]

COLUMNS = (
    "candidate",
    "workers",
    "images/s",
    "ratio",
    "fastload / it",
    "images/CPU s",
    "first batch s",
    "after imports s",
    "peak PSS MB",
    "kB an image",
    "outside cores",
)
OURS = "fastload"


def tables(
    entries: Sequence[Candidate], runs: Sequence[Run], baseline: str, sizes: Mapping[str, float]
) -> str:
    """A Markdown table a case; failed candidates have their row too. ``sizes``: kB an image of each."""
    failed = failures(runs)
    sections = []
    for case in dict.fromkeys(entry.name.partition(" | ")[0] for entry in entries):
        rows = []
        for name in (entry.name for entry in entries if entry.name.startswith(f"{case} | ")):
            short = name.partition(" | ")[2]
            if name in failed:
                rows.append([short, "failed", *[""] * (len(COLUMNS) - 2)])
            else:
                rows.append([short, *cells(name, case, baseline, runs, f"{sizes[short]:.1f}")])
        sections.append(f"### {case}\n\n{table(COLUMNS, rows)}")
    if failed:
        reasons = "\n".join(f"- {name}: {error.strip().splitlines()[-1]}" for name, error in failed.items())
        sections.append(f"### failed\n\n{reasons}")
    return "\n\n".join(sections)


def times(runs: Sequence[Run], name: str, other: str) -> str:
    """How many times ``other``'s median rate ``name``'s is; "-" where one of them did not run."""
    rates = [values_of(runs, who, "rate") for who in (name, other)]
    if min(len(rate) for rate in rates) < MINIMUM_REPEATS:
        return "-"
    return f"{ratio(summarize(rates[0]), summarize(rates[1])):.2f}x"


def cells(name: str, case: str, baseline: str, runs: Sequence[Run], size: str) -> list[str]:
    """The figures of one row."""
    mine = [run for run in runs if run.name == name]
    rate = summarize(values_of(runs, name, "rate"))
    peak = summarize([run.memory.total for run in mine])
    parts = [summarize([getattr(run.memory, part) for run in mine]).median for part in ("anonymous", "file")]
    return [
        f"{values_of(runs, name, 'threads')[0]:.0f}",
        rate.text(),
        times(runs, name, f"{case} | {baseline}"),
        times(runs, f"{case} | {OURS}", name),
        summarize(values_of(runs, name, "rate_per_cpu")).text(),
        summarize(values_of(runs, name, "first_batch")).text(2),
        summarize(values_of(runs, name, "first_after_imports")).text(2),
        f"{peak.text()} ({parts[0]:.0f} + {parts[1]:.0f})",
        size,
        f"{max(run.outside_cores for run in mine):.2f}",
    ]
