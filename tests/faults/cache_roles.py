"""What processes do with a cache, for cache_schedules.py: the package's own code, with ``time`` replaced."""

from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cache_scheduler import Clock, Steps

import fastload.cache.disk_files
import fastload.cache.files
import fastload.cache.folder
import fastload.cache.opening
import fastload.cache.policy
import fastload.cache.warming
from fastload._native import _C
from fastload.cache.disk import open_disk
from fastload.cache.opening import FIRST, open_cache
from fastload.cache.settings import CacheSetting, DiskSetting
from fastload.cache.warming import plan_jobs, run_job
from fastload.cli import main as command_line
from fastload.machine.memory import memory_rooms
from fastload.shard.codecs import RAW
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard

__all__ = ["Stage", "clear", "disk", "left_small", "left_whole", "pack_set", "prepare", "rank", "warm"]

_SIDE, _COUNT = 64, 3


@dataclass
class Stage:
    """Where the processes meet: a set, its pictures, and a folder in memory that is new for each schedule."""

    dataset: Path
    blobs: list[bytes]
    root: Path
    steps: Steps
    size: int = 0  # bytes of a file with room for all

    @property
    def folder(self) -> Path:
        return self.root / "memory"

    def names(self) -> list[str]:
        """What lies in the private folder, but for the lock."""
        own = self.folder / f"fastload-{os.geteuid()}"
        return sorted(set(os.listdir(own)) - {".create.lock"}) if own.exists() else []


def _setting(stage: Stage, share: float = 1.0) -> CacheSetting:
    return CacheSetting("on", limit=int(stage.size * share), root=stage.folder)


def _use(stage: Stage, file: Any) -> dict[str, Any]:
    """Read each record from the cache, or put it there; ``wrong``: which were not what they should be."""
    wrong, stored = [], 0
    for number, blob in enumerate(stage.blobs):
        found = file.find(number)
        if found is None:
            file.store(number, np.frombuffer(blob, np.uint8), _C.crc32c(np.frombuffer(blob, np.uint8)))
            stored += 1
            found = file.find(number)
        if found != blob and not (found is None and not file.has_room(number)):
            wrong.append(number)
    return {"wrong": wrong, "room": file.room_records, "stored": stored}


def rank(stage: Stage, share: float = 1.0) -> dict[str, Any]:
    """A loader's cache: opened, used, its tables copied, closed."""
    dataset = PackedFiles(stage.dataset)
    use = open_cache([dataset], _setting(stage, share))
    file = use.files[0]
    if file is None:
        return {"none": use.parts[0].reason}
    told = _use(stage, file)
    path = stage.dataset / dataset.manifest.index_name
    fastload.cache.opening.copy_table(weakref.ref(file), 0, path)
    told["copy"] = file.has_copy(0)
    del file
    use.close()
    return told


def small_rank(stage: Stage) -> dict[str, Any]:
    return rank(stage, 0.8)


def clear(stage: Stage) -> dict[str, Any]:
    """``fastload cache clear``."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = command_line(["cache", "clear", "--dir", str(stage.folder), "--json"])
    return {"code": code, "said": errors.getvalue()}


def warm(stage: Stage) -> dict[str, Any]:
    """``fastload warm`` with one thread."""
    (job,) = plan_jobs([PackedFiles(stage.dataset)], _setting(stage), lambda _: None)
    result = run_job(job, 1, lambda _: None)
    wrong = [n for n, blob in enumerate(stage.blobs) if job.cache.is_ready(n) and job.cache.find(n) != blob]
    ready = sum(job.cache.is_ready(n) for n in range(len(stage.blobs)))
    copy = job.cache.has_copy(0)
    job.cache = None
    return {"wrong": wrong, "ready": ready, "copy": copy, "whole": result.is_whole, **result.counts}


def disk(stage: Stage) -> dict[str, Any]:
    """A loader's tier on disk: opened, looked at, closed."""
    use = open_disk([PackedFiles(stage.dataset)], DiskSetting(stage.folder, 8 * stage.size), FIRST)
    tier = use.tiers[0]
    if tier is None:
        return {"none": use.reasons[0]}
    room = tier.room_records
    del tier
    use.close()
    return {"wrong": [], "room": room}


def left_small(stage: Stage) -> None:
    """A file that is too small for what is asked for now, which nobody uses."""
    assert small_rank(stage)["wrong"] == []


def left_whole(stage: Stage) -> None:
    assert rank(stage)["wrong"] == []


def pack_set(folder: Path) -> list[bytes]:
    """A set of raw pictures. Without torch, which would make each fork ten times as slow."""
    pixels = np.random.default_rng(0).integers(0, 256, (_COUNT, 3 * _SIDE * _SIDE), np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.bin").write_bytes(pixels.tobytes())
    records = np.zeros(_COUNT, RECORD)
    records["length"], records["offset"] = pixels.shape[1], np.arange(_COUNT) * pixels.shape[1]
    records["crc32c"] = [_C.crc32c(one) for one in pixels]
    records["codec"], records["channels"] = RAW, 3
    records["width"] = records["height"] = _SIDE
    write_index(folder / INDEX_NAME, [records], [[b"%d" % number for number in range(_COUNT)]])
    Manifest(
        format="plain",
        num_records=_COUNT,
        data_bytes=pixels.nbytes,
        classes=(),
        shards=(Shard("data.bin", pixels.nbytes, _COUNT),),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=_C.Index(str(folder / INDEX_NAME)).digest,
    ).write(folder)
    return [one.tobytes() for one in pixels]


class _NoThread:
    """In place of the thread that copies tables: does it when it is waited for."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def join(self, timeout: float | None = None) -> None:
        self._work()

    def is_alive(self) -> bool:
        return False


class _Event:
    """In place of ``threading.Event``: waiting for it is a step."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._is_set = clock, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        self._clock.sleep(timeout)
        return self._is_set


def prepare(steps: Steps) -> None:
    """Virtual time and no threads, in all that is forked from here."""
    clock = Clock(steps)
    modules = (
        fastload.cache.folder,
        fastload.cache.warming,
        fastload.cache.files,
        fastload.cache.disk_files,
        fastload.cache.opening,
    )
    for module in modules:
        module.time = clock  # type: ignore[attr-defined]
    fastload.cache.warming._POLL_SECONDS = 0.001
    rooms = memory_rooms("/")  # what others do to the machine's memory is no part of this
    fastload.cache.policy.memory_rooms = lambda root: rooms  # type: ignore[assignment]
    fastload.cache.warming._TABLE_SECONDS = 1.0
    fastload.cache.opening.threading = SimpleNamespace(Event=partial(_Event, clock))  # type: ignore[assignment]
    fastload.cache.opening.start_beside = lambda work, name, stop: _NoThread(work)  # type: ignore[assignment]
