"""The two files of a disk tier: its table, and the slots of its records."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.cache.folder import Folder, lock, lock_alone, open_private, unnamed
from fastload.cache.layout import DATA_SUFFIX, CacheInfo, Contents, NoRoom, said
from fastload.errors import CacheError, FastloadError
from fastload.machine.paths import read_at, write_at
from fastload.machine.sizes import human_bytes

# ---- Layout of a disk tier's files (normative in FORMAT.md) ----

MAGIC = b"FLTIER01"
VERSION = (1, 0)
HEADER_BYTES = 16384  # with the source folder, the classes and the CRC-32C
CLASSES_OFFSET = 8192
LIVE_BYTES = 4096
PAGE = 4096
MOST_RECORDS = 2**31 - 3
_STEP = 8  # each class is 1 / this larger than the one before

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
        ("places_offset", "<u8"),  # num_records u32: the record's slot + 1; 0: none
        ("slots_offset", "<u8"),  # num_slots u32: the record's id + 1, or a value of tier_layout.h
        ("set_bytes", "<u8"),
        ("limit", "<u8"),  # bytes allowed
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
    """Return the slot sizes of the classes, ascending, up to the longest record's, in bytes."""
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
        limit: bytes allowed.
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
        """The slots' words' offset in the table."""
        return HEADER_BYTES + LIVE_BYTES + _pages(4 * self.num_records)

    @property
    def file_size(self) -> int:
        """Bytes of the table."""
        return self.slots_offset + _pages(4 * int(self.slots.sum()))

    @property
    def share(self) -> float:
        """The share of the set's records that have a slot."""
        return float(self.slots.sum() / max(1, self.num_records))

    def header(self, contents: Contents) -> bytes:
        """Return the first 16384 bytes of the table."""
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
        contents.write_into(header, source)
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
    """Plan slots for a share of the set, equal for all classes of lengths.

    Args:
        limit: bytes of both files.

    Raises:
        NoRoom: not even one record fits.
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
    for number in np.flatnonzero(slots == 0):  # a rare length still gets one, if that fits
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
    """Return the size in bytes of a tier's files with room for all records."""
    grid = _grid(int(lengths.max(initial=1)))
    wanted = np.bincount(np.searchsorted(grid, lengths), minlength=len(grid))
    return HEADER_BYTES + LIVE_BYTES + 2 * _pages(4 * len(lengths)) + int((grid * wanted).sum())


def expected_hits(share: float, node_share: float = 1.0, is_sticky: bool = False) -> float:
    """Return the share of an epoch that a tier for a share of the set hits, in a new random order each time.

    A node that reads all of every epoch hits what was there when the epoch began: the share, whatever is
    dropped. One that reads a random part p of each epoch next needs a record after k epochs with probability
    p (1 - p)**(k - 1). Dropping what is needed last keeps the records with the least k, each for k epochs,
    until the tier is full.

    Args:
        share: the part of the set's records that have room, >= 0.
        node_share: p, the part of each epoch that this node reads, in (0, 1].
        is_sticky: whether the node reads the same part of the set in each epoch: all of that, so to speak.
    """
    if is_sticky:
        return min(1.0, share / node_share)
    held = hits = 0.0
    for k in range(1, 10_000):
        chance = node_share * (1 - node_share) ** (k - 1)
        kept = node_share * k * chance  # share of the set's records, at any time
        part = 1.0 if held + kept <= share else (share - held) / kept
        held, hits = held + part * kept, hits + part * chance
        if part < 1 or chance < 1e-9:
            break
    return min(1.0, hits)


def read_header(head: bytes, path: Path) -> np.void:
    """Read the header of a table; ``head``: its first 16384 bytes.

    Raises:
        CacheError: it is not one.
    """
    if (
        len(head) < HEADER_BYTES
        or head[:8] != MAGIC
        or int(_C.crc32c(np.frombuffer(head[:-4], np.uint8))) != int.from_bytes(head[-4:], "little")
    ):
        raise CacheError(f"{path} is not a valid disk tier. Remove it with 'fastload cache clear'.")
    header: np.void = np.frombuffer(head, TIER_HEADER, 1)[0]
    return header


# ---- The files of a disk tier ----
# A table gets its name when it is complete; the file of its slots exists before. Whoever uses them holds a
# shared ``flock`` on the table; whoever attaches holds the folder's creation lock, so that the first one
# knows that it is alone, and repairs what killed processes have left.

