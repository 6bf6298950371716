"""The examination of a loader: its stages measured, fixes tried, and the verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastload.cache.disk import planned_disk_bytes
from fastload.cache.opening import FIRST, planned_bytes
from fastload.dataset.views import SourceKind
from fastload.diagnose.attribution import Attribution
from fastload.diagnose.callables import lanes, python_functions
from fastload.diagnose.examination import Examination, cpus_here, digits, proposals
from fastload.diagnose.facts import Loop, Stage, Verdict
from fastload.diagnose.fixes import REGISTRY
from fastload.diagnose.storage import Storage, measure_line, measure_storage
from fastload.diagnose.torch_verdict import examine_torch
from fastload.diagnose.trial import Budget, LoaderUnderTest, Runner, Trial, in_turns, quiet
from fastload.diagnose.verdict import judge
from fastload.loader.view import view_of
from fastload.machine.generators import kept
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.machine.temporary import TemporaryFolder

# ---- Capacities of the stages -----------------------------------------------------------------------


def measured_stages(case: Examination) -> tuple[Stage, ...]:
    """Return what each stage could do if nothing else limited it, from storage to step."""
    return tuple(_stages(case))


def _stages(case: Examination) -> Iterator[Stage]:
    base, storage = case.base, case.storage
    if storage is not None:
        warm = f"; {digits(storage.warm)} by one thread from memory" if not storage.line else ""
        yield Stage(
            "storage",
            storage.random,
            evidence=f"{'Cold' if not storage.line else storage.line}: {digits(storage.random)} records/s at "
            f"random, {digits(storage.orderly)} in order, {1000 * storage.latency:.2f} ms for one{warm}. "
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
                f"{1000 * seconds:.2f} ms per sample in each of {base.threads} threads, in the loader's own "
                f"run: {digits(1 / seconds)} images/s per thread.",
            )
    for name, collates in (("python", False), ("collate", True)):
        functions = [function for function in case.functions if function.collates == collates]
        if functions:
            yield Stage(
                name,
                case.python_rate(collates),
                sum(function.cpu for function in functions),
                "; ".join(f"{each.name}: {1000 * each.seconds:.2f} ms per sample" for each in functions)
                + f". {lanes(case.subject)} at once.",
            )
    yield Stage(
        "loader",
        base.rate,
        base.cpu,
        f"Without a step, on records in memory: {digits(base.rate)} images/s, {1000 * base.cpu:.2f} ms of "
        f"CPU time per sample, threads busy {base.busy:.0%} of the time.",
    )
    if case.step is not None:
        yield case.step


# ---- The examination --------------------------------------------------------------------------------

_READS = 0.5  # share of a record's bytes per sample; a watched loop that read more from storage is cold
_WAITED = 0.6  # share of the time, or of the rate from memory, that shows that the loop waited for storage
_LINE = 3  # runs' time for reading from a store, whose connections start slowly
_MEMORY = "/dev/shm"


def examine(
    loader: Any,
    loop: Loop | None = None,
    step: Stage | None = None,
    seconds: float = 60.0,
    attribution: Attribution | None = None,
    places: tuple[str | None, str] = (None, _MEMORY),
) -> Verdict:
    """Say why a loop waits for this loader, and what would help.

    Nothing of the user's is changed: experiments run on new loaders, made with this one's arguments, and
    write into a temporary folder.

    Args:
        loader: fastload's or torch's DataLoader; it is not iterated.
        loop: a watched training loop over it.
        step: the step alone.
        seconds: approximate time limit.
        attribution: where the loop's time went; None: it was not profiled.
        places: where temporary folders are made, on disk (None: where the system has them) and in memory.
    """
    budget = Budget(seconds)
    with _folders(*places) as (folder, memory), quiet(), kept():
        step = step or _step_of(loop)
        view = view_of(loader)
        if view is None or view.kind is not SourceKind.PACKED:
            return examine_torch(loader, loop, step, budget, folder, attribution)
        subject = LoaderUnderTest(view, memory)
        subject.suit(_first_rate(subject, budget))
        base = in_turns({"base": subject.make}, subject.trial_batch, budget.run)["base"]
        if loop is not None and loop.rate > base.rate:  # the machine is busier now than it was then
            base = replace(base, rate=loop.rate)
        storage = _storage_of(subject, budget)
        cold = _cold_share(subject, loop)
        storage = _as_watched(storage, subject, loop, base) if cold > 0 else storage
        functions = python_functions(subject, budget.run)
        case = Examination(
            budget, folder, *cpus_here(budget), base, loop, step, subject, memory, functions, storage, cold
        )
        stages = measured_stages(case)
        fixes = proposals(REGISTRY, case)
        return replace(judge(case, stages, fixes), attribution=attribution)


def _step_of(loop: Loop | None) -> Stage | None:
    """Return the step as it ran in the loop; None with a device, whose work continues after the step."""
    if loop is None or len(loop.step) == 0 or loop.notes.get("cuda"):
        return None
    seconds = float(np.median(loop.step))
    if seconds <= 0:
        return None
    samples = loop.batch_size * len(loop.step)
    return Stage(
        "step",
        loop.batch_size / seconds,
        loop.loop_cpu / samples,
        f"{1000 * seconds:.1f} ms from a batch's arrival until the next one was asked for, the median of "
        f"{len(loop.step)} in the loop itself.",
    )


def _first_rate(subject: LoaderUnderTest, budget: Budget) -> float:
    """Return roughly how fast the loader is, in small batches."""
    runner = Runner(subject.make(batch_size=min(8, subject.trial_batch)), subject.trial_batch)
    try:
        first: Trial = runner.run(budget.run / 2)
    finally:
        runner.close()
    return first.rate


def _storage_of(subject: LoaderUnderTest, budget: Budget) -> Storage | None:
    if subject.in_store:
        return measure_line(subject, _LINE * budget.run) if subject.dataset is not subject.given else None
    return measure_storage(subject, budget.run)


def _cold_share(subject: LoaderUnderTest, loop: Loop | None) -> float:
    """Return the share of the records that comes from storage: as watched, or by the memory available."""
    if subject.in_store:
        return _fetched_share(subject)
    if loop is not None and loop.read_bytes is not None:
        samples = max(1, loop.batch_size * len(loop.wait))
        share = loop.read_bytes / samples / subject.record_bytes
        return min(1.0, share) if share >= _READS else 0.0
    room = PAGE_CACHE_SHARE * available_memory()
    return 0.0 if subject.data_bytes <= room else 1 - room / subject.data_bytes


def _fetched_share(subject: LoaderUnderTest) -> float:
    """Return the share that a store is asked for, by the counts of the loader's caches, or by their room."""
    cache = subject.loader.stats()["cache"]
    disk = cache.get("disk", {})
    hits = cache.get("hits", 0) + disk.get("hits", 0)
    missed = disk["misses"] if "misses" in disk else cache.get("misses", 0)
    if hits + missed:
        return float(missed / (hits + missed))
    setting, parts = subject.options.cache, subject.given.parts
    kept = planned_bytes(parts, setting)
    if setting.disk is not None:
        kept += planned_disk_bytes(parts, setting.disk, FIRST)
    return max(0.0, 1 - kept / max(1, subject.data_bytes))


def _as_watched(
    storage: Storage | None, subject: LoaderUnderTest, loop: Loop | None, base: Trial
) -> Storage | None:
    """Return storage as fast as it was in the loop, if the loop waited for it."""
    if storage is None or subject.in_store or loop is None or not loop.read_bytes:
        return storage  # the system does not count what a store sends as reads
    if loop.wait_share < _WAITED:
        return storage
    per_second = loop.read_bytes / loop.seconds
    if loop.rate > _WAITED * base.rate or per_second > storage.bytes:
        return storage
    share = per_second / storage.bytes
    evidence = f"{storage.evidence}; in the loop it gave {per_second / 1e6:.1f} MB/s"
    random, orderly = storage.random * share, storage.orderly * share
    return replace(storage, random=random, orderly=orderly, bytes=per_second, evidence=evidence)


@contextmanager
def _folders(disk: str | None, shared: str) -> Iterator[tuple[Path, Path]]:
    """Make a folder for experiments, and one in memory (if possible, else the same); remove both after."""
    with TemporaryFolder("doctor", disk) as folder:
        if not os.access(shared, os.W_OK):
            yield folder, folder
            return
        with TemporaryFolder("doctor", shared) as memory:
            yield folder, memory
