"""The layout of a cache file (normative in FORMAT.md), and which records have room."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import CacheError
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

MAGIC = b"FLCACHE1"
VERSION = (1, 0)
HEADER_BYTES = 8192  # with the source folder and the CRC-32C
LIVE_BYTES = 4096
RESERVED_AT = HEADER_BYTES + 80  # u64: bytes from the file's start that have memory
PAGE = 4096  # regions begin at multiples of this
NO_ROOM = 2**64 - 1
_RUN_BYTES = 4 << 20  # records that are given room, or none, together
_LEAST_RUNS = 256  # of a small set
_MOST_RUNS = 1 << 16
_TABLE_CHUNK = 1 << 18  # entries
MOST_STRIPES = 8
_STRIPE_ALIGNMENT = 1 << 16  # of their offsets: the largest page size
_STRIPED = 64 << 20  # with more bytes of records, they are in stripes
_STRIPE_LEAST = 16 << 20  # minimum bytes of each; records with room are dealt out to them
_STRIPE_RUN = 8 << 20  # in runs of this many bytes, as large as what one thread of fastload warm reads

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("file_size", "<u8"),
        ("num_records", "<u8"),
        ("table_offset", "<u8"),
        ("index_offset", "<u8"),
        ("index_size", "<u8"),
        ("entries_offset", "<u8"),
        ("entries_size", "<u8"),
        ("data_offset", "<u8"),
        ("data_size", "<u8"),
        ("room_records", "<u8"),
        ("set_bytes", "<u8"),
        ("created", "<u8"),  # seconds since 1970
        ("index_digest", "<u4"),
        ("source_bytes", "<u4"),
        ("dataset_id", "S32"),
        ("tier", "S32"),
        ("num_stripes", "<u4"),
        ("padding", "<u4"),
        ("stripe_offset", "<u8", MOST_STRIPES),
        ("limit", "<u8"),  # bytes allowed
        ("reserved", "V248"),
    ]
)
assert HEADER.itemsize == 512

ENTRY = np.dtype(
    [
        ("offset", "<u8"),  # in the cache file; NO_ROOM: none
        ("length", "<u4"),
        ("width", "<u2"),  # decoded tier: pixels
        ("height", "<u2"),
        ("place_crc", "<u4"),  # CRC-32C of the 16 bytes before it and the sample id as u64
        ("crc32c", "<u4"),  # of the record's bytes
        ("state", "<u4"),  # 0: absent, 1: ready
        ("stored", "<u4"),  # tier "coefficients": bytes stored; else 0
    ]
)
assert ENTRY.itemsize == 32


class NoRoom(CacheError):
    """The error that a limit leaves no room for a single record."""


@dataclass(frozen=True, eq=False)
class Contents:
    """What a cache file is for: one packed dataset, in one form.

    Args:
        dataset_id: 32 hex digits.
        tier: "encoded", "decoded-SIDE" or "field-NN", at most 32 characters.
        source: the dataset's folder.
        index_digest: digest of its index, or of the field's column.
        lengths: bytes of each record, (n,) uint32; 0: it never gets room.
        crc32c: of each record, (n,) uint32; None: not known before it is stored.
        sizes: width and height of each record, (n, 2) uint16; None: 0.
        tables: index.fli and entries.fli, to be copied; None: no copies.
        first: records that get room before the others, (n,) bool; None: all are alike.
    """

    dataset_id: str
    tier: str
    source: Path
    index_digest: int
    lengths: npt.NDArray[np.uint32]
    crc32c: npt.NDArray[np.uint32] | None = None
    sizes: npt.NDArray[np.uint16] | None = None
    tables: tuple[Path | None, Path | None] = (None, None)
    first: npt.NDArray[np.bool_] | None = None

    @property
    def set_bytes(self) -> int:
        """Bytes of all records."""
        return int(self.lengths.sum(dtype=np.uint64))

    def write_into(self, header: npt.NDArray[np.void], source: bytes) -> None:
        """Write into a header what all cache files say; ``source``: the dataset's folder, cut to fit."""
        header["set_bytes"] = self.set_bytes
        header["created"] = int(time.time())
        header["index_digest"] = self.index_digest
        header["source_bytes"] = len(source)
        header["dataset_id"] = self.dataset_id.encode()
        header["tier"] = self.tier.encode()


