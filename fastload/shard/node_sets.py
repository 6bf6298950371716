"""The node's copies of sets in stores: manifest, index, entry points, columns, runs, and their users."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastload._native import _C
from fastload.errors import FastloadError, FormatError, LocationError, ObjectMissing, RemoteError
from fastload.machine.paths import exists, is_dir
from fastload.machine.threads import started_pool
from fastload.remote.location import Location
from fastload.remote.node_folder import NodeFolder, node_root
from fastload.remote.opening import refuse_options, shared_store
from fastload.remote.store import MOST_AGAIN, Store
from fastload.shard.generations import DROPPED, read_dropped
from fastload.shard.manifest import MANIFEST_NAME, MAX_BYTES, Manifest

# ---- Users, list and removal of copies ----

_USE, _SOURCE = ".use", ".source"
_ID = re.compile(r"[0-9a-f]{32}")


class NodeUse:
    """A set's folder, in use as long as this lives: a shared lock, which the system releases when its
    process is killed.

    Raises:
        CacheError: the folder cannot be created.
    """

    def __init__(self, name: str) -> None:
        self.folder = NodeFolder(name)
        self._file: int | None = None
        while self._file is None:
            try:
                found = os.open(self.folder.path / _USE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self.folder.failed("cannot be written to", error) from error
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(found, fcntl.LOCK_SH)
            if _is_at(found, self.folder.path / _USE):
                self._file = found
            else:  # removed during the wait
                os.close(found)
                self.folder = NodeFolder(name)

    # The defaults bind functions early: at exit, the modules are gone first.
    def __del__(
        self,
        close: Callable[[int], None] = os.close,
        suppress: type[contextlib.suppress] = contextlib.suppress,
    ) -> None:
        if getattr(self, "_file", None) is not None:
            with suppress(OSError):
                close(self._file)  # type: ignore[arg-type]
            self._file = None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def write_source(folder: NodeFolder, source: str) -> None:
    """Record a set's source, for listings."""
    with contextlib.suppress(OSError):
        (folder.path / _SOURCE).write_text(source, encoding="utf-8")


@dataclass(frozen=True)
class NodeSet:
    """One set's folder on the node."""

    path: Path
    source: str  # where it was fetched from; "": unknown
    bytes: int  # on the disk
    in_use: bool


def node_sets() -> list[NodeSet]:
    """Return all sets whose indexes this user's node keeps, by their ids.

    Raises:
        CacheError: there is no place for them.
    """
    root = node_root()
    if not is_dir(root):
        return []
    found = [_look(path) for path in sorted(root.iterdir()) if _ID.fullmatch(path.name) and is_dir(path)]
    return [each for each in found if each is not None]


def _look(path: Path) -> NodeSet | None:
    """Return a folder's contents; None: somebody has just removed it."""
    with contextlib.suppress(FileNotFoundError):
        return _facts(path)
    return None


