"""``fastload verify``: everything about a packed dataset that can be checked, all problems listed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError
from fastload.pack.entries import verify_entries
from fastload.pack.ingest import as_rows
from fastload.pack.summary import CODECS, Summary
from fastload.pil import decode_with_pil
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, Manifest
from fastload.threads import started_pool

__all__ = ["Problem", "verify"]

_CHUNK = 512  # records a task
_RAW = CODECS.index("raw")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; the other fields say where, as far as that is known."""

    reason: str
    shard: str = ""
    key: str = ""
    sample: int | None = None
    offset: int | None = None


class _Checks:
    """The checks of one dataset; each method yields problems."""

    def __init__(self, folder: Path, manifest: Manifest, index: _C.Index) -> None:
        self.folder, self.manifest, self.index = folder, manifest, index
        self.records = index.records().view(RECORD)[:, 0]
        self._readable: set[int] = set()

    def problem(self, sample: int, reason: str) -> Problem:
        """A problem of one record."""
        record = self.records[sample]
        number = int(record["shard"])
        known = number < len(self.manifest.shards)
        shard = self.manifest.shards[number].file if known else f"shard {number}"
        try:
            key = self.index.key(sample).decode("utf-8", "backslashreplace")
        except FastloadError:
            key = "?"  # keys() tells why
        return Problem(reason, shard, key, sample, int(record["offset"]))

    def sizes(self) -> Iterator[Problem]:
        """Shard files that are missing or have another size than the manifest says."""
        for number, shard in enumerate(self.manifest.shards):
            try:
                status = os.stat(self.folder / shard.file)
            except (OSError, ValueError) as error:
                yield Problem(f"cannot be opened: {getattr(error, 'strerror', None) or error}", shard.file)
                continue
            if not stat.S_ISREG(status.st_mode):
                yield Problem("is not a regular file", shard.file)
                continue
            self._readable.add(number)
            if status.st_size != shard.size:
                yield Problem(f"has {status.st_size} bytes, the manifest says {shard.size}", shard.file)

    def entries(self) -> Iterator[Problem]:
        """Index entries that break a rule by themselves."""
        sizes = np.array([shard.size for shard in self.manifest.shards], np.uint64)
        records = self.records
        shards = np.minimum(records["shard"], max(len(sizes) - 1, 0))
        room = sizes[shards] if len(sizes) else np.zeros(len(records), np.uint64)
        start, length = records["offset"], records["length"].astype(np.uint64)
        outside = (start > room) | (length > room - np.minimum(start, room))
        labels = len(self.manifest.classes) or np.iinfo(np.int32).max
        rules = [
            (records["shard"] >= len(sizes), "names a shard that does not exist"),
            (length == 0, "has length 0"),
            (outside, "lies outside its shard"),
            ((records["label"] < -1) | (records["label"] >= labels), "has a label outside the classes"),
            (records["codec"] >= len(CODECS), "has an unknown codec"),
        ]
        for bad, reason in rules:
            for sample in np.flatnonzero(bad).tolist():
                yield self.problem(sample, reason)

    def keys(self) -> Iterator[Problem]:
        """Keys that lie outside the index or are not UTF-8."""
        for sample in range(len(self.records)):
            try:
                self.index.key(sample).decode("utf-8")
            except (FastloadError, UnicodeDecodeError) as error:
                yield self.problem(sample, f"has a damaged key: {error}")

    def overlaps(self) -> Iterator[Problem]:
        """Records that share bytes."""
        order = np.lexsort((self.records["offset"], self.records["shard"]))
        placed = self.records[order]
        ends = placed["offset"] + placed["length"]
        shared = (placed["shard"][1:] == placed["shard"][:-1]) & (placed["offset"][1:] < ends[:-1])
        for position in np.flatnonzero(shared).tolist():
            yield self.problem(int(order[position + 1]), f"overlaps sample {order[position]}")

    def totals(self) -> Iterator[Problem]:
        """Sums that differ between manifest and index."""
        summary = Summary()
        summary.add(self.records)
        counts = np.bincount(self.records["shard"].clip(0, len(self.manifest.shards)))
        for number, shard in enumerate(self.manifest.shards):
            found = int(counts[number]) if number < len(counts) else 0
            if found != shard.records:
                yield Problem(f"the index has {found} records, the manifest says {shard.records}", shard.file)
        if summary.bytes != self.manifest.data_bytes:
            yield Problem(
                f"the records have {summary.bytes} bytes, the manifest says {self.manifest.data_bytes}"
            )

    def contents(self, decode: bool, progress: Progress) -> Iterator[Problem]:
        """Records whose bytes differ from their CRC-32C or, with ``decode``, are no whole image."""
        with started_pool(len(os.sched_getaffinity(0)), "verify") as threads:
            tasks = ((number, ids) for number in sorted(self._readable) for ids in self._chunks(number))
            for problems, files, size in threads.map(
                lambda task: self._check(task[0], task[1], decode), tasks
            ):
                progress(files, size)
                yield from problems

    def entry_points(self, recompute: bool) -> Iterator[Problem]:
        """Entry points that are damaged, missing or, if they are to be computed again, wrong."""
        path = self.folder / ENTRIES_NAME
        try:
            if path.exists():
                _C.Entries(str(path), self.index).verify()
            if not recompute or not path.exists():
                return
            dataset = PackedFiles(self.folder, entries=False)
            wrong = verify_entries(dataset, len(os.sched_getaffinity(0)))
        except FastloadError as error:
            yield Problem(str(error), ENTRIES_NAME)
            return
        for sample in wrong:
            reason = f"has other entry points than its bytes give; 'fastload index {self.folder} --entries'"
            yield self.problem(sample, f"{reason} makes them again")

    def _chunks(self, number: int) -> Iterator[npt.NDArray[np.int64]]:
        ids = np.flatnonzero(self.records["shard"] == number)
        return (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))

    def _check(self, number: int, ids: npt.NDArray[np.int64], decode: bool) -> tuple[list[Problem], int, int]:
        path = self.folder / self.manifest.shards[number].file
        records = np.ascontiguousarray(self.records[ids])
        try:
            failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        except FastloadError as error:
            return [Problem(str(error), self.manifest.shards[number].file)], len(ids), 0
        problems = [self.problem(int(ids[i]), reason.decode()) for i, reason in failures.items()]
        if decode:
            whole = [i for i in range(len(ids)) if i not in failures]
            problems += [
                self.problem(int(ids[i]), reason) for i, reason in _undecodable(path, records, whole)
            ]
        return problems, len(ids), int(records["length"].sum(dtype=np.uint64))


