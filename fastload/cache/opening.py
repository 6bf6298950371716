"""From ``cache=`` to cache files: attaching to existing ones, creating those that are worth it."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.files import attach, clean, create, inspect, left_bytes, promised_bytes, remove
from fastload.cache.folder import PrivateFolder
from fastload.cache.layout import (
    ENTRY,
    HEADER_BYTES,
    LIVE_BYTES,
    PAGE,
    CacheInfo,
    Contents,
    NoRoom,
    encoded,
    padding,
)
from fastload.cache.policy import (
    Candidate,
    Decision,
    Room,
    cached_sets,
    decide,
    find_room,
    is_large_enough,
    remove_stale,
    set_name,
)
from fastload.cache.settings import CacheSetting
from fastload.errors import CacheError
from fastload.machine.paths import read_at
from fastload.machine.sizes import human_bytes
from fastload.machine.threads import start_beside
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import INDEX_NAME, entries_name

# ---- Streams of records ----
# The index's records are one stream, those of each further picture another; each has its own cache. A loader
# caches the streams that it reads. A loader that also reads others finds the files of the first, and adds its
# own; so no file depends on who created it.

#: Records, by the name of their field; None: those of the index.
Streams: TypeAlias = Sequence[str | None]
FIRST: Streams = (None,)

#: Returns which samples of a dataset get room in its caches before the others, (n,) bool.
First: TypeAlias = Callable[[PackedFiles], npt.NDArray[np.bool_]]

#: The records of one stream of a dataset.
Kept: TypeAlias = tuple[PackedFiles, str | None]


@dataclass(frozen=True)
class Tier:
    """A form in which records are kept.

    Args:
        name: "encoded", "decoded-SIDE"; for a further picture's records "field-NN", like its column.
        contents: what a file of it holds; may read all entries.
        data_bytes: the bytes of all records in this form.
        field: the further picture's field; None: the index's records.
    """

    name: str
    contents: Callable[[PackedFiles], Contents]
    data_bytes: Callable[[PackedFiles], int]
    field: str | None = None


ENCODED = Tier("encoded", encoded, lambda dataset: dataset.manifest.data_bytes)


def place_of(dataset: PackedFiles) -> dict[str, bool]:
    """Return whether all shards are in memory, and whether some are on a network or in a store."""
    if dataset.location is not None:
        return {"in_memory": False, "remote": True}
    folders: dict[Path, str] = {}
    for shard in dataset.manifest.shards:
        path = dataset.folder / shard.file
        folders.setdefault(path.parent, str(path))
    kinds = [_C.file_system(path) for path in folders.values()]
    return {
        "in_memory": bool(kinds) and all(kind["in_memory"] for kind in kinds),
        "remote": any(kind["remote"] for kind in kinds),
    }


def tier_of_field(dataset: PackedFiles, field: str, cheap: bool = False) -> Tier:
    """Return the tier of a further picture's records.

    Args:
        cheap: ``data_bytes`` is a bound that needs no look at any record.
    """
    of_bytes = _most_bytes if cheap else partial(stream_bytes, field=field)
    return Tier(dataset.columns.path(field).stem, partial(_encoded, field=field), of_bytes, field)


def _encoded(dataset: PackedFiles, field: str) -> Contents:
    records = dataset.field_records(field)
    return Contents(
        dataset.manifest.seal,
        dataset.columns.path(field).stem,
        dataset.folder,
        dataset.columns[field].digest,
        np.ascontiguousarray(records["length"]),
        np.ascontiguousarray(records["crc32c"]),
    )


def _most_bytes(dataset: PackedFiles) -> int:
    """Return the bytes of all records but the index's, plus the overhead of the shards' format."""
    return max(0, sum(shard.size for shard in dataset.manifest.shards) - dataset.manifest.data_bytes)


def stream_bytes(dataset: PackedFiles, field: str | None) -> int:
    """Return the bytes of all records of a stream; for a further picture this reads all entries."""
    if field is None:
        return dataset.manifest.data_bytes
    return int(dataset.field_records(field)["length"].sum(dtype=np.uint64))


def all_streams(datasets: Sequence[PackedFiles]) -> Streams:
    """Return every stream that any of the datasets has."""
    named = (
        field.name
        for dataset in datasets
        if not dataset.is_plain
        for _, field in dataset.schema.columns
        if field.storage in ("record", "records")
    )
    has_index = any(dataset.is_plain or dataset.schema.index_field is not None for dataset in datasets)
    return (*((None,) if has_index else ()), *dict.fromkeys(named))


def kept_of(datasets: Sequence[PackedFiles], streams: Streams) -> list[Kept]:
    """Return those of the streams that the datasets have."""
    return [(each, stream) for stream in streams for each in datasets if stream in all_streams([each])]


# ---- Cache files of a loader ----

_log = logging.getLogger("fastload")
_RETURN_SECONDS = 1.0  # for memory of removed files that others have open only briefly


@dataclass
class PartUse:
    """The cache of one packed dataset's records, or why there is none."""

    file: _C.CacheFile | None
    reason: str
    nearer: str = ""  # see Decision


