"""Files of an unpacked dataset: named by keys, which nobody need trust."""

from __future__ import annotations

import os
import stat

from fastload.errors import FormatError, PackError
from fastload.machine.paths import write_at
from fastload.packing.names import printable

__all__ = ["safe_path", "write_new", "written"]


def safe_path(key: bytes) -> bytes:
    """``key`` as a path below the output folder.

    Raises:
        FormatError: it is absolute, has empty, ``.`` or ``..`` parts, or a NUL: it could lead elsewhere.
    """
    parts = key.split(b"/")
    if b"\0" in key or any(part in (b"", b".", b"..") for part in parts):
        raise FormatError(
            f"the key {printable(key)!r} is no path below a folder (absolute, '..', empty part or NUL); "
            f"the dataset does not come from a folder, or somebody tampered with it."
        )
    return key


def write_new(root: bytes, path: bytes, data: bytes) -> None:
    """Create a new file below ``root``, which only this process knows; never through a link."""
    place = os.path.join(root, path)
    _make_folders(os.path.dirname(place))
    try:
        descriptor = os.open(
            place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        raise PackError(
            f"two records have the name {printable(path)!r}; they cannot both become files."
        ) from None
    try:
        write_at(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _make_folders(path: bytes) -> None:
    """As os.makedirs, which calls a folder that cannot be looked at a file."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        _make_folders(os.path.dirname(path))
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def written(root: bytes, path: bytes, data: bytes) -> bool:
    """Write a file; one that is there must have these very bytes, else False."""
    try:
        write_new(root, path, data)
    except PackError:
        with open(os.path.join(root, path), "rb") as file:
            return file.read() == data
    return True
