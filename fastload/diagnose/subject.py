"""The loader that is examined: made anew with other arguments, on records that lie in memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.diagnose.passes import Passes
from fastload.diagnose.replica import Replica, can_be_replicated
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.machine.positional import read_at

__all__ = ["Subject"]

_MOST_BYTES = 512 << 20  # of records that are brought into memory for trials
_MOST_SAMPLES = 4096
_READING = 4.0  # seconds that this may take
_MOST_FETCHED = 128 << 20  # bytes of records of a store, which are kept in memory for the while
_BATCH_SECONDS = 0.2  # a batch that takes longer is made smaller for trials, or they would see too few

# What trials do not share with the job: its ranks, its random state, its files, its cache.
_ALONE = {
    "rank": 0,
    "world_size": 1,
    "process_group": None,
    "handshake": "off",
    "error_log": None,
    "on_error": "skip",
    "generator": None,
    "drop_last": True,
    "padding": None,
    "drop_padding": False,
    "autotune": False,
    "timeout": 0,
}


class Subject:
    """A fastload DataLoader over packed data.

    Args:
        loader: the user's; never iterated.
        folder: in memory, for records of a store; None: they are fetched each time.
    """

    def __init__(self, loader: Any, folder: Path | None = None) -> None:
        self.loader = loader
        self.kind = type(loader)
        self.arguments: dict[str, Any] = dict(loader._arguments)
        arranged = loader._arranged
        #: The user's dataset, and that of trials, which reads what is in memory.
        self.given = self.dataset = arranged.dataset
        self.plan = arranged.plan
        self.options = arranged.options
        self.threads: int = arranged.threads.threads
        self.parts = self.dataset.parts
        self.core = loader._sampler.core
        self.batch_size = max(1, len(self.core.batch(0, 0, 0).ids)) if self.core.has_batch(0, 0, 0) else 1
        self.records: int = sum(len(part) for part in self.parts)
        self.data_bytes: int = sum(part.manifest.data_bytes for part in self.parts)
        #: Samples whose records lie in memory: all of them, or some of the job's own order.
        self.ids, self.reading_seconds = self._in_memory(self._drawn(), folder)
        #: Of batches in trials.
        self.trial_batch = min(self.batch_size, len(self.ids))

    @property
    def record_bytes(self) -> float:
        """Bytes of a record, on the average."""
        return max(1.0, self.data_bytes / max(1, self.records))

    @property
    def fits_memory(self) -> bool:
        """Whether the set stays in the page cache once it was read."""
        return self.data_bytes <= PAGE_CACHE_SHARE * available_memory()

    @property
    def in_store(self) -> bool:
        """Whether any of it is in an object store."""
        return any(part.location is not None for part in self.parts)

    def suit(self, rate: float) -> None:
        """Choose the trials' batches by the rate that the loader has."""
        fitting = max(1, int(rate * _BATCH_SECONDS))
        self.trial_batch = max(1, min(self.batch_size, fitting, len(self.ids)))

    def make(self, **changes: Any) -> Any:
        """The same loader over :attr:`ids` (or ``ids=``), with arguments changed."""
        ids = changes.pop("ids", self.ids)
        no_cache = self.arguments["cache"] == "auto" or self.in_store
        cache: dict[str, Any] = {"cache": "off"} if no_cache else {}
        order: dict[str, Any] = {"shuffle": None, "sampler": Passes(ids), "batch_sampler": None}
        order |= {"shuffle_block": None, "shuffle_window": None, "batch_size": self.trial_batch}
        given = self.arguments | {"dataset": self.dataset, "num_workers": self._workers()}
        given["storage_options"] = None  # the dataset is open
        return self.kind(**given | _ALONE | cache | order | changes)

    def _workers(self) -> int | None:
        given: int | None = self.arguments["num_workers"]
        return self.threads if given is None else given

    def _drawn(self) -> npt.NDArray[np.int64]:
        """Samples of the job's own order, spread over an epoch, each once."""
        wanted = min(_MOST_SAMPLES, max(64, int(_MOST_BYTES / self.record_bytes)))
        most = wanted // self.batch_size + 1
        try:
            batches = self.core.num_batches(0)
        except TypeError:  # a sampler that does not say when it ends, if it does
            batches = most
        steps = np.unique(np.linspace(0, batches - 1, max(1, min(batches, most)))).astype(int).tolist()
        found = [self.core.batch(0, 0, step).ids for step in steps if self.core.has_batch(0, 0, step)]
        ids = np.concatenate(found) if found else np.zeros(0, np.int64)
        ids = ids[ids >= 0]
        first = np.sort(np.unique(ids, return_index=True)[1])
        return ids[first][:wanted].astype(np.int64)

    def _in_memory(
        self, ids: npt.NDArray[np.int64], folder: Path | None
    ) -> tuple[npt.NDArray[np.int64], float]:
        """Those of them that could be read in the time there is, and how long that took."""
        if len(ids) == 0:
            raise ValueError("The loader has no samples to examine.")
        began = time.monotonic()
        if self.in_store and folder is not None and can_be_replicated(self.given):
            replica = Replica(self.given, folder / "records")
            ids = replica.fill(ids, _READING, min(_MOST_FETCHED, _room(folder)))
            self.dataset = replica.dataset()
            self.parts = self.dataset.parts
            return ids, time.monotonic() - began
        readers = _Files()
        try:
            for count, sample in enumerate(ids.tolist(), 1):
                part, number = self.dataset.locate(sample)
                readers.read(part, number)
                if count >= 32 and time.monotonic() - began > _READING:
                    ids = ids[:count]
                    break
        finally:
            readers.close()
        return ids, time.monotonic() - began


def _room(folder: Path) -> int:
    """Bytes that may be taken there: a quarter of what is free."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize // 4


class _Files:
    """Reads records of local files through the page cache; of stores nothing, which have none."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}

    def read(self, part: Any, number: int) -> None:
        """Bring one record into memory."""
        if part.location is not None:
            return
        record = part.record(number)
        path = part.folder / part.manifest.shards[int(record["shard"])].file
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        read_at(self._open[path], int(record["length"]), int(record["offset"]))

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            os.close(descriptor)
