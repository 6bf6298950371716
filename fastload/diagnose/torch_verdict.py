"""The verdict on a torch loader: the evidence, the first cause that it shows, and what was tried."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastload.diagnose.attribution import Attribution, Place, attributed
from fastload.diagnose.causes import (
    SAID,
    STARTS,
    Cause,
    Evidence,
    cause_of,
    headline,
    place_of,
    places_by_kind,
)
from fastload.diagnose.examination import cpus_here, digits, proposals
from fastload.diagnose.facts import Fix, Loop, Sentence, Stage, Verdict
from fastload.diagnose.fixes.step import COPIES, STEP_HINTS
from fastload.diagnose.fixes.torch import SHORT, TORCH_REGISTRY, TorchExamination, whole_rate
from fastload.diagnose.sampling import Profile
from fastload.diagnose.torch_loader import TorchLoaderUnderTest
from fastload.diagnose.trial import Budget, Trial, in_turns
from fastload.diagnose.verdict import (
    copies_sentence,
    crowd_sentence,
    fix_sentences,
    left_out,
    quota_sentence,
    rate_sentence,
    step_limits,
    worth_saying,
)

_TICKS = 40  # fewer say nothing
_ROUNDS = 2
_STEP_KINDS = ("step", "sync", "logging", "copies", "feed")


def examine_torch(
    loader: Any,
    loop: Loop | None,
    step: Stage | None,
    budget: Budget,
    folder: Path,
    attribution: Attribution | None = None,
) -> Verdict:
    """Do what :func:`fastload.diagnose.doctor.examine` does, for a torch loader."""
    subject = TorchLoaderUnderTest(loader)
    seconds = _sample_seconds(subject, loop, budget)
    subject.keeps_workers = _keeps_workers(subject, loop)
    if subject.keeps_workers:  # else passes would have more batches
        subject.suit(1 / max(1e-6, seconds))
    base, attribution = _base(subject, budget, attribution)
    if loop is not None and whole_rate(loop) > base.rate:  # the machine is busier now than it was then
        base = replace(base, rate=whole_rate(loop))
    evidence = evidence_of(subject, loop, attribution, seconds)
    case = TorchExamination(
        budget, folder, *cpus_here(budget), base, loop, step, subject, evidence, attribution
    )
    data = not step_limits(case) or evidence.starting + evidence.first > STARTS
    case.evidence = replace(
        evidence, is_limited_by_data=data, cpus=case.cpus, is_step_slower=case.step_rate < base.rate
    )
    fixes = proposals(TORCH_REGISTRY, case)
    gains = {fix.name: max(fix.gain, 0.0) for fix in fixes}
    case.evidence = replace(
        case.evidence, gains=gains, copies=gains.get(COPIES, 0.0), limited=gains.get("quota", 0.0)
    )
    cause = cause_of(case.evidence)
    return _verdict(case, cause, _worth(cause, fixes))


def _verdict(case: TorchExamination, cause: Cause, fixes: tuple[Fix, ...]) -> Verdict:
    sentences = (
        rate_sentence(case, "step" if cause.branch == "step" else cause.key),
        _cause_sentence(case, cause, fixes),
        *_advice(cause),
        *fix_sentences(fixes),
        *crowd_sentence(case),
        *left_out(case),
    )
    return Verdict(
        cause.key,
        case.now,
        case.loader_rate,
        case.step.rate if case.step is not None else 0.0,
        sentences,
        fixes,
        tuple(_stages(case)),
        case.loop,
        place_of(cause, case.evidence),
        case.quiet_rate(case.base),
        case.attribution,
    )


def _worth(cause: Cause, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Return the fixes worth saying; of those for the data none, if the step limits."""
    if cause.branch != "step":
        return worth_saying(fixes, cause.key)
    of_step = (COPIES, *STEP_HINTS, "line-logging", "line-sync", "batch-size")
    return worth_saying([fix for fix in fixes if fix.name in of_step], "")


def _advice(cause: Cause) -> Iterator[Sentence]:
    if cause.fix and cause.key not in ("step", "unknown"):
        yield Sentence(f"What helps: {cause.fix}.", f"Expected gain: {cause.gain}.")


def _cause_sentence(case: TorchExamination, cause: Cause, fixes: Sequence[Fix]) -> Sentence:
    if cause.key == "quota":
        return quota_sentence(case)
    if cause.key == "transfer" and any(fix.name == COPIES for fix in fixes):
        return copies_sentence(fixes)
    return Sentence(headline(cause, case.evidence), _shares_words(case))


def _shares_words(case: TorchExamination) -> str:
    """Say where the time goes, for the evidence."""

    def said(shares: Mapping[str, float], places: Sequence[Place]) -> str:
        kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items() if share >= SAID)
        named = "; ".join(f"{place} {place.share:.0%}" for place in places[:4] if place.share >= SAID)
        return f"{kinds or 'nothing was seen'}{named and f' ({named})'}"

    seen = case.attribution
    makers, loop = said(seen.makers, seen.places), said(seen.loop, seen.steps)
    return f"Of the time that samples take: {makers}. Of the loop's: {loop}."


# ---- Measuring --------------------------------------------------------------------------------------


