"""The file that libhdf5 writes a shard through, because libhdf5 does not survive a failing write.

Where a write fails, libhdf5 (seen with 2.0) keeps the bytes, tries again when the file is closed, fails anew,
and crashes the process with SIGSEGV in one case of three, there or later. So it never hears of a failure: the
first one is kept here, for the caller to raise, and what is written after it is kept in memory, so that what
libhdf5 reads back is what it wrote. No slower than its own driver, and without a copy of the records.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["WrittenFile"]

_Buffer = memoryview | bytes | bytearray


class WrittenFile:
    """A new file at ``path``, as h5py's "fileobj" driver uses one: nothing of it raises but the constructor.

    Attributes:
        error: the first call that failed; the file is of no use from then on.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = self._size = 0
        self._unwritten: list[tuple[int, bytes]] = []  # offset and bytes, in the order of writing
        self.error: OSError | None = None

    def close(self) -> None:
        """Let go of the file; not synced."""
        descriptor, self._descriptor = self._descriptor, -1
        self._unwritten.clear()
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                self.error = self.error or error

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def write(self, data: _Buffer) -> int:
        """All of it: to the file, or after a failure to memory."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(view):
                done += os.pwrite(self._descriptor, view[done:], self._position + done)
        except OSError as error:
            self.error = error
        if self.error is not None:
            self._unwritten.append((self._position + done, bytes(view[done:])))
        self._position += len(view)
        self._size = max(self._size, self._position)
        return len(view)

    def readinto(self, data: _Buffer) -> int:
        """What was written there; zeros where nothing was, or where it cannot be read."""
        view = memoryview(data).cast("B")
        start, done = self._position, 0
        try:
            while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], start + done)):
                done += count
        except OSError as error:
            self.error = self.error or error
        view[done:] = bytes(len(view) - done)
        for offset, written in self._unwritten:
            first, last = max(offset, start), min(offset + len(written), start + len(view))
            if first < last:
                view[first - start : last - start] = written[first - offset : last - offset]
        self._position += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        """h5py asks for it to be there, and uses :meth:`readinto`."""
        data = bytearray(self._size - self._position if size < 0 else size)
        return bytes(data[: self.readinto(data)])

    def truncate(self, size: int) -> int:
        """Make the file ``size`` bytes long."""
        try:
            if self.error is None:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            self.error = error
        self._size = size
        return size
