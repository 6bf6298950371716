"""Publishing files so that a kill or a power cut at any moment leaves either the old state or the new."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import is_dir, is_symlink

__all__ = [
    "failed_writes_reported",
    "make_folder",
    "publish",
    "publish_folder",
    "remove",
    "require_space",
    "sync_files",
    "sync_folder",
    "temporary_of",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Of a folder above: another user's, or of a file system without a sync of folders.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)


def temporary_of(final: Path) -> Path:
    """The name under which ``final`` is written; readers ignore it, the next run overwrites it."""
    return final.with_name(f".tmp-{final.name}")


def _sync_file(path: Path, flags: int = os.O_RDONLY) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Makes renames in ``folder`` survive a power cut."""
    _sync_file(folder, os.O_RDONLY | os.O_DIRECTORY)


def publish(temporary: Path, final: Path) -> None:
    """Sync a file, or a folder of files, and give it its final name; returns when both are on the device."""
    if is_dir(temporary):
        for path in sorted(temporary.iterdir()):
            _sync_file(path)
        sync_folder(temporary)
        remove(final)  # a folder replaces only an empty one
    else:
        _sync_file(temporary)
    os.replace(temporary, final)
    sync_folder(final.parent)


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder of any number of files its name, when all of it is on the device.

    ``final`` may be an empty folder.
    """
    _sync_file_system(temporary)
    os.replace(temporary, final)
    sync_folder(final.parent)


def _sync_file_system(folder: Path) -> None:
    """All that was written to the folder's file system: one call, where a sync of each of millions of files
    would take hours."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        while library.syncfs(descriptor) != 0:  # unlike those of os, it does not go on behind a signal
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut does not take away what is published in it: their
    names must be on the device as well, also those that a killed run has made."""
    folder.mkdir(parents=True, exist_ok=True)
    for parent in folder.parents:
        try:
            sync_folder(parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            break


def sync_files(*paths: Path) -> None:
    """Makes what is in some files survive a power cut."""
    for path in paths:
        _sync_file(path)


def remove(path: Path) -> None:
    """Remove a file or folder; a link itself, never what it points to. Nothing there: fine."""
    if is_dir(path) and not is_symlink(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write in ``folder``'s file system."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def require_space(folder: Path, needed: int) -> None:
    """Raise PackError if ``folder``'s file system has less than ``needed`` bytes free."""
    free = free_bytes(folder)
    if free < needed:
        raise PackError(
            f"not enough space in {folder}: about {needed:,} bytes needed, {free:,} free. "
            f"Free {needed - free:,} bytes and run the same command again; finished shards are kept."
        )


@contextmanager
def failed_writes_reported(path: Path, needed: int) -> Iterator[None]:
    """Turns a library's error of writing into a PackError: a full disk's with path, needed and free bytes."""
    try:
        yield
    except PackError:
        raise
    except Exception as error:
        reason = full_disk_reason(error)
        if reason is None and isinstance(error, OSError) and not isinstance(error, FastloadError):
            free = free_bytes(path.parent)
            # A write that a full disk cuts short is an I/O error to LMDB.
            room = f" About {needed:,} bytes needed, {free:,} free." if free < needed else ""
            raise PackError(
                f"cannot write {path}: {error}.{room} Run the same command again when that is mended; "
                f"finished shards are kept."
            ) from error
        if reason is None:
            raise
        free = free_bytes(path.parent)
        raise PackError(
            f"cannot write {path}: {reason}. About {needed:,} bytes needed, {free:,} free. "
            f"Make room and run the same command again; finished shards are kept."
        ) from error


def full_disk_reason(error: BaseException | None) -> str | None:
    """The system's words if ``error`` or its cause means a full disk, quota or file-size limit."""
    while error is not None:
        for code in _FULL:
            # h5py and lmdb put the code, or only the text, into their message.
            if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
                return os.strerror(code)
        error = error.__cause__ or error.__context__
    return None
