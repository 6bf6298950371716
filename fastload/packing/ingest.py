"""Reading source files into groups of records, by the core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.packing.listing import Listing
from fastload.packing.names import ESCAPED, encode_key, outside_key
from fastload.shard.index import RECORD

__all__ = ["GROUP_BYTES", "GROUP_RECORDS", "Group", "as_rows", "read_groups"]

GROUP_BYTES = 16 << 20  # of records in memory at a time; also an Arrow record batch
GROUP_RECORDS = 1000
_SPAN = 4096  # listing entries read at a time


@dataclass(frozen=True)
class Group:
    """Records back to back in ``data``; ``records["offset"]`` counts from its start. The memory is
    reused for the next group."""

    data: npt.NDArray[np.uint8]
    records: npt.NDArray[np.void]  # RECORD
    keys: list[bytes]
    files: int  # source files taken, failed ones among them
    source_bytes: int
    failures: list[tuple[bytes, str]] = field(default_factory=list)  # key, reason
    transcoded: int = 0  # progressive JPEGs that became baseline ones
    coefficients: Mapping[str, Any] | None = None  # Tally.to_json() of the JPEGs, where they are to be such


def as_rows(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """A (n, 32) uint8 view of contiguous RECORD entries, as the core takes them."""
    return records.view(np.uint8).reshape(len(records), RECORD.itemsize)


class _Buffer:
    """The group's memory; grows for a file larger than it."""

    def __init__(self, size: int) -> None:
        self.data = np.empty(size, np.uint8)

    def grow(self, needed: int) -> None:
        self.data = np.empty(needed, np.uint8)


def read_groups(
    root: bytes, listing: Listing, start: int, stop: int, room: int = GROUP_BYTES
) -> Iterator[Group]:
    """The files ``[start, stop)`` of a listing in groups of at most ``room`` bytes (or of one file)."""
    buffer = _Buffer(room)
    while start < stop:
        names, entries = listing.read(start, min(start + _SPAN, stop))
        done = 0
        while done < len(entries):
            group = _read_group(root, names, entries, done, buffer)
            done += group.files
            yield group
        start += len(entries)


def _read_group(
    root: bytes, names: npt.NDArray[np.uint8], entries: npt.NDArray[np.void], done: int, buffer: _Buffer
) -> Group:
    rows = entries[done : done + GROUP_RECORDS]
    begin = int(entries["end"][done - 1]) if done else 0
    ends = rows["end"] - np.uint64(begin)
    blob = names[begin : begin + int(ends[-1])]
    records = np.zeros(len(rows), RECORD)
    while True:
        taken, used, needed, failures = _C.ingest(root, blob, ends, buffer.data, as_rows(records))
        if taken:
            break
        buffer.grow(needed)
    keys, escaped = _keys(blob.tobytes(), ends[:taken].tolist())
    records = records[:taken]
    records["label"] = rows["label"][:taken]
    records["flags"][escaped] |= ESCAPED
    bad = [(keys[i], reason.decode("utf-8", "backslashreplace")) for i, reason in failures]
    good = records["length"] > 0
    if bad:
        keys = [key for key, whole in zip(keys, good.tolist(), strict=True) if whole]
    size = int(rows["size"][:taken].sum())
    return Group(buffer.data[:used], records[good], keys, taken, size, bad)


def _keys(blob: bytes, ends: list[int]) -> tuple[list[bytes], list[int]]:
    """Keys, and the positions of those that had to be percent-encoded."""
    keys, escaped, begin = [], [], 0
    for position, end in enumerate(ends):
        path, begin = blob[begin:end], end
        key, changed = encode_key(outside_key(path) if os.path.isabs(path) else path)
        keys.append(key)
        if changed:
            escaped.append(position)
    return keys, escaped