def encoded(dataset: PackedFiles) -> Contents:
    """Return the contents for a dataset's records as they are. Reads the whole index."""
    records = dataset.index.records().view(RECORD)[:, 0]
    entries = dataset.folder / dataset.manifest.entries_name if dataset.entries is not None else None
    return Contents(
        dataset.manifest.seal,
        "encoded",
        dataset.folder,
        dataset.index.digest,
        np.ascontiguousarray(records["length"]),
        np.ascontiguousarray(records["crc32c"]),
        tables=(dataset.folder / dataset.manifest.index_name, entries),
    )


@dataclass(frozen=True, eq=False)
class Layout:
    """The regions of a file, and which records have room, (n,) bool."""

    table_offset: int
    index_offset: int
    index_size: int
    entries_offset: int
    entries_size: int
    data_offset: int
    data_size: int
    room: npt.NDArray[np.bool_]
    stripes: tuple[int, ...] = ()  # bytes of records in each
    limit: int = 0  # bytes allowed

    @property
    def stripe_offsets(self) -> list[int]:
        """Where each stripe begins, counted over the file and all stripes."""
        sizes = [_aligned(size, _STRIPE_ALIGNMENT) for size in self.stripes[:-1]]
        return [self.data_offset + sum(sizes[:i]) for i in range(len(self.stripes))]

    @property
    def file_size(self) -> int:
        """Bytes of the file and all stripes."""
        if not self.stripes:
            return self.data_offset + self.data_size
        return self.stripe_offsets[-1] + self.stripes[-1]

    @property
    def sizes(self) -> list[int]:
        """Bytes of the file itself, and of each stripe."""
        begins = [0, *self.stripe_offsets, self.file_size]
        return [end - begin for begin, end in pairwise(begins)]


