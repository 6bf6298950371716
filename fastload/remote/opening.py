"""Opening the store of a location with its ``storage_options``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from fastload.errors import LocationError
from fastload.remote.local import LocalStore
from fastload.remote.location import Location, url_of
from fastload.remote.options import StorageOptions
from fastload.remote.store import Store

_shared: WeakValueDictionary[Any, Any] = WeakValueDictionary()  # stores in use, by location and options


def open_store(location: Location | str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open the store of a location.

    Args:
        location: a URL; the store is its whole bucket or host.
        storage_options: credentials, endpoint and so on; the others come from where the scheme's other
            programs find them.

    Raises:
        LocationError: the URL is invalid, or the store does not know an option.
        RemoteError: a library is missing.
    """
    root = (Location.parse(location) if isinstance(location, str) else location).root
    if root.scheme == "file":
        if storage_options:
            raise LocationError(f"file:// takes no storage_options. Found: {', '.join(storage_options)}.")
        return LocalStore()
    if root.scheme == "s3":
        from fastload.remote.s3 import S3Store

        return S3Store(root, storage_options)
    if root.scheme in ("gs", "az"):
        from fastload.remote.clouds import CloudStore

        return CloudStore(root, storage_options)
    if root.scheme in ("https", "http"):
        from fastload.remote.http import HttpStore

        return HttpStore(root, storage_options)
    from fastload.remote.hub import HubStore

    return HubStore(root, storage_options)


def shared_store(location: Location, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open a store as :func:`open_store` does; sets of a bucket open at the same time share connections."""
    options = sorted(repr(pair) for pair in (storage_options or {}).items())
    around = sorted(pair for pair in os.environ.items() if pair[0].startswith(("AWS_", "HF_")))
    key = (location.root, *options, *around)
    store: Store | None = _shared.get(key)
    if store is None:
        store = _shared.setdefault(key, open_store(location, storage_options))
    return store


def place_of(
    given: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> tuple[str | os.PathLike[str], Location | None, StorageOptions]:
    """Split a user's folder or URL into its parts.

    Returns:
        The folder (or the URL as given), the location (None for a folder of this machine, also as
        ``file://``), and the options.

    Raises:
        LocationError: the URL is invalid.
        TypeError: the options are not a dict.
    """
    location, options = url_of(given), StorageOptions(storage_options)
    if location is not None and location.scheme != "file":
        return given, location, options
    return (given if location is None else "/" + location.path), None, options


def refuse_options(folder: object, options: Mapping[str, Any] | None) -> None:
    """Raise LocationError if there are options although nothing is in a store."""
    if options:
        raise LocationError(
            f"storage_options are for URLs of stores, such as s3://BUCKET/SET. Found: "
            f"{', '.join(options)} for {str(folder)!r}."
        )
