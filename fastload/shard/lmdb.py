"""LMDB shards: keys ``%08d``, values the encoded bytes, readable by any LMDB reader.

Further fields of samples, if any, are at ``%08d/NAME``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError, ShardError
from fastload.machine.paths import is_dir
from fastload.machine.sizes import counted
from fastload.shard.columns import Chunk
from fastload.shard.formats import Foreign, Kinds, Located, ShardSpec

LISTS_HAVE_HEADS = True
_PAGE = 4096
_SLICE = 256  # values located through one memory map
_BY_THE_SYSTEM = (lmdb.DiskError, lmdb.LockError, lmdb.MemoryError, lmdb.ReadonlyError)
_SLACK = 1 << 20  # branch and leaf pages of the keys, and the copies that commits leave behind


def data_file(path: Path) -> Path:
    """Return LMDB's own file in the shard's folder."""
    return path / "data.mdb"


def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    """Estimate: large values fill whole 4096-byte pages after a 16-byte header; small ones share leaves."""
    pages = (lengths + np.uint64(16 + _PAGE - 1)) // np.uint64(_PAGE)
    return int(pages.sum()) * _PAGE + 128 * len(lengths) + _SLACK


@contextmanager
def _failures_reported() -> Iterator[None]:
    """Turn LMDB's exceptions, which are not OSErrors even if a system call failed, into OSErrors."""
    try:
        yield
    except lmdb.Error as error:
        raise OSError(str(error)) from error


def _opened(path: Path, **options: Any) -> lmdb.Environment:
    """Open the database despite signals, which LMDB itself treats as failures."""
    while True:
        try:
            return lmdb.open(str(path), **options)
        except lmdb.Error as error:
            if not str(error).endswith(os.strerror(errno.EINTR)):
                raise


class Writer:
    """A writer in key order, so that pages are filled; one transaction per group bounds the memory."""

    def __init__(self, path: Path, spec: ShardSpec) -> None:
        path.mkdir()
        self._fields = spec.schema
        size = spec.data_bytes + spec.records * (_PAGE + 64) + 4 * _SLACK
        # No lock file (one writer, a private name), no sync (the publisher does it), and no writemap:
        # it would turn a full disk into SIGBUS.
        map_size = -(-size // _PAGE) * _PAGE
        with _failures_reported():
            self._env = _opened(path, map_size=map_size, lock=False, sync=False, metasync=False, max_dbs=0)
        self._count = 0

    def append(
        self,
        data: npt.NDArray[np.uint8],
        records: npt.NDArray[np.void],
        keys: list[bytes],
        further: Sequence[Chunk] = (),
    ) -> None:
        view = data.data
        offsets, lengths = records["offset"].tolist(), records["length"].tolist()
        items = [
            (b"%08d" % (self._count + i), view[begin : begin + length])
            for i, (begin, length) in enumerate(zip(offsets, lengths, strict=True))
        ]
        if self._fields is not None:
            values = self._named(records, further)
            items = [item for i, item in enumerate(items) for item in (item, *(of[i] for of in values))]
        with _failures_reported():
            while not self._put(items):
                self._env.set_mapsize(2 * self._env.info()["map_size"])
        self._count += len(records)

    def _named(
        self, records: npt.NDArray[np.void], further: Sequence[Chunk]
    ) -> list[list[tuple[bytes, memoryview]]]:
        """Return keys and values of each field but the index's, in the order of their keys."""
        assert self._fields is not None
        chunks = {field.name: chunk for (_, field), chunk in zip(self._fields.columns, further, strict=True)}
        if self._fields.label_field is not None:
            labels = np.ascontiguousarray(records["label"])
            sizes = np.full(len(labels), labels.itemsize, np.uint64)
            chunks[self._fields.label_field.name] = Chunk(labels.view(np.uint8), sizes)
        found = []
        for name, chunk in sorted((name.encode(), chunk) for name, chunk in chunks.items()):
            view, ends = chunk.data.data, np.cumsum(chunk.lengths).tolist()
            starts = [0, *ends[:-1]]
            found.append(
                [
                    (b"%08d/%s" % (self._count + i, name), view[begin:end])
                    for i, (begin, end) in enumerate(zip(starts, ends, strict=True))
                ]
            )
        return found

    def _put(self, items: list[tuple[bytes, memoryview]]) -> bool:
        """Put the items; return False if the map is full, and undo the transaction."""
        try:
            with self._env.begin(write=True) as txn:
                txn.cursor().putmulti(items, append=True)
        except lmdb.MapFullError:
            return False
        return True

    def close(self) -> None:
        self._env.close()

    def abort(self) -> None:
        self._env.close()


def _map_base(file: Path) -> tuple[int, int]:
    """Return address and size of this process's only mapping of ``file``."""
    status = os.stat(file)
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) < 6 or int(fields[4]) != status.st_ino or int(fields[2], 16) != 0:
                continue
            major, minor = (int(part, 16) for part in fields[3].split(b":"))
            if (major, minor) == (os.major(status.st_dev), os.minor(status.st_dev)) or fields[5].rstrip(
                b"\n"
            ) == os.fsencode(file):
                first, last = (int(part, 16) for part in fields[0].split(b"-"))
                return first, last - first
    raise FormatError(f"{file}: its memory map is not listed in /proc/self/maps; cannot locate its records.")