@dataclass
class CacheUse:
    """What a loader uses: a part for each stream of records of each packed dataset. The files are in use
    while this lives, or until it is closed."""

    parts: list[PartUse] = field(default_factory=list)
    tier: str = "encoded"
    kept: Sequence[Kept] = ()  # the stream of each part
    _last: dict[str, Any] | None = None  # the stats, once it is closed

    @property
    def files(self) -> list[_C.CacheFile | None]:
        """``_C.CacheFile`` or None for each part."""
        return [part.file for part in self.parts]

    def of(self, stream: str | None) -> list[_C.CacheFile | None]:
        """Return the files of one stream, one per packed dataset; None if it was not requested."""
        pairs = zip(self.parts, self.kept, strict=True)
        return [part.file for part, (_, found) in pairs if found == stream]

    @property
    def room_bytes(self) -> int:
        """Bytes of records that have a place in memory."""
        return sum(file.room_bytes for file in self.files if file is not None)

    def close(self) -> None:
        """Release the files; :meth:`stats` keeps its current values. Idempotent."""
        self._last = self.stats()
        for part in self.parts:
            part.file = None

    def stats(self) -> dict[str, Any]:
        """Return counts of this process (hits, misses, stored, damaged, failed: records) and of the node
        (bytes of the files; ready_records, ready_bytes; room_records), summed over the sets; ``tier``;
        ``reason``; ``paths``."""
        if self._last is not None:
            return self._last
        files = [file for file in self.files if file is not None]
        counts = [
            {**file.counts(), "bytes": file.file_bytes, "room_records": file.room_records} for file in files
        ]
        names = dict.fromkeys(name for count in counts for name in count)
        return {
            **{name: sum(count.get(name, 0) for count in counts) for name in names},
            "tier": self.tier,
            "paths": [file.path for file in files],
            "reason": "; ".join(dict.fromkeys(part.reason for part in self.parts)),
        }


@dataclass
class _Survey:
    """The files found for a dataset's parts."""

    parts: list[Candidate]
    infos: list[CacheInfo | None]  # existing files
    uses: list[bool]  # whether they can be used
    decisions: list[Decision]  # for those that are unusable or missing
    lacking: CacheError | None = None  # why an explicit setting cannot be satisfied

    @property
    def lacks_room(self) -> bool:
        """Whether room is lacking: another process may have just taken it, for this very file."""
        lacks = (
            decision.limit == 0 and decision.reason and not decision.nearer for decision in self.decisions
        )
        return self.lacking is not None or any(lacks)


def no_cache(kept: Sequence[Kept], reason: str, tier: Tier = ENCODED) -> CacheUse:
    """Return a use without files, for a reason."""
    return CacheUse([PartUse(None, reason) for _ in kept], tier.name, kept)


def open_cache(
    datasets: Sequence[PackedFiles],
    setting: CacheSetting,
    tier: Tier = ENCODED,
    streams: Streams = FIRST,
    first: First | None = None,
) -> CacheUse:
    """Open the cache files of some datasets; create those that the setting wants and that are missing.

    Args:
        datasets: the parts of what is read.
        setting: how much, and where.
        tier: the form in which the index's records are kept; those of further pictures are kept as they are.
        streams: which records; those of each stream and dataset have their own file.
        first: which samples get room before the others in files that are created; None: all are alike.

    Raises:
        CacheError: an explicit setting cannot be satisfied; has numbers. "auto" raises nothing.
    """
    kept = kept_of(datasets, streams)
    if setting.mode == "off" or not kept:
        return no_cache(kept, "switched off", tier)
    try:
        use = _Opening(kept, setting, tier, first).run()
    except (CacheError, OSError, MemoryError) as error:
        if setting.mode != "auto":
            raise
        use = no_cache(kept, f"no cache: {error}", tier)
    for part, (of, _) in zip(use.parts, kept, strict=True):
        _log.info("cache of %s: %s", of.where, part.reason)
    return use


