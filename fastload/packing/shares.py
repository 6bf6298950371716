"""Shares of a plan: ranges of shards, and the entry points of one shard, kept until publishing."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.packing.entries import Made, entries_of
from fastload.packing.files import publishing, remove, temporary_of
from fastload.packing.shard_writer import ShardPart
from fastload.shard.index import write_index

# ---- The entry points of one shard, kept beside it until publishing ---------------------------------


def piece_path(part: Path) -> Path:
    """Return where the entry points of the shard with this part are."""
    return part.with_suffix(".entries")


def write_piece(
    part_path: Path, part: ShardPart, data_file: Path, spacing: int, shown: tuple[bool, bool]
) -> None:
    """Make the entry points of a finished shard's records, and publish them beside its part.

    Args:
        part_path: where the part is or will be.
        part: the shard's entries and keys.
        data_file: where its records are.
        spacing: pixels between entry points; 0: one per row of MCUs.
        shown: how the set shows these pictures; see :attr:`PackedFiles.shown`.
    """
    index_path = temporary_of(part_path.with_suffix(".fli"))
    try:
        write_index(index_path, [part.records], [part.keys])
        index = _C.Index(str(index_path))
        reader = _C.Reader(index, [(str(data_file), part.shard_bytes)])
        reader.show(shown)
        entries = list(entries_of(reader, range(len(part.records)), spacing, 1))
    finally:
        remove(index_path)
    final = piece_path(part_path)
    packed = np.frombuffer(b"".join(packed for packed, _ in entries), np.uint8)
    sizes: npt.NDArray[Any] = np.concatenate([np.zeros((0, 2), "<u4"), *(sizes for _, sizes in entries)])
    facts = np.array([spacing, part.shard_bytes, _checksum(part)], np.int64)
    with publishing(final) as temporary, open(temporary, "wb") as file:
        np.savez(file, packed=packed, sizes=sizes.astype("<u4"), facts=facts)


def read_piece(part_path: Path, part: ShardPart, spacing: int) -> Made | None:
    """Read what :func:`write_piece` wrote for this very part; None: nothing, or with another spacing."""
    try:
        with np.load(piece_path(part_path)) as arrays:
            if arrays["facts"].tolist() != [spacing, part.shard_bytes, _checksum(part)]:
                return None
            if arrays["sizes"].ndim != 2:
                return None  # an earlier version's
            return arrays["packed"].tobytes(), arrays["sizes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # remade from the records


def _checksum(part: ShardPart) -> int:
    return int(_C.crc32c(np.ascontiguousarray(part.records).view(np.uint8)))


# ---- The shards that one of several packs writes ----------------------------------------------------

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class ShardRanges:
    """Shards by number, counted from 0 through all splits: some ranges, or one of several equal shares.

    Args:
        ranges: first and last of each, both included.
        share: this share's number, from 0, and the number of shares; None: the ranges count.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    share: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> ShardRanges:
        """Parse shares like ``0-99``, ``7``, ``0-9,40-49`` or ``3/16`` (the fourth of sixteen).

        Raises:
            PackError: the text is anything else.
        """
        number, slash, count = text.partition("/")
        if slash:
            if not (number.isdigit() and count.isdigit() and int(number) < int(count)):
                raise PackError(
                    f"--shards {text}: share I of N is written I/N, with I from 0 to N - 1, as 0/16 to 15/16."
                )
            return cls(share=(int(number), int(count)))
        matches = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
        pairs = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
        if len(pairs) < len(matches) or any(first > last for first, last in pairs):
            raise PackError(
                f"--shards {text}: write ranges of shards, counted from 0, with their last (0-99, or "
                "0-9,40-49), or one share (3/16: the fourth of sixteen)."
            )
        return cls(tuple(pairs))

    def numbers(self, count: int) -> list[int]:
        """Return the meant ones of ``count`` shards, ascending; a range may reach beyond the last shard.

        Raises:
            PackError: a range begins beyond the last shard.
        """
        if self.share is not None:
            number, of = self.share
            return list(range(count * number // of, count * (number + 1) // of))
        for first, last in self.ranges:
            if first >= count:
                raise PackError(
                    f"--shards {first}-{last}: the plan has {count} shards; legal are 0 to {count - 1}."
                )
        return sorted({n for first, last in self.ranges for n in range(first, min(last + 1, count))})


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as :meth:`ShardRanges.parse` takes them: ``3,7-12``."""
    pairs: list[list[int]] = []
    for number in numbers:
        if pairs and pairs[-1][1] == number - 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)
