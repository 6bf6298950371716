"""Filling a node's cache, disk tier or page cache before a job needs it, as ``fastload warm`` does."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.disk import open_disk
from fastload.cache.folder import PrivateFolder
from fastload.cache.opening import (
    ENCODED,
    FIRST,
    CacheUse,
    First,
    Streams,
    Tier,
    kept_of,
    open_cache,
    start_copies,
    stream_bytes,
)
from fastload.cache.settings import CacheSetting, DiskSetting
from fastload.cache.tier_filling import TierFilling
from fastload.errors import CacheError
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.shard.dataset import PackedFiles

PAGE_CACHE = "page cache"
_POLL_SECONDS = 0.1
_TABLE_SECONDS = 0.005  # between two checks whether another process has copied a table
_PATIENCE = 60.0  # seconds for a process that has claimed records but stores none

Ids: TypeAlias = npt.NDArray[np.int64]
Wanted: TypeAlias = Callable[[PackedFiles], Ids | None]


@dataclass
class WarmJob:
    """One packed dataset and where its records go."""

    dataset: PackedFiles
    place: str  # the path of a cache file or a tier, PAGE_CACHE, or "" if nothing is to be done
    reason: str  # why there
    ids: Ids | None = None  # ascending: the wanted records; None: all
    left_out: int = 0  # wanted records that a limit leaves no room for
    cache: _C.CacheFile | None = None
    tier: _C.DiskTier | None = None
    target: _C.FillTarget | None = None  # None: the place's own
    field: str | None = None  # the further picture whose records they are; None: the index's

    @property
    def reader(self) -> _C.Reader:
        """A reader of the records."""
        return self.dataset.reader if self.field is None else self.dataset.record_reader(self.field)

    @property
    def data_bytes(self) -> int:
        """Bytes of all the records."""
        return stream_bytes(self.dataset, self.field)


@dataclass(frozen=True)
class WarmResult:
    """The outcome of a job."""

    seconds: float
    counts: dict[str, int]  # from ``_C.Filler.counts()``
    failures: list[tuple[int, str]]  # the first ones: sample id, reason

    @property
    def is_whole(self) -> bool:
        """Whether all wanted records are warm, except unreadable ones."""
        return self.counts["no_room_records"] == 0 and self.counts["claimed_records"] == 0


def plan_jobs(
    datasets: Sequence[PackedFiles],
    setting: CacheSetting,
    wanted: Wanted,
    page_cache: bool = False,
    tier: Tier = ENCODED,
    streams: Streams = FIRST,
    first: First | None = None,
) -> list[WarmJob]:
    """Decide on the place of each dataset's records, and create the cache files.

    Args:
        datasets: what to warm.
        setting: "auto" chooses the better place; "on" is the node cache; with a disk, its tier.
        wanted: returns a dataset's wanted sample ids, ascending; None: all.
        page_cache: the page cache, whatever the setting's mode; its limit counts.
        tier: the form of the index's records in the node cache.
        streams: which records; a dataset without such a field is left out.
        first: see :func:`fastload.cache.opening.open_cache`.

    Raises:
        CacheError: there is no room, or no place.
    """
    if setting.disk is not None:
        return _tier_jobs(datasets, setting.disk, wanted, streams)
    if page_cache:
        kept = kept_of(datasets, streams)
        others = [WarmJob(dataset, PAGE_CACHE, "asked for", field=field) for dataset, field in kept]
        return _page_cache_jobs(others, wanted, setting.limit)
    use: CacheUse = open_cache(datasets, setting, tier, streams, first)
    jobs, others = [], []
    for part, (dataset, field) in zip(use.parts, use.kept, strict=True):
        file = part.file
        if file is not None:
            ids = dataset.record_ids(field, wanted(dataset))
            jobs.append(WarmJob(dataset, file.path, part.reason, ids, 0, file, field=field))
        elif part.nearer == PAGE_CACHE:
            others.append(WarmJob(dataset, PAGE_CACHE, part.reason, field=field))
        elif part.nearer:
            jobs.append(WarmJob(dataset, "", part.reason, field=field))
        else:
            raise CacheError(f"{dataset.where}: {part.reason}.")
    return jobs + _page_cache_jobs(others, wanted, setting.limit)


def _tier_jobs(
    datasets: Sequence[PackedFiles], disk: DiskSetting, wanted: Wanted, streams: Streams
) -> list[WarmJob]:
    use, jobs = open_disk(datasets, disk, streams), []
    for (dataset, field), tier, reason in zip(use.kept, use.tiers, use.reasons, strict=True):
        if tier is None:
            raise CacheError(f"{dataset.where}: {reason}.")
        ids = dataset.record_ids(field, wanted(dataset))
        jobs.append(WarmJob(dataset, tier.path, reason, ids, tier=tier, field=field))
    return jobs


def run_job(job: WarmJob, threads: int, report: Callable[[dict[str, int]], None]) -> WarmResult:
    """Warm one dataset; other processes may do the same at the same time, and each record is read once.

    Records that another process has claimed are waited for as long as anybody stores any, and for a minute
    more: ``claimed_records`` are those that such a process, perhaps stopped, has not stored.

    Args:
        threads: number of reading threads.
        report: called ten times per second with the counts so far.
    """
    began = time.monotonic()
    if not job.place:
        everything = {"records": job.dataset.record_count(job.field), "bytes": job.data_bytes}
        counts = {**dict.fromkeys(_COUNTS, 0), **everything}
        counts.update(there_records=counts["records"], there_bytes=counts["bytes"])
        return WarmResult(0.0, counts, [])
    if job.tier is not None:
        filling = TierFilling(job.dataset, job.field, job.tier, job.ids)
        counts = filling.run(threads, report)
        return WarmResult(time.monotonic() - began, counts, filling.failures)
    filler = _C.Filler(job.reader, job.target or _target(job), *_claims(job), threads, job.ids)
    try:
        filler.start()
        # The index and the entry points are copied too, by this process or another one.
        copying = None
        if job.cache is not None and job.field is None:
            copying = start_copies(
                job.cache, job.dataset.folder, _TABLE_SECONDS, job.dataset.manifest.index_name, _PATIENCE
            )
        _wait(filler, job, report)
        filler.stop()  # if others are no longer waited for
        if copying is not None:
            copying.join()
    finally:
        filler.stop()
    counts = dict(filler.counts())
    report(counts)
    warm = counts["there_records"] + counts["put_records"] + counts["failed_records"]
    counts["claimed_records"] = max(0, counts["records"] - warm)
    counts["no_room_records"] += job.left_out
    return WarmResult(time.monotonic() - began, counts, list(filler.failures()))


def _wait(filler: _C.Filler, job: WarmJob, report: Callable[[dict[str, int]], None]) -> None:
    """Wait until all is stored, or no claimed record has been stored for a while."""
    seen: tuple[int, ...] = ()
    since = time.monotonic()
    while not filler.wait(_POLL_SECONDS):
        counts = filler.counts()
        report(counts)
        by_all = job.cache.counts()["ready_records"] if job.cache is not None else 0
        now = (by_all, *(counts[name] for name in ("there_records", "put_records", "failed_records")))
        if now != seen:
            seen, since = now, time.monotonic()
        elif counts["waits"] and time.monotonic() - since > _PATIENCE:
            return


_COUNTS = (
    "records", "bytes", "no_room_records", "no_room_bytes", "there_records", "there_bytes", "put_records",
    "put_bytes", "read_bytes", "requests", "failed_records", "claimed_chunks", "claimed_records", "waits",
)  # fmt: skip


def _target(job: WarmJob) -> _C.FillTarget:
    return _C.PageCacheTarget(job.reader) if job.cache is None else _C.CacheTarget(job.cache)


def _claims(job: WarmJob) -> tuple[str, int]:
    """Return a file that all who warm this set here share, and its first byte that stands for a sample id."""
    if job.cache is not None:
        return job.cache.path, 0
    try:
        with PrivateFolder(CacheSetting().folder, create=True) as folder:
            return folder.claims_file(), int(_digest(job)[:5], 16) << 40  # a range of bytes per set
    except CacheError:
        return "", 0  # the page cache reads once what two read at the same time


def _digest(job: WarmJob) -> str:
    """Return a name for the records: the dataset's seal; for a further picture a hash of it and the field."""
    if job.field is None:
        return job.dataset.manifest.seal
    return hashlib.blake2b(f"{job.dataset.manifest.seal} {job.field}".encode(), digest_size=16).hexdigest()


def _page_cache_jobs(jobs: list[WarmJob], wanted: Wanted, limit: int | None) -> list[WarmJob]:
    """Plan page-cache jobs; above the limit, the same share of every set, as regions that readahead keeps."""
    total = max(1, sum(job.data_bytes for job in jobs))
    share = (available_memory() * PAGE_CACHE_SHARE if limit is None else limit) / total
    for job in jobs:
        job.ids = job.dataset.record_ids(job.field, wanted(job.dataset))
        if share < 1:
            records = job.dataset.records if job.field is None else job.dataset.field_records(job.field)
            count = len(records)
            entries = records.view(np.uint8).reshape(count, -1)
            kept = np.flatnonzero(_C.kept_records(entries, share)).astype(np.int64)
            ids = kept if job.ids is None else np.intersect1d(kept, job.ids, assume_unique=True)
            job.left_out = (count if job.ids is None else len(job.ids)) - len(ids)
            job.ids = ids
    return jobs
