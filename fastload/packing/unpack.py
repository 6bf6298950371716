"""``fastload unpack``: from a packed dataset back to a folder of the same files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists, is_dir, is_symlink
from fastload.packing.annotations.coco_unpack import unpack_coco
from fastload.packing.annotations.panoptic_unpack import unpack_panoptic
from fastload.packing.annotations.voc_unpack import unpack_voc
from fastload.packing.annotations.yolo_unpack import unpack_yolo
from fastload.packing.fetched import in_windows
from fastload.packing.files import make_folder, publish_folder, remove, temporary_of
from fastload.packing.names import ESCAPED, decode_key, encode_key
from fastload.packing.png_file import png_file
from fastload.packing.unpack_fields import TableFormat, unpack_fields
from fastload.packing.unpacked_files import safe_path, write_new
from fastload.shard.codecs import RAW, suffix_of
from fastload.shard.dataset import PackedFiles
from fastload.shard.suffixes import is_image

__all__ = ["LAYOUTS", "unpack"]

#: What a set may become again that was packed from it.
LAYOUTS = {"coco": unpack_coco, "panoptic": unpack_panoptic, "yolo": unpack_yolo, "voc": unpack_voc}


def unpack(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    table: TableFormat = "jsonl",
    storage_options: Mapping[str, Any] | None = None,
    as_: str | None = None,
) -> int:
    """Write every record under its name into class folders below ``output``; returns how many.

    Of samples with other fields the pictures are files, and the values a table, "jsonl", "csv" or "parquet":
    ``samples.jsonl``, which packs to the same set. ``folder`` may be a URL, with ``storage_options``; nothing
    is unpacked into one.

    ``as_``: "coco", "panoptic", "yolo" or "voc": what was packed from such files becomes them again, which
    say the same. No set becomes files of another layout.

    ``output`` appears when all is written. Records of raw pixels become PNG files, which
    packing takes again.

    Raises:
        FormatError: keys that are no safe paths.
        PackError: ``output`` exists and is not empty; two records of one name; the set was not packed from
            files of the layout ``as_``, or not all of what they said.
        ChecksumError: damaged records.
    """
    if as_ is not None and as_ not in LAYOUTS:
        raise PackError(f"as_ is {as_!r}, must be one of {', '.join(LAYOUTS)}.")
    dataset = PackedFiles(folder, storage_options=storage_options)
    final = Path(output).absolute()
    try:
        taken = is_symlink(final) or (exists(final) and (not is_dir(final) or any(final.iterdir())))
    except OSError as error:
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    if taken:
        raise PackError(f"{final} exists and is not an empty folder; choose another.")
    temporary = temporary_of(final)
    try:
        make_folder(final.parent)
        remove(temporary)
        temporary.mkdir()
        if as_ is not None:
            LAYOUTS[as_](dataset, temporary)
        elif dataset.manifest.fields:
            unpack_fields(dataset, temporary, table)
        else:
            _unpack_plain(dataset, temporary)
        publish_folder(temporary, final)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot unpack into {final}: {error}.") from error
    finally:
        remove(temporary)
    return len(dataset)


def _unpack_plain(dataset: PackedFiles, folder: Path) -> None:
    for ids, part in in_windows(dataset):
        for sample in ids:
            data = part.read(sample)
            write_new(os.fsencode(folder), _target(dataset, sample), _as_file(dataset, sample, data))


def _target(dataset: PackedFiles, sample: int) -> bytes:
    record = dataset.record(sample)
    key = safe_path(decode_key(dataset.index.key(sample), bool(record["flags"] & ESCAPED)))
    codec = int(record["codec"])
    if codec == RAW:
        key += b".png"
    elif dataset.manifest.options.get("indexed") and not is_image(key):
        key += suffix_of(codec).encode()
    label = int(record["label"])
    if label < 0 or not dataset.classes:
        return key
    name = dataset.manifest.classes[label].encode()
    first = encode_key(key.split(b"/")[0])[0] if b"/" in key else b""
    return key if first == name else safe_path(name) + b"/" + key


def _as_file(dataset: PackedFiles, sample: int, data: bytes) -> bytes:
    record = dataset.record(sample)
    if record["codec"] != RAW:
        return data
    return png_file(np.frombuffer(data, np.uint8).reshape(int(record["height"]), int(record["width"]), 3))
