"""Entry points of a set in a store: made here from records that are fetched, and uploaded.

They lie with the node's copy of the index first. A store that takes no writing leaves them there, where all
processes of this user's node find them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fastload.errors import RemoteError
from fastload.packing.entries import made_in_windows, remove_entries, write_entries
from fastload.packing.progress import Observer, entries_work
from fastload.remote.node_folder import NodeFolder
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME

__all__ = ["index_stored_entries"]


def index_stored_entries(
    url: str,
    storage_options: Mapping[str, Any] | None,
    spacing: int | None,
    observer: Observer | None = None,
) -> str:
    """Make the entry points of a set in a store anew, or remove them (``spacing`` None).

    Returns:
        Why the store has not got them; "": it has.

    Raises:
        FormatError: not a dataset.
        RemoteError: the store does not give its records.
        CacheError: the node has no place.
        ChecksumError: a damaged record.
    """
    dataset = PackedFiles(url, entries=False, storage_options=storage_options)
    location, store, observer = dataset.location, dataset.store, observer or Observer()
    assert location is not None
    assert store is not None
    path = (location / ENTRIES_NAME).path
    folder = NodeFolder(dataset.id)
    with folder.alone(str(location)):
        if spacing is not None:
            observer.started(entries_work(location, len(dataset)))
            threads = len(os.sched_getaffinity(0))
            made = made_in_windows(dataset, spacing, threads, observer.advanced)
            write_entries(folder.path, dataset.manifest, dataset.index.digest, spacing, made)
        try:
            if spacing is None:
                store.delete(path)
            else:
                store.upload(path, folder.path / ENTRIES_NAME)
        except RemoteError as error:
            return str(error)
        finally:
            if spacing is None:
                remove_entries(folder.path)
    return ""
