"""Generations of a set: what its manifest keeps of earlier ones, and the file of the dropped samples."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import ChecksumError, ShardError, ShardTruncated
from fastload.machine.paths import read_regular

_NAME = re.compile(r"dropped-g[1-9]\d{0,8}\.fli")
_ID = re.compile(r"[0-9a-f]{32}")
MAX_DROPPED = 1 << 28  # 4 GiB of entries

#: One entry of the file of dropped samples, 16 bytes.
DROPPED = np.dtype([("id", "<u8"), ("generation", "<u4"), ("reserved", "<u4")])
Entries = npt.NDArray[np.void]


def mark_of(generation: int) -> str:
    """Return the mark in the names of the files that a generation's manifest names first."""
    return f"-g{generation}"


# ---- What a manifest keeps ----


@dataclass(frozen=True)
class Generation:
    """An earlier generation of a set, whose samples are the first ones of the present set.

    Args:
        id: its dataset id.
        records: samples, with those that were dropped by then.
        classes: class names.
        shards: shard files.
        data_bytes: the sum of its records' lengths.
        same_as: ids of sets of the same samples, as in the manifest.
    """

    id: str
    records: int
    classes: int
    shards: int
    data_bytes: int
    same_as: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Generation:
        """Make it of a manifest's entry.

        Raises:
            ValueError: the entry breaks a rule of FORMAT.md, which the message names.
        """
        wrong = f"an entry of 'generations' must have an id and numbers >= 0. Found: {body!r:.200}."
        numbers: list[Any] = [body.get(name) for name in ("records", "classes", "shards", "data_bytes")]
        names = [body.get("id"), *body.get("same_as", ())]
        if not all(type(name) is str and _ID.fullmatch(name) for name in names):
            raise ValueError(wrong)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(wrong)
        records, classes, shards, data_bytes = numbers
        return cls(body["id"], records, classes, shards, data_bytes, tuple(names[1:]))

    def is_called(self, dataset_id: str) -> bool:
        """Whether a set with this id had its samples."""
        return dataset_id == self.id or dataset_id in self.same_as


@dataclass(frozen=True)
class Dropped:
    """The manifest's ``dropped``: the file of the dropped samples.

    Args:
        file: its name in the dataset's folder.
        count: dropped samples.
        crc: CRC-32C of the file.
        ids: 32 hex digits, BLAKE2b of the ids, ascending, as little-endian u64.
    """

    file: str
    count: int
    crc: int
    ids: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Dropped:
        """Make it of a manifest's entry.

        Raises:
            ValueError: the entry breaks a rule of FORMAT.md, which the message names.
        """
        file, count, crc, ids = (body.get(name) for name in ("file", "count", "crc", "ids"))
        if not (type(file) is str and _NAME.fullmatch(file) and type(ids) is str and _ID.fullmatch(ids)):
            raise ValueError(f"'dropped' must name dropped-gN.fli and have 'ids'. Found: {body!r:.200}.")
        if type(count) is not int or type(crc) is not int or not 1 <= count <= MAX_DROPPED:
            raise ValueError(
                f"'dropped' must have a 'crc' and a 'count' from 1 to {MAX_DROPPED}. Found: {body!r:.200}."
            )
        return cls(file, count, crc, ids)

    def id_of(self, dataset_id: str) -> str:
        """Return the id of a set, 32 hex digits, without its dropped samples; ``dataset_id``: with them."""
        return hashlib.blake2b(f"{dataset_id} without {self.ids}".encode(), digest_size=16).hexdigest()


# ---- The file ----


def write_dropped(path: Path, entries: Entries) -> Dropped:
    """Write the file of the dropped samples and fsync it (not atomically: no manifest names it yet).

    Args:
        path: the file, ``dropped-gN.fli``.
        entries: :data:`DROPPED`, by ascending id, each once.
    """
    data = entries.tobytes()
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Dropped(path.name, len(entries), _crc(data), _digest(entries))


def read_dropped(folder: Path, dropped: Dropped | None, records: int) -> Entries:
    """Return the entries of a set's dropped samples, :data:`DROPPED`, by ascending id; checked.

    Args:
        folder: the dataset's.
        dropped: the manifest's entry; None: there are none.
        records: samples of the set, with those that were dropped.

    Raises:
        ShardTruncated, ChecksumError, ShardError: the file is missing, damaged, or cannot be read.
    """
    if dropped is None:
        return np.zeros(0, DROPPED)
    path, size = folder / dropped.file, dropped.count * DROPPED.itemsize
    try:
        data = read_regular(path, size)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror}.") from None
    if data is None or len(data) != size:
        state = "is longer than" if data is None else f"is missing, or has {len(data)} bytes in place of"
        raise ShardTruncated(f"{path} {state} the manifest's {size} bytes. Restore the file.")
    if _crc(data) != dropped.crc:
        raise ChecksumError(
            f"{path} has the CRC-32C {_crc(data):#010x}, the manifest says {dropped.crc:#010x}. Restore the "
            "file: without it nobody knows which samples were dropped."
        )
    entries: Entries = np.frombuffer(data, DROPPED)
    ids = entries["id"]
    if (ids[1:] <= ids[:-1]).any() or ids[-1] >= records or _digest(entries) != dropped.ids:
        raise ChecksumError(
            f"{path} must have ascending ids below {records}, each once, with the digest {dropped.ids}. "
            "Found: others. Restore the file."
        )
    return entries


def _digest(entries: Entries) -> str:
    return hashlib.blake2b(entries["id"].astype("<u8").tobytes(), digest_size=16).hexdigest()


def _crc(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8)))
