"""Images in an object store as a source: listed once, by ImageFolder's rules; fetched a shard at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import ObjectMissing, PackError
from fastload.packing.folders import IMG_EXTENSIONS
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store

__all__ = ["StoreFiles", "StoreSplit", "store_files", "store_splits"]

_THREADS = 32  # requests at a time: images are small, and a request takes tens of milliseconds
_EXTENSIONS = tuple(extension.decode() for extension in IMG_EXTENSIONS)
Names = list[tuple[str, int]]  # path below the source's folder, bytes


@dataclass(frozen=True)
class StoreFiles:
    """Where a source's files are."""

    store: Store
    prefix: str  # of their keys; what follows it is the path below the source's folder

    def fetch(self, files: list[tuple[bytes, int]], folder: Path) -> None:
        """Write files (path, size) below a folder of this machine; one that is gone is left out.

        Raises:
            PackError: one has another size.
            RemoteError: the store does not give one.
        """
        for parent in {os.path.dirname(path) for path, _ in files}:
            (folder / os.fsdecode(parent)).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_THREADS, "fetch") as pool:
            try:
                for _ in pool.map(lambda file: self._fetch_one(file[0], file[1], folder), files):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch_one(self, path: bytes, size: int, folder: Path) -> None:
        name = path.decode()
        try:
            data = self.store.get(self.prefix + name)
        except ObjectMissing:
            return  # packing says so, as of any file that is gone
        if len(data) != size:
            location = self.store.root / (self.prefix + name)
            raise PackError(
                f"the source has changed since this pack was planned: {location} had {size} bytes, and has "
                f"{len(data)}. --restart throws the unfinished pack away."
            )
        (folder / name).write_bytes(data)


@dataclass(frozen=True)
class StoreSplit:
    """One set of images in a store."""

    name: str  # "" unless one of several
    files: StoreFiles
    classes: tuple[str, ...]
    scan: Callable[[], Iterator[tuple[bytes, int, int, int]]]  # path, bytes, 0, label


def store_files(location: Location, options: Mapping[str, Any] | None) -> StoreFiles:
    """The files below a URL; nothing is asked."""
    store = open_store(location, None if location.scheme == "file" else options)
    return StoreFiles(store, f"{location.path}/" if location.path else "")


def store_splits(
    location: Location, options: Mapping[str, Any] | None, split_names: frozenset[str]
) -> list[StoreSplit]:
    """The sets of images below a URL: several where its folders are all named as splits, else one.

    Folders are what keys have between slashes. The whole listing is held in memory meanwhile.

    Raises:
        PackError: nothing there; a key that is no path.
        RemoteError: the store cannot be listed.
    """
    files = store_files(location, options)
    store, prefix = files.store, files.prefix
    names = [
        (found.path[len(prefix) :], found.size)
        for found in store.list(prefix)
        if not found.path.endswith("/") and not found.path[len(prefix) :].startswith(".fastload")
    ]
    if not names:
        raise PackError(f"there is nothing at {location}; give the URL of a folder of images.")
    for name, _ in names:
        if {"", ".", ".."} & set(name.split("/")) or len(os.fsencode(max(name.split("/"), key=len))) > 255:
            raise PackError(f"the key {prefix + name!r} of {store.root} is no path that a file could have.")
    folders = _folders(names)
    if folders and split_names.issuperset(folders) and not any(_in_top(name) for name, _ in names):
        parts = {
            split: [(name[len(split) + 1 :], size) for name, size in names if name.startswith(f"{split}/")]
            for split in folders
        }
        common = tuple(sorted({folder for part in parts.values() for folder in _folders(part)}))
        return [
            _split(split, StoreFiles(store, f"{prefix}{split}/"), common, part)
            for split, part in parts.items()
        ]
    return [_split("", files, tuple(folders), names)]


def _split(split: str, files: StoreFiles, classes: tuple[str, ...], names: Names) -> StoreSplit:
    """One set; ``classes`` are those of all splits, of which this one has some, or no folders at all."""
    if not _folders(names):
        classes = ()
    labels = {name: label for label, name in enumerate(classes)}

    def scan() -> Iterator[tuple[bytes, int, int, int]]:
        for _, _, path, size, label in sorted(_rows(names, labels)):
            yield path.encode(), size, 0, label

    return StoreSplit(split, files, classes, scan)


def _rows(names: Names, labels: Mapping[str, int]) -> Iterator[tuple[str, str, str, int, int]]:
    """Folder, name, path, size and label of each image: they sort as ImageFolder lists them."""
    for path, size in names:
        folder, _, name = path.rpartition("/")
        if not name.lower().endswith(_EXTENSIONS) or (labels and not folder):
            continue
        # The class goes first: a folder "a b" would else come between "a" and "a/more".
        label = labels.get(path.partition("/")[0], -1)
        yield f"{label:012d}/{folder}" if labels else folder, name, path, size, label


def _folders(names: Names) -> list[str]:
    return sorted({name.partition("/")[0] for name, _ in names if "/" in name})


def _in_top(name: str) -> bool:
    return "/" not in name and name.lower().endswith(_EXTENSIONS)