def choose_room(
    lengths: npt.NDArray[np.uint32], capacity: int, first: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Choose the records that have room in ``capacity`` bytes.

    Runs of consecutive records, of about 4 MiB, are taken or left out such that at every point of the set the
    bytes taken so far are the capacity's share of those passed, short of one run (Bresenham, 1965). What is
    left at the end takes the first records of the first run that was left out.

    Args:
        lengths: bytes of each record, (n,) uint32.
        capacity: bytes, >= 0.
        first: records of which this is done before the rest gets what they leave, (n,).

    Returns:
        (n,) bool; records of length 0 have none.
    """
    if first is not None:
        room = choose_room(lengths * first, capacity)
        return room | choose_room(lengths * ~first, capacity - int(lengths[room].sum(dtype=np.uint64)))
    ends = np.cumsum(lengths, dtype=np.uint64)
    total = int(ends[-1]) if len(ends) else 0
    if total <= capacity:
        return lengths > 0
    run_bytes = max(min(_RUN_BYTES, total // _LEAST_RUNS), total // _MOST_RUNS, 1)
    runs = (ends - lengths) // np.uint64(run_bytes)
    starts = np.flatnonzero(np.diff(runs, prepend=np.uint64(2**64 - 1)) != 0)
    taken = np.zeros(len(starts), np.bool_)
    used = passed = 0
    for run, size in enumerate(np.add.reduceat(lengths, starts, dtype=np.uint64).tolist()):
        passed += size
        if (used + size) * total <= capacity * passed:
            taken[run] = True
            used += size
    room = np.repeat(taken, np.diff(starts, append=len(lengths)))
    left_out = np.flatnonzero(~room)
    fits = np.cumsum(lengths[left_out], dtype=np.uint64) <= capacity - used
    room[left_out[fits]] = True
    return room & (lengths > 0)


def _aligned(size: int, step: int) -> int:
    return -(-size // step) * step


def _pages(size: int) -> int:
    return _aligned(size, PAGE)


def padding(data_bytes: int) -> int:
    """Return the extra bytes that ``data_bytes`` of records may need in stripes."""
    return (MOST_STRIPES + 1) * _STRIPE_ALIGNMENT if data_bytes >= _STRIPED else 0


def _stripe_of(starts: npt.NDArray[np.uint64], stripes: int) -> npt.NDArray[np.uint64]:
    """Return the stripe of each record with room, from the bytes of those before it."""
    numbers: npt.NDArray[np.uint64] = starts // np.uint64(_STRIPE_RUN) % np.uint64(stripes)
    return numbers


def _stripes(lengths: npt.NDArray[np.uint32]) -> tuple[int, ...]:
    """Return the bytes of records in each stripe; ``lengths``: of the records with room."""
    size = int(lengths.sum(dtype=np.uint64))
    if size < _STRIPED:
        return ()
    starts = np.cumsum(lengths, dtype=np.uint64) - lengths
    for count in range(max(1, min(MOST_STRIPES, size // _STRIPE_LEAST)), 0, -1):
        stripe = _stripe_of(starts, count)
        sizes = [int(lengths[stripe == number].sum(dtype=np.uint64)) for number in range(count)]
        if all(sizes):  # records may be longer than a run
            return tuple(sizes)
    return ()


def plan(contents: Contents, limit: int) -> Layout:
    """Plan a file of at most ``limit`` bytes.

    The copies of the tables are left out if they would take more than half of it, entries.fli first.

    Raises:
        NoRoom: no record has room.
    """
    n = len(contents.lengths)
    table_offset = HEADER_BYTES + LIVE_BYTES
    table_end = table_offset + _pages(n * ENTRY.itemsize)
    sizes = [path.stat().st_size if path is not None else 0 for path in contents.tables]
    for table in (1, 0):
        if table_end + sum(map(_pages, sizes)) > limit // 2:
            sizes[table] = 0
    entries_offset = table_end + _pages(sizes[0])
    data_offset = entries_offset + _pages(sizes[1])
    capacity = limit - data_offset
    if min(limit, contents.set_bytes) >= _STRIPED:
        data_offset = _aligned(data_offset, _STRIPE_ALIGNMENT)
        capacity = limit - data_offset - MOST_STRIPES * _STRIPE_ALIGNMENT
    room = choose_room(contents.lengths, max(0, capacity), contents.first)
    if n and not contents.lengths.any():  # only decoded pictures may have no known length
        raise NoRoom(
            f"Decoded pictures of {contents.source} have no room in a cache: its index has no sizes of them. "
            "Leave out Cache(decoded=...), to keep records."
        )
    if not room.any():
        raise NoRoom(
            f"A cache of {limit} bytes has no room for a record of {contents.source}: the table of {n} "
            f"records takes {data_offset} bytes, the smallest record {int(contents.lengths.min(initial=0))}. "
            f"All {n} records need {data_offset + contents.set_bytes} bytes."
        )
    placed = contents.lengths[room]
    data_size = int(placed.sum(dtype=np.uint64))
    tables = (table_offset, table_end, sizes[0], entries_offset, sizes[1])
    return Layout(*tables, data_offset, data_size, room, _stripes(placed), limit)


def header_of(contents: Contents, layout: Layout) -> bytes:
    """Return the first 8192 bytes."""
    source = os.fsencode(contents.source)[: HEADER_BYTES - HEADER.itemsize - 4]
    header = np.zeros((), HEADER)
    header["magic"] = MAGIC
    header["major"], header["minor"] = VERSION
    header["header_bytes"] = HEADER_BYTES
    header["num_records"] = len(contents.lengths)
    for name in (
        "file_size", "table_offset", "index_offset", "index_size", "entries_offset", "entries_size",
        "data_offset", "data_size", "limit",
    ):  # fmt: skip
        header[name] = getattr(layout, name)
    header["num_stripes"] = len(layout.stripes)
    header["stripe_offset"][: len(layout.stripes)] = layout.stripe_offsets
    header["room_records"] = int(layout.room.sum())
    contents.write_into(header, source)
    text = (header.tobytes() + source).ljust(HEADER_BYTES - 4, b"\0")
    return text + _C.crc32c(np.frombuffer(text, np.uint8)).to_bytes(4, "little")


def check_sizes(header: np.void, path: Path, folder: int) -> None:
    """Compare the sizes of a cache's files with those at its creation.

    Args:
        header: one ``HEADER``.
        path: the cache's file; its stripes are beside it.
        folder: descriptor of the folder.

    Raises:
        CacheError: a file is missing, or was truncated.
    """
    begins = [0, *(int(offset) for offset in header["stripe_offset"][: int(header["num_stripes"])])]
    ends = [*begins[1:], int(header["file_size"])]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        each = path if number == 0 else path.with_name(f"{path.name}.{number - 1}")
        try:
            size = os.stat(each.name, dir_fd=folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            raise CacheError(f"{each} is not there. Remove the rest with 'fastload cache clear'.") from None
        if size != end - begin:
            raise CacheError(
                f"{each} has {size} bytes, it was created with {end - begin}: another program has changed "
                f"it. Remove it with 'fastload cache clear'."
            )


def table_of(contents: Contents, layout: Layout) -> Iterator[bytes]:
    """Yield the table, in pieces: entries of records with and without room, none of them ready."""
    places = _Places(layout)
    for first in range(0, len(contents.lengths), _TABLE_CHUNK):
        piece = slice(first, first + _TABLE_CHUNK)
        room, lengths = layout.room[piece], contents.lengths[piece]
        entries = np.zeros(len(lengths), ENTRY)
        entries["offset"] = NO_ROOM
        entries["offset"][room] = places.next(lengths[room])
        entries["length"] = lengths
        if contents.sizes is not None:
            entries["width"], entries["height"] = contents.sizes[piece].T
        if contents.crc32c is not None:
            entries["crc32c"] = contents.crc32c[piece]
        _C.seal_cache_places(entries.view(np.uint8).reshape(-1, ENTRY.itemsize), first)
        yield entries.tobytes()


class _Places:
    """An allocator of places, one record after the other: without gaps in each stripe."""

    def __init__(self, layout: Layout) -> None:
        self._ends = layout.stripe_offsets or [layout.data_offset]
        self._passed = 0

    def next(self, lengths: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
        """Return the offsets of the next records, (n,)."""
        starts = np.uint64(self._passed) + np.cumsum(lengths, dtype=np.uint64) - lengths
        stripe = _stripe_of(starts, len(self._ends))
        offsets = np.zeros(len(lengths), np.uint64)
        for number, end in enumerate(self._ends):
            mine = stripe == number
            sizes = lengths[mine]
            offsets[mine] = np.uint64(end) + np.cumsum(sizes, dtype=np.uint64) - sizes
            self._ends[number] += int(sizes.sum(dtype=np.uint64))
        self._passed += int(lengths.sum(dtype=np.uint64))
        return offsets


# ---- What headers say --------------------------------------------------------------------------------

SUFFIX, TIER_SUFFIX, DATA_SUFFIX = ".flc", ".flt", ".data"


@dataclass(frozen=True)
class CacheInfo:
    """The contents of a cache file's header."""

    path: Path
    dataset_id: str
    tier: str
    source: Path  # the dataset's folder when the file was created
    version: tuple[int, int]
    file_bytes: int
    limit: int  # bytes allowed when it was created
    created: int  # seconds since 1970
    num_records: int  # of the set
    set_bytes: int
    room_records: int  # of them have room
    room_bytes: int
    ready_records: int  # of them are stored
    ready_bytes: int
    in_use: bool


def said(head: bytes, begin: int, header: np.void, path: Path) -> tuple[str, str, Path]:
    """Return id, tier and source folder (its path begins at ``begin``) from a checksummed header.

    Raises:
        CacheError: they are not text.
    """
    source = head[begin : begin + int(header["source_bytes"])]
    try:
        texts = (
            header["dataset_id"].decode("ascii"),
            header["tier"].decode("ascii"),
            Path(os.fsdecode(source)),
        )
    except UnicodeDecodeError:
        texts = "", "", Path()
    if b"\0" in source or not all(text.isprintable() and text for text in texts[:2]):
        raise CacheError(
            f"{path} says nothing readable of its dataset. Remove it with 'fastload cache clear'."
        )
    return texts
