"""How many threads or workers a loader is fastest with: each count tried once, for a moment.

Some loaders are faster with more workers than there are cores, some fail with them (FFCV). Each is compared
at its best.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.measure import Candidate, run_once, table

__all__ = ["Workers", "counts", "sweep", "use_cpus"]


@dataclass
class Workers:
    """Each candidate's count, and the images a second that each count gave; None where it failed."""

    chosen: dict[str, int]
    rates: dict[str, dict[int, float | None]] = field(default_factory=dict)

    def table(self) -> str:
        """What was tried, as Markdown."""
        tried = sorted({count for rates in self.rates.values() for count in rates})
        rows = []
        for name, rates in self.rates.items():
            cells = [f"{rate:.0f}" if (rate := rates.get(count)) else "-" for count in tried]
            rows.append([name, *cells, self.chosen[name]])
        return table(["images/s with so many workers", *map(str, tried), "chosen"], rows)


def counts(text: str) -> list[int]:
    """``1,2,4``; of an empty text 1, and once, one and a half times and twice the cores."""
    if text:
        return [int(part) for part in text.split(",")]
    cores = len(os.sched_getaffinity(0))
    return sorted({1, cores, cores + cores // 2, 2 * cores})


def use_cpus(number: int) -> None:
    """Run this process, and those that it starts, on the first ``number`` CPUs that it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if number > len(allowed):
        raise SystemExit(f"--cpus {number}: there are {len(allowed)}.")
    os.sched_setaffinity(0, allowed[:number])


def best(rates: Mapping[int, float | None]) -> int | None:
    """The count with the highest rate; None where all failed."""
    good = {count: rate for count, rate in rates.items() if rate is not None}
    return max(good, key=lambda count: good[count]) if good else None


def sweep(names: Sequence[str], tried: Sequence[int], at: Callable[[str, int], Candidate]) -> Workers:
    """Try every count of every candidate once, the candidates in turns.

    Args:
        names: the candidates.
        tried: the counts.
        at: the run of a candidate with a count.

    Returns:
        Each candidate's best count; of one that always failed the first count, with which it fails again,
        where its error is kept.
    """
    rates: dict[str, dict[int, float | None]] = {name: {} for name in names}
    for number, count in enumerate(tried):
        for name in names if number % 2 == 0 else names[::-1]:
            run = run_once(at(name, count))
            rates[name][count] = None if run.error else float(run.values["rate"])
            said = "failed" if run.error else f"{run.values['rate']:.0f} images/s"
            print(f"sweep {name} x{count}: {said}", file=sys.stderr, flush=True)
    return Workers({name: best(rates[name]) or tried[0] for name in names}, rates)
