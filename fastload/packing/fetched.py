"""Records of a set in windows, read from files or fetched from a store."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import write_at
from fastload.machine.threads import started_pool
from fastload.remote.location import Location
from fastload.remote.store import MOST_AGAIN, Store
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD, as_rows
from fastload.shard.manifest import Manifest

# ---- Records of a set in a store, in memory for a while ---------------------------------------------
# Commands that read all records fetch them by large requests. Fetched bytes lie in a file in memory that has
# the shard's size and only these bytes, so everything that reads shards can read it like the shard.

#: Threads that fetch: more than there are cores, since they wait.
THREADS = 8
#: Bytes of records in memory at once.
WINDOW_BYTES = 64 << 20
_REQUEST = 8 << 20  # bytes
_GAP = 128 << 10  # bytes between two records that are fetched along: fewer than another request costs
Ranges = list[tuple[int, int]]


def runs(records: npt.NDArray[np.void], size: int) -> Ranges:
    """Return the byte ranges [begin, end) of a shard that hold some records, joined where they are close.

    Args:
        records: records of one shard, in any order; those outside it are left out.
        size: bytes of the shard.
    """
    begins = records["offset"].astype(np.uint64)
    order = np.argsort(begins, kind="stable")
    ranges: Ranges = []
    for begin, length in zip(begins[order].tolist(), records["length"][order].tolist(), strict=True):
        end = begin + length
        if not length or end > size:
            continue
        if ranges and begin - ranges[-1][1] <= _GAP:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((begin, end))
    return ranges


class StoredShards:
    """The shards of a set in a store.

    Args:
        store: the set's store.
        shards: path in the store and bytes of each shard.
        location: the set's location; for an index of files in a store, its folder.
        storage_options: the store's options.
    """

    def __init__(
        self,
        store: Store,
        shards: Sequence[tuple[str, int]],
        location: Location | Path,
        storage_options: Mapping[str, Any],
    ) -> None:
        self._store, self._shards = store, shards
        self.location, self._options = location, storage_options
        self._sizes = {number: size for number, (_, size) in enumerate(shards)}

    @property
    def options(self) -> Mapping[str, Any]:
        """The store's options."""
        return self._options

    def dataset(self) -> PackedFiles:
        """Open the set.

        Raises:
            FormatError, RemoteError: it cannot be opened.
        """
        return PackedFiles(str(self.location), entries=False, storage_options=self._options)

    def size(self, number: int) -> int | None:
        """Return the bytes of a shard in the store; None: it does not exist.

        Raises:
            RemoteError: the store does not answer.
        """
        facts = self._store.head(self._shards[number][0])
        if facts is None:
            return None
        self._sizes[number] = facts.size  # what file() will find there
        return facts.size

    @contextmanager
    def file(self, number: int, records: npt.NDArray[np.void]) -> Iterator[Path]:
        """Yield a file with these records of a shard, at their offsets.

        Raises:
            RemoteError: the store does not deliver them.
        """
        path, size = self._shards[number][0], self._sizes[number]
        descriptor = _memory_file(size)
        try:
            for begin, end in _requests(runs(records, size)):
                _fetch(self._store, path, begin, end, descriptor)
            yield Path(_path_of(descriptor))
        finally:
            os.close(descriptor)

    def fetch_again(self, number: int, records: npt.NDArray[np.void], file: Path) -> None:
        """Fetch records of a shard again that arrived with wrong bytes, perhaps damaged on the way, and write
        them into a file of :meth:`file`.

        Raises:
            RemoteError: the store does not deliver them.
        """
        path, size = self._shards[number][0], self._sizes[number]
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _fetch_records(self._store, path, records, size, descriptor)
        finally:
            os.close(descriptor)


