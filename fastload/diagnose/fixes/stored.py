"""Fewer or better reads: block shuffle, memory, warming, decoded pictures kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastload._native import _C
from fastload.cache.settings import CacheSetting
from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.packed import sensible_side
from fastload.diagnose.subject import Subject
from fastload.diagnose.trial import in_turns
from fastload.machine.memory import available_memory

__all__ = ["amount", "decoded_cache", "from_memory", "in_blocks", "warmed"]

_SHARE = 0.5  # of the available memory that a cache may be proposed to take
_FILLING = 2.0  # seconds in which the sample of decoded pictures is filled


def amount(count: float) -> str:
    """Bytes in words."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.0f} KB"


def in_blocks(case: Case) -> Iterator[Fix]:
    """``shuffle="block"``, where storage is faster in order."""
    storage = case.storage
    if storage is None or case.cold <= 0 or case.subject.arguments["shuffle"] is not True:
        return
    base = case.base
    yield case.fix(
        "block",
        'shuffle="block"',
        base,
        f"Storage gave {shown(storage.random)} records/s at random and {shown(storage.orderly)} in order. "
        f"{storage.evidence}.",
        "another order: `fastload plan --shuffle block` says how well it mixes",
        storage_rate=storage.orderly / case.cold,
    )


def from_memory(case: Case) -> Iterator[Fix]:
    """The node's memory, for what comes from storage each epoch."""
    subject, base = case.subject, case.base
    if case.storage is None or case.cold <= 0:
        return
    room = min(1.0, _SHARE * available_memory() / max(1, subject.data_bytes))
    if room < 0.1 or subject.arguments["cache"] not in ("auto", "off", None):
        return
    words = 'cache="50%"' if room < 1 else f'cache="{amount(1.1 * subject.data_bytes).replace(" ", "")}"'
    left = case.cold * (1 - room)
    yield case.fix(
        "memory-cache",
        words,
        base,
        f"The loader gave {shown(base.rate)} images/s of records that are in memory; {room:.0%} of the set "
        "has room there. From the second epoch on.",
        f"{amount(min(subject.data_bytes, room * subject.data_bytes))} of memory",
        storage_rate=case.storage.random / left if left > 0 else float("inf"),
    )


def warmed(case: Case) -> Iterator[Fix]:
    """``fastload warm``, for the first epoch of a set that stays in memory afterwards."""
    storage, subject, base = case.storage, case.subject, case.base
    if storage is None or not subject.fits_memory or case.cold <= 0:
        return
    seconds = subject.data_bytes / max(1.0, storage.orderly * subject.record_bytes)
    yield case.fix(
        "warm",
        f"`fastload warm {subject.parts[0].where}` before the job",
        base,
        f"The loader gave {shown(base.rate)} images/s of records that are in memory; reading all "
        f"{amount(subject.data_bytes)} in order takes about {seconds:.0f} s.",
        f"{amount(subject.data_bytes)} of memory",
        storage_rate=float("inf"),
    )


def decoded_cache(case: Case) -> Iterator[Fix]:
    """Decoded pictures in memory, where the whole set has room."""
    subject, side = case.subject, sensible_side(case.subject)
    given = subject.arguments
    if side is None or given["cache_decoded"] is not None or given["backend"] != "native":
        return
    if not all(part.is_plain for part in subject.parts):
        return
    need = _decoded_bytes(subject, side)
    if need > _SHARE * available_memory() or not case.budget.allows(10, "decoded pictures in memory"):
        return
    ids = subject.ids[: int(max(32, _FILLING * case.base.rate))]
    setting = CacheSetting("on", limit=max(1 << 24, 2 * need), root=case.memory_folder)

    def cached() -> object:
        loader = subject.make(ids=ids, cache=setting, cache_decoded=side)
        for number, _ in enumerate(loader):
            if number * subject.trial_batch > len(ids):
                break
        return loader

    makers = {"now": lambda: subject.make(ids=ids), "cached": cached}
    found = in_turns(makers, subject.trial_batch, case.budget.run, step=case.step)
    now, then = found["now"], found["cached"]
    yield case.fix(
        "decoded-cache",
        f'cache_decoded={side}, cache="{amount(1.1 * need).replace(" ", "")}"',
        then,
        f"{len(ids)} pictures kept decoded in memory gave {shown(then.rate)} images/s, decoded anew "
        f"{shown(now.rate)}, in turns. From the second epoch on.",
        f"{amount(need)} of memory; pictures are scaled to {side} pixels before the crop",
        now,
        float("inf"),
    )


def _decoded_bytes(subject: Subject, side: int) -> int:
    """Bytes of the whole set, decoded."""
    total = 0
    for part in subject.parts:
        records = part.records
        width, height = (records[name].astype(np.uint32) for name in ("width", "height"))
        total += int(3 * np.prod(_C.bounded_sizes(width, height, side).astype(np.int64), axis=1).sum())
    return total
