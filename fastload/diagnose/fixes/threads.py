"""More decoding threads, and more cores for them."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.tuned import by_itself
from fastload.diagnose.trial import in_turns

__all__ = ["more_cores", "more_threads"]

_BUSY = 0.9  # of the CPUs' time: more of them would be used
_MORE = 2


def more_threads(case: Case) -> Iterator[Fix]:
    """As many as there are CPUs, where there are fewer."""
    subject, wanted = case.subject, int(case.cpus)
    if subject.threads >= wanted or not case.budget.allows(6, "more threads"):
        return
    found = in_turns(
        {"now": subject.make, "more": lambda: subject.make(num_workers=wanted)},
        subject.trial_batch,
        case.budget.run,
        step=case.step,
    )
    now, more = found["now"], found["more"]
    fix = case.fix(
        "threads",
        f"num_workers={wanted}",
        more,
        f"num_workers={subject.threads} gave {shown(now.rate)} images/s and num_workers={wanted} "
        f"{shown(more.rate)}, in turns, without a step.",
        base=now,
    )
    yield fix
    yield from by_itself(case, fix)


def more_cores(case: Case) -> Iterator[Fix]:
    """Two CPUs more, where those that are there are at work: computed, as they cannot be tried."""
    base = case.base
    if case.subject.threads < int(case.cpus) or base.rate * base.cpu < _BUSY * case.cpus:
        return
    cpus = case.cpus + _MORE
    yield Fix(
        "cores",
        "Two more cores",
        min(case.step_rate, case.now * cpus / case.cpus),
        min(case.step_rate / case.now, cpus / case.cpus) - 1,
        f"Computed, not tried: a sample takes {1000 * base.cpu:.2f} ms of CPU time, and "
        f"{base.rate * base.cpu:.1f} of {case.cpus:g} CPUs were at work.",
        "CPUs",
    )
