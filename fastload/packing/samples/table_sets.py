"""Parquet and Arrow files as sets of samples: a folder of them, files of the Hub, one set a split."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.folders import splits_among
from fastload.packing.looks import walk
from fastload.packing.samples.table_file import TableFile
from fastload.remote.location import Location, is_url
from fastload.shard.manifest import MANIFEST_NAME
from fastload.shard.suffixes import TABLES, is_image

if TYPE_CHECKING:
    from fastload.packing.samples.arrow_rows import ArrowRows  # with pyarrow, which only tables need

__all__ = ["split_sets", "table_sets"]

_DEPTH = 4  # folders below the one that is given
# train-00000-of-00004.parquet, as datasets writes them, perhaps with a hash; 0000.parquet of the Hub's own
_NUMBERED = re.compile(r"(?:(.+?)[-_])?(\d{5}-of-\d{5}(?:-[0-9a-f]{16})?|\d+)")
_UNNAMED = ("", "data", "dataset")  # before a number: the folder's name says which split it is
_ONE_SET = "Give the tables of one set: a folder of them alone, or a URL with * in its last part."
_NO_FOLDER = b"/dev/null"  # no relative path leads from there to a file


def table_sets(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> list[tuple[str, ArrowRows]]:
    """Split ("": there is one only) and rows of each set that a folder of tables or a URL stands for; none:
    it is something else.

    Raises:
        PackError: tables that are no set together.
        RemoteError: the store does not tell.
    """
    if is_url(source):
        return _in_store(str(source), storage_options)
    place = Path(source).absolute()
    if not is_dir(place) or exists(place / MANIFEST_NAME):
        return []
    names = _below(place)
    files = {}
    for name in names:
        status = (place / name).stat()
        found = str(place / name)
        files[name] = TableFile(found, status.st_size, found, None, str(status.st_mtime_ns))
    return split_sets(str(place), files, os.fsencode(place))


def _below(place: Path) -> list[str]:
    """The tables below a folder; none if there is an image as well."""
    found = []
    for folder, folders, names in walk(str(place)):
        below = os.path.relpath(folder, place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if below.count(os.sep) >= _DEPTH:
            folders.clear()
        if any(map(is_image, names)):
            return []
        found += [os.path.normpath(os.path.join(below, name)) for name in names if _is_table(name)]
    return found


def _is_table(name: str) -> bool:
    """Whether it is one, and not what ``datasets`` keeps of its work."""
    last = name.rpartition("/")[2]
    return last.lower().endswith(TABLES) and not last.startswith((".", "cache-"))


def _in_store(url: str, storage_options: Mapping[str, Any] | None) -> list[tuple[str, ArrowRows]]:
    from fastload.remote.opening import open_store

    try:
        location = Location.parse(url)
    except ValueError as error:
        raise PackError(str(error)) from None
    pattern = location.path if set("*?[") & set(location.name) else ""
    if location.scheme != "hf" and not pattern and not _is_table(location.path):
        return []
    store = open_store(location, None if location.scheme == "file" else storage_options)
    commit = getattr(store, "commit", "")
    if not pattern and _is_table(location.path):
        facts = store.head(location.path)
        if facts is None:
            raise PackError(f"{location} does not exist.")
        file = TableFile(str(location), facts.size, location.path, store, commit or facts.etag)
        return [("", _rows(str(location), [file], _NO_FOLDER))]
    folder = location.parent.path if pattern else location.path
    prefix = f"{folder}/" if folder else ""
    listed = list(store.list(prefix))
    if not pattern and any(each.path == prefix + MANIFEST_NAME for each in listed):
        raise PackError(f"{location} is packed already: DataLoader, info and verify take its URL.")
    if not pattern and any(is_image(each.path) for each in listed):
        return []
    names = {each.path: each.size for each in listed if _is_table(each.path)}
    files = {
        path[len(prefix) :]: TableFile(str(store.root / path), size, path, store, commit)
        for path, size in names.items()
        if not pattern or fnmatchcase(path, pattern)
    }
    if not files:
        raise PackError(f"{location} has no {' or '.join(TABLES)} files, and no images.")
    return split_sets(str(location), files, _NO_FOLDER)


def split_sets(where: str, files: Mapping[str, TableFile], root: bytes) -> list[tuple[str, ArrowRows]]:
    """Files by their paths below what was given, as sets, one a split.

    Raises:
        PackError: files of several sets.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(files):
        groups.setdefault(_split_of(name), []).append(name)
    numbered = all("-of-" in name for name in files)
    if len(groups) > 1 and not numbered and not splits_among(list(groups), where, advice=_ONE_SET):
        groups = {"": sorted(files)}  # parts of one table, each with a name of its own
    for names in groups.values():
        folders = sorted({name.rpartition("/")[0] for name in names})
        if len(folders) > 1:
            raise PackError(
                f"{where} has tables of several sets, in the folders {', '.join(map(repr, folders))}. Give "
                "one of them."
            )
    return [
        (split if len(groups) > 1 else "", _rows(where, [files[name] for name in names], root))
        for split, names in groups.items()
    ]


def _split_of(name: str) -> str:
    """What a file's name says, or else its folder's."""
    folder, _, last = name.rpartition("/")
    stem = last.rpartition(".")[0]
    found = _NUMBERED.fullmatch(stem)
    if found is None:
        return stem
    return (found[1] or "") if found[1] not in (None, *_UNNAMED) else folder.rpartition("/")[2]


def _rows(where: str, files: Sequence[TableFile], root: bytes) -> ArrowRows:
    from fastload.packing.samples.arrow_rows import ArrowRows

    return ArrowRows(files, files[0].name if len(files) == 1 else where, root)
