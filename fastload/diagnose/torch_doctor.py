"""The examination of a torch DataLoader: of use before anybody switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload.diagnose.case import proposals, shown
from fastload.diagnose.facts import Fix, Loop, Sentence, Stage, Verdict
from fastload.diagnose.fixes.torch_loader import TORCH_REGISTRY, TorchCase
from fastload.diagnose.spare import cpus_here
from fastload.diagnose.torch_subject import TorchSubject
from fastload.diagnose.trial import Budget, in_turns
from fastload.diagnose.words import (
    CLEAR,
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

__all__ = ["examine_torch"]


def examine_torch(
    loader: Any, loop: Loop | None, step: Stage | None, budget: Budget, folder: Path
) -> Verdict:
    """As :func:`fastload.diagnose.doctor.examine`."""
    subject = TorchSubject(loader)
    parts = tuple(subject.parts(budget.run))
    collate = subject.collate_seconds(budget.run / 2)
    if parts:
        subject.suit(1 / max(1e-6, sum(part.seconds for part in parts)))
    base = in_turns({"base": subject.make}, subject.trial_batch, 2 * budget.run, 2)["base"]
    if loop is not None and loop.rate > base.rate:  # it has reached that: the machine is busier now
        base = replace(base, rate=loop.rate)
    case = TorchCase(budget, folder, *cpus_here(budget), base, loop, step, subject, parts, collate)
    stages = tuple(_stages(case))
    fixes = proposals(TORCH_REGISTRY, case)
    limit = _limit(case, fixes)
    worth = worth_saying(fixes, limit)
    cause = copies_sentence(worth) if limit == "transfer" else _cause(case, limit)
    sentences = (rate_sentence(case, limit), cause, *fix_sentences(worth), *left_out(case))
    rate = step.rate if step is not None else 0.0
    return Verdict(limit, case.now, case.loader_rate, rate, sentences, worth, stages, loop)


def _stages(case: TorchCase) -> Iterator[Stage]:
    workers = min(max(1, case.subject.workers), max(1.0, case.cpus))
    names = dict.fromkeys(part.name for part in case.parts)
    for name in names:
        each = [part for part in case.parts if part.name == name]
        seconds = sum(part.seconds for part in each)
        evidence = "; ".join(f"{part.words}: {1000 * part.seconds:.2f} ms" for part in each)
        yield Stage(
            name, workers / max(1e-9, seconds), seconds, f"A sample, alone in this process: {evidence}."
        )
    if case.collate > 0:
        evidence = f"{1000 * case.collate:.3f} ms a sample, alone in this process."
        yield Stage("collate", workers / case.collate, case.collate, evidence)
    yield Stage(
        "loader",
        case.base.rate,
        case.base.cpu,
        f"Without a step, {case.subject.workers} workers: {shown(case.base.rate)} samples/s, "
        f"{1000 * case.base.cpu:.2f} ms of CPU time a sample.",
    )
    if case.step is not None:
        yield case.step


def _limit(case: TorchCase, fixes: Sequence[Fix]) -> str:
    if found := step_or_copies(case, fixes):
        return found
    seconds = dict.fromkeys(("decode", "transform", "python"), 0.0)
    for part in case.parts:
        seconds[part.name] += part.seconds
    slowest = max(seconds, key=lambda name: seconds[name])
    whole = sum(seconds.values())
    if case.collate > whole / 2:
        return "collate"
    if slowest == "python" and seconds["python"] > whole / 2 and len(case.parts) > 1:
        return "python"
    found = machine_limit(fixes)
    if found is not None:
        return found
    if any(fix.name == "workers" and fix.gain >= CLEAR for fix in fixes):
        return "threads"
    return slowest if whole > 0 else "unknown"


def _cause(case: TorchCase, limit: str) -> Sentence:
    workers = case.subject.workers
    count = f"{workers} worker{'s' if workers != 1 else ''}" if workers else "the loop's own thread"
    whole = sum(part.seconds for part in case.parts) + case.collate
    evidence = "; ".join(f"{part.words}: {1000 * part.seconds:.2f} ms" for part in case.parts)
    if limit == "step":
        return Sentence(STEP_WORDS, f"The loop reached {shown(case.now)} samples/s.")
    if limit in ("quota", "neighbour"):
        return machine_sentence(case, limit)
    if limit == "threads":
        return Sentence(f"Too few workers: with {count}, {case.cpus:g} CPUs are not kept busy.", evidence)
    if limit == "collate":
        share = case.collate / whole
        text = f"The collate function is the bottleneck: it takes {share:.0%} of a sample's time."
        return Sentence(text, evidence)
    if limit == "unknown":
        return Sentence("The bottleneck was not found.")
    of = [part for part in case.parts if part.name == limit]
    slowest = max(of, key=lambda part: part.seconds)
    what = {"decode": "Decoding", "transform": "The transform", "python": "Python code"}[limit]
    there = f"{sum(part.seconds for part in of) / whole:.0%} of it there ({slowest.words})"
    text = f"{what} is the bottleneck: {count} at {1000 * whole:.2f} ms per sample, {there}."
    return Sentence(text, evidence)