_ATTACH_SECONDS = 10.0  # for a lock that is held only briefly


def attach_tier(folder: Folder, name: str) -> _C.DiskTier:
    """Attach to a tier. The caller holds the folder's creation lock.

    Raises:
        FileNotFoundError: it does not exist.
        CacheError: it is not this user's, or not valid.
    """
    path = folder.path / name
    descriptor = open_private(folder, name, os.O_RDWR)
    kept = os.dup(descriptor)  # the same open file, with its lock
    try:
        alone = lock_alone(descriptor)
        limit = time.monotonic() + _ATTACH_SECONDS
        while not alone and not lock(kept, fcntl.LOCK_SH):
            if time.monotonic() > limit:
                raise CacheError(f"{path} has been locked for {_ATTACH_SECONDS:g} s.")
            time.sleep(0.01)
        handed, descriptor = descriptor, -1  # the receiver closes it, even after an error
        tier = _attached(handed, path, alone)
        fcntl.flock(kept, fcntl.LOCK_SH)
        return tier
    finally:
        os.close(kept)
        if descriptor >= 0:
            os.close(descriptor)


def _attached(descriptor: int, path: Path, alone: bool) -> _C.DiskTier:
    try:
        return _C.DiskTier(os.dup(descriptor), os.fspath(path), alone)
    except FastloadError as error:
        raise CacheError(str(error)) from error
    finally:
        os.close(descriptor)


def create_tier(folder: Folder, name: str, contents: Contents, plan: SlotPlan) -> None:
    """Create the files of a tier. The caller holds the folder's creation lock, and the name is unused.

    Slots take room when they are first written; the table, written through a map, takes it now.

    Raises:
        CacheError: the disk has no room for the table, or a file cannot be created.
    """
    try:
        with unnamed(folder, name + DATA_SUFFIX) as (descriptor, publish):
            os.ftruncate(descriptor, plan.data_size)
            publish()
        with unnamed(folder, name) as (descriptor, publish):
            os.posix_fallocate(descriptor, 0, plan.file_size)
            write_at(descriptor, plan.header(contents), 0)
            os.fsync(descriptor)
            publish()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CacheError(
            f"{folder.path}: no room for the table of a disk tier ({human_bytes(plan.file_size)}): "
            f"{error.strerror}."
        ) from error


def inspect_tier(folder: Folder, name: str) -> CacheInfo:
    """Return what a tier's table says. Changes nothing, but briefly checks whether the tier is in use.

    Raises:
        FileNotFoundError: it does not exist.
        CacheError: it is not this user's, or not valid.
    """
    path = folder.path / name
    descriptor = open_private(folder, name, os.O_RDONLY)
    try:
        head = read_at(descriptor, HEADER_BYTES, 0)
        live = read_at(descriptor, LIVE_BYTES, HEADER_BYTES)
        size = os.fstat(descriptor).st_size
        in_use = not lock_alone(descriptor)
    finally:
        os.close(descriptor)
    header = read_header(head, path)
    _check_size(path, size, int(header["file_size"]))
    data = path.with_name(name + DATA_SUFFIX)
    try:
        found = os.stat(data.name, dir_fd=folder.fd, follow_symlinks=False).st_size
    except FileNotFoundError:
        raise CacheError(f"{data} is not there. Remove the rest with 'fastload cache clear'.") from None
    _check_size(data, found, int(header["data_size"]))
    words = said(head, TIER_HEADER.itemsize, header, path)
    held = np.frombuffer(live, "<u8", 2, 8)
    return CacheInfo(
        path=path,
        dataset_id=words[0],
        tier=f"disk, {words[1]}",
        source=words[2],
        version=(int(header["major"]), int(header["minor"])),
        file_bytes=int(header["file_size"]) + int(header["data_size"]),
        limit=int(header["limit"]),
        created=int(header["created"]),
        num_records=int(header["num_records"]),
        set_bytes=int(header["set_bytes"]),
        room_records=int(header["num_slots"]),
        room_bytes=int(header["data_size"]),
        ready_records=int(held[0]),
        ready_bytes=int(held[1]),
        in_use=in_use,
    )


def _check_size(path: Path, found: int, made: int) -> None:
    if found != made:
        raise CacheError(
            f"{path} has {found} bytes, it was created with {made}: another program has changed it. "
            f"Remove it with 'fastload cache clear'."
        )
