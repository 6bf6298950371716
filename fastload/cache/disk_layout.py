"""What lies where in the files of a disk tier. The layout is normative in FORMAT.md."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.layout import Contents, NoRoom
from fastload.errors import CacheError
from fastload.machine.sizes import human_bytes

__all__ = ["LIVE_BYTES", "TIER_HEADER", "SlotPlan", "expected_hits", "plan_slots", "read_header"]

MAGIC = b"FLTIER01"
VERSION = (1, 0)
HEADER_BYTES = 16384  # with the source folder, the classes and the CRC-32C
CLASSES_OFFSET = 8192
LIVE_BYTES = 4096
PAGE = 4096
MOST_RECORDS = 2**31 - 3
_STEP = 8  # a class is 1 / this larger than the one before

TIER_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("file_size", "<u8"),  # of the table
        ("data_size", "<u8"),  # of the file with the slots
        ("num_records", "<u8"),
        ("num_slots", "<u8"),
        ("places_offset", "<u8"),  # num_records u32: the record's slot + 1, 0: none
        ("slots_offset", "<u8"),  # num_slots u32: the record's id + 1, or what tier_layout.h says
        ("set_bytes", "<u8"),
        ("limit", "<u8"),  # bytes that it was allowed
        ("created", "<u8"),  # seconds since 1970
        ("index_digest", "<u4"),
        ("num_classes", "<u4"),
        ("dataset_id", "S32"),
        ("tier", "S32"),
        ("source_bytes", "<u4"),
        ("reserved", "V348"),
    ]
)
assert TIER_HEADER.itemsize == 512

_CLASS = np.dtype(
    [("slot_bytes", "<u8"), ("first_slot", "<u8"), ("num_slots", "<u8"), ("data_offset", "<u8")]
)

Numbers = npt.NDArray[np.int64]


def _grid(longest: int) -> Numbers:
    """Bytes of slots of each class, ascending, up to the longest record's."""
    sizes = [PAGE]
    while sizes[-1] < longest:
        sizes.append(max(sizes[-1] + PAGE, -(-(sizes[-1] + sizes[-1] // _STEP) // PAGE) * PAGE))
    return np.array(sizes, np.int64)


@dataclass(frozen=True, eq=False)
class SlotPlan:
    """The files of a tier.

    Args:
        sizes: bytes of a slot of each class, (k,), ascending.
        wanted: records of the set in each class, (k,).
        slots: slots of each class, (k,); none has 0.
        limit: bytes that were allowed.
    """

    sizes: Numbers
    wanted: Numbers
    slots: Numbers
    num_records: int
    limit: int

    @property
    def data_size(self) -> int:
        """Bytes of all slots."""
        return int((self.sizes * self.slots).sum())

    @property
    def slots_offset(self) -> int:
        """Where the slots' words begin in the table."""
        return HEADER_BYTES + LIVE_BYTES + _pages(4 * self.num_records)

    @property
    def file_size(self) -> int:
        """Bytes of the table."""
        return self.slots_offset + _pages(4 * int(self.slots.sum()))

    @property
    def share(self) -> float:
        """Of the set's records that have a slot."""
        return float(self.slots.sum() / max(1, self.num_records))

    def header(self, contents: Contents) -> bytes:
        """The first 16384 bytes of the table."""
        source = os.fsencode(contents.source)[: CLASSES_OFFSET - TIER_HEADER.itemsize]
        header = np.zeros((), TIER_HEADER)
        header["magic"] = MAGIC
        header["major"], header["minor"] = VERSION
        header["header_bytes"] = HEADER_BYTES
        header["places_offset"] = HEADER_BYTES + LIVE_BYTES
        for name in ("file_size", "data_size", "num_records", "slots_offset", "limit"):
            header[name] = getattr(self, name)
        header["num_slots"] = int(self.slots.sum())
        header["num_classes"] = len(self.sizes)
        header["set_bytes"] = contents.set_bytes
        header["created"] = int(time.time())
        header["index_digest"] = contents.index_digest
        header["source_bytes"] = len(source)
        header["dataset_id"] = contents.dataset_id.encode()
        header["tier"] = contents.tier.encode()
        classes = np.zeros(len(self.sizes), _CLASS)
        classes["slot_bytes"], classes["num_slots"] = self.sizes, self.slots
        classes["first_slot"] = np.cumsum(self.slots) - self.slots
        classes["data_offset"] = np.cumsum(self.sizes * self.slots) - self.sizes * self.slots
        text = (header.tobytes() + source).ljust(CLASSES_OFFSET, b"\0") + classes.tobytes()
        text = text.ljust(HEADER_BYTES - 4, b"\0")
        return text + _C.crc32c(np.frombuffer(text, np.uint8)).to_bytes(4, "little")


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def plan_slots(contents: Contents, limit: int) -> SlotPlan:
    """Slots for a share of the set, the same of each class of lengths.

    Args:
        limit: bytes of both files.

    Raises:
        NoRoom: for a single record.
        CacheError: the set has more records than a tier can have.
    """
    lengths = contents.lengths
    if len(lengths) > MOST_RECORDS:
        raise CacheError(f"A disk tier is for at most {MOST_RECORDS} records. Found: {len(lengths)}.")
    grid = _grid(int(lengths.max(initial=1)))
    wanted = np.bincount(np.searchsorted(grid, lengths), minlength=len(grid)).astype(np.int64)
    grid, wanted = grid[wanted > 0], wanted[wanted > 0]
    table = HEADER_BYTES + LIVE_BYTES + _pages(4 * len(lengths))
    capacity = limit - table - _pages(4 * len(lengths))
    total = int((grid * wanted).sum())
    slots = wanted if total <= capacity else wanted * max(0, capacity) // total
    left = capacity - int((grid * slots).sum())
    for number in np.flatnonzero(slots == 0):  # a rare length still has one, where that fits
        if grid[number] <= left:
            slots[number] = 1
            left -= int(grid[number])
    has = slots > 0
    if not has.any():
        raise NoRoom(
            f"A disk tier of {human_bytes(limit)} has no room for a record of {contents.source}: its table "
            f"takes {human_bytes(table)}, all {len(lengths)} records need {human_bytes(table + total)}."
        )
    return SlotPlan(grid[has], wanted[has], slots[has], len(lengths), limit)


def whole_bytes(lengths: npt.NDArray[np.uint32]) -> int:
    """Bytes of the files of a tier that has room for all records."""
    grid = _grid(int(lengths.max(initial=1)))
    wanted = np.bincount(np.searchsorted(grid, lengths), minlength=len(grid))
    return HEADER_BYTES + LIVE_BYTES + 2 * _pages(4 * len(lengths)) + int((grid * wanted).sum())


def expected_hits(share: float, node_share: float = 1.0) -> float:
    """The share of an epoch that a tier for a share of the set has, under another random order each epoch.

    A node that reads all of every epoch has what was there when the epoch began: the share, whatever is
    dropped. One that reads a random part p of each epoch needs a record again after k epochs with the
    probability p (1 - p)**(k - 1). Who drops what is needed last keeps those with the least k, each for k
    epochs, until the tier is full.

    Args:
        share: of the set's records that have room, >= 0.
        node_share: p: of each epoch that this node reads, in (0, 1].
    """
    held = hits = 0.0
    for k in range(1, 10_000):
        chance = node_share * (1 - node_share) ** (k - 1)
        kept = node_share * k * chance  # of the set's records, at any time
        part = 1.0 if held + kept <= share else (share - held) / kept
        held, hits = held + part * kept, hits + part * chance
        if part < 1 or chance < 1e-9:
            break
    return min(1.0, hits)


def read_header(head: bytes, path: Path) -> np.void:
    """The header of a table; ``head``: its first 16384 bytes.

    Raises:
        CacheError: it is none.
    """
    if (
        len(head) < HEADER_BYTES
        or head[:8] != MAGIC
        or int(_C.crc32c(np.frombuffer(head[:-4], np.uint8))) != int.from_bytes(head[-4:], "little")
    ):
        raise CacheError(f"{path} is not a valid disk tier. Remove it with 'fastload cache clear'.")
    header: np.void = np.frombuffer(head, TIER_HEADER, 1)[0]
    return header
