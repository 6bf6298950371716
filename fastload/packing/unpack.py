"""``fastload unpack``: from a packed dataset back to a folder of the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing.files import publish_folder, remove, temporary_of
from fastload.packing.folders import IMG_EXTENSIONS
from fastload.packing.names import ESCAPED, decode_key, encode_key, printable
from fastload.packing.png_file import png_file
from fastload.packing.summary import CODECS
from fastload.shard.dataset import PackedFiles

__all__ = ["safe_path", "unpack"]

_EXTENSIONS = {
    "jpeg": b".jpg",
    "png": b".png",
    "webp": b".webp",
    "gif": b".gif",
    "bmp": b".bmp",
    "tiff": b".tif",
}


def safe_path(key: bytes) -> bytes:
    """``key`` as a path below the output folder.

    Raises:
        FormatError: it is absolute, has empty, ``.`` or ``..`` parts, or a NUL: it could lead elsewhere.
    """
    parts = key.split(b"/")
    if b"\0" in key or any(part in (b"", b".", b"..") for part in parts):
        raise FormatError(
            f"the key {printable(key)!r} is no path below a folder (absolute, '..', empty part or NUL); "
            f"the dataset does not come from a folder, or somebody tampered with it."
        )
    return key


def unpack(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write every record under its name into class folders below ``output``; returns how many.

    ``output`` appears when all is written. Records of raw pixels become PNG files, which
    packing takes again.

    Raises:
        FormatError: keys that are no safe paths.
        PackError: ``output`` exists and is not empty; two records of one name.
        ChecksumError: damaged records.
    """
    dataset = PackedFiles(folder)
    final = Path(output).absolute()
    try:
        taken = final.is_symlink() or (final.exists() and (not final.is_dir() or any(final.iterdir())))
    except OSError as error:
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    if taken:
        raise PackError(f"{final} exists and is not an empty folder; choose another.")
    temporary = temporary_of(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        temporary.mkdir()
        for sample in range(len(dataset)):
            data = dataset.read(sample)
            _write(os.fsencode(temporary), _target(dataset, sample), _as_file(dataset, sample, data))
            if progress is not None:
                progress(1, len(data))
        publish_folder(temporary, final)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    finally:
        remove(temporary)
    return len(dataset)


def _target(dataset: PackedFiles, sample: int) -> bytes:
    record = dataset.record(sample)
    key = safe_path(decode_key(dataset.index.key(sample), bool(record["flags"] & ESCAPED)))
    codec = CODECS[int(record["codec"])]
    if codec == "raw":
        key += b".png"
    elif dataset.manifest.options.get("indexed") and not key.lower().endswith(IMG_EXTENSIONS):
        key += _EXTENSIONS.get(codec, b"")
    label = int(record["label"])
    if label < 0 or not dataset.classes:
        return key
    name = dataset.manifest.classes[label].encode()
    first = encode_key(key.split(b"/")[0])[0] if b"/" in key else b""
    return key if first == name else safe_path(name) + b"/" + key


def _as_file(dataset: PackedFiles, sample: int, data: bytes) -> bytes:
    record = dataset.record(sample)
    if CODECS[int(record["codec"])] != "raw":
        return data
    return png_file(np.frombuffer(data, np.uint8).reshape(int(record["height"]), int(record["width"]), 3))


def _write(root: bytes, path: bytes, data: bytes) -> None:
    """Create a new file below ``root``, which only this process knows; never through a link."""
    place = os.path.join(root, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    try:
        descriptor = os.open(
            place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        raise PackError(
            f"two records have the name {printable(path)!r}; they cannot both become files."
        ) from None
    with open(descriptor, "wb", buffering=0) as file:
        file.write(np.frombuffer(data, np.uint8).data)
