"""What packing, opening and commands know of a store. ``opening.open_store`` makes one."""

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


#: How often what came with a wrong checksum is asked for again: the way here may have damaged it. As the core
#: has it.
MOST_AGAIN = 3
_log = logging.getLogger("fastload")


class Facts(NamedTuple):
    """What a store says of an object without giving its bytes."""

    size: int  # bytes
    etag: str  # changes with the contents; "": the store has none


class Listed(NamedTuple):
    """An object in a listing."""

    path: str  # in the store
    size: int  # bytes


class Store(Protocol):
    """A bucket, a host or the file system. Paths are keys in it, without a slash before them.

    Safe to use from many threads. Pickles as its location and options; a ``repr`` and a message never have
    secrets. Transient failures are asked again within, and then raised.
    """

    @property
    def root(self) -> Location:
        """Where it is."""
        ...

    def head(self, path: str) -> Facts | None:
        """Size and etag; None: there is no such object.

        Raises:
            RemoteError: it cannot be told.
        """
        ...

    def get(self, path: str, begin: int = 0, end: int | None = None, most: int | None = None) -> bytes:
        """Bytes ``begin`` to before ``end`` of an object (None: to its end), exactly.

        Args:
            most: bytes that may come where ``end`` is None (None: 4 GiB), whatever the store has.

        Raises:
            ObjectMissing: there is no such object.
            RemoteError: they cannot be had, are not as many, or more than ``most``.
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """All objects whose paths begin with ``prefix``, in the order of their names.

        Raises:
            RemoteError: the store cannot tell.
        """
        ...

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; it is seen when it is whole.

        Args:
            if_absent: leave one that is there as it is.

        Returns:
            Whether it was written: False only where one was there, with ``if_absent``.

        Raises:
            RemoteError: the store does not take it.
        """
        ...

    def upload(self, path: str, file: Path) -> None:
        """Write a local file as an object, in parts where it is large; it is seen when it is whole.

        Raises:
            RemoteError: the store does not take it; nothing of it stays there.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object; none there is fine.

        Raises:
            RemoteError: the store does not do it.
        """
        ...

    def core(self, paths: Sequence[str] = ()) -> _C.RemoteStore | None:
        """What the core reads by, a ``_C.RemoteStore``; None: these are local files.

        Args:
            paths: what will be read, for stores whose every URL must be signed first.
        """
        ...


def warn_of_store(text: str) -> None:
    """A warning of the core's, on whichever thread waits for a store: nobody could catch it there, so where
    warnings are errors it is a line of the log."""
    try:
        warnings.warn(harmless(text), stacklevel=2)
    except Warning:
        _log.warning("%s", text)
