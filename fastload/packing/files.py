"""Files and folders of a pack: durable writes, locks, walks that leave nothing out silently, record keys."""

from __future__ import annotations

import ctypes
import datetime
import errno
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import is_dir, is_symlink, write_at
from fastload.shard.runs import unescaped

# ---- Durable files ----------------------------------------------------------------------------------
# A kill or a power cut at any moment leaves either the old state or the new.

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# For a parent folder: another user's, or on a file system that cannot sync folders.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)


def temporary_of(final: Path) -> Path:
    """Return the name under which ``final`` is written; readers ignore it, the next run overwrites it."""
    return final.with_name(f".tmp-{final.name}")


def _sync_file(path: Path, flags: int = os.O_RDONLY) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` survive a power cut."""
    _sync_file(folder, os.O_RDONLY | os.O_DIRECTORY)


def publish(temporary: Path, final: Path) -> None:
    """Sync a file, or a folder of files, and give it its final name; return when both are on the device."""
    if is_dir(temporary):
        for path in sorted(temporary.iterdir()):
            _sync_file(path)
        sync_folder(temporary)
        remove(final)  # a folder replaces only an empty one
    else:
        _sync_file(temporary)
    os.replace(temporary, final)
    sync_folder(final.parent)


@contextmanager
def publishing(final: Path) -> Iterator[Path]:
    """Yield the temporary name of a file, and publish the file; whatever fails leaves no temporary file."""
    temporary = temporary_of(final)
    try:
        yield temporary
        publish(temporary, final)
    finally:
        remove(temporary)


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder of any number of files its name, once all of it is on the device.

    ``final`` may be an empty folder.
    """
    _sync_file_system(temporary)
    os.replace(temporary, final)
    sync_folder(final.parent)


def _sync_file_system(folder: Path) -> None:
    """Sync all that was written to the folder's file system in one call; syncing each of millions of files
    would take hours."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        while library.syncfs(descriptor) != 0:  # unlike os functions, it does not resume after a signal
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents so that a power cut does not take away what is published in it: their
    names must be on the device, too, even those that a killed run made."""
    folder.mkdir(parents=True, exist_ok=True)
    for parent in folder.parents:
        try:
            sync_folder(parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            break


def sync_files(*paths: Path) -> None:
    """Make the contents of files survive a power cut."""
    for path in paths:
        _sync_file(path)


def remove(path: Path) -> None:
    """Remove a file or folder if it is there; a link itself, never what it points to."""
    if is_dir(path) and not is_symlink(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Return how many bytes this user may still write in ``folder``'s file system."""
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
    """Turn a library's write error into a PackError; for a full disk, with path, needed and free bytes."""
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
                f"cannot write {path}: {error}.{room} Run the same command again when that is fixed; "
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
    """Return the system's words if ``error`` or its cause means a full disk, quota or file-size limit."""
    while error is not None:
        for code in _FULL:
            # h5py and lmdb put the code, or only the text, into their message.
            if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
                return os.strerror(code)
        error = error.__cause__ or error.__context__
    return None


# ---- Locks on folders and shards --------------------------------------------------------------------
# These are flocks, which the kernel drops when their holder dies.

LOCK_NAME = ".fastload.lock"
PLAN_LOCK_NAME = ".fastload.plan.lock"  # held by the process that plans, if several pack shares of the plan
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Claim:
    """A file that this process holds alone, until :meth:`close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def close(self) -> None:
        """Release the file and delete it."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process alone.

    Raises:
        PackError: another process holds it; the message says which, where and since when.
    """
    held = claim(folder / LOCK_NAME)
    if held is None:
        raise _busy(folder)
    try:
        yield
    finally:
        held.close()


