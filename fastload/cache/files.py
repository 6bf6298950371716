"""Cache files in memory: creating them, attaching to them, inspecting and removing them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fastload._native import _C
from fastload.cache.folder import TEMPORARY, Folder, lock, lock_alone, open_private, unnamed
from fastload.cache.layout import (
    HEADER,
    HEADER_BYTES,
    LIVE_BYTES,
    MAGIC,
    RESERVED_AT,
    TIER_SUFFIX,
    CacheInfo,
    Contents,
    check_sizes,
    header_of,
    plan,
    said,
    table_of,
)
from fastload.errors import CacheError, FastloadError
from fastload.machine.paths import read_at, write_at

# A file gets its name when its tables are complete; a process that dies while creating it leaves nothing.
# By then the first of its memory is reserved, and a thread of the core goes on
# (csrc/core/cache/reservation.h), so that nobody waits for it. What files will still take counts as taken
# when room is computed. Whoever uses a file holds a shared ``flock`` on it, which ends with the process; so a
# file whose exclusive lock can be had is not in use, and only such a file is removed.
#
# The records of a large set are in files beside it, its stripes (NAME.0, NAME.1, ...), because the kernel
# lets one thread at a time write to a file; those of a disk tier are in one (NAME.data). They get their names
# before it does and lose them after it, so whoever is attached to it has them; stripes without it were left
# by a process that died.

_STRIPE = re.compile(r"(?<=\.flc)\.[0-9]+$|(?<=\.flt)\.data$")
_FIRST = 64 << 20  # bytes of records that are reserved before a file is used: 30 ms
_STEP = 1 << 30  # bytes reserved at a time: signals are handled in between
_ATTACH_SECONDS = 10.0  # for a lock that is held only briefly


def attach(folder: Folder, name: str, *, write: bool = True) -> _C.CacheFile:
    """Attach to a cache file.

    Args:
        folder: the file's folder.
        name: the file's name.
        write: also store records, if that is allowed.

    Returns:
        ``_C.CacheFile``; the file counts as in use as long as it lives.

    Raises:
        FileNotFoundError: it does not exist.
        CacheError: it is not this user's, not valid, or being removed for ten seconds.
    """
    limit = time.monotonic() + _ATTACH_SECONDS
    while True:
        try:
            descriptor = open_private(folder, name, os.O_RDWR if write else os.O_RDONLY)
        except CacheError as error:
            cause = error.__cause__
            if not (write and isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EROFS)):
                raise
            descriptor = open_private(folder, name, os.O_RDONLY)
        if lock(descriptor, fcntl.LOCK_SH) and os.fstat(descriptor).st_nlink > 0:
            break
        os.close(descriptor)  # somebody checks whether it is in use, or removes it
        if time.monotonic() > limit:
            raise CacheError(f"{folder.path / name} has been locked for {_ATTACH_SECONDS:g} s.")
        time.sleep(0.01)
    return _attached(descriptor, folder.path / name)


def _attached(descriptor: int, path: Path) -> _C.CacheFile:
    try:
        return _C.CacheFile(descriptor, os.fspath(path))
    except FastloadError as error:
        raise CacheError(str(error)) from error


def create(
    folder: Folder,
    name: str,
    contents: Contents,
    limit: int,
    check: Callable[[int], None] | None = None,
) -> _C.CacheFile:
    """Create a cache file, with a promise of memory for all that it has room for, and attach to it.

    The caller holds the folder's creation lock, and the name is unused.

    Args:
        folder: the file's folder.
        name: the file's name.
        contents: what it is for.
        limit: maximum bytes of the file.
        check: called with its size before memory is taken; raises if that is too much.

    Returns:
        ``_C.CacheFile``.

    Raises:
        CacheError: there is not enough room; the message has numbers.
    """
    clean(folder)
    layout = plan(contents, limit)
    size = layout.file_size
    _check_free(folder, size)
    if check is not None:
        check(size)
    with _stripes(folder, name, layout.sizes[1:]), unnamed(folder, name) as (descriptor, publish):
        os.ftruncate(descriptor, layout.sizes[0])
        reserved = min(layout.sizes[0], layout.data_offset + _FIRST)
        _reserve(folder, descriptor, size, reserved)
        at = layout.table_offset
        for piece in table_of(contents, layout):
            write_at(descriptor, piece, at)
            at += len(piece)
        write_at(descriptor, header_of(contents, layout), 0)
        write_at(descriptor, reserved.to_bytes(8, "little"), RESERVED_AT)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        publish()
        attached = os.dup(descriptor)  # the same open file, with its lock
    return _attached(attached, folder.path / name)


def _check_free(folder: Folder, size: int) -> None:
    found = os.fstatvfs(folder.fd)
    free = max(0, found.f_bavail * found.f_frsize - promised_bytes(folder))
    if found.f_blocks > 0 and free < size:  # 0 blocks: no limit
        raise CacheError(
            f"A cache of {size} bytes does not fit into {folder.path}: {free} bytes of "
            f"{found.f_blocks * found.f_frsize} are free there. Enlarge the file system (containers: "
            f"--shm-size), or pass a smaller size or another folder in memory: cache=<size>, cache=<folder>."
        )


def promised_bytes(folder: Folder) -> int:
    """Return the memory in bytes that a folder's files will still take."""
    promised = 0
    for name in os.listdir(folder.fd):
        with contextlib.suppress(OSError):  # removed meanwhile
            status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
            promised += max(0, status.st_size - status.st_blocks * 512)
    return promised


