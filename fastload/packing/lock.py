"""One pack at a time in a folder: an flock, which the kernel drops when its holder dies."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastload.errors import PackError

__all__ = ["LOCK_NAME", "folder_lock"]

LOCK_NAME = ".fastload.lock"


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process.

    Raises:
        PackError: another process holds it; the message says which, where and since when.
    """
    path = folder / LOCK_NAME
    descriptor = _acquire(path)
    try:
        os.ftruncate(descriptor, 0)
        started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise PackError(
                f"{path.parent} is being packed by {holder}. Wait for it, or stop it; then run this again."
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


def _describe(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}, started {holder['started']}"
    except (ValueError, KeyError, TypeError):
        return "another process that has just begun"