def _facts(path: Path) -> NodeSet:
    size = 0
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_blocks * 512
    try:
        source = (path / _SOURCE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        source = ""
    lock = _alone(path)
    if lock is not None:
        os.close(lock)
    return NodeSet(path, source, size, lock is None)


def _alone(path: Path) -> int | None:
    """Lock a folder that nobody uses; None: it is in use, or nobody can tell."""
    descriptor = os.open(path / _USE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def remove_node_set(found: NodeSet) -> bool:
    """Remove a set's folder; return False if it is in use.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        lock = _alone(found.path)
    except FileNotFoundError:  # somebody else has removed it
        return True
    if lock is None:
        return False
    try:
        for file in found.path.iterdir():
            if file.name != _USE:
                file.unlink(missing_ok=True)
        (found.path / _USE).unlink(missing_ok=True)  # last: whoever opens the set meanwhile waits for it
        with contextlib.suppress(OSError):  # somebody has begun to fetch it again
            found.path.rmdir()
    finally:
        os.close(lock)
    return True


# ---- Copying a set in a store ----
# Its manifest, index, entry points and columns are kept in a folder of the node; records stay in the store.
# The folder's name is the set's seal, so that a set that was packed again has another folder, and all
# processes of the node find what one of them has fetched.

_PART = 8 << 20  # bytes per request
_AT_ONCE = 16  # requests


@dataclass(frozen=True)
class NodeCopy:
    """What opening needs of a set in a store."""

    location: Location  # of the set's folder
    folder: Path  # on the node: manifest and tables
    manifest: Manifest
    store: Store
    shards: list[tuple[str, int]]  # path in the store, bytes
    use: NodeUse | None = None  # keeps the folder; None: the caller does


@dataclass(frozen=True)
class _Table:
    """A file that is kept on the node."""

    name: str
    size: int | None  # bytes; None: not in the manifest, and the file is optional
    check: Callable[[Path, bool], None]  # raises if it is not the set's; with True it reads all of it


def read_manifest(location: Location, store: Store) -> Manifest:
    """Read the manifest of a set in a store.

    Raises:
        FormatError: it is missing or damaged.
        RemoteError: the store does not return it.
    """
    return _manifest_of(location, store)[0]


def _manifest_of(location: Location, store: Store) -> tuple[Manifest, bytes]:
    """Return the manifest, and its bytes. A damaged one may be so from transit: it is fetched again until it
    is intact, or arrives a second time unchanged."""
    place = location / MANIFEST_NAME
    seen: list[bytes] = []
    while True:
        body = _manifest_bytes(place, store)
        try:
            return Manifest.parse(str(place), body), body
        except FormatError:
            if body in seen or len(seen) == MOST_AGAIN:
                raise
        seen.append(body)


def _manifest_bytes(place: Location, store: Store) -> bytes:
    try:
        return store.get(place.path, most=MAX_BYTES)
    except ObjectMissing as error:
        raise FormatError(
            f"{place.parent} is not a packed dataset: it has no {MANIFEST_NAME}. Check the URL; it must be "
            "that of the folder that 'fastload pack' made, copied there as it is."
        ) from error


def copy_to_node(
    location: Location, storage_options: Mapping[str, Any] | None, entries: bool = True
) -> NodeCopy:
    """Open a set in a store: fetch its manifest, and what the node does not have yet.

    Every file is checked before it gets its name. One process per node fetches, the others wait for it.

    Args:
        location: the set's, or its ``dataset.json``'s.
        storage_options: see :func:`~fastload.remote.opening.open_store`.
        entries: also fetch the entry points, if there are any.

    Raises:
        FormatError: no packed dataset, or one whose files do not belong together.
        RemoteError, ChecksumError: the store does not return its files, or damaged ones.
        CacheError: the node has no place for them.
    """
    if location.name == MANIFEST_NAME:
        location = location.parent
    store = shared_store(location, storage_options)
    manifest, body = _manifest_of(location, store)
    shards = _shards(location, manifest)
    use = NodeUse(manifest.seal)
    folder = use.folder
    tables = _tables(manifest, folder.path, entries)
    if not _is_complete(location, store, folder.path, tables):
        with folder.alone(str(location)):
            folder.remove_leftovers()
            # Without a manifest it is unknown whether the existing files are completely on the disk.
            is_doubtful = not exists(folder.path / MANIFEST_NAME)
            missing = [table for table in tables if not _is_there(folder.path, table, is_doubtful)]
            _fetch(location, store, folder, missing)
            write_source(folder, str(location))
            folder.settle([table.name for table in tables], MANIFEST_NAME, body, use)
    return NodeCopy(location, folder.path, manifest, store, shards, use)


def copy_as_it_is(location: Location, storage_options: Mapping[str, Any] | None, root: Path) -> NodeCopy:
    """Copy a set's manifest and tables into a new folder below ``root``, neither checked nor complete, to
    examine what is wrong with them.

    Raises:
        FormatError: the manifest is missing or damaged.
        RemoteError: the store does not return them.
    """
    if location.name == MANIFEST_NAME:
        location = location.parent
    store = shared_store(location, storage_options)
    manifest, body = _manifest_of(location, store)
    folder = NodeFolder(manifest.seal, root)
    tables = [replace(each, size=None, check=_take) for each in _tables(manifest, folder.path, True)]
    _fetch(location, store, folder, tables)
    folder.write(MANIFEST_NAME, body)
    return NodeCopy(location, folder.path, manifest, store, _shards(location, manifest))


def shards_in_store(
    folder: Path, manifest: Manifest, storage_options: Mapping[str, Any] | None
) -> tuple[Location, Store, list[tuple[str, int]]]:
    """Locate the shards of an index in a folder: the store's root, the store, path and bytes of each.

    Raises:
        FormatError: they are not all in one store.
        LocationError: options for a set that is all in the folder.
    """
    if not manifest.in_store:
        refuse_options(folder, storage_options)
    root = Location.parse(manifest.shards[0].file).root
    return root, shared_store(root, storage_options), _shards(root, manifest)


def _take(path: Path, whole: bool) -> None:
    """Accept the file without a check."""


def _shards(location: Location, manifest: Manifest) -> list[tuple[str, int]]:
    try:
        return [((location / shard.file).path, shard.size) for shard in manifest.shards]
    except LocationError as error:
        raise FormatError(
            f"{location} was indexed in place over files that are not in the store: {error} Pack the set, or "
            "index it where the files are."
        ) from error


def _tables(manifest: Manifest, folder: Path, entries: bool) -> list[_Table]:
    """Return a set's files other than shards; the index first, against which the others are checked."""
    found = [_Table(manifest.index_name, manifest.index_size, partial(_check_index, manifest))]
    if manifest.fields:
        from fastload.shard.columns import column_wrong, open_column
        from fastload.shard.manifest import column_file

        for at, one in manifest.schema.columns:
            file = column_file(at, manifest.fields[at])

            def check(path: Path, whole: bool, one: Any = one, file: Any = file) -> None:
                column = open_column(path, one)
                wrong = column_wrong(column, file, manifest.num_records)
                if wrong:
                    raise FormatError(f"{path} {wrong}. Upload all files of the same pack.")
                if whole:
                    column.verify()

            found.append(_Table(file.file, file.size, check))
    if entries:
        check_entries = partial(_check_entries, folder / manifest.index_name)
        found.append(_Table(manifest.entries_name, None, check_entries))
    if manifest.dropped is not None:
        size = manifest.dropped.count * DROPPED.itemsize
        found.append(_Table(manifest.dropped.file, size, partial(_check_dropped, manifest)))
    if manifest.runs is not None:
        found.append(_Table(manifest.runs.file, manifest.runs.size, partial(_check_runs, manifest)))
    return found


def _check_dropped(manifest: Manifest, path: Path, whole: bool) -> None:
    assert manifest.dropped is not None
    read_dropped(path.parent, replace(manifest.dropped, file=path.name), manifest.num_records)


def _check_runs(manifest: Manifest, path: Path, whole: bool) -> None:
    from fastload.shard.runs import open_runs

    assert manifest.runs is not None
    column = open_runs(path, manifest.runs, manifest.num_records)
    if whole:
        column.verify()


def _check_index(manifest: Manifest, path: Path, whole: bool) -> None:
    index = _C.Index(str(path))
    if len(index) != manifest.num_records or index.digest != manifest.index_crc:
        raise FormatError(
            f"{path} does not belong to this manifest: it has {len(index)} records and digest "
            f"{index.digest:#010x}, the manifest says {manifest.num_records} and {manifest.index_crc:#010x}. "
            "Upload all files of the same pack."
        )
    if whole:
        index.verify()


def _check_entries(index: Path, path: Path, whole: bool) -> None:
    entries = _C.Entries(str(path), _C.Index(str(index)))
    if whole:
        entries.verify()


def _is_there(folder: Path, table: _Table, whole: bool = False) -> bool:
    """Return whether the node has the file; one that was damaged since is fetched again."""
    path = folder / table.name
    try:
        if path.stat().st_size != (table.size if table.size is not None else path.stat().st_size):
            return False
        table.check(path, whole)
    except (OSError, FastloadError):
        return False
    return True


def _is_complete(location: Location, store: Store, folder: Path, tables: Sequence[_Table]) -> bool:
    """Return whether the node has all that exists; the store is asked about missing entry points."""
    if not exists(folder / MANIFEST_NAME):
        return False
    missing = [table for table in tables if not _is_there(folder, table)]
    return all(table.size is None for table in missing) and not any(
        store.head((location / table.name).path) for table in missing
    )


def _fetch(location: Location, store: Store, folder: NodeFolder, tables: Sequence[_Table]) -> None:
    """Fetch files by many concurrent requests, check them, and rename them in this order."""
    temporaries = {table.name: folder.temporary(table.name) for table in tables}
    try:
        with started_pool(_AT_ONCE, "copy") as pool:
            try:
                fetching = _Fetching(location, store, folder, temporaries, pool)
                fetching.begin(tables)
                for table in tables:
                    if fetching.wait(table.name):
                        _finish(fetching, table)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except ObjectMissing as error:
        raise FormatError(f"{location} is not whole: {error} Upload all files of the same pack.") from error
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise folder.failed("cannot be written to", error) from error
    finally:
        for path in temporaries.values():
            path.unlink(missing_ok=True)


@dataclass
class _Fetching:
    """Files of a set that are being fetched, each to a temporary file."""

    location: Location
    store: Store
    folder: NodeFolder
    temporaries: Mapping[str, Path]
    pool: ThreadPoolExecutor
    _sizes: dict[str, int] = field(default_factory=dict)
    _parts: dict[str, list[Future[None]]] = field(default_factory=dict)

    def begin(self, tables: Sequence[_Table]) -> None:
        """Request each file that the store has."""
        known = {table.name: table.size for table in tables if table.size is not None}
        self.folder.require(sum(known.values()), str(self.location))
        looks = {
            table.name: self.pool.submit(self.store.head, (self.location / table.name).path)
            for table in tables
            if table.size is None
        }
        for name, size in known.items():  # meanwhile the store reports the others' sizes
            self.ask(name, size)
        for name, look in looks.items():
            facts = look.result()
            if facts is not None:
                self.folder.require(facts.size, str(self.location))
                self.ask(name, facts.size)

    def ask(self, name: str, size: int) -> None:
        """Request a file."""
        file, path = self.temporaries[name], (self.location / name).path
        file.touch()
        self._sizes[name] = size
        self._parts[name] = [
            self.pool.submit(_copy_part, self.store, path, begin, min(begin + _PART, size), file)
            for begin in range(0, size, _PART)
        ]

    def wait(self, name: str) -> bool:
        """Wait until a file has arrived; return False if it was not requested."""
        for part in self._parts.get(name, ()):
            part.result()
        return name in self._parts

    def fetch_again(self, name: str) -> None:
        """Request a file once more, and wait for it."""
        self.ask(name, self._sizes[name])
        self.wait(name)


def _copy_part(store: Store, path: str, begin: int, end: int, file: Path) -> None:
    data = store.get(path, begin, end)
    with open(file, "r+b") as opened:
        opened.seek(begin)
        opened.write(data)


def _finish(fetching: _Fetching, table: _Table) -> None:
    """Check a file, and rename it. A wrong one may have been damaged in transit, and is fetched again."""
    place, temporary = fetching.location / table.name, fetching.temporaries[table.name]
    try:
        for again in reversed(range(MOST_AGAIN + 1)):
            try:
                table.check(temporary, True)
                break
            except FastloadError:
                if not again:
                    raise
            fetching.fetch_again(table.name)
    except RemoteError:
        raise
    except FastloadError as error:
        if table.size is not None:
            raise type(error)(f"{place}: {error}") from error
        warnings.warn(
            f"{place}: {error} The entry points are left out: pixels are the same, decoding takes longer.",
            stacklevel=2,
        )
        return
    temporary.replace(fetching.folder.path / table.name)