def planned_bytes(
    datasets: Sequence[PackedFiles], setting: CacheSetting, tier: Tier = ENCODED, streams: Streams = FIRST
) -> int:
    """Return the bytes of memory that the cache files take, or would take, on this node. Creates nothing.

    Raises:
        CacheError: an explicit setting cannot be satisfied.
    """
    kept = kept_of(datasets, streams)
    if setting.mode == "off" or not kept:
        return 0
    try:
        return _Opening(kept, setting, tier).planned()
    except (CacheError, OSError, MemoryError):
        if setting.mode != "auto":
            raise
        return 0


def files_there(
    datasets: Sequence[PackedFiles], setting: CacheSetting, tier: Tier = ENCODED
) -> list[_C.CacheFile | None]:
    """Return each dataset's existing file of a tier, or None, for reading only."""
    try:
        with PrivateFolder(setting.folder) as folder:
            return [_there(folder, set_name(dataset, tier.name)) for dataset in datasets]
    except (CacheError, OSError):
        return [None] * len(datasets)


def _there(folder: PrivateFolder, name: str) -> _C.CacheFile | None:
    try:
        return attach(folder, name, write=False)
    except (FileNotFoundError, CacheError):
        return None


def has_file(datasets: Sequence[PackedFiles], setting: CacheSetting, tier: Tier) -> bool:
    """Return whether each dataset has a file of a tier that a loader may use as it is."""
    try:
        with PrivateFolder(setting.folder) as folder:
            infos = [_inspect(folder, set_name(dataset, tier.name)) for dataset in datasets]
    except (CacheError, OSError):
        return False
    return bool(infos) and all(info is not None for info in infos)


