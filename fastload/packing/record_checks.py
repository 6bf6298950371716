"""What ``fastload verify`` checks of records: their entries, that none overlap, their bytes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil, raw_format, wanted_format
from fastload.errors import FastloadError
from fastload.machine.paths import read_at
from fastload.machine.threads import started_pool
from fastload.packing.fetched import THREADS, WINDOW_BYTES, StoredShards
from fastload.packing.ingest import as_rows
from fastload.packing.problems import Problem, Problems
from fastload.remote.store import MOST_AGAIN
from fastload.sample.fields import Image, Mask
from fastload.sample.schema import Field
from fastload.shard.codecs import CODECS, RAW, file_of
from fastload.shard.manifest import Manifest

__all__ = ["SPAN", "RecordChecks", "overlaps_across"]

SPAN = 1 << 20  # entries looked at in one go
_CHUNK = 512  # records a task
Task = TypeVar("Task")
Result = TypeVar("Result")


class RecordChecks:
    """The checks of the records of one field; each puts what it finds into ``found``.

    Args:
        folder: the dataset's.
        manifest: its manifest.
        records: the entries, ``RECORD``.
        key_of: a sample's key, for messages.
        found: the problems.
        field: whose records they are; None: the images of a dataset of version 1.0.
        stored: the shards, where they are in a store.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        records: npt.NDArray[np.void],
        key_of: Callable[[int], str],
        found: Problems,
        field: Field | None = None,
        stored: StoredShards | None = None,
    ) -> None:
        self.folder, self.manifest, self.records, self.found = folder, manifest, records, found
        self._stored = stored
        self._key_of = key_of
        self._kind = field.kind if field is not None and isinstance(field.kind, Image | Mask) else None
        is_index = field is None or field == manifest.schema.index_field
        self._field = "" if field is None or is_index else field.name
        self._of = f" of field {self._field!r}" if self._field else ""

    def spans(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """The records, so many at a time that the memory does not grow with the set."""
        for start in range(0, len(self.records), SPAN):
            yield start, self.records[start : start + SPAN]

    def problem(self, sample: int, reason: str) -> Problem:
        """A problem of one record."""
        record = self.records[sample]
        number = int(record["shard"])
        known = number < len(self.manifest.shards)
        shard = self.manifest.shards[number].file if known else f"shard {number}"
        words = f"field {self._field!r}: {reason}" if self._field else reason
        return Problem(words, shard, self._key_of(sample), sample, int(record["offset"]))

    def samples(self, kind: str, samples: npt.NDArray[np.int64], reason: str) -> None:
        """Problems of many records, of which only the first are looked at."""
        first = samples[: self.found.room(kind)].tolist()
        self.found.add(kind, (self.problem(sample, reason) for sample in first))
        self.found.count(kind, len(samples) - len(first))

    def entries(self, labels: int) -> None:
        """Entries that break a rule by themselves; legal labels are -1 and those below ``labels``."""
        sizes = np.array([shard.size for shard in self.manifest.shards], np.uint64)
        for begin, records in self.spans():
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
                self.samples(f"a record{self._of} {reason}", begin + np.flatnonzero(bad), reason)

    def overlaps(self) -> None:
        """Records that share bytes."""
        if self._in_file_order():
            return
        order = np.lexsort((self.records["offset"], self.records["shard"]))
        before = np.flatnonzero(self._shared(order))
        kind = f"a record{self._of} overlaps another"
        first = before[: self.found.room(kind)].tolist()
        pairs = [(int(order[position]), int(order[position + 1])) for position in first]
        self.found.add(kind, (self.problem(b, f"overlaps sample {a}") for a, b in pairs))
        self.found.count(kind, len(before) - len(first))

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
        for _, records in self.spans():
            shards = np.concatenate([[shard], records["shard"]])
            ends = np.concatenate([[end], records["offset"] + records["length"]])
            behind = (shards[1:] == shards[:-1]) & (records["offset"] >= ends[:-1])
            if not (behind | (shards[1:] > shards[:-1])).all():
                return False
            shard, end = shards[-1], ends[-1]
        return True

    def contents(self, readable: set[int], decode: bool) -> None:
        """Records whose bytes differ from their CRC-32C or, with ``decode``, are no whole image.

        Args:
            readable: the shards that are there.
        """
        check = partial(self._check, decode=decode)
        threads = len(os.sched_getaffinity(0)) if self._stored is None else THREADS
        for problems in _in_order(check, self._tasks(readable), threads):
            for kind, problem in problems:
                self.found.add(kind, [problem])

    def problems_of(self, samples: range, readable: set[int], decode: bool) -> list[tuple[str, Problem]]:
        """What :meth:`contents` finds in some samples."""
        some = RecordChecks(
            self.folder, self.manifest, self.records[samples.start : samples.stop], self._key_of, self.found
        )
        tasks = ((number, samples.start + ids) for number, ids in some._tasks(readable))
        return [problem for task in tasks for problem in self._check(task, decode)]

    def _tasks(self, readable: set[int]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Shard and sample ids of at most :data:`_CHUNK` records of one file."""
        for start, records in self.spans():
            for number in np.unique(records["shard"]).tolist():
                if number not in readable:
                    continue
                ids = start + np.flatnonzero(records["shard"] == number)
                step = _CHUNK
                if self._stored is not None:  # which are in memory meanwhile
                    mean = max(1, int(self.records["length"][ids].mean()))
                    step = min(_CHUNK, max(1, WINDOW_BYTES // (2 * THREADS) // mean))
                yield from ((number, ids[at : at + step]) for at in range(0, len(ids), step))

    def _check(self, task: tuple[int, npt.NDArray[np.int64]], decode: bool) -> list[tuple[str, Problem]]:
        number, ids = task
        shard = self.manifest.shards[number].file
        records = np.ascontiguousarray(self.records[ids])
        try:
            with ExitStack() as stack:
                path = self.folder / shard
                if self._stored is not None:
                    path = stack.enter_context(self._stored.file(number, records))
                return self._problems(path, ids, records, decode, number)
        except FastloadError as error:
            return [("a shard cannot be read", Problem(str(error), shard))]

    def _problems(
        self,
        path: Path,
        ids: npt.NDArray[np.int64],
        records: npt.NDArray[np.void],
        decode: bool,
        number: int,
    ) -> list[tuple[str, Problem]]:
        """What is wrong with records of the file at ``path``, which has those of shard ``number``."""
        failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        for _ in range(MOST_AGAIN if self._stored is not None else 0):
            if failures:
                assert self._stored is not None
                self._stored.fetch_again(number, records[sorted(failures)], path)
                failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        problems = [
            (f"a record{self._of} is damaged", self.problem(int(ids[i]), reason.decode()))
            for i, reason in failures.items()
        ]
        if decode:
            whole = [i for i in range(len(ids)) if i not in failures]
            problems += [
                (f"a record{self._of} does not decode", self.problem(int(ids[i]), reason))
                for i, reason in _undecodable(path, records, whole, self._kind)
            ]
        return problems


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


def _undecodable(
    path: Path, records: npt.NDArray[np.void], which: list[int], kind: Image | Mask | None
) -> Iterator[tuple[int, str]]:
    decoder = _C.Decoder(fallback=decode_with_pil)
    with open(path, "rb") as file:
        for i in which:
            record = records[i]
            data = read_at(file.fileno(), int(record["length"]), int(record["offset"]))
            pixels = np.frombuffer(data, np.uint8)
            try:
                if kind is not None:
                    decoder.decode(pixels, wanted_format(kind), raw_format(record))
                elif record["codec"] == RAW:
                    decoder.decode_raw(pixels, int(record["width"]), int(record["height"]))
                else:
                    decoder.decode_rgb(pixels)
                file_of(int(record["codec"]), data)
            except (FastloadError, ValueError) as error:
                yield i, f"does not decode: {error}"


def overlaps_across(checks: list[RecordChecks]) -> None:
    """Records of one field that share bytes with those of another."""
    if len(checks) < 2:
        return
    count = [len(one.records) for one in checks]
    shards = np.concatenate([one.records["shard"] for one in checks])
    begins = np.concatenate([one.records["offset"] for one in checks])
    ends = begins + np.concatenate([one.records["length"] for one in checks])
    firsts = np.cumsum([0, *count])
    order = np.lexsort((begins, shards))
    shared = (shards[order][1:] == shards[order][:-1]) & (begins[order][1:] < ends[order][:-1])
    for place in np.flatnonzero(shared).tolist():
        a, b = (int(order[place + one]) for one in (0, 1))
        of_a, of_b = (int(np.searchsorted(firsts, one, "right")) - 1 for one in (a, b))
        if of_a != of_b:
            reason = f"overlaps sample {a - firsts[of_a]} of another field"
            problem = checks[of_b].problem(b - int(firsts[of_b]), reason)
            checks[of_b].found.add("a record overlaps one of another field", [problem])
