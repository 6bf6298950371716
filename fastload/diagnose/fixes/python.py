"""Python functions that hold a loader up: what it would give without each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.python_part import Function, without
from fastload.diagnose.trial import in_turns

__all__ = ["without_functions"]

_SHARE = 0.1  # of a sample's time: less is not worth a trial
_TRIED = 2


def without_functions(case: Case) -> Iterator[Fix]:
    """The slowest ones, each left out once."""
    for function in case.functions[:_TRIED]:
        if function.seconds < _SHARE / case.base.rate or not case.budget.allows(6, function.name):
            continue
        kind = "collate_fn" if function.collates else "callable"
        words = f"Without the {kind} {function.name}"
        if function.keep:
            words += f" (or in the core: {function.keep})"
        said = f"{1000 * function.seconds:.2f} ms a sample in Python{_lock(function)}"
        makers: dict[str, Callable[[], Any]] = {
            "now": case.subject.make,
            "without": partial(case.subject.make, **without(case.subject, function)),
        }
        try:
            found = in_turns(makers, case.subject.trial_batch, case.budget.run, step=case.step)
        except Exception as error:  # whatever follows it may need what it makes
            evidence = f"{said}. Nothing was measured without it: {type(error).__name__}: {error}"
            yield Fix(kind, f"{words} it would be more", 0.0, 0.0, evidence)
            continue
        now, then = found["now"], found["without"]
        evidence = f"{said}. {shown(now.rate)} images/s with it, {shown(then.rate)} without, in turns."
        price = "what it does has to be done elsewhere: in the core, on the device, or before packing"
        yield case.fix(kind, words, then, evidence, price, now)


def _lock(function: Function) -> str:
    if function.lock is None or function.lock < 0.5:
        return ""
    return f", and Python's lock is kept for {function.lock:.0%} of it"
