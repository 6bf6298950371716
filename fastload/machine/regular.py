"""Files that somebody else has put there: read if they are files, and no longer than they may be.

A FIFO would be waited for without end, and a device may have bytes without end.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

from fastload._native import _C

__all__ = ["open_regular", "read_regular"]


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
