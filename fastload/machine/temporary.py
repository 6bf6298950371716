"""Temporary folders, which go with their owner; what a killed process has left goes when others are made."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from fastload.machine.interrupts import interrupts_kept

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class TemporaryFolder:
    """A folder that is removed at the end of a ``with`` block, with this object, or when the program exits.

    Nothing removes it when the process is killed. Its owner holds a ``flock`` on it, which then ends, so the
    next process that makes such a folder in the same place removes what has none. The name has this boot of
    this machine in it: of other machines that share the place no lock may be seen. Where folders cannot be
    locked (NFS), or the boot is not known, it gets a name that nobody looks for.

    It pickles: other processes of this machine get the path, and own nothing.

    Args:
        kind: what it is for, a word for its name.
        place: the folder that it is made in; None: that for temporary files.
    """

    def __init__(self, kind: str, place: str | None = None) -> None:
        place = tempfile.gettempdir() if place is None else place
        _remove_left(place)
        with interrupts_kept():  # else a KeyboardInterrupt may come before the folder has its finaliser
            path, lock = _made(kind, place)
            self.path = Path(path)
            self._end = weakref.finalize(self, _remove, path, lock, os.getpid())

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self._end()


def _made(kind: str, place: str) -> tuple[str, int | None]:
    """Make a folder; return its path and, if it could be locked, the lock's descriptor."""
    if boot := _boot():
        path = tempfile.mkdtemp(prefix=f"fastload-{kind}-{boot}-", dir=place)
        if (lock := _locked(path)) is not None:
            return path, lock
        shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"fastload-{kind}-", dir=place), None


def _boot() -> str:
    """Return a word for this boot of this machine; nothing if it is not known."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return ""


def _locked(path: str) -> int | None:
    """Lock a folder of this user; return the lock's descriptor, or None: another has it, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        # Who removes what is left may have removed it before it was locked.
        if status.st_uid == os.geteuid() and os.path.samestat(status, os.lstat(path)):
            descriptor, lock = -1, descriptor
            return lock
    except OSError:
        pass
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _remove_left(place: str) -> None:
    """Remove folders of this user whose owners have been killed, as far as possible."""
    boot = _boot()
    name = re.compile(rf"fastload-[a-z]+-{re.escape(boot)}-[a-z0-9_]{{8}}")
    try:
        with os.scandir(place) as entries:
            found = [entry.path for entry in entries if boot and name.fullmatch(entry.name)]
    except OSError:
        return
    for path in found:
        lock = _locked(path)
        if lock is not None:
            try:
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _remove(path: str, lock: int | None, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has the same finaliser
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)
