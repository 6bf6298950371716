"""The folder in which a node keeps stores' small files: its path, its lock, its free space."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastload.errors import CacheError
from fastload.machine.paths import absolute_folder
from fastload.machine.sizes import human_bytes

#: The environment variable that sets another folder.
NODE_FOLDER = "FASTLOAD_SETS_DIR"
_TEMPORARY = ".tmp-"
_POLL_SECONDS = 0.05
_SPARE = 16 << 20  # bytes left free on the file system
_log = logging.getLogger("fastload")


def node_root() -> Path:
    """Return the root of the sets' folders: ``$FASTLOAD_SETS_DIR``, ``$XDG_CACHE_HOME/fastload/sets`` or
    ``~/.cache/fastload/sets``.

    Raises:
        CacheError: none of them is set, and there is no home folder.
    """
    folder = os.environ.get(NODE_FOLDER)
    if folder:
        return absolute_folder(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(cache) if cache and os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError as error:
        raise CacheError(
            f"Nothing says where to keep the indexes of sets: this user has no home folder ({error}). Set "
            f"{NODE_FOLDER} to a folder on a local disk."
        ) from error
    return base / "fastload" / "sets"


class NodeFolder:
    """One set's folder, shared by all processes of this user. Files get their names when they are complete.

    Args:
        name: the set's seal.
        root: the folder of all sets (default :func:`node_root`).

    Raises:
        CacheError: the folder cannot be created.
    """

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.path = (root or node_root()) / name
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self.failed("cannot be made", error) from error

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Hold the folder's lock, so that one process per node does the work; the system releases it if its
        holder is killed.

        Args:
            what: whose files they are, for the log.
        """
        try:
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self.failed("cannot be written to", error) from error
        try:
            self._wait(lock, what)
            yield
        finally:
            os.close(lock)

    def _wait(self, lock: int, what: str) -> None:
        has_logged = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            except OSError:  # a file system without locks: two processes may fetch the same files
                return
            if not has_logged:
                _log.info("%s: another process fetches its index into %s", what, self.path)
                has_logged = True
            time.sleep(_POLL_SECONDS)

    def require(self, needed: int, what: str) -> None:
        """Check that there is room for ``needed`` bytes before they are fetched.

        Raises:
            CacheError: the file system has less room.
        """
        status = os.statvfs(self.path)
        free = status.f_bavail * status.f_frsize
        if free < needed + _SPARE:
            raise CacheError(
                f"{self.path} has no room for the index and other tables of {what}: {human_bytes(needed)} "
                f"are needed, {human_bytes(free)} are free. Free some space there, or set {NODE_FOLDER} to "
                "a folder on a local disk that has more."
            )

    def temporary(self, name: str) -> Path:
        """Return a temporary name unique to this writer."""
        return self.path / f"{_TEMPORARY}{secrets.token_hex(4)}-{name}"

    def settle(self, names: Sequence[str], last: str, data: bytes, use: object) -> None:
        """Sync files to the disk, then write a small last one, in the background because a disk takes longer
        than a few round trips. If the last file exists after a power cut, so do all the others.

        Args:
            names: files to sync; missing ones are skipped.
            last: the small file's name.
            data: its contents.
            use: kept alive until then, so that nobody removes the folder.
        """

        def work(use: object = use) -> None:
            try:
                for name in names:
                    self._sync(self.path / name)
                self.write(last, data)
            except (OSError, CacheError) as error:  # whoever opens the set next checks all of it
                _log.info("%s: %s was not written: %s", self.path, last, error)

        with contextlib.suppress(OSError):
            (self.path / last).unlink(missing_ok=True)  # may remain from before the files were fetched again
        try:
            threading.Thread(target=work, name="fastload-settle").start()
        except RuntimeError:  # no more threads can start
            work()

    @staticmethod
    def _sync(path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file atomically: after a power cut it is complete or absent.

        Raises:
            CacheError: it cannot be written.
        """
        temporary = self.temporary(name)
        try:
            temporary.write_bytes(data)
            self._sync(temporary)
            os.replace(temporary, self.path / name)
        except OSError as error:
            raise self.failed("cannot be written to", error) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Remove the files of killed processes. The caller holds the lock."""
        for path in self.path.glob(f"{_TEMPORARY}*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def failed(self, what: str, error: OSError) -> CacheError:
        """Return a CacheError for an error of the system."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Free some space there, or set" if full else "Set"
        return CacheError(
            f"{self.path} {what}: {error.strerror or error}. {advice} {NODE_FOLDER} to a folder on a local "
            "disk where you may write."
        )
