"""The verdict in words: what limits a loop, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastload.diagnose.callables import lanes
from fastload.diagnose.examination import LEAST_GAIN, Examination, Examined, digits
from fastload.diagnose.facts import Fix, Sentence, Stage, Verdict
from fastload.diagnose.fixes.step import COPIES, STEP_HINTS

# ---- Sentences of every verdict ---------------------------------------------------------------------

ENOUGH = 0.95  # share of the step's rate from which on the step limits
_WAITS = 0.08  # share of the loop's time; waiting for less is negligible
_MUCH = 0.25  # share of the loop's time; more waiting counts, however fast the loader is on average
_FAR = 1.3  # times the step's rate
CLEAR = 0.10  # a gain that shows a cause
STEP_WORDS = "The training step is the bottleneck."
_SAID = 4  # fixes with a number that get a sentence


def worth_saying(fixes: Sequence[Fix], limit: str) -> tuple[Fix, ...]:
    """Return the fixes that gain something, the best first; only the step's, if it or its copies limit."""
    if limit in ("step", "transfer"):
        fixes = [fix for fix in fixes if fix.name in (COPIES, *STEP_HINTS)]
    worth = [fix for fix in fixes if fix.rate == 0 or fix.gain >= LEAST_GAIN]
    return tuple(sorted(worth, key=lambda fix: -fix.rate))


def rate_sentence(case: Examined, limit: str) -> Sentence:
    """Say what rate the step can take, and what rate the loader delivers."""
    run = f"The loader was run without a step, again and again for {case.budget.run:.1f} s: "
    run += f"{digits(case.loader_rate)} images/s."
    if case.step is None and limit == "step" and case.loop is not None:
        waits = f"The loop waits for {case.loop.wait_share:.0%} of its time"
        return Sentence(f"{waits}: the data pipeline is not the bottleneck.", run)
    if case.step is None:
        return Sentence(f"The loader delivers {digits(case.loader_rate)} images/s.", run)
    step = f"The step can take {digits(case.step_rate)} images/s"
    could = f"{step}; the loader can deliver {digits(case.loader_rate)}"
    evidence = f"{case.step.evidence} {run}"
    if limit == "step":
        return Sentence(f"{could}: the data pipeline is not the bottleneck.", evidence)
    if limit == "transfer":
        return Sentence(f"{could}.", evidence)
    return Sentence(f"{step}; the loader delivers {digits(case.now)}.", evidence)


def step_limits(case: Examined) -> bool:
    """Whether a faster loader would not help: the loop hardly waits, or a slower loader would be enough."""
    waits = case.loop.wait_share if case.loop is not None else 0.0
    if case.loop is not None and waits < _WAITS:
        return True
    if case.step is None or waits >= _MUCH:
        return False
    enough = ENOUGH * case.step_rate
    slower = replace(case.base, rate=case.base.rate / _FAR)
    return case.now >= enough or case.whole(slower) >= enough


def step_or_copies(case: Examined, fixes: Sequence[Fix]) -> str | None:
    """Return "step", or "transfer" if the copies in it limit; None: something before the step limits."""
    if not step_limits(case):
        return None
    gain = next((fix.gain for fix in fixes if fix.name == COPIES), 0.0)
    return "transfer" if gain >= CLEAR else "step"


def copies_sentence(fixes: Sequence[Fix]) -> Sentence:
    """Say that copies to the device limit."""
    copies = next(fix for fix in fixes if fix.name == COPIES)
    return Sentence("Copying to the device is the bottleneck.", copies.evidence)


def quota_sentence(case: Examined) -> Sentence:
    """Say that the quota limits."""
    uses = f"The loader uses {case.base.rate * case.base.cpu:.2f} CPUs."
    text = f"The CPU quota is the bottleneck: it allows {case.cpus:g} of {case.mask} CPUs."
    return Sentence(text, f"{uses} The quota is the smallest of this process's cgroups.")


