"""Reading and writing at a place of a file, all of it.

One ``pread`` or ``pwrite`` may do less than it was asked to: on network file systems and FUSE, on a disk
that is all but full, and always above 2 GiB.
"""

from __future__ import annotations

import os

__all__ = ["read_at", "write_at"]


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
