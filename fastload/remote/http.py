"""``https://`` and ``http://`` stores, objects read as files by ranges, and a check that a store answers."""

from __future__ import annotations

import io
import socket
import urllib.request
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastload._native import _C
from fastload.errors import LocationError, ObjectMissing, RemoteError, ShardError
from fastload.machine.threads import ForkSafeLock, started_pool
from fastload.remote.location import Location
from fastload.remote.options import StorageOptions, checked_headers, unknown_options
from fastload.remote.store import Facts, Listed, Store, warn_of_store

# ---- Reachability ----

_SECONDS = 10.0


def check_reach(base: str, place: str, advice: str) -> None:
    """Connect once, so that a misspelled name is an error at once and not after a minute of retries.

    Args:
        base: the store's address.
        place: what messages call it.
        advice: what the user should check.

    Raises:
        RemoteError: nobody listens there, or the host does not exist.
    """
    parts = urlsplit(base)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return  # the proxy resolves the name
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((host, port), _SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RemoteError(f"{place} cannot be reached: {parts.netloc}: {reason}. {advice}") from error


# ---- Web servers with byte ranges (read-only) ----

_LEGAL = ("headers", "token", "ca_file")


class HttpStore:
    """A web server, read-only.

    Args:
        root: ``https://HOST[:PORT]``.
        storage_options: ``headers``, a dict sent with every request; ``token``, short for the header
            ``Authorization: Bearer ...``; ``ca_file``, whose certificates are trusted.

    Raises:
        LocationError, TypeError: an option is unknown or has an invalid value.
    """

    def __init__(self, root: Location, storage_options: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._given = StorageOptions(storage_options)
        for name in self._given:
            if name not in _LEGAL:
                raise unknown_options(root.scheme, name, ", ".join(_LEGAL))
        self._headers = checked_headers(self._given.get("headers") or {})
        token = self._given.get("token")
        if token is not None:
            if any(name.lower() == "authorization" for name in self._headers):
                raise LocationError("storage_options has a token and an Authorization header. Pass one.")
            self._headers |= checked_headers({"Authorization": f"Bearer {token}"})
        self._made: _C.RemoteStore | None = None
        self._lock = ForkSafeLock()

    def __reduce__(self) -> Any:
        return HttpStore, (self.root, self._given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore:
        """See :class:`~fastload.remote.store.Store`."""
        with self._lock.held():
            if self._made is None:
                check_reach(str(self.root), str(self.root), "Check the URL.")
                self._made = _C.RemoteStore(
                    str(self.root),
                    str(self.root),
                    signing="none",
                    headers=list(self._headers.items()),
                    ca_file=self._given.get("ca_file") or "",
                    warn=warn_of_store,
                )
        return self._made

    def head(self, path: str) -> Facts | None:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core()
        try:
            facts = core.head(path)
        except ShardError as error:
            raise RemoteError(str(error)) from error
        return None if facts is None else Facts(*facts)

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """See :class:`~fastload.remote.store.Store`."""
        core = self.core()
        try:
            return core.get(path, begin, end, most)
        except ObjectMissing as error:
            raise ObjectMissing(f"{self.root / path} does not exist.") from error
        except ShardError as error:
            raise RemoteError(str(error)) from error

    def list(self, prefix: str) -> Iterator[Listed]:
        """Raise: web servers have no machine-readable listing."""
        raise self._cannot("list what it has")

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Raise: web servers are read-only."""
        raise self._cannot("be written to")

    def upload(self, path: str, file: Path) -> None:
        """Raise: web servers are read-only."""
        raise self._cannot("be written to")

    def delete(self, path: str) -> None:
        """Raise: web servers are read-only."""
        raise self._cannot("be written to")

    def _cannot(self, what: str) -> RemoteError:
        return RemoteError(
            f"{self.root} cannot {what}: a web server is read only. For a store that speaks S3 pass "
            f"s3://BUCKET and storage_options={{'endpoint_url': {str(self.root)!r}}}."
        )


# ---- Objects as files ----

_AHEAD = 2  # reads fetched ahead, if each read begins where the one before ended
_KEPT = 8  # answers that wait for their reader; those it jumps away from are dropped


class RangeFile(io.RawIOBase):
    """An object of a store as a file, read by byte ranges. Sequential reads are fetched ahead; memory holds
    a few reads, not the object.

    Args:
        store: the store that has the object.
        path: path of the object.
        size: its size in bytes.
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
        """Return the object's size in bytes; pyarrow calls it."""
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next ``size`` bytes, fewer only at the object's end.

        Raises:
            RemoteError: the store does not return them.
        """
        begin = min(self._at, self._size)
        end = self._size if size is None or size < 0 else min(begin + size, self._size)
        if begin == end:
            return b""
        self._at = end
        pending = self._coming.pop((begin, end), None)
        if begin in self._ends:
            del self._ends[begin]
            self._look_ahead(end, end - begin)
        self._ends[end] = None
        while len(self._ends) > _KEPT:
            self._ends.popitem(last=False)
        return self._store.get(self._path, begin, end) if pending is None else pending.result()

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _look_ahead(self, at: int, length: int) -> None:
        for begin in range(at, min(at + _AHEAD * length, self._size), length):
            span = (begin, min(begin + length, self._size))
            if span not in self._coming:
                self._coming[span] = self._pool.submit(self._store.get, self._path, *span)
        while len(self._coming) > _KEPT:
            self._coming.popitem(last=False)[1].cancel()

    def close(self) -> None:
        """Cancel the reads ahead."""
        if not self.closed:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