def _keeps_workers(subject: TorchLoaderUnderTest, loop: Loop | None) -> bool:
    """Whether trials keep workers between passes: as the script does, unless a pass is long."""
    passed = subject.pass_samples
    if subject.of("persistent_workers") or loop is None or not passed:
        return True
    return passed / max(whole_rate(loop), 1e-9) > SHORT


def _sample_seconds(subject: TorchLoaderUnderTest, loop: Loop | None, budget: Budget) -> float:
    """Return the seconds that one process takes for a sample, its collation included."""
    if loop is None or loop.rate <= 0:
        return subject.item_seconds(budget.run / 2)
    return max(1, subject.workers) / loop.rate * (1.0 if subject.workers else loop.wait_share)


def _base(
    subject: TorchLoaderUnderTest, budget: Budget, attribution: Attribution | None
) -> tuple[Trial, Attribution]:
    """Run the loader without a step; if the loop was not profiled, profile this run."""
    known = attribution is not None and attribution.ticks >= _TICKS
    profile = Profile()
    if not known:
        profile.start()
    try:
        base = in_turns({"base": subject.make}, subject.trial_batch, budget.run, _ROUNDS)["base"]
    finally:
        profile.stop()
    if known and attribution is not None:
        return base, attribution
    return base, attributed(profile.seen, profile.began, time.monotonic())


def evidence_of(
    subject: TorchLoaderUnderTest, loop: Loop | None, attribution: Attribution, seconds: float
) -> Evidence:
    """Gather the evidence, but for what is tried."""
    makers, steps = places_by_kind(attribution)
    notes = loop.notes if loop is not None else {}
    rate = loop.rate if loop is not None else 0.0
    samples = loop.batch_size * len(loop.wait) if loop is not None else 0
    in_step = sum(attribution.loop.get(kind, 0.0) for kind in _STEP_KINDS)
    wait = 1 - in_step if attribution.ticks >= _TICKS else 0.0
    busy = attribution.busy
    swapped = _number(notes, "swapped_bytes") > _SWAPPED
    fixed = notes.get("fixed_share")
    return Evidence(
        wait=max(wait, loop.wait_share if loop is not None else 0.0),
        starting=attribution.loop.get("starting", 0.0) if _number(notes, "passes") > 1 else 0.0,
        first=_first(loop),
        workers=subject.workers,
        persistent=bool(subject.of("persistent_workers")),
        batch_size=subject.batch_size,
        makers=attribution.makers,
        loop=attribution.loop,
        busy=busy,
        waits=attribution.waits,
        place=makers,
        step_place=steps,
        sample_seconds=seconds * (busy if rate else 1.0),
        sample_bytes=_sample_bytes(loop, samples),
        picture_side=_side(attribution),
        batch_side=int(_number(notes, "batch_side")),
        containers=attribution.containers,
        fixed=float(fixed) if isinstance(fixed, float) else None,
        swapping=attribution.waits.get("fault", 0.0) if swapped else 0.0,
        copied=_number(notes, "memory_copied_per_second"),
    )


def _sample_bytes(loop: Loop | None, samples: int) -> float:
    """Return the bytes that are read for a sample, from memory or storage; 0: not known."""
    if loop is None or not samples:
        return 0.0
    return max(_number(loop.notes, "asked_bytes"), float(loop.read_bytes or 0)) / samples


_SWAPPED = 4e6  # bytes


def _number(notes: Any, name: str) -> float:
    value = notes.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _first(loop: Loop | None) -> float:
    """Return the share of the loop's time that first batches of later passes take longer than others."""
    if loop is None:
        return 0.0
    firsts = loop.notes.get("first_batch_seconds")
    waits = list(firsts)[1:] if isinstance(firsts, (list, tuple)) else []
    if not waits:
        return 0.0
    later = len(loop.wait) - len(waits)
    usual = float(np.median(np.sort(loop.wait)[: max(later, 0)])) if later > 0 else 0.0
    more = float(sum(max(0.0, wait - usual) for wait in waits))
    return more / (loop.seconds + float(sum(waits)))


def _side(attribution: Attribution) -> int:
    sides = [(max(width, height), count) for (_, width, height, _), count in attribution.pictures.items()]
    if not sides:
        return 0
    sides.sort()
    middle = sum(count for _, count in sides) / 2
    passed = 0
    for side, count in sides:
        passed += count
        if passed >= middle:
            return side
    return sides[-1][0]


def _stages(case: TorchExamination) -> Iterator[Stage]:
    """Return what each kind of work could do if nothing else limited it."""
    workers = min(max(1, case.subject.workers), max(1.0, case.cpus))
    seconds = case.evidence.sample_seconds
    for kind, share in case.evidence.makers.items():
        if share >= SAID and seconds > 0:
            evidence = f"{share:.0%} of a sample's {1000 * seconds:.2f} ms, from the profile."
            yield Stage(kind, workers / (share * seconds), share * seconds, evidence)
    yield Stage(
        "loader",
        case.base.rate,
        case.base.cpu,
        f"Without a step, {case.subject.workers} workers: {digits(case.base.rate)} samples/s, "
        f"{1000 * case.base.cpu:.2f} ms of CPU time per sample.",
    )
    if case.step is not None:
        yield case.step
