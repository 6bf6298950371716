"""What limits a loop, and what would help, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix, Sentence, Stage, Verdict
from fastload.diagnose.python_part import lanes
from fastload.diagnose.words import (
    CLEAR,
    ENOUGH,
    STEP_WORDS,
    copies_sentence,
    fix_sentences,
    left_out,
    machine_limit,
    machine_sentence,
    rate_sentence,
    step_or_copies,
    worth_saying,
)

__all__ = ["judge"]

_IDLE = 0.3  # of their time at work: threads that cannot be what limits
_FULL = 0.8  # of their time at work: threads that something else may hold up


def judge(case: Case, stages: Sequence[Stage], fixes: Sequence[Fix]) -> Verdict:
    """The verdict.

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
        *left_out(case),
    )
    step = case.step.rate if case.step is not None else 0.0
    return Verdict(limit, case.now, case.loader_rate, step, sentences, worth, tuple(stages), case.loop)


def _limit(case: Case, stages: Sequence[Stage], fixes: Sequence[Fix]) -> str:
    if found := step_or_copies(case, fixes):
        return found
    if case.storage_rate < ENOUGH * case.base.rate:
        return "storage"
    rates = {stage.name: stage.rate for stage in stages}
    functions = min(("python", "collate"), key=lambda name: rates.get(name, float("inf")))
    if rates.get(functions, float("inf")) < _of_threads(case):
        return functions
    gains = {fix.name: fix.gain for fix in fixes}
    if gains.get("threads", 0.0) >= CLEAR:
        return "threads"
    found = machine_limit(fixes)
    if found is not None:
        return found
    ahead = gains.get("prefetch", 0.0)
    if case.base.busy < _FULL and gains.get("batch-size", 0.0) >= max(CLEAR, ahead):
        return "batch"
    enough = case.step is not None and case.whole(case.base) >= ENOUGH * case.step_rate
    if enough or ahead >= CLEAR:
        return "prefetch"
    if case.base.threads and case.base.busy < _IDLE:
        return "unknown"
    of_threads = [name for name in ("decode", "transform") if name in rates]
    return min(of_threads, key=lambda name: rates[name], default="unknown")


def _cause(case: Case, limit: str, stages: Sequence[Stage]) -> Sentence:
    base = case.base
    of = {stage.name: stage for stage in stages}
    threads = f"{base.threads} thread{'s' if base.threads != 1 else ''}"
    if limit == "step":
        return Sentence(STEP_WORDS, f"The loop reached {shown(case.now)} images/s.")
    if limit in ("quota", "neighbour"):
        return machine_sentence(case, limit)
    if limit == "storage":
        return Sentence(_of_storage(case), of["storage"].evidence)
    if limit == "threads":
        return Sentence(
            f"Too few threads: {threads} at {base.busy:.2f} of their time, for {case.cpus:g} CPUs.",
            of["loader"].evidence,
        )
    if limit in ("python", "collate"):
        slowest = next(one for one in case.functions if one.collates == (limit == "collate"))
        what = "The collate function" if limit == "collate" else "Python"
        return Sentence(
            f"{what} is the bottleneck: {slowest.name} takes {1000 * slowest.seconds:.2f} ms per sample, and "
            f"{_at_once(lanes(case.subject))}; the core's threads could give {shown(_of_threads(case))} "
            "images/s.",
            of[limit].evidence,
        )
    if limit == "prefetch":
        return Sentence(
            f"Uneven samples are the bottleneck: {threads} at {base.busy:.2f} of their time, waiting for "
            "room ahead.",
            of["loader"].evidence,
        )
    if limit == "batch":
        return Sentence(
            f"Small batches are the bottleneck: {threads} at {base.busy:.2f} of their time; the rest is what "
            f"a batch costs, whatever is in it, and each has {case.subject.batch_size}.",
            of["loader"].evidence,
        )
    if limit in ("decode", "transform"):
        what = "Decoding is the bottleneck" if limit == "decode" else "The transform is the bottleneck"
        part = of[limit].cpu / base.seconds if base.seconds > 0 else 0.0
        return Sentence(
            f"{what}: {threads} at {base.busy:.2f} of their time, {part:.0%} of it there.", of[limit].evidence
        )
    return Sentence(
        f"The bottleneck was not found: {threads} are at work for {base.busy:.2f} of their time, so it is "
        "neither reading nor decoding.",
        of["loader"].evidence,
    )


def _of_storage(case: Case) -> str:
    storage, wanted = case.storage, min(case.base.rate, case.step_rate)
    assert storage is not None
    given = f"gives {shown(storage.bytes / 1e6)} MB/s of records at random, {shown(storage.random)} images/s"
    if storage.line:
        needs = wanted * case.cold * storage.bytes / storage.random
        return (
            f"Storage is the bottleneck: the line to {storage.line} {given}; the loader needs "
            f"{shown(needs / 1e6)} MB/s for {shown(wanted)}."
        )
    where = "a network file system" if storage.remote else "the disk"
    return f"Storage is the bottleneck: {where} {given}; from memory it would be {shown(case.base.rate)}."


def _at_once(count: int) -> str:
    return "one runs at a time" if count == 1 else f"{count} run at a time"


def _of_threads(case: Case) -> float:
    """Samples per second of the core's threads, if nobody held them up."""
    return case.base.threads / case.base.seconds if case.base.seconds > 0 else float("inf")