def crowd_sentence(case: Examined) -> Iterator[Sentence]:
    """Say that others use the CPUs, and what the loop would reach without them, if there are any."""
    if not case.is_crowded:
        return
    others = case.cpus - case.spare
    text = f"Note: other processes, or guests of the host, use {others:.1f} of {case.cpus:g} CPUs"
    quiet = case.quiet_rate(case.base)
    if quiet > case.now:
        text += f"; without them this loop would reach about {digits(quiet)} images/s"
    evidence = (
        f"{round(case.cpus)} busy threads of this process got {case.spare:.2f} of {case.cpus:g} CPUs. Causes "
        "are found by CPU time and by waits that are not for a CPU; gains are for the machine as it is."
    )
    yield Sentence(f"{text}.", evidence)


def fix_sentences(fixes: Sequence[Fix]) -> Iterator[Sentence]:
    """Say the best fixes with their numbers, then those without a number."""
    for fix in [fix for fix in fixes if fix.rate > 0][:_SAID]:
        price = f" Cost: {fix.price}." if fix.price else ""
        yield Sentence(f"{fix.words}: {gain_words(fix)}.", f"{fix.evidence}{price}")
    for fix in fixes:
        if fix.rate == 0:
            yield Sentence(f"{fix.words}.", fix.evidence)


def gain_words(fix: Fix) -> str:
    """Write a fix's rate and gain: a range, if no one number can be given."""
    quiet = f"; {digits(fix.quiet_rate)} on a quiet machine" if fix.quiet_rate > fix.rate else ""
    if not fix.is_range:
        return f"{digits(fix.rate)} images/s ({fix.gain:+.0%}{quiet})"
    now = fix.rate / (1 + fix.gain)
    low, high = digits(now * (1 + fix.low)), digits(now * (1 + fix.high))
    return f"{low} to {high} images/s ({fix.low:+.0%} to {fix.high:+.0%}{quiet})"


def left_out(case: Examined) -> Iterator[Sentence]:
    """Say what there was no time for, and what this machine could not try."""
    if case.budget.left_out:
        names = ", ".join(case.budget.left_out)
        more = f"The experiments had {case.budget.seconds:.0f} s."
        yield Sentence(
            f"Not tried, because time ran out: {names}. Try it in your program, or give the doctor more time "
            "(--seconds).",
            more,
        )
    for name, why in case.budget.failed:
        yield Sentence(f"Could not be tried here: {name}. {why}")


# ---- The verdict on a packed loader -----------------------------------------------------------------

_IDLE = 0.3  # threads that are busy for a smaller share of the time do not limit
_FULL = 0.8  # something else may hold up threads that are busy for a smaller share of the time


def judge(case: Examination, stages: Sequence[Stage], fixes: Sequence[Fix]) -> Verdict:
    """Give the verdict.

    Args:
        case: what was measured.
        stages: the capacities.
        fixes: all that were tried; those that gain little are left out.
    """
    limit = _limit(case, stages, fixes)
    worth = worth_saying(fixes, limit)
    sentences = (
        rate_sentence(case, limit),
        copies_sentence(worth) if limit == "transfer" else _cause(case, limit, stages),
        *fix_sentences(worth),
        *crowd_sentence(case),
        *left_out(case),
    )
    step = case.step.rate if case.step is not None else 0.0
    return Verdict(
        limit,
        case.now,
        case.loader_rate,
        step,
        sentences,
        worth,
        tuple(stages),
        case.loop,
        quiet_rate=case.quiet_rate(case.base),
    )


