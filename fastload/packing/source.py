"""What can be packed: class folders, a flat folder, a parent of train/ and val/, a CSV or JSONL list."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir, is_file
from fastload.packing.folders import (
    FOLDERS_ARE,
    Folders,
    Ignored,
    Problem,
    SplitsWithin,
    folders_in,
    splits_among,
    walk_images,
)
from fastload.packing.names import encode_key
from fastload.packing.options import PackOptions
from fastload.packing.tables import Labels, read_table, table_path
from fastload.remote.location import Location, is_url
from fastload.shard.manifest import MANIFEST_NAME
from fastload.shard.suffixes import is_image

if TYPE_CHECKING:  # what is on disk needs none of it
    from fastload.packing.store_source import StoreFiles

__all__ = ["Source", "open_sources", "planned_source"]

File = tuple[bytes, int, int, int]  # path below the root, bytes, modification time in ns, label
Scan = Callable[[list[Problem], Ignored], Iterator[File]]


@dataclass(frozen=True)
class Source:
    """One set of images, to become one packed dataset.

    ``files()`` walks it anew at every call, in sample-id order, and appends what it could not read to
    ``problems`` and what it leaves out to ``ignored``.
    """

    split: str  # "" unless one of several
    root: bytes
    kind: str  # "classes", "flat", "table"; "planned": its files are in a plan, and are not listed here
    classes: tuple[str, ...]
    scan: Scan
    problems: list[Problem] = field(default_factory=list)
    store: StoreFiles | None = None  # where the files are, if not on disk
    beside: Ignored = field(default_factory=Ignored)  # what was left out before it was walked

    def files(self, ignored: Ignored | None = None) -> Iterator[File]:
        """Path below the root, size in bytes (0: stat failed), mtime in ns and label of each file.

        Args:
            ignored: hears what is left out.
        """
        self.problems.clear()
        if ignored is not None:
            ignored.add(self.beside)
        return self.scan(self.problems, Ignored() if ignored is None else ignored)


def open_sources(path: str | os.PathLike[str], options: PackOptions) -> list[Source]:
    """The sources at a path or URL: several for a parent of train/ and val/, else one.

    Raises:
        PackError: nothing there that could be packed, or what can be read in two ways.
        RemoteError: a store cannot be listed.
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
            "unpack' makes files of it, which can be packed otherwise."
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
    from fastload.packing.store_source import StoreSplit, store_splits

    def source(split: StoreSplit) -> Source:
        kind = "classes" if split.classes else "flat"
        root = f"{url.rstrip('/')}/{split.name}".rstrip("/").encode()
        scan: Scan = lambda problems, ignored: split.scan(ignored)  # noqa: E731
        return Source(split.name, root, kind, split.classes, scan, store=split.files)

    return [*map(source, store_splits(_location(url), options))]


def planned_source(
    path: str | os.PathLike[str], classes: tuple[str, ...], storage_options: Mapping[str, Any] | None
) -> Source | None:
    """The source of a plan that is there, not listed again; None for one on disk, which is soon opened."""
    if not is_url(path):
        return None
    from fastload.packing.store_source import store_files

    files = store_files(_location(str(path)), storage_options)
    return Source("", str(path).rstrip("/").encode(), "planned", classes, lambda *_: iter(()), store=files)


def _location(url: str) -> Location:
    try:
        return Location.parse(url)
    except ValueError as error:
        raise PackError(str(error)) from None


def _folder(root: bytes, split: str, found: Folders, layout: str | None, beside: Ignored) -> Source:
    """A source of class folders; without any that has images a flat one."""
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
    """Walks class folders; ``classes``: all there are, by which labels count."""
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
    """The files beside class folders or splits."""
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: os.fsdecode(entry.name)):
            if not entry.is_dir():
                note = ignored.image if is_image(entry.name) else ignored.file
                note(entry.name)


def _same_classes(sources: list[Source], layout: str | None) -> list[Source]:
    """Gives splits whose class folders differ one common list, so that a label means one class everywhere."""
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
    hashes = array("q")  # 8 bytes a file, where a set of names would need a hundred
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
