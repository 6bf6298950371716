"""From a location and what the user says about it to its store."""

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

__all__ = ["open_store", "place_of", "refuse_options", "shared_store"]

_shared: WeakValueDictionary[Any, Any] = WeakValueDictionary()  # stores that are in use, by what they are


def open_store(location: Location | str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store that a location is in.

    Args:
        location: a URL; the store is the whole of its bucket or host.
        storage_options: credentials, endpoint and so on; what is not named comes from where the scheme's
            other programs find it.

    Raises:
        LocationError: no URL that can be read, or options that its store does not know.
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
    """As :func:`open_store`; sets of a bucket that are open at the same time share its connections."""
    said = sorted(repr(pair) for pair in (storage_options or {}).items())
    around = sorted(pair for pair in os.environ.items() if pair[0].startswith(("AWS_", "HF_")))
    key = (location.root, *said, *around)
    store: Store | None = _shared.get(key)
    if store is None:
        store = _shared.setdefault(key, open_store(location, storage_options))
    return store


def place_of(
    given: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> tuple[str | os.PathLike[str], Location | None, StorageOptions]:
    """What a user gave as a folder or a URL: the folder, or the URL in its place.

    Returns:
        The folder (of a URL what was given), the location (None: a folder of this machine; so is
        ``file://``), and the options.

    Raises:
        LocationError: a URL that cannot be read.
        TypeError: options that are no dict.
    """
    location, options = url_of(given), StorageOptions(storage_options)
    if location is not None and location.scheme != "file":
        return given, location, options
    return (given if location is None else "/" + location.path), None, options


def refuse_options(folder: object, options: Mapping[str, Any] | None) -> None:
    """Raise LocationError where there are options and nothing is in a store."""
    if options:
        raise LocationError(
            f"storage_options are for URLs of stores, such as s3://BUCKET/SET. Found: "
            f"{', '.join(options)} for {str(folder)!r}."
        )
