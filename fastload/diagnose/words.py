"""The sentences that every verdict has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastload.diagnose.case import LEAST_GAIN, Examined, shown
from fastload.diagnose.facts import Fix, Sentence
from fastload.diagnose.fixes.copies import COPIES
from fastload.diagnose.fixes.step import STEP_HINTS

__all__ = [
    "CLEAR",
    "ENOUGH",
    "STEP_WORDS",
    "copies_sentence",
    "fix_sentences",
    "left_out",
    "machine_limit",
    "machine_sentence",
    "rate_sentence",
    "step_or_copies",
    "worth_saying",
]

ENOUGH = 0.95  # of the step's rate: then the step is what limits
_WAITS = 0.08  # of the loop's time: less is not worth a word
_MUCH = 0.25  # of the loop's time: it waits, whatever the loader could do on the average
_FAR = 1.3  # times the step's rate
CLEAR = 0.10  # a gain that shows a cause
STEP_WORDS = "The training step is the bottleneck."
_SAID = 4  # fixes with a number that are said in words


def worth_saying(fixes: Sequence[Fix], limit: str) -> tuple[Fix, ...]:
    """Those that gain something, the best first; where the step limits, or its copies, what concerns it."""
    if limit in ("step", "transfer"):
        fixes = [fix for fix in fixes if fix.name in (COPIES, *STEP_HINTS)]
    worth = [fix for fix in fixes if fix.rate == 0 or fix.gain >= LEAST_GAIN]
    return tuple(sorted(worth, key=lambda fix: -fix.rate))


def rate_sentence(case: Examined, limit: str) -> Sentence:
    """What the step could take and what the loader gives."""
    run = f"The loader was run without a step, again and again for {case.budget.run:.1f} s: "
    run += f"{shown(case.loader_rate)} images/s."
    if case.step is None and limit == "step" and case.loop is not None:
        waits = f"The loop waits for {case.loop.wait_share:.0%} of its time"
        return Sentence(f"{waits}: the data pipeline is not the bottleneck.", run)
    if case.step is None:
        return Sentence(f"The loader gives {shown(case.loader_rate)} images/s.", run)
    step = f"The step could take {shown(case.step_rate)} images/s"
    evidence = f"{case.step.evidence} {run}"
    if limit == "step":
        enough = (
            f"{step}, the loader could give {shown(case.loader_rate)}: the data pipeline is not the "
            "bottleneck."
        )
        return Sentence(enough, evidence)
    if limit == "transfer":
        return Sentence(f"{step}, the loader could give {shown(case.loader_rate)}.", evidence)
    return Sentence(f"{step}, the loader gives {shown(case.now)}.", evidence)


def step_limits(case: Examined) -> bool:
    """Whether a faster loader would be of no use: the loop hardly waits, or could do with a slower one."""
    waits = case.loop.wait_share if case.loop is not None else 0.0
    if case.loop is not None and waits < _WAITS:
        return True
    if case.step is None or waits >= _MUCH:
        return False
    enough = ENOUGH * case.step_rate
    slower = replace(case.base, rate=case.base.rate / _FAR)
    return case.now >= enough or case.whole(slower) >= enough


def step_or_copies(case: Examined, fixes: Sequence[Fix]) -> str | None:
    """Whether the step limits, or the copies to the device that are in it; None: something before it."""
    if not step_limits(case):
        return None
    gain = next((fix.gain for fix in fixes if fix.name == COPIES), 0.0)
    return "transfer" if gain >= CLEAR else "step"


def copies_sentence(fixes: Sequence[Fix]) -> Sentence:
    """That copies to the device limit."""
    copies = next(fix for fix in fixes if fix.name == COPIES)
    return Sentence("Copying to the device is the bottleneck.", copies.evidence)


def machine_limit(fixes: Sequence[Fix]) -> str | None:
    """What of the machine limits, by the fixes that would be needed."""
    gains = {fix.name: fix.gain for fix in fixes}
    return next((name for name in ("quota", "neighbour") if gains.get(name, 0.0) >= CLEAR), None)


def machine_sentence(case: Examined, limit: str) -> Sentence:
    """That the quota, or others' work, limits."""
    takes = f"The loader takes {case.base.rate * case.base.cpu:.2f} CPUs."
    if limit == "quota":
        text = f"The CPU quota is the bottleneck: it allows {case.cpus:g} of {case.mask} CPUs."
        return Sentence(text, f"{takes} The quota is the smallest of this process's cgroups.")
    text = (
        f"Other processes are using the CPUs: this one got {case.spare:.1f} of {case.cpus:g} when it asked "
        "for all."
    )
    return Sentence(text, takes)


def fix_sentences(fixes: Sequence[Fix]) -> Iterator[Sentence]:
    """The best ones with their numbers, then what has none."""
    for fix in [fix for fix in fixes if fix.rate > 0][:_SAID]:
        price = f" Its price: {fix.price}." if fix.price else ""
        yield Sentence(
            f"{fix.words}: {shown(fix.rate)} images/s ({fix.gain:+.0%}).", f"{fix.evidence}{price}"
        )
    for fix in fixes:
        if fix.rate == 0:
            yield Sentence(f"{fix.words}.", fix.evidence)


def left_out(case: Examined) -> Iterator[Sentence]:
    """What there was no time for, and what this machine did not let the doctor try."""
    if case.budget.left_out:
        names = ", ".join(case.budget.left_out)
        more = f"There were {case.budget.seconds:.0f} s; with more of them more is tried."
        yield Sentence(f"Not tried, for lack of time: {names}.", more)
    for name, why in case.budget.failed:
        yield Sentence(f"Could not be tried here: {name}. {why}")
