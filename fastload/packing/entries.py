"""``entries.fli``, the entry points of a set's JPEGs: computed, written, removed, or kept in a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import ChecksumError, FormatError, RemoteError, ShardTruncated
from fastload.machine.paths import exists
from fastload.machine.temporary import TemporaryFolder
from fastload.machine.threads import started_pool
from fastload.packing.fetched import Spread, in_windows, opened_once, spans_of
from fastload.packing.files import failed_writes_reported, publish, publishing, remove, temporary_of
from fastload.packing.progress import Observer, entries_work
from fastload.remote.node_folder import NodeFolder
from fastload.shard.codecs import JPEG
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import Parts, write_paged
from fastload.shard.manifest import ENTRIES_NAME, Manifest

# ---- Making ``entries.fli``, the JPEGs' entry points ------------------------------------------------
# The file is optional: without it everything works, more slowly. Its layout is normative in FORMAT.md;
# ``csrc/core/decode/jpeg/entry_points.h`` says what an entry point is.

MAGIC = b"FLENTRY1"
DEFAULT_SPACING = 64  # pixels; benchmarks/bench_entries.py has bytes and speed of other spacings
T = TypeVar("T")
# Records' entry points back to back, then what is stored of their parts; bytes of both per record, (n, 2).
Made = tuple[bytes, npt.NDArray[np.uint32]]
Maker = Callable[[PackedFiles, int], Iterable[Made]]  # makes those of all records with a spacing

_GROUP = 64  # records a thread takes at a time
_CHUNK = 1 << 16  # index entries at a time
_SHARE = 40  # the records' bytes are about this many times those of the entry points


@dataclass(frozen=True)
class EntriesReport:
    """The counts of what :func:`build_entries` made."""

    records: int  # of the dataset
    with_entries: int  # JPEGs that have entry points now
    entry_bytes: int  # of all entry points together
    spacing: int  # pixels, 0: rows


def parse_spacing(text: str) -> int | None:
    """Return the spacing for ``none`` (None), ``row`` (0) or a number of pixels.

    Raises:
        ValueError: the text is anything else.
    """
    if text in ("none", "row"):
        return None if text == "none" else 0
    if text.isdigit() and 8 <= int(text) <= 65535:
        return int(text)
    raise ValueError(f"The spacing of entry points must be none, row or 8 to 65535 pixels. Found: {text!r}.")


def _groups(samples: range) -> Iterator[npt.NDArray[np.uint64]]:
    for first in samples[::_GROUP]:
        yield np.arange(first, min(samples.stop, first + _GROUP), dtype=np.uint64)


def _map_in_order(
    function: Callable[[npt.NDArray[np.uint64]], T],
    samples: range,
    threads: int,
    progress: Callable[[int], None],
) -> Iterator[T]:
    """Yield ``function`` of each group of sample ids, in order; threads work a few groups ahead."""
    with started_pool(threads, "fastload-entries") as executor:
        waiting = []
        for group in _groups(samples):
            waiting.append((len(group), executor.submit(function, group)))
            if len(waiting) > 2 * threads:
                size, future = waiting.pop(0)
                yield future.result()
                progress(size)
        for size, future in waiting:
            yield future.result()
            progress(size)


def entries_of(
    reader: Any, samples: range, spacing: int, threads: int, progress: Callable[[int], None] = lambda n: None
) -> Iterator[Made]:
    """Yield the entry points of some samples of a ``_C.Reader``, in order, a few at a time."""
    return _map_in_order(lambda ids: _C.build_entries(reader, ids, spacing), samples, threads, progress)


def build_entries(
    dataset: PackedFiles, spacing: int, threads: int, progress: Callable[[int], None] = lambda n: None
) -> EntriesReport:
    """Make or replace ``entries.fli`` in the dataset's folder, with one entropy decode per image.

    Images that cannot have entry points (progressive, damaged, not JPEG, with restart markers) have none.

    Args:
        dataset: the packed dataset.
        spacing: pixels between entry points; 0: one per row of MCUs.
        threads: how many threads decode.
        progress: called with the number of records done since the last call.
    """
    entries = made_in_windows(dataset, spacing, threads, progress)
    return write_entries(dataset.folder, dataset.manifest, dataset.index.digest, spacing, entries)


def made_in_windows(
    dataset: PackedFiles, spacing: int, threads: int, progress: Callable[[int], None] = lambda n: None
) -> Iterator[Made]:
    """Yield the entry points of all records; records in a store are fetched, some at a time."""
    with closing(in_windows(dataset)) as windows:
        for ids, part in windows:
            yield from entries_of(part.reader, ids, spacing, threads, progress)


def write_entries(
    folder: Path, manifest: Manifest, index_digest: int, spacing: int, made: Iterable[Made]
) -> EntriesReport:
    """Write ``entries.fli`` from entry points in the records' order; it appears once it is complete.

    Args:
        folder: the packed dataset's folder.
        manifest: the dataset's manifest.
        index_digest: the digest of its index.
        spacing: pixels between entry points; 0: one per row of MCUs.
        made: for some records at a time, their bytes back to back, and how many each has.
    """
    final, with_entries = folder / manifest.entries_name, 0
    temporary, packed_path, sizes_path, parts_path = _temporaries(folder)
    try:
        with failed_writes_reported(temporary, manifest.data_bytes // _SHARE):
            # Sizes go to a file, too: those of a thousand million records would not fit into memory.
            with ExitStack() as stack:
                file, sizes_file, parts_file = (
                    stack.enter_context(open(path, "wb")) for path in (packed_path, sizes_path, parts_path)
                )
                for packed, sizes in made:
                    entries, parts = _split(packed, sizes)
                    file.write(entries)
                    parts_file.write(parts)
                    sizes_file.write(sizes.astype("<u4").tobytes())
                    with_entries += int(np.count_nonzero(sizes[:, 0]))
            size = packed_path.stat().st_size
            parts_of = None
            if parts_path.stat().st_size:
                parts_of = Parts(_lengths(sizes_path, 1), _pieces(parts_path), _C.PART_BYTES)
            write_paged(
                temporary, MAGIC, (), _lengths(sizes_path, 0), _pieces(packed_path), spacing, index_digest,
                parts=parts_of,
            )  # fmt: skip
            publish(temporary, final)
    finally:
        tidy_entries(folder)
    return EntriesReport(manifest.num_records, with_entries, size, spacing)


def _split(packed: bytes, sizes: npt.NDArray[np.uint32]) -> tuple[bytes, bytes]:
    """Return the entry points of some records, and what is stored of their parts."""
    if not sizes[:, 1].any():
        return packed, b""
    ends = np.cumsum(sizes.ravel(), dtype=np.int64).tolist()
    pieces = [packed[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return b"".join(pieces[::2]), b"".join(pieces[1::2])


def _lengths(path: Path, column: int) -> Iterator[npt.NDArray[np.uint64]]:
    for piece in _pieces(path):
        yield np.frombuffer(piece, "<u4").reshape(-1, 2)[:, column].astype(np.uint64)


def ensure_entries(
    folder: Path,
    spacing: int,
    threads: int | None = None,
    observer: Observer | None = None,
    made: Maker | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Make the dataset's entry points unless it already has those of this spacing (or has no JPEG).

    Args:
        folder: a packed dataset; the caller holds its lock.
        spacing: as in :func:`build_entries`.
        threads: how many threads decode; None: one per CPU that this process may use.
        observer: receives progress.
        made: makes them without threads of this process; see :func:`write_entries`.
        storage_options: options of the store, if records are in one.
    """
    dataset = PackedFiles(folder, entries=False, storage_options=storage_options)
    observer = observer or Observer()
    tidy_entries(folder)  # left by a killed run
    if spacing_of(dataset) == spacing or not _has_jpegs(dataset):
        return
    observer.started(entries_work(folder, dataset.num_ids))
    if made is not None:
        write_entries(folder, dataset.manifest, dataset.index.digest, spacing, made(dataset, spacing))
        return
    build_entries(dataset, spacing, threads or len(os.sched_getaffinity(0)), observer.advanced)