class _Opening:
    """One call of :func:`open_cache`."""

    def __init__(
        self, kept: Sequence[Kept], setting: CacheSetting, tier: Tier, first: First | None = None
    ) -> None:
        self._kept, self._first = kept, first
        self._datasets = [dataset for dataset, _ in kept]
        self._setting = setting
        self._tier = tier
        places = [place_of(dataset) for dataset in self._datasets]
        # Lengths of many millions of records are read only if the set may get a cache.
        auto = setting.mode == "auto"
        self._tiers = [
            tier if stream is None else tier_of_field(dataset, stream, auto and not place["remote"])
            for (dataset, stream), place in zip(kept, places, strict=True)
        ]
        each = list(zip(self._datasets, self._tiers, strict=True))
        self._names = [set_name(dataset, tier.name) for dataset, tier in each]
        described = zip(each, places, strict=True)
        self._parts = [_describe(dataset, tier, place) for (dataset, tier), place in described]

    def planned(self) -> int:
        try:
            with PrivateFolder(self._setting.folder) as folder:
                survey = self._survey(folder)
        except FileNotFoundError:
            survey = self._survey(None)
        if survey.lacking is not None:
            raise survey.lacking
        found = zip(survey.infos, survey.uses, strict=True)
        held = sum(info.file_bytes for info, used in found if info is not None and used)
        return held + sum(decision.limit for decision in survey.decisions)

    def run(self) -> CacheUse:
        uses: list[PartUse | None] = [None] * len(self._datasets)
        try:
            with PrivateFolder(self._setting.folder) as folder:
                survey = self._survey(folder)
                self._attach(folder, survey, uses)
        except FileNotFoundError:
            survey = self._survey(None)
        limit = sum(decision.limit for decision in survey.decisions)
        vanished = any(used and use is None for used, use in zip(survey.uses, uses, strict=True))
        if limit > 0 or vanished or survey.lacks_room:
            survey = self._make(uses, limit > 0 or vanished) or survey
        if survey.lacking is not None:
            raise survey.lacking
        decisions = zip(uses, survey.decisions, strict=True)
        parts = [use or PartUse(None, decision.reason, decision.nearer) for use, decision in decisions]
        for part, tier in zip(parts, self._tiers, strict=True):
            if tier.field is not None:
                part.reason = f"field {tier.field!r}: {part.reason}"
        return CacheUse(parts, self._tier.name, self._kept)

    def _make(self, uses: list[PartUse | None], create: bool) -> _Survey | None:
        """Look again under the folder's lock, and create what is missing. None: without ``create`` there is
        no folder.

        Without the lock, room may be lacking because another process is creating the wanted file.
        """
        try:
            opened = PrivateFolder(self._setting.folder, create=create)
        except FileNotFoundError:
            return None
        with opened as folder, folder.creating():
            clean(folder)  # leftovers take room
            survey = self._survey(folder)
            self._attach(folder, survey, uses)
            if survey.lacking is None:
                self._create(folder, survey, uses)
        return survey

    def _survey(self, folder: PrivateFolder | None) -> _Survey:
        """Return which files exist, and what to create in place of those that do not."""
        setting, parts = self._setting, self._parts
        infos = [_inspect(folder, name) for name in self._names]
        total = max(1, sum(part.need for part in parts))
        idle = sum(info.file_bytes for info in infos if info is not None and not info.in_use)
        room = self._room(folder, idle)
        uses = [
            info is not None and (info.in_use or is_large_enough(info.limit, setting, part, total, room))
            for info, part in zip(infos, parts, strict=True)
        ]
        missing = [part for part, used in zip(parts, uses, strict=True) if not used]
        if not missing:
            return _Survey(parts, infos, uses, [Decision(0, "")] * len(parts))
        freed = sum(i.file_bytes for i, used in zip(infos, uses, strict=True) if i is not None and not used)
        stale = sum(found.size for found in cached_sets(folder) if found.stale) if folder is not None else 0
        left = left_bytes(folder) if folder is not None else 0
        try:
            decided = iter(decide(missing, setting, self._room(folder, freed + stale + left)))
        except CacheError as error:
            return _Survey(parts, infos, uses, [Decision(0, "")] * len(parts), error)
        return _Survey(parts, infos, uses, [Decision(0, "") if used else next(decided) for used in uses])

    def _room(self, folder: PrivateFolder | None, returned: int) -> Room:
        if folder is None:
            return find_room(self._setting.folder, returned=returned)
        return find_room(folder.path, returned=returned - promised_bytes(folder))

    def _attach(self, folder: PrivateFolder, survey: _Survey, uses: list[PartUse | None]) -> None:
        for i, (name, used) in enumerate(zip(self._names, survey.uses, strict=True)):
            if used and uses[i] is None:
                uses[i] = _attached(folder, name)

    def _create(self, folder: PrivateFolder, survey: _Survey, uses: list[PartUse | None]) -> None:
        for i, (name, decision) in enumerate(zip(self._names, survey.decisions, strict=True)):
            if decision.limit == 0 or uses[i] is not None:
                continue
            if not remove(folder, name):  # somebody has just begun to use it
                uses[i] = _attached(folder, name)
                continue
            self._make_room(folder, decision.limit)
            check = partial(_check, folder, self._setting)
            tier = self._tiers[i]
            try:
                file = create(folder, name, self._contents(i), decision.limit, check)
                uses[i] = PartUse(file, decision.reason)
            except NoRoom as error:
                if tier.field is None:
                    raise
                uses[i] = PartUse(None, f"no cache: {error}")

    def _contents(self, i: int) -> Contents:
        dataset, contents = self._datasets[i], self._tiers[i].contents(self._datasets[i])
        if self._first is None:
            return contents
        return replace(contents, first=dataset.spread(self._kept[i][1], self._first(dataset), False))

    def _make_room(self, folder: PrivateFolder, need: int) -> None:
        if self._room(folder, 0).free >= need:
            return
        for found in remove_stale(folder):
            size = human_bytes(found.bytes)
            _log.warning("removed the stale cache file %s (%s): %s", found.path, size, found.stale)
        # Whoever was checking a file when it was removed holds its memory until then.
        limit = time.monotonic() + _RETURN_SECONDS
        while self._room(folder, 0).free < need and time.monotonic() < limit:
            time.sleep(0.01)


def _check(folder: PrivateFolder, setting: CacheSetting, size: int) -> None:
    """Check that there is enough memory, before it is taken.

    Raises:
        CacheError: there is not.
    """
    room = find_room(folder.path, returned=-promised_bytes(folder))
    if room.free < size:
        raise CacheError(room.lacking(size, str(setting)) + '; or pass cache="off".')


def _inspect(folder: PrivateFolder | None, name: str) -> CacheInfo | None:
    """Return a file's header; None: missing or invalid, which is treated alike."""
    if folder is None:
        return None
    try:
        return inspect(folder, name)
    except (FileNotFoundError, CacheError):
        return None


def _attached(folder: PrivateFolder, name: str) -> PartUse | None:
    try:
        file = attach(folder, name)
    except FileNotFoundError:
        return None  # removed meanwhile
    share = f"{human_bytes(file.room_bytes)} of {human_bytes(file.set_bytes)}"
    return PartUse(file, f"using {file.path}, which has room for {share}")