def in_windows(
    dataset: PackedFiles, samples: range | None = None
) -> Generator[tuple[range, PackedFiles], None, None]:
    """Yield a dataset's sample ids (or ``samples`` of them) in order, some at a time, and a dataset to read
    them from: itself, or for a store one with their records in memory. The next ones are fetched meanwhile.

    Close it (``contextlib.closing``) where an error may end the loop over it: it has threads, and a garbage
    collection that ends them while another thread starts would wait forever.

    Raises:
        RemoteError: the store does not deliver them.
    """
    samples = range(dataset.num_ids) if samples is None else samples
    if dataset.location is None:
        yield samples, dataset
        return
    windows = _windows(dataset, samples)
    with started_pool(1, "windows") as ahead, started_pool(THREADS, "fetch") as pool:
        coming = ahead.submit(_fetched, dataset, windows[0], pool) if windows else None
        for number, ids in enumerate(windows):
            assert coming is not None
            part, kept = coming.result()
            if number + 1 < len(windows):
                coming = ahead.submit(_fetched, dataset, windows[number + 1], pool)
            with kept:
                yield ids, part


def left_of(dataset: PackedFiles, ids: range) -> Iterable[int]:
    """Return those of some sample ids that were not dropped."""
    if not len(dataset.dropped):
        return ids
    left: list[int] = np.setdiff1d(np.arange(ids.start, ids.stop), dataset.dropped).tolist()
    return left


def _tables(dataset: PackedFiles, ids: range) -> Iterator[npt.NDArray[np.void]]:
    """Yield an entry for each of some samples, one table per field of pictures."""
    yield dataset.records[ids.start : ids.stop]
    if not dataset.is_plain:
        for field in dataset.schema:
            if field.storage == "record" and field != dataset.schema.index_field:
                yield dataset.field_records(field.name)[ids.start : ids.stop]


def _listed(dataset: PackedFiles, ids: range) -> Iterator[npt.NDArray[np.void]]:
    """Yield the entries of some samples' lists of pictures."""
    for field in dataset.schema.list_fields:
        yield dataset.columns[field.name].gather(np.arange(ids.start, ids.stop))[0].view(RECORD)


def _lengths(dataset: PackedFiles, samples: range) -> npt.NDArray[np.int64]:
    """Return the bytes of all pictures of each sample."""
    lengths: npt.NDArray[np.int64] = np.zeros(len(samples), np.int64)
    for table in _tables(dataset, samples):
        lengths += table["length"].astype(np.int64)
    for field in dataset.schema.list_fields:
        lengths += dataset.list_bytes(field.name, np.arange(samples.start, samples.stop))
    return lengths


def _windows(dataset: PackedFiles, samples: range) -> list[range]:
    """Return ranges of sample ids, each with about :data:`WINDOW_BYTES` of records."""
    lengths = _lengths(dataset, samples)
    numbers = (np.cumsum(lengths) - 1) // WINDOW_BYTES
    changes = np.flatnonzero(np.diff(numbers)) + samples.start + 1
    firsts = [samples.start, *changes.tolist(), samples.stop]
    return [range(first, end) for first, end in itertools.pairwise(firsts) if first < end]


def _fetched(dataset: PackedFiles, ids: range, pool: ThreadPoolExecutor) -> tuple[PackedFiles, ExitStack]:
    """Return a dataset with some samples' records in files in memory, which the stack closes."""
    location, store = dataset.location, dataset.store
    assert location is not None
    assert store is not None
    records = np.concatenate([*_tables(dataset, ids), *_listed(dataset, ids)])
    records = records[records["length"] > 0]
    shards, waiting, fetched = [], [], []
    with ExitStack() as stack:
        for number, shard in enumerate(dataset.manifest.shards):
            descriptor = -1
            own = records[records["shard"] == number]
            ranges = runs(own, shard.size)
            if ranges:
                descriptor = _memory_file(shard.size)
                stack.callback(os.close, descriptor)
                path = (location / shard.file).path
                for begin, end in _requests(ranges):
                    waiting.append(pool.submit(_fetch, store, path, begin, end, descriptor))
                fetched.append((path, own, shard.size, descriptor))
            shards.append(replace(shard, file=_path_of(descriptor)))
        for each in waiting:
            each.result()
        for path, own, size, descriptor in fetched:
            for _ in range(MOST_AGAIN):
                wrong = [i for i, _ in _C.verify_file(os.fsencode(_path_of(descriptor)), as_rows(own))]
                if not wrong:
                    break
                _fetch_records(store, path, own[wrong], size, descriptor)
        kept = stack.pop_all()
    part = object.__new__(type(dataset))
    part.__dict__ |= dataset.__dict__
    part.location, part._readers = None, {}
    part.manifest = replace(dataset.manifest, shards=tuple(shards))
    part.reader = _C.Reader(dataset.index, [(shard.file, shard.size) for shard in shards])
    part.reader.show(dataset.shown)
    return part, kept


