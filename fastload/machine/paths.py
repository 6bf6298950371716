"""Paths and the files there: whether something exists, regular files only, whole reads and writes at an
offset."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from fastload._native import _C

# ---- What lies at a path ----------------------------------------------------------------------------
# As pathlib's methods say it up to Python 3.13.
#
# From 3.14 on theirs take whatever the system answers for no, also that the disk fails or that no
# descriptor is left: a set would be taken for another one, or made anew, in silence.

StrPath = str | bytes | os.PathLike[str]
# A name that is too long is no file's, say a URL's with its signature.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG)


def exists(path: StrPath) -> bool:
    """Something is there; a link to nothing is not.

    Raises:
        OSError: the system cannot say, here and below.
    """
    return _mode(path) is not None


def is_dir(path: StrPath) -> bool:
    """A folder, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_file(path: StrPath) -> bool:
    """A regular file, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_symlink(path: StrPath) -> bool:
    """A link, to whatever it may be."""
    mode = _mode(path, follow=False)
    return mode is not None and stat.S_ISLNK(mode)


def _mode(path: StrPath, follow: bool = True) -> int | None:
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except ValueError:  # a NUL in it: no file has such a name
        return None
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


# ---- Folders that users name ------------------------------------------------------------------------


def absolute_folder(text: str | os.PathLike[str]) -> Path:
    """The whole path of a folder, with ``~`` and ``~user`` filled in.

    Raises:
        ValueError: there is no such user, or none that has a home folder.
    """
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"The folder {os.fspath(text)!r} cannot be found: {error} Write its path without '~'."
        ) from error


# ---- Files that somebody else has put there ---------------------------------------------------------
# Read if they are files, and no longer than they may be.
#
# A FIFO would be waited for without end, and a device may have bytes without end.


def open_regular(path: str | bytes | os.PathLike[str]) -> BufferedReader:
    """A file, open for reading.

    Raises:
        OSError: it is not there, cannot be opened, or is no regular file.
    """
    # A signal's handler may raise behind any call. Behind os.open() the descriptor would be nobody's; this
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
    """The bytes of a file; None: it has more than ``most``.

    Raises:
        OSError: as :func:`open_regular`.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return file.read(size) if size <= most else None


# ---- Reading and writing at a place of a file, all of it --------------------------------------------
# One ``pread`` or ``pwrite`` may do less than it was asked to: on network file systems and FUSE, on a disk
# that is all but full, and always above 2 GiB.


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """``size`` bytes at ``offset``; fewer only where the file ends before.

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
    """All of ``data`` at ``offset``.

    Raises:
        OSError: writing fails; a part may be there.
    """
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
