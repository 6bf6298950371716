"""The folder in which a node keeps small files of stores: where it is, who writes there, whether they fit."""

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

#: The environment variable that names another place.
NODE_FOLDER = "FASTLOAD_SETS_DIR"
_TEMPORARY = ".tmp-"
_POLL_SECONDS = 0.05
_SPARE = 16 << 20  # bytes of a file system that are left to others
_log = logging.getLogger("fastload")


def node_root() -> Path:
    """Where the folders of sets are: ``$FASTLOAD_SETS_DIR``, ``$XDG_CACHE_HOME/fastload/sets`` or
    ``~/.cache/fastload/sets``.

    Raises:
        CacheError: there is no home folder either.
    """
    given = os.environ.get(NODE_FOLDER)
    if given:
        return absolute_folder(given)
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
    """One set's folder, which all processes of this user share. Files in it have their names when they are
    whole.

    Args:
        name: the set's id.
        root: None: :func:`node_root`.

    Raises:
        CacheError: it cannot be made.
    """

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.path = (root or node_root()) / name
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self.failed("cannot be made", error) from error

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Hold the folder's lock, so that one process of a node does the work; the system gives it back when
        its holder is killed.

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
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            except OSError:  # a file system without locks: two processes fetch the same, which is no harm
                return
            if not told:
                _log.info("%s: another process fetches its index into %s", what, self.path)
                told = True
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
                f"are needed, {human_bytes(free)} are free. Make room there, or set {NODE_FOLDER} to "
                "a folder on a local disk that has more."
            )

    def temporary(self, name: str) -> Path:
        """A name of its own for each writer of a file."""
        return self.path / f"{_TEMPORARY}{secrets.token_hex(4)}-{name}"

    def settle(self, names: Sequence[str], last: str, data: bytes, use: object) -> None:
        """Bring files to the disk and then write a small one, in the background, because a disk takes some
        round trips' time for it: where the last one is, a power cut has left all of the others.

        Args:
            names: files that are there; others do not matter.
            last: the small one's name.
            data: its contents.
            use: lives until that is done, so that nobody removes the folder meanwhile.
        """

        def work(use: object = use) -> None:
            try:
                for name in names:
                    self._sync(self.path / name)
                self.write(last, data)
            except (OSError, CacheError) as error:  # whoever opens the set next looks at all of it
                _log.info("%s: %s was not written: %s", self.path, last, error)

        with contextlib.suppress(OSError):
            (self.path / last).unlink(missing_ok=True)  # of files that were fetched again
        try:
            threading.Thread(target=work, name="fastload-settle").start()
        except RuntimeError:  # no more threads
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
        """Write a small file: after a power cut there is all of it, or nothing.

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
        """Remove what killed processes have left. The caller holds the lock."""
        for path in self.path.glob(f"{_TEMPORARY}*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def failed(self, what: str, error: OSError) -> CacheError:
        """The error about an error of the system."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Make room there, or set" if full else "Set"
        return CacheError(
            f"{self.path} {what}: {error.strerror or error}. {advice} {NODE_FOLDER} to a folder on a local "
            "disk where you may write."
        )
