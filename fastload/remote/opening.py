"""From a location and what the user says about it to its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastload.errors import RemoteError
from fastload.remote.local import LocalStore
from fastload.remote.location import Location
from fastload.remote.store import Store

__all__ = ["open_store"]


def open_store(location: Location | str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store that a location is in.

    Args:
        location: a URL; the store is the whole of its bucket or host.
        storage_options: credentials, endpoint and so on; what is not named comes from where the scheme's
            other programs find it.

    Raises:
        ValueError: no URL that can be read, or options that its store does not know.
        RemoteError: there is no store for the scheme.
    """
    root = (Location.parse(location) if isinstance(location, str) else location).root
    if root.scheme == "file":
        if storage_options:
            raise ValueError(f"file:// takes no storage_options. Found: {', '.join(storage_options)}.")
        return LocalStore()
    if root.scheme == "s3":
        from fastload.remote.s3 import S3Store

        return S3Store(root, storage_options)
    raise RemoteError(f"{root} cannot be opened: there is no store for {root.scheme}://.")
