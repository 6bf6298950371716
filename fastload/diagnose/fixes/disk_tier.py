"""A tier on a local disk, for sets that are far away and have no room in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fastload._native import _C
from fastload.cache.settings import parse_setting
from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.stored import amount
from fastload.diagnose.replica import Replica, can_be_replicated
from fastload.diagnose.storage import RangeReader

__all__ = ["on_local_disk"]

_LEFT = 0.9  # of a disk's free bytes that a tier is proposed to take
_LEAST = 0.1  # of the set that must have room there
_SAMPLE = 64 << 20  # bytes that are written to find out how fast the disk is
_WRITING = 2.0  # seconds


def on_local_disk(case: Case) -> Iterator[Fix]:
    """What the disk under the temporary folder would give in place of the line, by what has room there."""
    storage, subject = case.storage, case.subject
    if storage is None or not storage.remote or case.cold <= 0 or subject.fits_memory:
        return
    if parse_setting(subject.arguments["cache"]).disk is not None or not can_be_replicated(subject.dataset):
        return
    kind = _C.file_system(str(case.folder))
    if kind["in_memory"] or kind["remote"]:
        return
    room = min(1.0, _LEFT * _free(case.folder) / max(1, subject.data_bytes))
    if room < _LEAST or not case.budget.allows(2 + _WRITING / case.budget.run, "a tier on disk"):
        return
    rate = _disk_rate(case)
    wanted = amount(room * subject.data_bytes).replace(" ", "")
    seconds = case.cold * ((1 - room) / storage.random + room / rate)
    yield case.fix(
        "disk-tier",
        f'cache="FOLDER_ON_A_LOCAL_DISK:{wanted}"',
        case.base,
        f"The disk of {case.folder.parent} gave {shown(rate)} of the set's records per second at random, "
        f"which were written there and dropped from memory; {room:.0%} of the set has room on it. From the "
        "second epoch on; another disk is another number.",
        f"{amount(room * subject.data_bytes)} of disk",
        storage_rate=1 / seconds,
    )


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _disk_rate(case: Case) -> float:
    """Records per second."""
    subject = case.subject
    replica = Replica(subject.dataset, case.folder / "tier")
    ids = replica.fill(subject.ids, _WRITING, min(_SAMPLE, _free(case.folder) // 4))
    replica.sync()
    ranges = [replica.place(sample) for sample in ids.tolist()]
    with RangeReader() as reader:
        rate = reader.rate(ranges, case.budget.run)
    return max(1.0, rate * len(ranges) / sum(length for _, _, length in ranges))