@contextmanager
def share_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` together with others that share it, and with nobody who wants it alone.

    The file stays when the last one leaves: only an exclusive holder can know that nobody else holds it.

    Raises:
        PackError: another process holds it alone; the message says which, where and since when.
    """
    descriptor = _acquire(folder / LOCK_NAME, fcntl.LOCK_SH)
    if descriptor is None:
        raise _busy(folder)
    try:
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def claim(path: Path) -> Claim | None:
    """Hold the file at ``path``, created if missing, for this process alone; None: another process has it.

    Raises:
        PackError: this file system has no locks.
    """
    descriptor = _acquire(path, fcntl.LOCK_EX)
    if descriptor is None:
        return None
    _sign(descriptor)
    return Claim(path, descriptor)


def holder_of(path: Path) -> str:
    """Return, in words, which process signed a lock's file last."""
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} on {holder['host']}, started {holder['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process that has just begun"


def _busy(folder: Path) -> PackError:
    return PackError(
        f"{folder} is being packed by {holder_of(folder / LOCK_NAME)}. Wait for it, or stop it; then run "
        "this again."
    )


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
    write_at(descriptor, json.dumps(holder).encode(), 0)


def _acquire(path: Path, kind: int) -> int | None:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                raise
            raise PackError(
                f"the file system of {path.parent} has no locks ({error.strerror}), so two packs could not "
                "keep out of each other's way. Mount it with locks (Lustre: -o flock; NFS: without nolock), "
                "or pack into a folder of another file system."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        # The previous holder may have removed the file between our open and our lock.
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


# ---- Looking at a source ----------------------------------------------------------------------------
# What does not exist is left out, what the system cannot read is an error: ``os.walk`` and ``Path.glob``
# skip what they cannot read, and a source would be taken for another one.

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
# Errors of the system, not of the file, which may be gone the next time.
_FOR_NOW = (
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EBUSY),
    *(errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH),
)


def unreadable(path: str | bytes | os.PathLike[str], error: OSError) -> PackError:
    """Return the error about a file or folder that the system cannot read."""
    return PackError(f"{os.fsdecode(path)} cannot be read: {error.strerror or error}.")


def raise_if_transient(path: str | bytes | os.PathLike[str], error: Exception) -> None:
    """Raise if a file that was only looked at is unreadable for the moment; its reader handles other errors.

    Raises:
        PackError: the system could not read it now but perhaps can later, so a decision made without it
            would be wrong.
    """
    if isinstance(error, OSError) and error.errno in _FOR_NOW:
        raise unreadable(path, error) from error


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder.

    Raises:
        PackError: the folder cannot be read.
    """
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        if error.errno in _NOT_THERE:
            return []
        raise unreadable(folder, error) from error


def walk(folder: AnyStr) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
    """Walk like ``os.walk``, top down, without folders that may not be read, which others report.

    Raises:
        PackError: a folder cannot be read just now.
    """
    return os.walk(folder, onerror=lambda error: raise_if_transient(error.filename or folder, error))


# ---- Record keys ------------------------------------------------------------------------------------
# A key is the file's path below the source folder, as UTF-8. A path that is not UTF-8 (POSIX names are
# bytes) is percent-encoded, and its record has the flag :data:`ESCAPED`, so that unpacking restores it.

ESCAPED = 0x80  # in the index's flags: the key is percent-encoded
_RESERVED = re.compile(rb"[^!-$&-~ ]")  # everything but printable ASCII, and "%"


def encode_key(path: bytes) -> tuple[bytes, bool]:
    """Return the key of a path, and whether it had to be percent-encoded."""
    try:
        path.decode("utf-8")
        return path, False
    except UnicodeDecodeError:
        return _RESERVED.sub(lambda match: b"%%%02X" % match[0][0], path), True


def decode_key(key: bytes, escaped: bool) -> bytes:
    """Return the path that :func:`encode_key` was given."""
    return unescaped(key) if escaped else key


def outside_key(path: bytes) -> bytes:
    """Return the key of a file outside the table's folder: its absolute path without the root."""
    return path.lstrip(b"/")


def printable(path: bytes) -> str:
    """Return a path as text for messages."""
    return path.decode("utf-8", "backslashreplace")
