"""Class folders and lists of pictures as sources, on disk or in a store, split by split."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import ObjectMissing, PackError
from fastload.machine.paths import exists, is_dir, is_file
from fastload.packing.files import encode_key
from fastload.packing.folders import (
    FOLDERS_ARE,
    Folders,
    Ignored,
    Problem,
    SplitsWithin,
    folders_in,
    is_hidden,
    splits_among,
    walk_images,
)
from fastload.packing.options import PackOptions
from fastload.packing.tables import Labels, read_table, table_path
from fastload.remote.location import Location, is_url
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.manifest import MANIFEST_NAME
from fastload.shard.suffixes import is_image

# ---- Sources of pictures ----------------------------------------------------------------------------

File = tuple[bytes, int, int, int]  # path below the root, bytes, modification time in ns, label
Scan = Callable[[list[Problem], Ignored], Iterator[File]]


@dataclass(frozen=True)
class Source:
    """One set of images, which becomes one packed dataset.

    Each call of ``files()`` walks it anew, in sample-id order, and appends what it cannot read to
    ``problems`` and what it leaves out to ``ignored``.
    """

    split: str  # "" if it is the only one
    root: bytes
    kind: str  # "classes", "flat", "table"; "planned": its files are in a plan and are not listed again
    classes: tuple[str, ...]
    scan: Scan
    problems: list[Problem] = field(default_factory=list)
    store: StoreFiles | None = None  # where the files are, if not on disk
    beside: Ignored = field(default_factory=Ignored)  # what was left out before the walk

    def files(self, ignored: Ignored | None = None) -> Iterator[File]:
        """Yield path below the root, size in bytes (0: stat failed), mtime in ns and label of each file.

        Args:
            ignored: receives what is left out.
        """
        self.problems.clear()
        if ignored is not None:
            ignored.add(self.beside)
        return self.scan(self.problems, Ignored() if ignored is None else ignored)


def open_sources(path: str | os.PathLike[str], options: PackOptions) -> list[Source]:
    """Open the sources at a path or URL: several for a parent of train/ and val/, else one.

    Raises:
        PackError: there is nothing that can be packed, or it can be read in two ways.
        RemoteError: the store cannot be listed.
    """
    if is_url(path):
        return _in_store(str(path), options)
    place = Path(path)
    if is_file(place):
        if options.layout in FOLDERS_ARE:
            raise PackError(f"--as {options.layout} says what folders are. Found: the file {place}.")
        return [_table(place.absolute())]
    if not is_dir(place):
        raise PackError(f"{place} does not exist; give a folder of images or a .csv or .jsonl file.")
    if exists(place / MANIFEST_NAME):
        raise PackError(
            f"{place} is a packed dataset already: DataLoader, info and verify take it as it is; 'fastload "
            "unpack' makes files of it, which can be packed differently."
        )
    root = os.fsencode(place.absolute())
    try:
        return _in_folder(root, place, options.layout)
    except OSError as error:
        raise PackError(f"cannot read the folder {place}: {error.strerror}.") from None


def _in_folder(root: bytes, place: Path, layout: str | None) -> list[Source]:
    beside, folders = Ignored(), folders_in(root)
    if not splits_among(list(map(os.fsdecode, folders.full)), place, layout):
        return [_folder(root, "", folders, layout, beside)]
    beside.folders(folders, as_classes=False)
    _ignore_top(root, beside)
    sources = []
    for number, name in enumerate(folders.full):
        split, own = os.path.join(root, name), beside if number == 0 else Ignored()
        sources.append(_folder(split, os.fsdecode(name), folders_in(split), layout, own))
    return _same_classes(sources, layout)


def _in_store(url: str, options: PackOptions) -> list[Source]:

    def source(split: StoreSplit) -> Source:
        kind = "classes" if split.classes else "flat"
        root = f"{url.rstrip('/')}/{split.name}".rstrip("/").encode()
        scan: Scan = lambda problems, ignored: split.scan(ignored)  # noqa: E731
        return Source(split.name, root, kind, split.classes, scan, store=split.files)

    return [*map(source, store_splits(_location(url), options))]


def planned_source(
    path: str | os.PathLike[str], classes: tuple[str, ...], storage_options: Mapping[str, Any] | None
) -> Source | None:
    """Return the source of an existing plan, without listing it; None for one on disk, which opens fast."""
    if not is_url(path):
        return None

    files = store_files(_location(str(path)), storage_options)
    return Source("", str(path).rstrip("/").encode(), "planned", classes, lambda *_: iter(()), store=files)


def _location(url: str) -> Location:
    try:
        return Location.parse(url)
    except ValueError as error:
        raise PackError(str(error)) from None


def _folder(root: bytes, split: str, found: Folders, layout: str | None, beside: Ignored) -> Source:
    """Return a source of class folders, or a flat one if none of them has images."""
    folders = found.classes
    beside.folders(found, as_classes=bool(folders))
    if not folders:
        flat: Scan = lambda problems, ignored: _flat(root, problems, ignored)  # noqa: E731
        return Source(split, root, "flat", (), flat, beside=beside)
    names = [encode_key(name)[0].decode() for name in folders]
    if len(set(names)) != len(names):
        raise PackError(f"two class folders of {os.fsdecode(root)} have the same name once encoded as UTF-8.")
    scan = _by_class(root, folders, names, SplitsWithin(os.fsdecode(root), layout, bool(split)))
    return Source(split, root, "classes", tuple(names), scan, beside=beside)


def _flat(root: bytes, problems: list[Problem], ignored: Ignored) -> Iterator[File]:
    for path, size, mtime_ns in walk_images(root, b"", problems, nested=False, ignored=ignored):
        yield path, size, mtime_ns, -1


def _by_class(root: bytes, folders: list[bytes], classes: Sequence[str], within: SplitsWithin) -> Scan:
    """Return a scan of class folders; labels count in ``classes``, which has all of them."""
    labels = {name: label for label, name in enumerate(classes)}

    def scan(problems: list[Problem], ignored: Ignored) -> Iterator[File]:
        _ignore_top(root, ignored)
        for folder in folders:
            label, name = labels[encode_key(folder)[0].decode()], os.fsdecode(folder)
            for path, size, mtime_ns in walk_images(root, folder, problems, ignored=ignored):
                if b"/" in path[len(folder) + 1 :]:
                    within.check(name, os.fsdecode(path[len(folder) + 1 :]))
                yield path, size, mtime_ns, label

    return scan


def _ignore_top(root: bytes, ignored: Ignored) -> None:
    """Note the files beside class folders or splits."""
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: os.fsdecode(entry.name)):
            if not entry.is_dir():
                note = ignored.image if is_image(entry.name) else ignored.file
                note(entry.name)


def _same_classes(sources: list[Source], layout: str | None) -> list[Source]:
    """Give splits whose class folders differ one common list, so that a label means one class everywhere."""
    common = tuple(sorted({name for source in sources for name in source.classes}))
    return [_relabelled(s, common, layout) if s.classes and s.classes != common else s for s in sources]


def _relabelled(source: Source, classes: tuple[str, ...], layout: str | None) -> Source:
    within = SplitsWithin(os.fsdecode(source.root), layout, split=True)
    return replace(
        source, classes=classes, scan=_by_class(source.root, folders_in(source.root).classes, classes, within)
    )


def _table(path: Path) -> Source:
    root = os.fsencode(path.parent)

    def is_there(text: str) -> bool:
        return "\0" not in text and is_file(Path(os.fsdecode(os.path.join(root, os.fsencode(text)))))

    labels = Labels.of_table(path, is_there)
    scan: Scan = lambda *_: _listed(path, root, labels)  # noqa: E731
    return Source("", root, "table", labels.classes, scan)


def _listed(path: Path, root: bytes, labels: Labels) -> Iterator[File]:
    hashes = array("q")  # 8 bytes per file, where a set of names would need a hundred
    for text, label in read_table(path):
        name = table_path(root, text)
        hashes.append(hash(name))
        try:
            status = os.stat(os.path.join(root, name))
            yield name, status.st_size, status.st_mtime_ns, labels.number(label)
        except OSError:
            yield name, 0, 0, labels.number(label)
    _refuse_repeats(path, root, np.frombuffer(hashes, np.int64))


def _refuse_repeats(path: Path, root: bytes, hashes: npt.NDArray[np.int64]) -> None:
    order = np.sort(hashes)
    repeated = order[1:][order[1:] == order[:-1]]
    if not len(repeated):
        return
    for text, _ in read_table(path):
        if hash(table_path(root, text)) == repeated[0]:
            raise PackError(f"{path} lists {text!r} more than once; a file can be packed only once.")


# ---- Images in an object store ----------------------------------------------------------------------

_THREADS = 32  # requests at a time: images are small, and a request takes tens of milliseconds
Names = list[tuple[str, int]]  # path below the source's folder, bytes


@dataclass(frozen=True)
class StoreFiles:
    """The place of a source's files in a store."""

    store: Store
    prefix: str  # of their keys; the rest of a key is the path below the source's folder

    def fetch(self, files: list[tuple[bytes, int]], folder: Path) -> None:
        """Fetch files (path, size) into a folder of this machine; a file that is gone is left out.

        Raises:
            PackError: a file has another size.
            RemoteError: the store does not deliver a file.
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
            return  # packing reports it, like any file that is gone
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

    name: str  # "" if it is the only one
    files: StoreFiles
    classes: tuple[str, ...]
    scan: Callable[[Ignored], Iterator[tuple[bytes, int, int, int]]]  # path, bytes, 0, label


def store_files(location: Location, options: Mapping[str, Any] | None) -> StoreFiles:
    """Return the files below a URL, without asking the store."""
    store = open_store(location, None if location.scheme == "file" else options)
    return StoreFiles(store, f"{location.path}/" if location.path else "")


def store_splits(location: Location, options: PackOptions) -> list[StoreSplit]:
    """List the sets of images below a URL once, by ImageFolder's rules: several if its folders are splits.

    Folders are the parts of keys between slashes. The whole listing is held in memory meanwhile.

    Raises:
        PackError: nothing there, a key that is no path, annotated images, or two possible readings.
        RemoteError: the store cannot be listed.
    """
    files = store_files(location, options.storage_options)
    store, prefix = files.store, files.prefix
    names = [
        (file.path[len(prefix) :], file.size)
        for file in store.list(prefix)
        if not file.path.endswith("/") and not file.path[len(prefix) :].startswith(".fastload")
    ]
    if not names:
        raise PackError(f"there is nothing at {location}; give the URL of a folder of images.")
    for name, _ in names:
        if {"", ".", ".."} & set(name.split("/")) or len(os.fsencode(max(name.split("/"), key=len))) > 255:
            raise PackError(f"the key {prefix + name!r} of {store.root} cannot be the path of a file.")
    if options.layout != "classes":
        from fastload.packing.annotations.find import refuse_annotated

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
    common = sorted({name for full, more in inner.values() if full for name in full + more})
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
    """Return one set.

    Args:
        classes: the classes of all splits; a set without folders is flat.
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
    """Yield folder, name, path, size and label of each image; they sort in ImageFolder's order."""
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
        # The class goes first: otherwise a folder "a b" would come between "a" and "a/more".
        label = labels.get(first, -1)
        yield f"{label:012d}/{folder}" if labels else folder, name, path, size, label


def _without_hidden(names: Names, top: bool = False) -> tuple[Names, set[str]]:
    """Return the files outside hidden folders, and the hidden folders; ``top``: only uppermost ones count."""
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
    """Return the folders that have images, and those that have none."""
    folders, full = set(), set()
    for name, _ in names:
        first, *inside = name.split("/")
        if inside and not is_hidden(first):
            folders.add(first)
            if is_image(name) and not any(map(is_hidden, inside[:-1])):
                full.add(first)
    return sorted(full), sorted(folders - full)