def _reserve(folder: Folder, descriptor: int, size: int, end: int) -> None:
    """Take the memory up to ``end``: the tables are written through a map, where a lack of it is SIGBUS."""
    for begin in range(0, end, _STEP):
        try:
            os.posix_fallocate(descriptor, begin, min(_STEP, end - begin))
        except OSError as error:
            raise CacheError(
                f"A cache of {size} bytes cannot be reserved in {folder.path}: {error.strerror} after "
                f"{begin} bytes. Pass a smaller size or another folder: cache=<size>, cache=<folder>."
            ) from error


@contextlib.contextmanager
def _stripes(folder: Folder, name: str, sizes: Sequence[int]) -> Iterator[None]:
    """Create a cache file's stripes, without memory; remove them if the file is not created."""
    names = [f"{name}.{number}" for number in range(len(sizes))]
    try:
        for each, size in zip(names, sizes, strict=True):
            with unnamed(folder, each) as (descriptor, publish):
                os.ftruncate(descriptor, size)
                publish()
        yield
    except BaseException:
        for each in names:
            _unlink(folder, each)
        raise


def clean(folder: Folder) -> None:
    """Remove what killed processes have left. The caller holds the folder's creation lock."""
    names = set(os.listdir(folder.fd))
    for name in names:
        if name.startswith(TEMPORARY):
            remove(folder, name)
    for name in _left(names):
        _unlink(folder, name)


def _left(names: set[str]) -> list[str]:
    """Return the stripes without a file."""
    return [name for name in names if _STRIPE.search(name) and _STRIPE.sub("", name) not in names]


def left_bytes(folder: Folder) -> int:
    """Return the bytes held by or promised to stripes without a file; :func:`clean` frees them."""
    left = 0
    for name in _left(set(os.listdir(folder.fd))):
        with contextlib.suppress(OSError):  # removed meanwhile
            left += os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_size
    return left


def remove(folder: Folder, name: str) -> bool:
    """Remove a file that is not in use; return False if it is. A missing file is no error.

    A truncated file is always removed: nobody else can attach to it, and its users keep what is left.
    """
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.fd
        )
    except FileNotFoundError:
        return True
    except OSError:  # a link or an unreadable file: nobody can be attached to it
        _unlink(folder, name)
        return True
    try:
        if not lock_alone(descriptor) and not _is_damaged(folder, name):
            return False
        _unlink(folder, name)
        for stripe in stripe_names(folder, name):
            _unlink(folder, stripe)
        return True
    finally:
        os.close(descriptor)


def _is_damaged(folder: Folder, name: str) -> bool:
    if name.startswith(TEMPORARY):
        return False  # its creator has not finished
    try:
        inspect(folder, name)
    except CacheError:
        return True
    return False


def stripe_names(folder: Folder, name: str) -> list[str]:
    """Return the files in a folder that are, or were, a cache file's stripes."""
    return [found for found in os.listdir(folder.fd) if _STRIPE.sub("", found) == name != found]


def _unlink(folder: Folder, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder.fd)


def inspect(folder: Folder, name: str) -> CacheInfo:
    """Return what a cache file's header says. Changes nothing, but briefly checks whether it is in use.

    Raises:
        FileNotFoundError: it does not exist.
        CacheError: it is not this user's, or not a cache file.
    """
    if name.endswith(TIER_SUFFIX):
        from fastload.cache.disk_files import inspect_tier

        return inspect_tier(folder, name)
    descriptor = open_private(folder, name, os.O_RDONLY)
    try:
        head = read_at(descriptor, HEADER_BYTES, 0)
        live = read_at(descriptor, LIVE_BYTES, HEADER_BYTES)
        in_use = not lock_alone(descriptor)
    finally:
        os.close(descriptor)
    if len(live) < LIVE_BYTES or head[:8] != MAGIC or _crc_of(head) != int.from_bytes(head[-4:], "little"):
        raise CacheError(
            f"{folder.path / name} is not a valid cache file. Remove it with 'fastload cache clear'."
        )
    header = np.frombuffer(head, HEADER, 1)[0]
    check_sizes(header, folder.path / name, folder.fd)
    dataset_id, tier, source = said(head, HEADER.itemsize, header, folder.path / name)
    ready = np.frombuffer(live, "<u8", 2, 64)
    return CacheInfo(
        path=folder.path / name,
        dataset_id=dataset_id,
        tier=tier,
        source=source,
        version=(int(header["major"]), int(header["minor"])),
        file_bytes=int(header["file_size"]),
        limit=int(header["limit"]),
        created=int(header["created"]),
        num_records=int(header["num_records"]),
        set_bytes=int(header["set_bytes"]),
        room_records=int(header["room_records"]),
        room_bytes=int(header["data_size"]),
        ready_records=int(ready[0]),
        ready_bytes=int(ready[1]),
        in_use=in_use,
    )


def _crc_of(head: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(head[:-4], np.uint8)))
