"""Files that unpacking writes: paths that stay inside the folder, and samples read back in windows."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastload.errors import FormatError, PackError
from fastload.machine.paths import write_at
from fastload.packing.fetched import in_windows
from fastload.packing.files import ESCAPED, decode_key, printable
from fastload.shard.dataset import PackedFiles

# ---- Files named by keys, which may be hostile ------------------------------------------------------


def safe_path(key: bytes) -> bytes:
    """Return ``key`` as a path below the output folder.

    Raises:
        FormatError: it is absolute, or has empty, ``.`` or ``..`` parts or a NUL, so it could lead elsewhere.
    """
    parts = key.split(b"/")
    if b"\0" in key or any(part in (b"", b".", b"..") for part in parts):
        raise FormatError(
            f"the key {printable(key)!r} is no path below a folder (absolute, '..', empty part or NUL); "
            f"the dataset does not come from a folder, or somebody tampered with it."
        )
    return key


def write_new(root: bytes, path: bytes, data: bytes) -> None:
    """Create a new file below ``root``, which only this process knows, never through a link."""
    place = os.path.join(root, path)
    _make_folders(os.path.dirname(place))
    try:
        descriptor = os.open(
            place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        raise PackError(
            f"two records have the name {printable(path)!r}; they cannot both become files."
        ) from None
    try:
        write_at(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _make_folders(path: bytes) -> None:
    """Make folders like os.makedirs, which takes a folder that it cannot examine for a file."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        _make_folders(os.path.dirname(path))
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def written(root: bytes, path: bytes, data: bytes) -> bool:
    """Write a file; return False if it exists with other bytes."""
    try:
        write_new(root, path, data)
    except PackError:
        with open(os.path.join(root, path), "rb") as file:
            return file.read() == data
    return True


# ---- Unpacking to the files that annotated pictures were packed from --------------------------------

#: Advice that always works.
AS_TABLE = "Unpack it as a table: without --as."


@dataclass(frozen=True)
class Unpacked:
    """A sample that is read again."""

    path: bytes  # of its picture, below the output folder
    size: tuple[int, int]
    data: Callable[[str], bytes]  # the bytes of a field
    value: Callable[[str], Any]  # the value of a field


def picture_field(dataset: PackedFiles) -> str:
    """Return the name of the field that has the pictures of an annotated set."""
    index = dataset.schema.index_field
    assert index is not None  # source_of() has looked at it
    return index.name


def source_of(dataset: PackedFiles, layout: str, fields: tuple[str, ...]) -> Mapping[str, Any]:
    """Return what a set says of the files that it was packed from.

    Raises:
        PackError: they had another layout, or fields that they need were not packed, or were changed.
    """
    index = dataset.schema.index_field
    source = None if index is None else index.source
    own = source.get("layout") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or own != layout:
        came, advice = "It was not packed from annotated files.", "Unpack"
        if own:
            came = f"It was packed from files of layout {own!r}."
            advice = f"Take --as {own} (as_={own!r} in Python), or unpack"
        raise PackError(
            f"{dataset.where} cannot be unpacked as {layout!r}: a set becomes only files of its own layout. "
            f"{came} {advice} it as a table, without --as; other programs turn one layout into another."
        )
    options = dataset.manifest.options
    changed = next((name for name in ("raw", "max_side", "size") if options.get(name)), None)
    if changed is not None:
        raise PackError(
            f"{dataset.where} was packed with {changed}={options[changed]!r}, so its pictures are not those "
            f"that such files are about. {AS_TABLE}"
        )
    require(dataset, fields)
    return source


def require(dataset: PackedFiles, fields: Iterable[str]) -> None:
    """Check that the set has the fields that unpacking needs.

    Raises:
        PackError: one was not packed.
    """
    missing = next((name for name in fields if name not in dataset.schema), None)
    if missing is not None:
        raise PackError(
            f"{dataset.where} was packed without the field {missing!r}, which is needed. {AS_TABLE}"
        )


def samples_of(dataset: PackedFiles) -> Iterator[Unpacked]:
    """Yield all samples in order."""
    for ids, part in in_windows(dataset):
        for sample in ids:
            record = dataset.record(sample)
            key = decode_key(dataset.index.key(sample), bool(record["flags"] & ESCAPED))

            def data(field: str, part: PackedFiles = part, sample: int = sample) -> bytes:
                return part.value_bytes(field, sample)

            def value(field: str, data: Callable[[str], bytes] = data) -> Any:
                return dataset.schema[field].decode(data(field))

            yield Unpacked(safe_path(key), (int(record["width"]), int(record["height"])), data, value)