def _walk(path: Path) -> tuple[Located, list[bytes]]:
    """Return byte ranges and keys of all values, in key order."""
    offsets: list[int] = []
    lengths: list[int] = []
    keys: list[bytes] = []
    try:
        # The walk touches a page of every value. A new map now and then releases them, so that the memory
        # does not grow with the shard.
        while _walk_slice(path, offsets, lengths, keys):
            pass
    except lmdb.Error as error:
        # Damage has its own classes; the base class is for failed system calls.
        if type(error) is lmdb.Error or isinstance(error, _BY_THE_SYSTEM):
            raise ShardError(f"{path} cannot be read: {error}") from None
        raise FormatError(f"{path} is not a whole LMDB database: {error}") from None
    return Located(np.array(offsets, np.uint64), np.array(lengths, np.uint64)), keys


def _walk_slice(path: Path, offsets: list[int], lengths: list[int], keys: list[bytes]) -> bool:
    """Add the next :data:`_SLICE` values; return False if there were no more."""
    folder = is_dir(path)
    env = _opened(path, subdir=folder, readonly=True, lock=False, readahead=False, create=False)
    try:
        # LMDB values never move while the map stands, so an address in it is a file offset.
        file = (data_file(path) if folder else path).resolve()
        base, size = _map_base(file)
        pages, there = (env.info()["last_pgno"] + 1) * env.stat()["psize"], file.stat().st_size
        if there < pages:  # LMDB would touch the missing pages, and the process would die
            raise FormatError(
                f"{path} is not a whole LMDB database: it has {there} bytes, its pages take {pages}. Restore "
                "it, or if its own tools read it, copy it with 'mdb_copy -c'."
            )
        with env.begin(buffers=True) as txn:
            cursor = txn.cursor()
            more = cursor.set_range(keys[-1]) and cursor.next() if keys else cursor.first()
            for _ in range(_SLICE):
                if not more:
                    return False
                value = cursor.value()
                offset = np.frombuffer(value, np.uint8).ctypes.data - base if len(value) else 0
                if not 0 <= offset <= size - len(value):
                    raise FormatError(f"{path}: a value lies outside the database's memory map.")
                offsets.append(offset)
                lengths.append(len(value))
                keys.append(bytes(cursor.key()))
                more = cursor.next()
            return bool(more)
    finally:
        env.close()


def locate(path: Path, names: Sequence[str | None] = ("image",)) -> list[Located]:
    """Locate the pictures of one of our shards, by their addresses in LMDB's memory map.

    The first field has the records' plain keys, the others have keys with their name.
    """
    located, keys = _walk(path)
    plain = np.array([b"/" not in key for key in keys], np.bool_)
    own = [key for key, mine in zip(keys, plain, strict=True) if mine]
    if own != [b"%08d" % i for i in range(len(own))]:
        raise FormatError(f"{path} does not have the keys that this program writes.")
    found = [Located(located.offsets[plain], located.lengths[plain])]  # empty values without a picture
    for name in names[1:]:
        suffix = b"/" + (name or "").encode()
        mine = np.array([key[8:] == suffix for key in keys], np.bool_)
        found.append(Located(located.offsets[mine], located.lengths[mine]))
    return found


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Read byte ranges and keys of an LMDB whose values are image files.

    Raises:
        FormatError: not a database, one that ``lmdb.verify`` refuses, or one of named databases.
    """
    if column is not None:
        raise FormatError(f"{path} is an LMDB database; it has no columns, leave --column out.")
    _verify(path)
    located, keys = _walk(path)
    return Foreign(located, keys=[key.decode("utf-8", "backslashreplace") for key in keys])


def _verify(path: Path) -> None:
    """Check the file's structure before the engine, which trusts it, sees it (py-lmdb 3.0 and newer)."""
    try:
        from lmdb import verify
    except ImportError:
        return
    file = data_file(path) if is_dir(path) else path  # any failure here would read "no folder"
    try:
        problems = verify.verify(str(file))  # type: ignore[no-untyped-call]
    except (verify.VerifyError, FileNotFoundError) as error:
        raise FormatError(f"{path} is not an LMDB database: {error}") from None
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror}.") from error
    if problems:
        raise FormatError(
            f"{path} is a damaged LMDB database: {problems[0]} ({counted(len(problems), 'problem')})"
        )