def fetch_object(store: Store, path: str, size: int, file: Path) -> None:
    """Write an object of a store to a file, by several requests at once.

    Raises:
        RemoteError: the store does not deliver it.
        OSError: the file cannot be written.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with started_pool(THREADS, "fetch") as pool:
            waiting = [
                pool.submit(_fetch, store, path, begin, end, descriptor)
                for begin, end in _requests([(0, size)])
            ]
            try:
                for each in waiting:
                    each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # before the file that they write to is closed
                raise
    finally:
        os.close(descriptor)


def _memory_file(size: int) -> int:
    descriptor = os.memfd_create("fastload-fetched", os.MFD_CLOEXEC)
    os.truncate(descriptor, size)
    return descriptor


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _requests(ranges: Ranges) -> Ranges:
    """Split ranges into requests."""
    return [(at, min(at + _REQUEST, end)) for begin, end in ranges for at in range(begin, end, _REQUEST)]


def _fetch_records(
    store: Store, path: str, records: npt.NDArray[np.void], size: int, descriptor: int
) -> None:
    for begin, end in _requests(runs(records, size)):
        _fetch(store, path, begin, end, descriptor)


def _fetch(store: Store, path: str, begin: int, end: int, descriptor: int) -> None:
    write_at(descriptor, store.get(path, begin, end), begin)


# ---- Samples of a packed dataset, divided for processes ---------------------------------------------

#: Calls a function with its first argument and each of the items, in other processes, and yields the results
#: in order.
Spread = Callable[[Callable[[Any, Any], Any], Any, Iterable[Any]], Iterator[Any]]

_BYTES = 64 << 20  # of records in a span


def spans_of(manifest: Manifest) -> list[tuple[int, int]]:
    """Return all samples in spans [first, one past the last) of about equal bytes."""
    mean = max(1, manifest.data_bytes // max(1, manifest.num_records))
    step = max(1, _BYTES // mean)
    count = manifest.num_records
    return [(at, min(at + step, count)) for at in range(0, count, step)]


@functools.lru_cache(maxsize=1)
def check_seen(folder: Path, seal: str) -> None:
    """Check, once, that this process sees the dataset in a folder that another process knows.

    Raises:
        PackError: it sees another one.
        FormatError: it sees none.
    """
    _same(folder, Manifest.read(folder), seal)


def _same(where: Path | str, found: Manifest, seal: str) -> None:
    if found.seal != seal:
        raise PackError(
            f"{where} has other files on this worker's machine than where the command runs: their manifests "
            f"have the ids {found.seal} and {seal}. All must see the same set."
        )


_opened: dict[tuple[str, str], PackedFiles] = {}  # the last one that a task asked for


def opened_once(where: str, seal: str, storage_options: Mapping[str, Any] | None) -> PackedFiles:
    """Return a process's dataset, opened once, as another process knows it: in a folder, or at a URL.

    Raises:
        PackError: this process sees another dataset.
    """
    if (where, seal) not in _opened:
        dataset = PackedFiles(where, entries=False, storage_options=storage_options)
        _same(where, dataset.manifest, seal)
        _opened.clear()
        _opened[where, seal] = dataset
    return _opened[where, seal]
