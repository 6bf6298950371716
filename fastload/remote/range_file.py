"""An object of a store as a file that can be read from any place, some of it ahead of its reader."""

from __future__ import annotations

import io
from collections import OrderedDict
from concurrent.futures import Future

from fastload.machine.threads import started_pool
from fastload.remote.store import Store

__all__ = ["RangeFile"]

_AHEAD = 2  # reads that are asked for before their turn, where each begins at the end of the one before
_KEPT = 8  # answers that wait for their reader: what it jumps away from is dropped


class RangeFile(io.RawIOBase):
    """Reads become byte ranges. Whoever reads from one end to the other finds the next ones fetched; memory
    holds a few reads, not the object.

    Args:
        store: what has the object.
        path: of the object.
        size: its bytes.
    """

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self._ends: OrderedDict[int, None] = OrderedDict()  # where reads have ended
        self._coming: OrderedDict[tuple[int, int], Future[bytes]] = OrderedDict()
        self._pool = started_pool(_AHEAD, "table")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """The object's bytes; asked by pyarrow."""
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from here on, as many as were asked for if the object has them.

        Raises:
            RemoteError: the store does not give them.
        """
        begin = min(self._at, self._size)
        end = self._size if size is None or size < 0 else min(begin + size, self._size)
        if begin == end:
            return b""
        self._at = end
        found = self._coming.pop((begin, end), None)
        if begin in self._ends:
            del self._ends[begin]
            self._look_ahead(end, end - begin)
        self._ends[end] = None
        while len(self._ends) > _KEPT:
            self._ends.popitem(last=False)
        return self._store.get(self._path, begin, end) if found is None else found.result()

    def readall(self) -> bytes:
        return self.read()

    def _look_ahead(self, at: int, length: int) -> None:
        for begin in range(at, min(at + _AHEAD * length, self._size), length):
            span = (begin, min(begin + length, self._size))
            if span not in self._coming:
                self._coming[span] = self._pool.submit(self._store.get, self._path, *span)
        while len(self._coming) > _KEPT:
            self._coming.popitem(last=False)[1].cancel()

    def close(self) -> None:
        """End what is read ahead."""
        if not self.closed:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
