"""``fastload verify``: everything about a packed dataset that can be checked."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.pil import decode_with_pil
from fastload.errors import FastloadError
from fastload.machine.threads import started_pool
from fastload.packing.entries import wrong_entries
from fastload.packing.ingest import as_rows
from fastload.packing.problems import Problem, Problems
from fastload.packing.summary import CODECS, Summary
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, Manifest

__all__ = ["Problem", "verify"]

_CHUNK = 512  # records a task
_SPAN = 1 << 20  # index entries looked at in one go
_OVERLAP = "a record overlaps another"
_RAW = CODECS.index("raw")
Progress = Callable[[int, int], None]
Task = TypeVar("Task")
Result = TypeVar("Result")


class _Checks:
    """The checks of one dataset; each puts what it finds into ``found``."""

    def __init__(self, folder: Path, manifest: Manifest, index: _C.Index, found: Problems) -> None:
        self.folder, self.manifest, self.index, self.found = folder, manifest, index, found
        self.records = index.records().view(RECORD)[:, 0]
        self._readable: set[int] = set()

    def _spans(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """The records, so many at a time that the memory does not grow with the set."""
        for start in range(0, len(self.records), _SPAN):
            yield start, self.records[start : start + _SPAN]

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

    def _samples(self, kind: str, samples: npt.NDArray[np.int64], reason: str) -> None:
        """Problems of many records, of which only the first are looked at."""
        first = samples[: self.found.room(kind)].tolist()
        self.found.add(kind, (self.problem(sample, reason) for sample in first))
        self.found.count(kind, len(samples) - len(first))

    def sizes(self) -> None:
        """Shard files that are missing or have another size than the manifest says."""
        for number, shard in enumerate(self.manifest.shards):
            try:
                status = os.stat(self.folder / shard.file)
            except (OSError, ValueError) as error:
                reason = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
                self.found.add("shards that cannot be opened", [Problem(reason, shard.file)])
                continue
            if not stat.S_ISREG(status.st_mode):
                self.found.add("shards that are no files", [Problem("is not a regular file", shard.file)])
                continue
            self._readable.add(number)
            if status.st_size != shard.size:
                reason = f"has {status.st_size} bytes, the manifest says {shard.size}"
                self.found.add("shards of another size", [Problem(reason, shard.file)])

    def entries(self) -> None:
        """Index entries that break a rule by themselves."""
        sizes = np.array([shard.size for shard in self.manifest.shards], np.uint64)
        labels = len(self.manifest.classes) or np.iinfo(np.int32).max
        for begin, records in self._spans():
            shards = np.minimum(records["shard"], max(len(sizes) - 1, 0))
            room = sizes[shards] if len(sizes) else np.zeros(len(records), np.uint64)
            start, length = records["offset"], records["length"].astype(np.uint64)
            outside = (start > room) | (length > room - np.minimum(start, room))
            rules = [
                (records["shard"] >= len(sizes), "names a shard that does not exist"),
                (length == 0, "has length 0"),
                (outside, "lies outside its shard"),
                ((records["label"] < -1) | (records["label"] >= labels), "has a label outside the classes"),
                (records["codec"] >= len(CODECS), "has an unknown codec"),
            ]
            for bad, reason in rules:
                self._samples(f"a record {reason}", begin + np.flatnonzero(bad), reason)

    def keys(self) -> None:
        """Keys that lie outside the index or are not UTF-8."""
        for sample in range(len(self.records)):
            try:
                self.index.key(sample).decode("utf-8")
            except (FastloadError, UnicodeDecodeError) as error:
                self._samples("a damaged key", np.array([sample]), f"has a damaged key: {error}")

    def overlaps(self) -> None:
        """Records that share bytes."""
        if self._in_file_order():
            return
        order = np.lexsort((self.records["offset"], self.records["shard"]))
        before = np.flatnonzero(self._shared(order))
        first = before[: self.found.room(_OVERLAP)].tolist()
        pairs = [(int(order[position]), int(order[position + 1])) for position in first]
        self.found.add(_OVERLAP, (self.problem(b, f"overlaps sample {a}") for a, b in pairs))
        self.found.count(_OVERLAP, len(before) - len(first))

    def _shared(self, order: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each record of ``order`` shares bytes with the one behind it."""
        shards, offsets = self.records["shard"][order], self.records["offset"][order]
        ends = offsets + self.records["length"][order]
        shared: npt.NDArray[np.bool_] = (shards[1:] == shards[:-1]) & (offsets[1:] < ends[:-1])
        return shared

    def _in_file_order(self) -> bool:
        """Whether each record begins behind the one before it, or in a later shard, as packs are written:
        then none overlap, and nothing needs to be sorted."""
        shard, end = np.uint32(0), np.uint64(0)
        for _, records in self._spans():
            shards = np.concatenate([[shard], records["shard"]])
            ends = np.concatenate([[end], records["offset"] + records["length"]])
            behind = (shards[1:] == shards[:-1]) & (records["offset"] >= ends[:-1])
            if not (behind | (shards[1:] > shards[:-1])).all():
                return False
            shard, end = shards[-1], ends[-1]
        return True

    def totals(self) -> None:
        """Sums that differ between manifest and index."""
        summary, shards = Summary(), self.manifest.shards
        counts = np.zeros(len(shards) + 1, np.int64)  # the last: of no shard
        for _, records in self._spans():
            summary.add(records)
            counts += np.bincount(records["shard"].clip(0, len(shards)), minlength=len(counts))
        for number, shard in enumerate(shards):
            if counts[number] != shard.records:
                reason = f"the index has {counts[number]} records, the manifest says {shard.records}"
                self.found.add("another number of records", [Problem(reason, shard.file)])
        if summary.bytes != self.manifest.data_bytes:
            reason = f"the records have {summary.bytes} bytes, the manifest says {self.manifest.data_bytes}"
            self.found.add("another number of bytes", [Problem(reason)])

    def contents(self, decode: bool, progress: Progress) -> None:
        """Records whose bytes differ from their CRC-32C or, with ``decode``, are no whole image."""
        check = partial(self._check, decode=decode)
        for problems, files, size in _in_order(check, self._tasks(), len(os.sched_getaffinity(0))):
            progress(files, size)
            for kind, problem in problems:
                self.found.add(kind, [problem])

    def entry_points(self, recompute: bool) -> None:
        """Entry points that are damaged, missing or, if they are to be computed again, wrong."""
        path = self.folder / ENTRIES_NAME
        again = f"'fastload index {self.folder} --entries'"
        try:
            if path.exists():
                _C.Entries(str(path), self.index).verify()
            if not recompute or not path.exists():
                return
            dataset = PackedFiles(self.folder, entries=False)
            for sample in wrong_entries(dataset, len(os.sched_getaffinity(0))):
                reason = f"has other entry points than its bytes give; {again} makes them again"
                self._samples("other entry points", np.array([sample]), reason)
        except FastloadError as error:
            words = f"{error} Nothing needs it, decoding takes longer without; {again} makes it anew"
            self.found.add("", [Problem(words, ENTRIES_NAME)])

    def _tasks(self) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Shard and sample ids of at most :data:`_CHUNK` records of one file."""
        for start, records in self._spans():
            for number in np.unique(records["shard"]).tolist():
                if number not in self._readable:
                    continue
                ids = start + np.flatnonzero(records["shard"] == number)
                yield from ((number, ids[at : at + _CHUNK]) for at in range(0, len(ids), _CHUNK))

    def _check(
        self, task: tuple[int, npt.NDArray[np.int64]], decode: bool
    ) -> tuple[list[tuple[str, Problem]], int, int]:
        number, ids = task
        path = self.folder / self.manifest.shards[number].file
        records = np.ascontiguousarray(self.records[ids])
        try:
            failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        except FastloadError as error:
            problem = Problem(str(error), self.manifest.shards[number].file)
            return [("a shard cannot be read", problem)], len(ids), 0
        problems = [
            ("a record is damaged", self.problem(int(ids[i]), reason.decode()))
            for i, reason in failures.items()
        ]
        if decode:
            whole = [i for i in range(len(ids)) if i not in failures]
            problems += [
                ("a record does not decode", self.problem(int(ids[i]), reason))
                for i, reason in _undecodable(path, records, whole)
            ]
        return problems, len(ids), int(records["length"].sum(dtype=np.uint64))


def _in_order(function: Callable[[Task], Result], tasks: Iterable[Task], threads: int) -> Iterator[Result]:
    """``function`` of each task, in order, from ``threads`` threads, a few tasks ahead."""
    waiting: deque[Future[Result]] = deque()
    with started_pool(threads, "verify") as pool:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
        The problems, and how many records were checked. Of each kind the first :data:`LISTED` are listed; one
        problem more stands for the others, and its ``count`` says how many they are.

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
    found = Problems()
    if (len(index), index.digest, path.stat().st_size) != (
        manifest.num_records, manifest.index_crc, manifest.index_size
    ):  # fmt: skip
        reason = (
            f"belongs to another manifest: {len(index)} records, digest {index.digest:#010x}; "
            f"the manifest says {manifest.num_records} and {manifest.index_crc:#010x}"
        )
        found.add("", [Problem(reason, INDEX_NAME)])
    checks = _Checks(place, manifest, index, found)
    for check in (checks.sizes, checks.entries, checks.keys, checks.overlaps, checks.totals):
        check()
    checks.contents(decode, progress or (lambda records, size: None))
    checks.entry_points(recompute=entries)
    return found.listed(), len(index)
