"""The interface of a store for packing, opening and commands. ``opening.open_store`` opens one."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fastload.errors import harmless

if TYPE_CHECKING:
    from fastload._native import _C
    from fastload.remote.location import Location


#: How often data with a wrong checksum, perhaps damaged in transit, is fetched again; as in the core.
MOST_AGAIN = 3
_log = logging.getLogger("fastload")


class Facts(NamedTuple):
    """An object's size and etag."""

    size: int  # bytes
    etag: str  # changes with the contents; "" if the store has none


class Listed(NamedTuple):
    """An object in a listing."""

    path: str  # path in the store
    size: int  # bytes


class Store(Protocol):
    """A bucket, a host or the file system. Paths are keys in it, without a leading slash.

    Safe to use from many threads. Pickles as its location and options; its ``repr`` and messages never have
    secrets. Temporary failures are retried, then raised.
    """

    @property
    def root(self) -> Location:
        """The store's location."""
        ...

    def head(self, path: str) -> Facts | None:
        """Return size and etag; None: the object does not exist.

        Raises:
            RemoteError: the store does not answer.
        """
        ...

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """Return exactly the bytes ``begin`` to before ``end`` of an object (None: to its end).

        Args:
            most: the most bytes to accept if ``end`` is None (None: 4 GiB).

        Raises:
            ObjectMissing: the object does not exist.
            RemoteError: they cannot be read, are too few, or are more than ``most``.
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield all objects whose paths begin with ``prefix``, in the order of their names.

        Raises:
            RemoteError: the store does not answer.
        """
        ...

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; it appears when it is complete.

        Args:
            if_absent: leave an existing object as it is.

        Returns:
            Whether it was written: False only if ``if_absent`` found one.

        Raises:
            RemoteError: the store does not accept it.
        """
        ...

    def upload(self, path: str, file: Path) -> None:
        """Write a local file as an object, in parts if it is large; it appears when it is complete.

        Raises:
            RemoteError: the store does not accept it; nothing of it remains.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object; it need not exist.

        Raises:
            RemoteError: the store fails to.
        """
        ...

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore | None:
        """Return what the core reads through, a ``_C.RemoteStore``; None: these are local files.

        Args:
            paths: the paths to read, for stores that must sign every URL first.
        """
        ...


def warn_of_store(text: str) -> None:
    """Warn for the core, on whichever thread waits for a store. Nobody could catch an error there, so if
    warnings are errors, it is logged."""
    try:
        warnings.warn(harmless(text), stacklevel=2)
    except Warning:
        _log.warning("%s", text)