def _describe(dataset: PackedFiles, tier: Tier, place: dict[str, bool]) -> Candidate:
    name = dataset.where if tier.field is None else f"{dataset.where}, field {tier.field!r}"
    form = tier.name if tier.field is None else ENCODED.name
    return Candidate(name, file_bytes(dataset, tier), tier=form, **place)


def file_bytes(dataset: PackedFiles, tier: Tier) -> int:
    """Return the size in bytes of a file with all records, at most."""
    manifest = dataset.manifest
    entries = dataset.folder / manifest.entries_name
    tables = [dataset.record_count(tier.field) * ENTRY.itemsize]
    if tier.name == ENCODED.name:  # this one copies the tables
        tables += [manifest.index_size, entries.stat().st_size if dataset.entries is not None else 0]
    pages = sum(-(-size // PAGE) * PAGE for size in tables)
    data = tier.data_bytes(dataset)
    return HEADER_BYTES + LIVE_BYTES + pages + data + padding(data)


# ---- Copies of index.fli and entries.fli in the cache ----
# No decode waits for a page of a copy. One process per node copies, under a claim that the kernel releases
# when it dies; the others check now and then, and copy if nobody does. Until then they use the file itself.

_PIECE = 1 << 20  # bytes; written holding the GIL, in some 200 us
_LOOK_SECONDS = 0.5


def copy_table(
    reference: weakref.ref[_C.CacheFile], table: int, path: Path, stopping: threading.Event | None = None
) -> bool:
    """Copy a file into a cache, held only for a piece at a time, so that closing it need not wait.

    Args:
        reference: weak reference to a ``_C.CacheFile``.
        table: 0: index.fli, 1: entries.fli.
        path: the file.
        stopping: once it is set, the copy is left to others.

    Returns:
        Whether nothing is left to do: the copy is complete, has no room or cannot be made. False if
        another process makes it.
    """
    cache = reference()
    if cache is None:
        return True
    begin, size = cache.copy_range(table)
    if size == 0 or cache.has_copy(table) or not cache.is_writable:
        return True
    if not cache.claim(begin, begin + size):
        return False
    if cache.has_copy(table):  # it has been completed meanwhile
        cache.release(begin, begin + size)
        return True
    del cache
    try:
        with path.open("rb", buffering=0) as file:
            _copy_pieces(reference, table, file.fileno(), size, stopping or threading.Event())
    except OSError:
        pass  # the file is used as it is, and its errors are reported there
    cache = reference()
    if cache is not None:
        cache.release(begin, begin + size)
    return True


def _copy_pieces(
    reference: weakref.ref[_C.CacheFile], table: int, descriptor: int, size: int, stopping: threading.Event
) -> None:
    if os.fstat(descriptor).st_size != size:
        return  # not the file that the cache was created for
    at = 0
    while at < size and not stopping.is_set():
        piece = read_at(descriptor, min(_PIECE, size - at), at)
        cache = reference()
        if not piece or cache is None or not cache.write_copy(table, at, np.frombuffer(piece, np.uint8)):
            return
        at += len(piece)


def start_copies(
    cache: _C.CacheFile,
    folder: Path,
    look_seconds: float = _LOOK_SECONDS,
    index: str = INDEX_NAME,
    patience: float = math.inf,
) -> threading.Thread | None:
    """Start a thread of this process that copies a dataset's tables into its cache.

    Args:
        cache: ``_C.CacheFile``.
        folder: the dataset's.
        look_seconds: time between two checks whether another process has copied.
        index: the name of the dataset's index.
        patience: seconds after which a table that another process is copying is left to it.

    Returns:
        The thread; None if there is nothing to copy, or no thread can start.
    """
    tables = {0: folder / index, 1: folder / entries_name(index)}
    wanted = {t: p for t, p in tables.items() if cache.copy_range(t)[1] > 0 and not cache.has_copy(t)}
    if not wanted or not cache.is_writable:
        return None
    stopping = threading.Event()
    work = partial(_work, weakref.ref(cache), wanted, look_seconds, stopping, patience)
    try:
        return start_beside(work, "fastload-cache", stopping.set)
    except RuntimeError:  # no more threads, or no memory for one: the files are used as they are
        return None


def _work(
    reference: weakref.ref[_C.CacheFile],
    tables: dict[int, Path],
    look_seconds: float,
    stopping: threading.Event,
    patience: float,
) -> None:
    for table, path in tables.items():
        waited = 0.0
        while not copy_table(reference, table, path, stopping) and waited < patience:
            if stopping.wait(look_seconds):
                return
            waited += look_seconds