def _undecodable(path: Path, records: npt.NDArray[np.void], which: list[int]) -> Iterator[tuple[int, str]]:
    decoder = _C.Decoder(fallback=decode_with_pil)
    with open(path, "rb") as file:
        for i in which:
            record = records[i]
            data = os.pread(file.fileno(), int(record["length"]), int(record["offset"]))
            pixels = np.frombuffer(data, np.uint8)
            try:
                if record["codec"] == _RAW:
                    decoder.decode_raw(pixels, int(record["width"]), int(record["height"]))
                else:
                    decoder.decode_rgb(pixels)
            except (FastloadError, ValueError) as error:
                yield i, f"does not decode: {error}"


def verify(
    folder: str | os.PathLike[str],
    decode: bool = False,
    progress: Progress | None = None,
    entries: bool = False,
) -> tuple[list[Problem], int]:
    """Check the index, the shards' sizes, every record's place and bytes, the entry points' checksums.

    Args:
        folder: a packed dataset.
        decode: decode every record, too.
        progress: called with (records, bytes) as they are checked, from this thread.
        entries: compute all entry points again, too, and compare them with the stored ones.

    Returns:
        All problems, and how many records were checked.

    Raises:
        FormatError: no manifest, or one that cannot be read: there is nothing to check against.
    """
    place = Path(folder).absolute()
    manifest = Manifest.read(place)
    path = place / INDEX_NAME
    try:
        index = _C.Index(str(path))
        index.verify()
    except FastloadError as error:
        return [Problem(str(error), INDEX_NAME)], 0
    problems = []
    if (len(index), index.digest, path.stat().st_size) != (
        manifest.num_records, manifest.index_crc, manifest.index_size
    ):  # fmt: skip
        problems.append(
            Problem(
                f"belongs to another manifest: {len(index)} records, digest {index.digest:#010x}; "
                f"the manifest says {manifest.num_records} and {manifest.index_crc:#010x}",
                INDEX_NAME,
            )
        )
    checks = _Checks(place, manifest, index)
    for found in (checks.sizes(), checks.entries(), checks.keys(), checks.overlaps(), checks.totals()):
        problems += found
    problems += checks.contents(decode, progress or (lambda records, size: None))
    problems += checks.entry_points(recompute=entries)
    return problems, len(index)
