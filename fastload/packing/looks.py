"""Looking at what lies in a source: what is not there is left out; what the system cannot say is an error.

``os.walk`` and ``Path.glob`` leave out what they cannot read, and a source would be taken for another one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import AnyStr

from fastload.errors import PackError

__all__ = ["names_in", "said_later", "unreadable", "walk"]

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
# What may be otherwise the next time: of the system, and not of the file.
_FOR_NOW = (
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EBUSY),
    *(errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH),
)


def unreadable(path: str | bytes | os.PathLike[str], error: OSError) -> PackError:
    """The error about a file or folder that the system does not give."""
    return PackError(f"{os.fsdecode(path)} cannot be read: {error.strerror or error}.")


def said_later(path: str | bytes | os.PathLike[str], error: Exception) -> None:
    """Of a file that was only looked at: who reads it says what is wrong with it, or leaves it out.

    Raises:
        PackError: the system could not read it just now, and perhaps can then: what was decided without it
            would be wrong.
    """
    if isinstance(error, OSError) and error.errno in _FOR_NOW:
        raise unreadable(path, error) from error


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where there is no folder.

    Raises:
        PackError: it cannot be read.
    """
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        if error.errno in _NOT_THERE:
            return []
        raise unreadable(folder, error) from error


def walk(folder: AnyStr) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
    """As ``os.walk``, top down: without folders that may not be read, of which others say so.

    Raises:
        PackError: a folder cannot be read just now.
    """
    return os.walk(folder, onerror=lambda error: said_later(error.filename or folder, error))
