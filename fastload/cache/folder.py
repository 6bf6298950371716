"""The user's private folder in a memory file system or on a disk, and files in it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

from fastload._native import _C
from fastload.errors import CacheError
from fastload.machine.paths import exists

# Everybody may write in the root (``/dev/shm``), so no name there is trusted: the folder is opened without
# following a link, and must belong to this user and be closed to all others; then this user made whatever is
# in it. Its files are opened relative to its descriptor.

LOCK_NAME = ".create.lock"
TEMPORARY = ".tmp-"  # prefix of the names of unfinished files, where they need one
_DESCRIPTORS = "/proc/self/fd"
_LOOKS, _LOOK_SECONDS = 4, 0.002  # to see whether a file is in use
_LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.05
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_path(root: Path) -> Path:
    """Return the folder of this user's cache files below ``root``."""
    return root / f"fastload-{os.geteuid()}"


def is_in_memory(root: Path) -> bool:
    """Return whether a folder is on a memory file system; one that cannot be examined counts as such."""
    try:
        return bool(_C.file_system(str(root))["in_memory"])
    except OSError:
        return True


class PrivateFolder:
    """``<root>/fastload-<uid>``, opened and checked. A context manager.

    Args:
        root: the folder of a memory file system.
        create: create the private folder if it does not exist.
        on_disk: ``root`` is on a local disk, and is created too.

    Raises:
        CacheError: ``root`` is not such a folder, or the private one is not this user's alone.
        FileNotFoundError: it does not exist, and ``create`` is false.
    """

    def __init__(self, root: Path, create: bool = False, on_disk: bool = False) -> None:
        self.root = root
        self.path = folder_path(root)
        if on_disk:
            _check_disk(root, create)
        else:
            _check_root(root)
        if create:
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                pass
            except OSError as error:
                raise CacheError(
                    f"{self.path} cannot be created: {error.strerror}. Pass a writable folder in memory: "
                    f"cache=<folder>, or FASTLOAD_CACHE_DIR."
                ) from error
        self.fd = _open_folder(self.path)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _open_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self.path / LOCK_NAME
        try:
            return os.open(LOCK_NAME, flags, 0o600, dir_fd=self.fd)
        except OSError as error:
            raise CacheError(f"{path} cannot be opened: {error.strerror}. Remove it.") from error

    def claims_file(self) -> str:
        """Return a file whose bytes, existing or not, may be claimed for other purposes.

        It is the lock's file: claims are locks of another kind.

        Raises:
            CacheError: it cannot be opened.
        """
        os.close(self._open_lock())
        return str(self.path / LOCK_NAME)

    @contextlib.contextmanager
    def creating(self, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
        """Hold the lock for creating and removing files, so that one process per node does it.

        Raises:
            CacheError: another process has held it for ``seconds``.
        """
        held = self._open_lock()
        try:
            limit = time.monotonic() + seconds
            while not lock(held, fcntl.LOCK_EX):
                if time.monotonic() > limit:
                    raise CacheError(
                        f"{self.path / LOCK_NAME} has been locked by another process for {seconds:g} s, "
                        f"which makes or removes a cache file there. End it if it hangs ('fuser' tells which "
                        f'it is), or pass cache="off".'
                    )
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(held)


def other_folders(root: Path) -> Iterator[tuple[Path, int, int | None]]:
    """Yield other users' folders below ``root``: path, owner, bytes of memory (None: not permitted)."""
    for path in sorted(root.glob("fastload-[0-9]*")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid != os.geteuid():
                yield path, status.st_uid, _folder_bytes(path)


def _folder_bytes(path: Path) -> int | None:
    try:
        return sum(each.lstat().st_blocks * 512 for each in path.iterdir())
    except OSError:
        return None


def _check_root(root: Path) -> None:
    try:
        in_memory = _C.file_system(str(root))["in_memory"]
    except OSError as error:
        raise CacheError(
            f"The node cache has no place: {error}. Pass the folder of a memory file system (tmpfs): "
            f"cache=<folder>, or FASTLOAD_CACHE_DIR."
        ) from error
    if not in_memory:
        raise CacheError(
            f"{root} is not in memory: the node cache needs a tmpfs, such as /dev/shm. For a tier on a local "
            f'disk say how large it may be: cache="{root}:800GB".'
        )


def _check_disk(root: Path, create: bool) -> None:
    try:
        if create:
            root.mkdir(parents=True, exist_ok=True)
        remote = _C.file_system(str(root))["remote"]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(
            f"The disk tier has no place: {error}. Pass a writable folder on a local disk: "
            f'cache="<folder>:<size>".'
        ) from error
    if remote:
        raise CacheError(
            f"{root} is on a network file system: a disk tier belongs to one node. Pass a "
            f'folder on a local disk: cache="<folder>:<size>".'
        )


def _open_folder(path: Path) -> int:
    try:
        descriptor = os.open(path, _FOLDER_FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(
            f"{path} is not a folder of yours ({error.strerror}): somebody else may have put it there. "
            f"Have it removed, or pass another folder in memory: cache=<folder>, or FASTLOAD_CACHE_DIR."
        ) from error
    found = os.fstat(descriptor)
    problem = ""
    if found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}, this process runs as {os.geteuid()}"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        problem = f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, needed is 0700)"
    if problem:
        os.close(descriptor)
        raise CacheError(
            f"{path} {problem}: its contents are not trusted. Remove it, have it removed, or pass "
            f"another folder in memory: cache=<folder>, or FASTLOAD_CACHE_DIR."
        )
    return descriptor


class Folder(Protocol):
    """A private folder, opened and checked."""

    fd: int
    path: Path


def open_private(folder: Folder, name: str, flags: int) -> int:
    """Open a file that is this user's alone, without following a link."""
    path = folder.path / name
    try:
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(
            f"{path} cannot be opened: {error.strerror}. Remove it with 'fastload cache clear'."
        ) from error
    found = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(found.st_mode):
        problem = "is not a file"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}, this process runs as {os.geteuid()}"
    elif found.st_mode & 0o077:
        problem = f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, needed is 0600)"
    if problem:
        os.close(descriptor)
        raise CacheError(f"{path} {problem}: it is not trusted. Remove it with 'fastload cache clear'.")
    return descriptor


def lock(descriptor: int, kind: int) -> bool:
    """Take a ``flock`` without waiting; return False if a conflicting one is held."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_alone(descriptor: int) -> bool:
    """Take the exclusive lock, despite others' brief checks whether the file is in use."""
    for _ in range(_LOOKS):
        if lock(descriptor, fcntl.LOCK_EX):
            return True
        time.sleep(_LOOK_SECONDS)
    return False


@contextlib.contextmanager
def unnamed(folder: Folder, name: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yield a file without a name, and a function that names it. It has a temporary name if the kernel has no
    such files, or without /proc, through which alone it can be named later."""
    flags = os.O_RDWR | os.O_CLOEXEC
    temporary = ""
    try:
        if not exists(_DESCRIPTORS):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        descriptor = os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=folder.fd)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise CacheError(f"No file can be created in {folder.path}: {error.strerror}.") from error
        temporary = f"{TEMPORARY}{os.getpid()}-{name}"
        descriptor = os.open(
            temporary, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder.fd
        )
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def publish() -> None:
        source = temporary or f"{_DESCRIPTORS}/{descriptor}"
        # With a folder's descriptor this is linkat(), which alone follows the link to an unnamed file.
        os.link(source, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=True)

    try:
        yield descriptor, publish
    finally:
        if temporary:
            os.unlink(temporary, dir_fd=folder.fd)
        os.close(descriptor)
