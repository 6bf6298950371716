"""Filling the node's cache, or the page cache, before a job needs it: what ``fastload warm`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.opening import ENCODED, CacheUse, Tier, open_cache
from fastload.cache.root import PrivateFolder
from fastload.cache.settings import CacheSetting
from fastload.cache.tables import start_copies
from fastload.errors import CacheError
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.shard.dataset import PackedFiles

__all__ = ["PAGE_CACHE", "WarmJob", "WarmResult", "plan_jobs", "run_job"]

PAGE_CACHE = "page cache"
_POLL_SECONDS = 0.1
_TABLE_SECONDS = 0.005  # between two looks whether another process has copied a table

Ids: TypeAlias = npt.NDArray[np.int64]
Wanted: TypeAlias = Callable[[PackedFiles], Ids | None]


@dataclass
class WarmJob:
    """One packed dataset and where its records go."""

    dataset: PackedFiles
    place: str  # a cache file's path, PAGE_CACHE, or "" where nothing is to be done
    reason: str  # why there
    ids: Ids | None = None  # ascending: the records that are wanted; None: all
    left_out: int = 0  # records that are wanted, but for which a limit leaves no room
    cache: _C.CacheFile | None = None
    target: _C.FillTarget | None = None  # None: the place's own


@dataclass(frozen=True)
class WarmResult:
    """What became of a job."""

    seconds: float
    counts: dict[str, int]  # as ``_C.Filler.counts()`` gives them
    failures: list[tuple[int, str]]  # the first of them: sample id, reason

    @property
    def is_whole(self) -> bool:
        """Whether all records that were wanted are warm, but for those that cannot be read."""
        return self.counts["no_room_records"] == 0


def plan_jobs(
    datasets: Sequence[PackedFiles],
    setting: CacheSetting,
    wanted: Wanted,
    page_cache: bool = False,
    tier: Tier = ENCODED,
) -> list[WarmJob]:
    """Decide on the place of each dataset's records, and make the cache files.

    Args:
        datasets: what to warm.
        setting: "auto" chooses the better place; "on" is the node cache.
        wanted: the sample ids of a dataset that are wanted, ascending; None: all.
        page_cache: the page cache, whatever the setting's mode; its limit counts.
        tier: the form in the node cache.

    Raises:
        CacheError: there is no room, or no place.
    """
    if page_cache:
        return _page_cache_jobs(datasets, wanted, setting.limit, ["asked for"] * len(datasets))
    use: CacheUse = open_cache(datasets, setting, tier)
    jobs, others = [], []
    for dataset, part in zip(datasets, use.parts, strict=True):
        if part.file is not None:
            jobs.append(WarmJob(dataset, part.file.path, part.reason, wanted(dataset), cache=part.file))
        elif part.nearer == PAGE_CACHE:
            others.append((dataset, part.reason))
        elif part.nearer:
            jobs.append(WarmJob(dataset, "", part.reason))
        else:
            raise CacheError(f"{dataset.folder}: {part.reason}.")
    found, reasons = [dataset for dataset, _ in others], [reason for _, reason in others]
    return jobs + _page_cache_jobs(found, wanted, setting.limit, reasons)


def run_job(job: WarmJob, threads: int, report: Callable[[dict[str, int]], None]) -> WarmResult:
    """Warm one dataset; other processes may do the same at the same time, and each record is read once.

    Args:
        threads: that read.
        report: called ten times a second with the counts so far.
    """
    began = time.monotonic()
    if not job.place:
        everything = {"records": len(job.dataset), "bytes": job.dataset.manifest.data_bytes}
        counts = {**dict.fromkeys(_COUNTS, 0), **everything}
        counts.update(there_records=counts["records"], there_bytes=counts["bytes"])
        return WarmResult(0.0, counts, [])
    filler = _C.Filler(job.dataset.reader, job.target or _target(job), *_claims(job), threads, job.ids)
    try:
        filler.start()
        # The index and the entry points as well, by this process or another one.
        copying = None if job.cache is None else start_copies(job.cache, job.dataset.folder, _TABLE_SECONDS)
        while not filler.wait(_POLL_SECONDS):
            report(filler.counts())
        if copying is not None:
            copying.join()
    finally:
        filler.stop()
    counts = dict(filler.counts())
    report(counts)
    counts["no_room_records"] += job.left_out
    return WarmResult(time.monotonic() - began, counts, list(filler.failures()))


_COUNTS = (
    "records", "bytes", "no_room_records", "no_room_bytes", "there_records", "there_bytes", "put_records",
    "put_bytes", "read_bytes", "requests", "failed_records", "claimed_chunks",
)  # fmt: skip


def _target(job: WarmJob) -> _C.FillTarget:
    return _C.PageCacheTarget(job.dataset.reader) if job.cache is None else _C.CacheTarget(job.cache)


def _claims(job: WarmJob) -> tuple[str, int]:
    """A file that all who warm this set here share, and the first of its bytes that stand for sample ids."""
    if job.cache is not None:
        return job.cache.path, 0
    try:
        with PrivateFolder(CacheSetting().folder, create=True) as folder:
            return folder.claims_file(), int(job.dataset.id[:5], 16) << 40  # bytes of its own for each set
    except CacheError:
        return "", 0  # what two read at the same time the page cache reads once


def _page_cache_jobs(
    datasets: Sequence[PackedFiles], wanted: Wanted, limit: int | None, reasons: Sequence[str]
) -> list[WarmJob]:
    """With more than the limit, the same share of every set: the regions that reading ahead keeps there."""
    total = max(1, sum(dataset.manifest.data_bytes for dataset in datasets))
    share = (available_memory() * PAGE_CACHE_SHARE if limit is None else limit) / total
    jobs = []
    for dataset, reason in zip(datasets, reasons, strict=True):
        job = WarmJob(dataset, PAGE_CACHE, reason, wanted(dataset))
        if share < 1:
            entries = dataset.records.view(np.uint8).reshape(len(dataset), -1)
            kept = np.flatnonzero(_C.kept_records(entries, share)).astype(np.int64)
            ids = kept if job.ids is None else np.intersect1d(kept, job.ids, assume_unique=True)
            job.left_out = (len(dataset) if job.ids is None else len(job.ids)) - len(ids)
            job.ids = ids
        jobs.append(job)
    return jobs
