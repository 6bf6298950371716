"""What can be packed: class folders, a flat folder, a parent of train/ and val/, a CSV or JSONL list."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.there import is_dir, is_file
from fastload.packing.folders import Problem, class_names, has_images, walk_images
from fastload.packing.names import encode_key
from fastload.packing.tables import Labels, read_table, table_path
from fastload.remote.location import Location, is_url

if TYPE_CHECKING:  # what is on disk needs none of it
    from fastload.packing.store_source import StoreFiles

__all__ = ["Source", "open_sources", "planned_source"]

SPLITS = frozenset({b"train", b"training", b"val", b"valid", b"validation", b"test"})
File = tuple[bytes, int, int, int]  # path below the root, bytes, modification time in ns, label


@dataclass(frozen=True)
class Source:
    """One set of images, to become one packed dataset.

    ``files()`` walks it anew at every call, in sample-id order, and appends what it could not read to
    ``problems``.
    """

    split: str  # "" unless one of several
    root: bytes
    kind: str  # "classes", "flat", "table"; "planned": its files are in a plan, and are not listed here
    classes: tuple[str, ...]
    scan: Callable[[list[Problem]], Iterator[File]]
    problems: list[Problem] = field(default_factory=list)
    store: StoreFiles | None = None  # where the files are, if not on disk

    def files(self) -> Iterator[File]:
        """Path below the root, size in bytes (0: stat failed), mtime in ns and label of each file."""
        self.problems.clear()
        return self.scan(self.problems)


def open_sources(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> list[Source]:
    """The sources at a path or URL: several for a parent of train/ and val/, else one.

    Raises:
        PackError: nothing there that could be packed.
        RemoteError: a store cannot be listed.
    """
    if is_url(path):
        return _in_store(str(path), storage_options)
    place = Path(path)
    if is_file(place):
        return [_table(place.absolute())]
    if not is_dir(place):
        raise PackError(f"{place} does not exist; give a folder of images or a .csv or .jsonl file.")
    root = os.fsencode(place.absolute())
    try:
        folders = class_names(root)
        if folders and SPLITS.issuperset(folders) and not has_images(root):
            return _same_classes([_folder(os.path.join(root, name), os.fsdecode(name)) for name in folders])
        return [_folder(root, "")]
    except OSError as error:
        raise PackError(f"cannot read the folder {place}: {error.strerror}.") from None


def _in_store(url: str, storage_options: Mapping[str, Any] | None) -> list[Source]:
    from fastload.packing.store_source import StoreSplit, store_splits

    def source(split: StoreSplit) -> Source:
        kind = "classes" if split.classes else "flat"
        root = f"{url.rstrip('/')}/{split.name}".rstrip("/").encode()
        return Source(split.name, root, kind, split.classes, lambda _: split.scan(), store=split.files)

    splits = frozenset(map(os.fsdecode, SPLITS))
    return [*map(source, store_splits(_location(url), storage_options, splits))]


def planned_source(
    path: str | os.PathLike[str], classes: tuple[str, ...], storage_options: Mapping[str, Any] | None
) -> Source | None:
    """The source of a plan that is there, not listed again; None for one on disk, which is soon opened."""
    if not is_url(path):
        return None
    from fastload.packing.store_source import store_files

    files = store_files(_location(str(path)), storage_options)
    return Source("", str(path).rstrip("/").encode(), "planned", classes, lambda _: iter(()), store=files)


def _location(url: str) -> Location:
    try:
        return Location.parse(url)
    except ValueError as error:
        raise PackError(str(error)) from None


def _folder(root: bytes, split: str) -> Source:
    folders = class_names(root)
    if not folders:
        return Source(split, root, "flat", (), lambda problems: _flat(root, problems))
    names = [encode_key(name)[0].decode() for name in folders]
    if len(set(names)) != len(names):
        raise PackError(f"two class folders of {os.fsdecode(root)} have the same name once encoded as UTF-8.")
    return Source(
        split, root, "classes", tuple(names), lambda problems: _by_class(root, folders, 0, problems)
    )


def _flat(root: bytes, problems: list[Problem]) -> Iterator[File]:
    for path, size, mtime_ns in walk_images(root, b"", problems, nested=False):
        yield path, size, mtime_ns, -1


def _by_class(
    root: bytes, folders: list[bytes], labels: list[int] | int, problems: list[Problem]
) -> Iterator[File]:
    for position, folder in enumerate(folders):
        label = labels[position] if isinstance(labels, list) else position
        for path, size, mtime_ns in walk_images(root, folder, problems):
            yield path, size, mtime_ns, label


def _same_classes(sources: list[Source]) -> list[Source]:
    """Gives splits whose class folders differ one common list, so that a label means one class everywhere."""
    common = tuple(sorted({name for source in sources for name in source.classes}))
    return [_relabelled(s, common) if s.classes and s.classes != common else s for s in sources]


def _relabelled(source: Source, classes: tuple[str, ...]) -> Source:
    folders = class_names(source.root)
    labels = [classes.index(encode_key(name)[0].decode()) for name in folders]
    return replace(
        source,
        classes=classes,
        scan=lambda problems: _by_class(source.root, folders, labels, problems),
    )


def _table(path: Path) -> Source:
    labels = Labels(label for _, label in read_table(path))
    root = os.fsencode(path.parent)
    return Source("", root, "table", labels.classes, lambda _: _listed(path, root, labels))


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
            raise PackError(f"{path} lists {text!r} more than once; a file can be packed once only.")
