"""Who may change a folder, or write a shard: flocks, which the kernel drops when their holder dies."""

from __future__ import annotations

import datetime
import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import write_at

__all__ = ["LOCK_NAME", "PLAN_LOCK_NAME", "Claim", "claim", "folder_lock", "holder_of", "share_lock"]

LOCK_NAME = ".fastload.lock"
PLAN_LOCK_NAME = ".fastload.plan.lock"  # of the one that makes the plan, where several pack shares of it
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Claim:
    """A file that this process holds alone, until :meth:`close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def close(self) -> None:
        """Give it up; the file goes, too."""
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
    """Hold ``folder`` together with others that do so, and with nobody who wants it alone.

    The file stays when the last one goes: only who holds it alone can know that nobody else does.

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
    """The file at ``path``, made if it is not there, for this process alone; None: another one has it.

    Raises:
        PackError: this file system has no locks.
    """
    descriptor = _acquire(path, fcntl.LOCK_EX)
    if descriptor is None:
        return None
    _sign(descriptor)
    return Claim(path, descriptor)


def holder_of(path: Path) -> str:
    """In words, which process has signed a lock's file last."""
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
        # The holder before us may have removed the file between our open and our lock.
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