def _limit(case: Examination, stages: Sequence[Stage], fixes: Sequence[Fix]) -> str:
    if limit := step_or_copies(case, fixes):
        return limit
    if case.storage_rate < ENOUGH * case.base.rate:
        return "storage"
    rates = {stage.name: stage.rate for stage in stages}
    functions = min(("python", "collate"), key=lambda name: rates.get(name, float("inf")))
    if rates.get(functions, float("inf")) < _of_threads(case):
        return functions
    gains = {fix.name: fix.gain for fix in fixes}
    if gains.get("threads", 0.0) >= CLEAR:
        return "few-workers"
    if gains.get("quota", 0.0) >= CLEAR:
        return "quota"
    ahead = gains.get("prefetch", 0.0)
    if case.base.busy < _FULL and gains.get("batch-size", 0.0) >= max(CLEAR, ahead):
        return "batch-size"
    enough = case.step is not None and case.whole(case.base) >= ENOUGH * case.step_rate
    if enough or ahead >= CLEAR:
        return "prefetch"
    if case.base.threads and case.base.busy < _IDLE:
        return "unknown"
    of_threads = [name for name in ("decode", "transform") if name in rates]
    return min(of_threads, key=lambda name: rates[name], default="unknown")


def _cause(case: Examination, limit: str, stages: Sequence[Stage]) -> Sentence:
    base = case.base
    of = {stage.name: stage for stage in stages}
    busy = f"{base.threads} thread{'s' if base.threads != 1 else ''} busy {base.busy:.0%} of the time"
    if limit == "step":
        return Sentence(STEP_WORDS, f"The loop reached {digits(case.now)} images/s.")
    if limit == "quota":
        return quota_sentence(case)
    if limit == "storage":
        return Sentence(_of_storage(case), of["storage"].evidence)
    if limit == "few-workers":
        return Sentence(f"Too few threads: {busy}, for {case.cpus:g} CPUs.", of["loader"].evidence)
    if limit in ("python", "collate"):
        slowest = next(each for each in case.functions if each.collates == (limit == "collate"))
        what = "The collate function" if limit == "collate" else "Python"
        return Sentence(
            f"{what} is the bottleneck: {slowest.name} takes {1000 * slowest.seconds:.2f} ms per sample, and "
            f"{_at_once(lanes(case.subject))}; the core's threads could deliver {digits(_of_threads(case))} "
            "images/s.",
            of[limit].evidence,
        )
    if limit == "prefetch":
        text = f"Uneven samples are the bottleneck: {busy}, and otherwise waiting for room ahead."
        return Sentence(text, of["loader"].evidence)
    if limit == "batch-size":
        return Sentence(
            f"Small batches are the bottleneck: {busy}; the rest is the fixed cost of a batch, and each has "
            f"only {case.subject.batch_size} samples.",
            of["loader"].evidence,
        )
    if limit in ("decode", "transform"):
        what = "Decoding is the bottleneck" if limit == "decode" else "The transform is the bottleneck"
        part = of[limit].cpu / base.seconds if base.seconds > 0 else 0.0
        return Sentence(f"{what}: {busy}, {part:.0%} of that in this stage.", of[limit].evidence)
    text = f"The bottleneck was not found: {busy}, so it is neither reading nor decoding."
    return Sentence(text, of["loader"].evidence)


def _of_storage(case: Examination) -> str:
    storage, wanted = case.storage, min(case.base.rate, case.step_rate)
    assert storage is not None
    delivers = (
        f"delivers {digits(storage.bytes / 1e6)} MB/s for random records, {digits(storage.random)} images/s"
    )
    if storage.line:
        needs = wanted * case.cold * storage.bytes / storage.random
        return (
            f"Storage is the bottleneck: the link to {storage.line} {delivers}; the loader needs "
            f"{digits(needs / 1e6)} MB/s for {digits(wanted)}."
        )
    where = "a network file system" if storage.remote else "the disk"
    return f"Storage is the bottleneck: {where} {delivers}; from memory it would be {digits(case.base.rate)}."


def _at_once(count: int) -> str:
    return "one runs at a time" if count == 1 else f"{count} run at a time"


def _of_threads(case: Examination) -> float:
    """Return the samples per second of the core's threads, if nothing held them up."""
    return case.base.threads / case.base.seconds if case.base.seconds > 0 else float("inf")
