"""The files of a disk tier: made, attached to, looked at.

A table has its name when it is complete, and the file of its slots is there before. Whoever uses them holds a
shared ``flock`` on the table; who attaches holds the folder's creation lock, so that the first one to come
knows that it is alone, and puts in order what others that were killed have left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import numpy as np

from fastload._native import _C
from fastload.cache.disk_layout import HEADER_BYTES, LIVE_BYTES, TIER_HEADER, SlotPlan, read_header
from fastload.cache.files import DATA_SUFFIX, CacheInfo, said
from fastload.cache.layout import Contents
from fastload.cache.root import Folder, lock, lock_alone, open_private, unnamed
from fastload.errors import CacheError, FastloadError
from fastload.machine.paths import read_at, write_at
from fastload.machine.sizes import human_bytes

__all__ = ["attach_tier", "create_tier", "inspect_tier"]

_ATTACH_SECONDS = 10.0  # for a lock that is held for moments only


def attach_tier(folder: Folder, name: str) -> _C.DiskTier:
    """Attach to a tier. The caller holds the folder's creation lock.

    Raises:
        FileNotFoundError: there is none.
        CacheError: it is not this user's, or not valid.
    """
    path = folder.path / name
    descriptor = open_private(folder, name, os.O_RDWR)
    kept = os.dup(descriptor)  # the same open file, with its lock
    try:
        alone = lock_alone(descriptor)
        limit = time.monotonic() + _ATTACH_SECONDS
        while not alone and not lock(kept, fcntl.LOCK_SH):
            if time.monotonic() > limit:
                raise CacheError(f"{path} has been locked for {_ATTACH_SECONDS:g} s.")
            time.sleep(0.01)
        handed, descriptor = descriptor, -1  # closed by who gets it, whatever comes of it
        tier = _attached(handed, path, alone)
        fcntl.flock(kept, fcntl.LOCK_SH)
        return tier
    finally:
        os.close(kept)
        if descriptor >= 0:
            os.close(descriptor)


def _attached(descriptor: int, path: Path, alone: bool) -> _C.DiskTier:
    try:
        return _C.DiskTier(os.dup(descriptor), os.fspath(path), alone)
    except FastloadError as error:
        raise CacheError(str(error)) from error
    finally:
        os.close(descriptor)


def create_tier(folder: Folder, name: str, contents: Contents, plan: SlotPlan) -> None:
    """Make the files of a tier. The caller holds the folder's creation lock, and no file has the name.

    The slots take room when they are first written; the table, which is written to through a map, now.

    Raises:
        CacheError: the disk has no room for the table, or no file can be made.
    """
    try:
        with unnamed(folder, name + DATA_SUFFIX) as (descriptor, publish):
            os.ftruncate(descriptor, plan.data_size)
            publish()
        with unnamed(folder, name) as (descriptor, publish):
            os.posix_fallocate(descriptor, 0, plan.file_size)
            write_at(descriptor, plan.header(contents), 0)
            os.fsync(descriptor)
            publish()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CacheError(
            f"{folder.path}: no room for the table of a disk tier ({human_bytes(plan.file_size)}): "
            f"{error.strerror}."
        ) from error


def inspect_tier(folder: Folder, name: str) -> CacheInfo:
    """What a tier's table says of itself. Changes nothing, and looks for a moment whether it is in use.

    Raises:
        FileNotFoundError: there is none.
        CacheError: it is not this user's, or not valid.
    """
    path = folder.path / name
    descriptor = open_private(folder, name, os.O_RDONLY)
    try:
        head = read_at(descriptor, HEADER_BYTES, 0)
        live = read_at(descriptor, LIVE_BYTES, HEADER_BYTES)
        size = os.fstat(descriptor).st_size
        in_use = not lock_alone(descriptor)
    finally:
        os.close(descriptor)
    header = read_header(head, path)
    _check_size(path, size, int(header["file_size"]))
    data = path.with_name(name + DATA_SUFFIX)
    try:
        found = os.stat(data.name, dir_fd=folder.fd, follow_symlinks=False).st_size
    except FileNotFoundError:
        raise CacheError(f"{data} is not there. Remove the rest with 'fastload cache clear'.") from None
    _check_size(data, found, int(header["data_size"]))
    words = said(head, TIER_HEADER.itemsize, header, path)
    held = np.frombuffer(live, "<u8", 2, 8)
    return CacheInfo(
        path=path,
        dataset_id=words[0],
        tier=f"disk, {words[1]}",
        source=words[2],
        version=(int(header["major"]), int(header["minor"])),
        file_bytes=int(header["file_size"]) + int(header["data_size"]),
        limit=int(header["limit"]),
        created=int(header["created"]),
        num_records=int(header["num_records"]),
        set_bytes=int(header["set_bytes"]),
        room_records=int(header["num_slots"]),
        room_bytes=int(header["data_size"]),
        ready_records=int(held[0]),
        ready_bytes=int(held[1]),
        in_use=in_use,
    )


def _check_size(path: Path, found: int, made: int) -> None:
    if found != made:
        raise CacheError(
            f"{path} has {found} bytes, it was made with {made}: somebody has cut it. Remove it with "
            f"'fastload cache clear'."
        )
