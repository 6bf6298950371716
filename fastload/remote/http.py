"""``https://`` and ``http://``: any web server that gives byte ranges. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastload._native import _C
from fastload.errors import LocationError, ObjectMissing, RemoteError, ShardError
from fastload.machine.locks import ForkSafeLock
from fastload.remote.location import Location
from fastload.remote.options import StorageOptions, checked_headers, unknown_options
from fastload.remote.reach import check_reach
from fastload.remote.store import Facts, Listed, warn_of_store

__all__ = ["HttpStore"]

_LEGAL = ("headers", "token", "ca_file")


class HttpStore:
    """A web server.

    Args:
        root: ``https://HOST[:PORT]``.
        storage_options: ``headers``, a dict that goes with every request; ``token``, short for the header
            ``Authorization: Bearer ...``; ``ca_file``, whose certificates are trusted.

    Raises:
        LocationError, TypeError: options that have no meaning.
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
                raise LocationError("storage_options has a token and an Authorization header. Give one.")
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
                check_reach(str(self.root), str(self.root), "Look at the URL.")
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
            found = core.head(path)
        except ShardError as error:
            raise RemoteError(str(error)) from error
        return None if found is None else Facts(*found)

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
        """Web servers have no listing that programs can read."""
        raise self._cannot("list what it has")

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Web servers are read here."""
        raise self._cannot("be written to")

    def upload(self, path: str, file: Path) -> None:
        """Web servers are read here."""
        raise self._cannot("be written to")

    def delete(self, path: str) -> None:
        """Web servers are read here."""
        raise self._cannot("be written to")

    def _cannot(self, what: str) -> RemoteError:
        return RemoteError(
            f"{self.root} cannot {what}: a web server is read only. For a store that speaks S3 give "
            f"s3://BUCKET and storage_options={{'endpoint_url': {str(self.root)!r}}}."
        )
