"""Cache files in memory: the user's private folder; creating, attaching to, inspecting and removing files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from fastload._native import _C
from fastload.cache.layout import (
    HEADER,
    HEADER_BYTES,
    LIVE_BYTES,
    MAGIC,
    RESERVED_AT,
    Contents,
    check_sizes,
    header_of,
    plan,
    table_of,
)
from fastload.errors import CacheError, FastloadError
from fastload.machine.paths import exists, read_at, write_at

# ---- The user's private folder in a memory file system ----
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


# ---- Cache files ----
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

SUFFIX, TIER_SUFFIX, DATA_SUFFIX = ".flc", ".flt", ".data"
_STRIPE = re.compile(r"(?<=\.flc)\.[0-9]+$|(?<=\.flt)\.data$")
_FIRST = 64 << 20  # bytes of records that are reserved before a file is used: 30 ms
_STEP = 1 << 30  # bytes reserved at a time: signals are handled in between
_ATTACH_SECONDS = 10.0  # for a lock that is held only briefly


@dataclass(frozen=True)
class CacheInfo:
    """The contents of a cache file's header."""

    path: Path
    dataset_id: str
    tier: str
    source: Path  # the dataset's folder when the file was created
    version: tuple[int, int]
    file_bytes: int
    limit: int  # bytes allowed when it was created
    created: int  # seconds since 1970
    num_records: int  # of the set
    set_bytes: int
    room_records: int  # of them have room
    room_bytes: int
    ready_records: int  # of them are stored
    ready_bytes: int
    in_use: bool


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
        from fastload.cache.disk import inspect_tier

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


def said(head: bytes, begin: int, header: np.void, path: Path) -> tuple[str, str, Path]:
    """Return id, tier and source folder (its path begins at ``begin``) from a checksummed header.

    Raises:
        CacheError: they are not text.
    """
    source = head[begin : begin + int(header["source_bytes"])]
    try:
        texts = (
            header["dataset_id"].decode("ascii"),
            header["tier"].decode("ascii"),
            Path(os.fsdecode(source)),
        )
    except UnicodeDecodeError:
        texts = "", "", Path()
    if b"\0" in source or not all(text.isprintable() and text for text in texts[:2]):
        raise CacheError(
            f"{path} says nothing readable of its dataset. Remove it with 'fastload cache clear'."
        )
    return texts


def _crc_of(head: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(head[:-4], np.uint8)))
