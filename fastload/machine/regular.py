"""Files that somebody else has put there: read if they are files, and no longer than they may be.

A FIFO would be waited for without end, and a device may have bytes without end.
"""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["open_regular", "read_regular"]


def open_regular(path: str | bytes | os.PathLike[str]) -> int:
    """A descriptor of a file, for reading.

    Raises:
        OSError: it is not there, cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
    except BaseException:  # a signal's handler may raise, too
        os.close(descriptor)
        raise
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
    raise OSError(errno.EINVAL, "it is no regular file, but a FIFO, a socket or a device", os.fsdecode(path))


def read_regular(path: str | bytes | os.PathLike[str], most: int) -> bytes | None:
    """The bytes of a file; None: it has more than ``most``.

    Raises:
        OSError: as :func:`open_regular`.
    """
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return file.read(size) if size <= most else None
