"""The listing of a source's rows, on disk: sets of millions of files must not need memory in proportion."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.packing.files import sync_files

# ``paths.bin`` has the paths' bytes back to back, ``files.bin`` one :data:`ENTRY` per row.


class Row(NamedTuple):
    """What is known of a row before it is read."""

    files: bytes  # that it is made of, as paths from the rows' root on, with NUL between them; empty: none
    size: int  # bytes in the source; 0: unknown, as of a file that cannot be examined
    mtime_ns: int  # the latest modification of its files; 0: unknown
    label: int = -1


ENTRY = np.dtype(
    [
        ("end", "<u8"),  # where this path ends in paths.bin
        ("size", "<u8"),  # bytes, by stat; 0: stat failed
        ("mtime_ns", "<i8"),
        ("label", "<i8"),  # class index, -1: none
    ]
)
_CHUNK = 8192  # files


@dataclass(frozen=True)
class Totals:
    """The identity of a listing: ``content`` leaves the times out, ``times`` is their hash alone."""

    files: int
    bytes: int
    content: str
    times: str
    newest_ns: int  # the latest modification time


class ListingWriter:
    """A writer that appends files in sample-id order and cuts them into shards on the way.

    Args:
        folder: where ``paths.bin`` and ``files.bin`` are written.
        shard_size: most bytes per shard.
        record_bytes: bytes of every record if known beforehand; else the file's size counts.
    """

    def __init__(self, folder: Path, shard_size: int, record_bytes: int | None = None) -> None:
        self._paths = open(folder / "paths.bin", "wb")  # noqa: SIM115 (closed by close)
        self._files = open(folder / "files.bin", "wb")  # noqa: SIM115
        self._shard_size = shard_size
        self._record_bytes = record_bytes
        self._names: list[bytes] = []
        self._rows: list[tuple[int, int, int, int]] = []
        self._hashes = [hashlib.blake2b(digest_size=16) for _ in range(3)]
        self._end = self.files = self.bytes = self._newest = 0
        self._shard_start = self._shard_bytes = 0
        self.shards: list[tuple[int, int, int]] = []  # first file, one past the last, bytes

    def add(self, path: bytes, size: int, mtime_ns: int, label: int) -> None:
        """Append one file; its path is relative to the source's root."""
        record = self._record_bytes or size
        if self.files > self._shard_start and self._shard_bytes + record > self._shard_size:
            self._cut()
        self._end += len(path)
        self.files += 1
        self.bytes += size
        self._shard_bytes += record
        self._names.append(path)
        self._rows.append((self._end, size, mtime_ns, label))
        if len(self._rows) == _CHUNK:
            self._flush()

    def finish(self) -> Totals:
        """Write what is left and close the files."""
        if self.files > self._shard_start:
            self._cut()
        self._flush()
        self.close()
        paths, columns, times = self._hashes
        content = hashlib.blake2b(paths.digest() + columns.digest(), digest_size=16).hexdigest()
        return Totals(self.files, self.bytes, content, times.hexdigest(), self._newest)

    def close(self) -> None:
        """Close the files, whatever they hold."""
        self._paths.close()
        self._files.close()

    def _cut(self) -> None:
        self.shards.append((self._shard_start, self.files, self._shard_bytes))
        self._shard_start, self._shard_bytes = self.files, 0

    def _flush(self) -> None:
        if not self._rows:
            return
        blob = b"".join(self._names)
        rows = np.array(self._rows, ENTRY)
        self._paths.write(blob)
        self._files.write(rows.tobytes())
        paths, columns, times = self._hashes
        paths.update(blob)
        columns.update(np.stack([rows["end"], rows["size"], rows["label"].view("<u8")], axis=1).tobytes())
        times.update(rows["mtime_ns"].tobytes())
        self._newest = max(self._newest, int(rows["mtime_ns"].max()))
        self._names.clear()
        self._rows.clear()


class Listing:
    """A reader of ranges of what :class:`ListingWriter` wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sync(self) -> None:
        """Make the listing survive a power cut, before anything says that it exists."""
        sync_files(self._folder / "paths.bin", self._folder / "files.bin")

    def __len__(self) -> int:
        return (self._folder / "files.bin").stat().st_size // ENTRY.itemsize

    def read(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.void]]:
        """Read files ``[start, stop)``: their paths' bytes, and entries whose ``end`` counts from there."""
        first = max(start - 1, 0)
        with open(self._folder / "files.bin", "rb") as file:
            file.seek(first * ENTRY.itemsize)
            rows = np.fromfile(file, ENTRY, stop - first)
        begin = int(rows["end"][0]) if start else 0
        rows = rows[start - first :]
        with open(self._folder / "paths.bin", "rb") as file:
            file.seek(begin)
            blob = np.fromfile(file, np.uint8, int(rows["end"][-1]) - begin if len(rows) else 0)
        rows["end"] -= np.uint64(begin)
        return blob, rows

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the rows from ``start`` to before ``stop`` (None: all)."""
        stop = len(self) if stop is None else min(stop, len(self))
        for begin in range(start, stop, _CHUNK):
            blob, entries = self.read(begin, min(begin + _CHUNK, stop))
            text, position = blob.tobytes(), 0
            for end, size, mtime, label in entries.tolist():
                yield Row(text[position:end], size, mtime, label)
                position = end
