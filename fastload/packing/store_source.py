"""Images in an object store as a source: listed once, by ImageFolder's rules; fetched a shard at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import ObjectMissing, PackError
from fastload.packing.folders import (
    Ignored,
    SplitsWithin,
    is_hidden,
    splits_among,
)
from fastload.packing.options import PackOptions
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.suffixes import is_image

__all__ = ["StoreFiles", "StoreSplit", "store_files", "store_splits"]

_THREADS = 32  # requests at a time: images are small, and a request takes tens of milliseconds
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
    scan: Callable[[Ignored], Iterator[tuple[bytes, int, int, int]]]  # path, bytes, 0, label


def store_files(location: Location, options: Mapping[str, Any] | None) -> StoreFiles:
    """The files below a URL; nothing is asked."""
    store = open_store(location, None if location.scheme == "file" else options)
    return StoreFiles(store, f"{location.path}/" if location.path else "")


def store_splits(location: Location, options: PackOptions) -> list[StoreSplit]:
    """The sets of images below a URL: several where its folders are splits, else one.

    Folders are what keys have between slashes. The whole listing is held in memory meanwhile.

    Raises:
        PackError: nothing there; a key that is no path; annotated images, or what can be read in two ways.
        RemoteError: the store cannot be listed.
    """
    files = store_files(location, options.storage_options)
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
    if options.layout != "classes":
        from fastload.packing.annotations.in_store import refuse_annotated

        refuse_annotated(location, [name for name, _ in names])
    beside = Ignored()
    names, hidden = _without_hidden(names, top=True)
    beside.hide(hidden)
    full, empty = _folders(names)
    if not splits_among(full, location, options.layout):
        within = SplitsWithin(location, options.layout)
        return [_split("", files, sorted(full + empty), names, beside, within)]
    for name, _ in names:
        if "/" not in name:
            (beside.image if is_image(name) else beside.file)(name.encode())
    for folder in empty:
        beside.folder(folder.encode(), "empty")
    parts = {
        split: [(name[len(split) + 1 :], size) for name, size in names if name.startswith(f"{split}/")]
        for split in full
    }
    inner = {split: _folders(part) for split, part in parts.items()}
    common = sorted({name for found, more in inner.values() if found for name in found + more})
    return [
        _split(
            split, StoreFiles(store, f"{prefix}{split}/"), common, part,
            beside if split == full[0] else Ignored(),
            SplitsWithin(location / split, options.layout, split=True),
        )
        for split, part in parts.items()
    ]  # fmt: skip


def _split(
    split: str, files: StoreFiles, classes: Sequence[str], names: Names, beside: Ignored, within: SplitsWithin
) -> StoreSplit:
    """One set.

    Args:
        classes: those of all splits; a set without folders is flat.
        beside: what was left out before.
    """
    seen, hidden = _without_hidden(names)
    beside.hide(hidden)
    full, empty = _folders(seen)
    for name in empty:
        beside.folder(name.encode(), "classes" if full else "empty")
    labels = {name: label for label, name in enumerate(classes)} if full else {}

    def scan(ignored: Ignored) -> Iterator[tuple[bytes, int, int, int]]:
        ignored.add(beside)
        for _, _, path, size, label in sorted(_rows(seen, labels, ignored, within)):
            yield path.encode(), size, 0, label

    return StoreSplit(split, files, tuple(labels), scan)


def _rows(
    names: Names, labels: Mapping[str, int], ignored: Ignored, within: SplitsWithin
) -> Iterator[tuple[str, str, str, int, int]]:
    """Folder, name, path, size and label of each image: they sort as ImageFolder lists them."""
    for path, size in names:
        folder, _, name = path.rpartition("/")
        first, _, inside = path.partition("/")
        if not is_image(name):
            if not folder or first in labels:
                ignored.file(name.encode())
            continue
        if labels and not folder:
            ignored.image(path.encode())
            continue
        if labels:
            within.check(first, inside)
        # The class goes first: a folder "a b" would else come between "a" and "a/more".
        label = labels.get(first, -1)
        yield f"{label:012d}/{folder}" if labels else folder, name, path, size, label


def _without_hidden(names: Names, top: bool = False) -> tuple[Names, set[str]]:
    """The files that lie in no hidden folder, and the hidden folders; ``top``: only the uppermost count."""
    kept: Names = []
    hidden: set[str] = set()
    for name, size in names:
        parts = name.split("/")[:-1]
        at = next((at for at, part in enumerate(parts[: 1 if top else None]) if is_hidden(part)), None)
        if at is None:
            kept.append((name, size))
        else:
            hidden.add("/".join(parts[: at + 1]))
    return kept, hidden


def _folders(names: Names) -> tuple[list[str], list[str]]:
    """The folders that have images, and those that have none."""
    found, full = set(), set()
    for name, _ in names:
        first, *inside = name.split("/")
        if inside and not is_hidden(first):
            found.add(first)
            if is_image(name) and not any(map(is_hidden, inside[:-1])):
                full.add(first)
    return sorted(full), sorted(found - full)
