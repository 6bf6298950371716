"""What each stage of a loader could do if nothing else limited it."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Stage
from fastload.diagnose.python_part import lanes

__all__ = ["measured_stages"]


def measured_stages(case: Case) -> tuple[Stage, ...]:
    """The capacities, from storage to step."""
    return tuple(_stages(case))


def _stages(case: Case) -> Iterator[Stage]:
    base, storage = case.base, case.storage
    if storage is not None:
        warm = f"; {shown(storage.warm)} by one thread from memory" if not storage.line else ""
        yield Stage(
            "storage",
            storage.random,
            evidence=f"{'Cold' if not storage.line else storage.line}: {shown(storage.random)} records/s at "
            f"random, {shown(storage.orderly)} in order, one takes {1000 * storage.latency:.2f} ms{warm}. "
            f"{storage.evidence}.",
        )
    for name in ("decode", "transform"):
        seconds = base.stages.get(name, 0.0)
        if seconds > 0:
            usable = min(float(base.threads), case.cpus)
            yield Stage(
                name,
                usable / seconds,
                seconds,
                f"{1000 * seconds:.2f} ms a sample in each of {base.threads} threads, in the loader's own "
                f"run: {shown(1 / seconds)} images/s of one.",
            )
    for name, collates in (("python", False), ("collate", True)):
        functions = [one for one in case.functions if one.collates == collates]
        if functions:
            yield Stage(
                name,
                case.python_rate(collates),
                sum(one.cpu for one in functions),
                "; ".join(f"{one.name}: {1000 * one.seconds:.2f} ms a sample" for one in functions)
                + f". {lanes(case.subject)} at once.",
            )
    yield Stage(
        "loader",
        base.rate,
        base.cpu,
        f"Without a step, on records in memory: {shown(base.rate)} images/s, {1000 * base.cpu:.2f} ms of CPU "
        f"time a sample, threads at {base.busy:.2f} of their time.",
    )
    if case.step is not None:
        yield case.step
