"""Paths and files: existence, regular files only, complete reads and writes at an offset."""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Callable
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

from fastload._native import _C

# ---- What a path names ----
# These are pathlib's functions as of Python 3.13. From 3.14 on pathlib returns False for any error, also a
# failing disk or a lack of descriptors: a set could silently be taken for another one, or made anew.

StrPath = str | bytes | os.PathLike[str]
# A name that is too long names no file; it may be a signed URL.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG)


def exists(path: StrPath) -> bool:
    """Return whether something exists at the path; a broken link does not count.

    Raises:
        OSError: the system cannot say; so do the functions below.
    """
    return _mode(path) is not None


def is_dir(path: StrPath) -> bool:
    """Return whether it is a folder, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_file(path: StrPath) -> bool:
    """Return whether it is a regular file, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_symlink(path: StrPath) -> bool:
    """Return whether it is a link, even a broken one."""
    mode = _mode(path, follow=False)
    return mode is not None and stat.S_ISLNK(mode)


def meant(path: StrPath) -> str:
    """Return " Did you mean PATH?" if something with a similar name is there, for a message; else ""."""
    folder, name = os.path.split(os.fsdecode(path).rstrip("/"))
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), 1)
    except OSError:
        parent = meant(folder) if folder not in ("", "/") else ""
        return parent.removesuffix("?") + f"/{name}?" if parent else ""
    return f" Did you mean {os.path.join(folder, near[0])}?" if near else ""


def _mode(path: StrPath, follow: bool = True) -> int | None:
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except ValueError:  # a NUL in it: no file has such a name
        return None
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


# ---- Folders that users name ----


def absolute_folder(text: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, with ``~`` and ``~user`` expanded.

    Raises:
        ValueError: the user does not exist or has no home folder.
    """
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"The folder {os.fspath(text)!r} cannot be found: {error} Write its path without '~'."
        ) from error


# ---- Untrusted files ----
# Only regular files up to a size are read: a FIFO could block forever, and a device may never end.


#: Called with each path before it is opened, if somebody wants to make the file first; see packing/stored.py.
reading_of: ContextVar[Callable[[str | bytes | os.PathLike[str]], None] | None] = ContextVar(
    "reading_of", default=None
)


def open_regular(path: str | bytes | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: it does not exist, cannot be opened, or is not a regular file.
    """
    prepare = reading_of.get()
    if prepare is not None:
        prepare(path)
    # A signal's handler may raise after any call. After os.open() nothing would own the descriptor; this
    # opener is C, and no handler runs before a file owns what it returns.
    file = open(path, "rb", opener=_C.open_at_once)  # noqa: SIM115
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
    except BaseException:
        file.close()
        raise
    file.close()
    raise OSError(errno.EINVAL, "it is no regular file, but a FIFO, a socket or a device", os.fsdecode(path))


def read_regular(path: str | bytes | os.PathLike[str], most: int) -> bytes | None:
    """Return the bytes of a file; None: it has more than ``most``.

    Raises:
        OSError: as :func:`open_regular`.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return file.read(size) if size <= most else None


# ---- Complete reads and writes at an offset ----
# One ``pread`` or ``pwrite`` may transfer less than requested: on network file systems and FUSE, on a disk
# that is nearly full, and always above 2 GiB.


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read ``size`` bytes at ``offset``, fewer only at the end of the file.

    Raises:
        OSError: reading fails.
    """
    data = os.pread(descriptor, size, offset)
    if len(data) == size or not data:
        return data
    pieces, got = [data], len(data)
    while got < size and (data := os.pread(descriptor, size - got, offset + got)):
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def write_at(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``.

    Raises:
        OSError: writing fails; a part may have been written.
    """
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
