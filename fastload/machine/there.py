"""What lies at a path: as pathlib's methods say it up to Python 3.13.

From 3.14 on theirs take whatever the system answers for no, also that the disk fails or that no descriptor is
left: a set would be taken for another one, or made anew, in silence.
"""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["exists", "is_dir", "is_file", "is_symlink"]

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