def remove_entries(folder: Path, name: str = ENTRIES_NAME) -> None:
    """Remove the file of the entry points, and what an interrupted :func:`build_entries` left."""
    remove(folder / name)
    tidy_entries(folder)


def _temporaries(folder: Path) -> tuple[Path, Path, Path, Path]:
    temporary = temporary_of(folder / ENTRIES_NAME)
    packed, sizes, parts = (temporary.with_suffix(suffix) for suffix in (".bytes", ".sizes", ".parts"))
    return temporary, packed, sizes, parts


def tidy_entries(folder: Path) -> None:
    """Remove what an interrupted :func:`build_entries` left beside the finished file."""
    for path in _temporaries(folder):
        remove(path)


def spacing_of(dataset: PackedFiles) -> int | None:
    """Return the spacing of the existing entry points; None if there are none, or not this dataset's.

    Raises:
        ShardError: the system could not read them, though they may be undamaged.
    """
    path = dataset.folder / dataset.manifest.entries_name
    try:
        return int(_C.Entries(str(path), dataset.index).spacing) if exists(path) else None
    except (FormatError, ChecksumError, ShardTruncated):
        return None


def _has_jpegs(dataset: PackedFiles) -> bool:
    records = dataset.records
    return any(
        (records[start : start + _CHUNK]["codec"] == JPEG).any() for start in range(0, len(records), _CHUNK)
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            yield piece


def entries_by(
    spread: Spread,
    observer: Observer | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Maker:
    """Return a maker of a dataset's entry points whose work other processes do."""

    def made(dataset: PackedFiles, spacing: int) -> Iterator[Made]:
        spans, common = (
            spans_of(dataset.manifest),
            (dataset.where, dataset.manifest.seal, storage_options, spacing),
        )
        for (start, stop), pieces in zip(spans, spread(_entries_of_span, common, spans), strict=True):
            yield from pieces
            if observer is not None:
                observer.advanced(stop - start)

    return made


def _entries_of_span(
    common: tuple[str, str, Mapping[str, Any] | None, int], span: tuple[int, int]
) -> list[Made]:
    """Make the entry points of some samples on a worker."""
    where, seal, storage_options, spacing = common
    with closing(in_windows(opened_once(where, seal, storage_options), range(*span))) as windows:
        return [made for ids, part in windows for made in entries_of(part.reader, ids, spacing, 1)]


def wrong_entries(
    dataset: PackedFiles, threads: int, folder: Path | None = None, made: Maker | None = None
) -> Iterator[int]:
    """Compute all entry points again; yield the ids of the samples whose stored ones differ.

    Args:
        folder: where the stored ones are; None: the dataset's folder.
        made: computes them without threads of this process.

    Raises:
        FormatError: ``entries.fli`` is missing or damaged.
        ChecksumError: one of its pages is damaged.
    """
    entries = _C.Entries(str((folder or dataset.folder) / dataset.manifest.entries_name), dataset.index)
    entries.verify()
    sample, spacing = 0, int(entries.spacing)
    computed = made_in_windows(dataset, spacing, threads) if made is None else made(dataset, spacing)
    for packed, sizes in computed:
        ends = [0, *np.cumsum(sizes.ravel(), dtype=np.int64).tolist()]
        for begin, middle, end in zip(ends[:-1:2], ends[1::2], ends[2::2], strict=True):
            same = entries.get(sample) == packed[begin:middle]
            # A file from before parts existed has none.
            if not same or (entries.part_bytes and entries.get_parts(sample) != packed[middle:end]):
                yield sample
            sample += 1


# ---- Entry points of a set in a store ---------------------------------------------------------------
# They are made here from fetched records and uploaded. They lie with the node's copy of the index first: a
# read-only store leaves them there, where all processes of this user on the node find them.


def index_stored_entries(
    url: str,
    storage_options: Mapping[str, Any] | None,
    spacing: int | None,
    observer: Observer | None = None,
    made: Maker | None = None,
) -> str:
    """Remake the entry points of a set in a store, or remove them (``spacing`` None); ``made``: as in
    :func:`ensure_entries`.

    Returns:
        Why the store does not have them; "" if it does.

    Raises:
        FormatError: the URL is not a dataset.
        RemoteError: the store does not deliver its records.
        CacheError: the node has no place for them.
        ChecksumError: a record is damaged.
    """
    dataset = PackedFiles(url, entries=False, storage_options=storage_options)
    location, store, observer = dataset.location, dataset.store, observer or Observer()
    assert location is not None
    assert store is not None
    name = dataset.manifest.entries_name
    path = (location / name).path
    folder = NodeFolder(dataset.manifest.seal)
    with ExitStack() as stack:
        if spacing is not None:
            observer.started(entries_work(location, dataset.num_ids))
        apart = folder.path
        if spacing is not None and made is not None:
            # Before the lock: processes of this node that open the set may wait for that.
            apart = stack.enter_context(TemporaryFolder("entries"))
            write_entries(apart, dataset.manifest, dataset.index.digest, spacing, made(dataset, spacing))
        stack.enter_context(folder.alone(str(location)))
        if apart != folder.path:
            with publishing(folder.path / name) as temporary:
                shutil.copyfile(apart / name, temporary)
        elif spacing is not None:
            entries = made_in_windows(dataset, spacing, len(os.sched_getaffinity(0)), observer.advanced)
            write_entries(folder.path, dataset.manifest, dataset.index.digest, spacing, entries)
        try:
            if spacing is None:
                store.delete(path)
            else:
                store.upload(path, folder.path / name)
        except RemoteError as error:
            return str(error)
        finally:
            if spacing is None:
                remove_entries(folder.path, name)
    return ""
