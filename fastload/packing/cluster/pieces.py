"""The entry points of one shard, made where it is packed, kept beside it until all are there."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.packing.entries import Made, entries_of
from fastload.packing.files import publish, remove, temporary_of
from fastload.packing.part import ShardPart
from fastload.shard.index import write_index

__all__ = ["piece_path", "read_piece", "write_piece"]


def piece_path(part: Path) -> Path:
    """Where the entry points of the shard with this part are."""
    return part.with_suffix(".entries")


def write_piece(part_path: Path, part: ShardPart, data_file: Path, spacing: int) -> None:
    """Make the entry points of a finished shard's records, and publish them beside its part.

    Args:
        part_path: where the part is, or will be.
        part: the shard's entries and keys.
        data_file: where its records are.
        spacing: pixels between entry points, 0: one for each row of MCUs.
    """
    index_path = temporary_of(part_path.with_suffix(".fli"))
    try:
        write_index(index_path, [part.records], [part.keys])
        index = _C.Index(str(index_path))
        reader = _C.Reader(index, [(str(data_file), part.shard_bytes)])
        made = list(entries_of(reader, range(len(part.records)), spacing, 1))
    finally:
        remove(index_path)
    final = piece_path(part_path)
    packed = np.frombuffer(b"".join(packed for packed, _ in made), np.uint8)
    sizes: npt.NDArray[Any] = np.concatenate([np.zeros((0, 2), "<u4"), *(sizes for _, sizes in made)])
    facts = np.array([spacing, part.shard_bytes, _checksum(part)], np.int64)
    with open(temporary_of(final), "wb") as file:
        np.savez(file, packed=packed, sizes=sizes.astype("<u4"), facts=facts)
    publish(temporary_of(final), final)


def read_piece(part_path: Path, part: ShardPart, spacing: int) -> Made | None:
    """What :func:`write_piece` wrote for this very part; None: nothing, or with another spacing."""
    try:
        with np.load(piece_path(part_path)) as arrays:
            if arrays["facts"].tolist() != [spacing, part.shard_bytes, _checksum(part)]:
                return None
            if arrays["sizes"].ndim != 2:
                return None  # an earlier version's
            return arrays["packed"].tobytes(), arrays["sizes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # made again, from the records


def _checksum(part: ShardPart) -> int:
    return int(_C.crc32c(np.ascontiguousarray(part.records).view(np.uint8)))
