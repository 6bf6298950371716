"""Verification of a packed set: every checksum and rule of its shards, records, columns, entry points."""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil, raw_format, wanted_format
from fastload.errors import FastloadError
from fastload.machine.paths import exists, read_at
from fastload.machine.temporary import TemporaryFolder
from fastload.machine.threads import started_pool
from fastload.packing.entries import entries_by, wrong_entries
from fastload.packing.facts import Summary
from fastload.packing.fetched import THREADS, WINDOW_BYTES, Spread, StoredShards, check_seen
from fastload.packing.files import ESCAPED
from fastload.packing.publish import WrittenTables
from fastload.packing.rows import CARRIED, carried_by
from fastload.remote.opening import place_of, refuse_options
from fastload.remote.store import MOST_AGAIN
from fastload.sample.fields import Image, Images, Mask
from fastload.sample.schema import Field
from fastload.sample.values import row_count, wrong_rows
from fastload.shard.codecs import CODECS, COEFFICIENTS, NO_LIST_FLAG, RAW, file_of
from fastload.shard.columns import column_wrong, open_column
from fastload.shard.contents import content_id
from fastload.shard.dataset import PackedFiles, check_fields
from fastload.shard.generations import read_dropped
from fastload.shard.index import HEADER, RECORD, as_rows
from fastload.shard.manifest import MANIFEST_NAME, Manifest, column_file, fields_digest
from fastload.shard.node_sets import copy_as_it_is, shards_in_store
from fastload.shard.runs import read_runs, table_of

# ---- The problems that ``fastload verify`` lists and counts -----------------------------------------

LISTED = 100  # most problems of one kind that are listed


@dataclass(frozen=True)
class Problem:
    """A problem, or ``count`` problems of one kind; the other fields say where, as far as is known."""

    reason: str
    shard: str = ""
    key: str = ""
    sample: int | None = None
    offset: int | None = None
    count: int = 1


class Problems:
    """A collection of problems whose memory does not grow with their number.

    Args:
        most: how many of each kind are kept.
    """

    def __init__(self, most: int = LISTED) -> None:
        self._most = most
        self._kept: list[Problem] = []
        self._counts: Counter[str] = Counter()

    def room(self, kind: str) -> int:
        """Return how many more of this kind are kept; beyond them a number is enough, see :meth:`count`."""
        return max(0, self._most - self._counts[kind])

    def add(self, kind: str, problems: Iterable[Problem]) -> None:
        """Add problems of one kind; ``kind`` completes "100 more: "."""
        for problem in problems:
            if self.room(kind):
                self._kept.append(problem)
            self._counts[kind] += 1

    def count(self, kind: str, more: int) -> None:
        """Count problems that are not kept; :meth:`room` must be used up before."""
        self._counts[kind] += more

    def listed(self) -> list[Problem]:
        """Return the problems that were kept, then one for each kind that has more."""
        rest = [(kind, count - self._most) for kind, count in self._counts.items() if count > self._most]
        return self._kept + [
            Problem(f"{more} more, not listed: {kind}", count=more) for kind, more in rest if more > 0
        ]


# ---- Checks of records: entries, overlaps, bytes ----------------------------------------------------

SPAN = 1 << 20  # entries examined at a time
_CHUNK = 512  # records per task
Wrong = tuple[str, int | str, str]  # kind of problem; record, or shard that cannot be read; reason
Part = tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]  # some records of one shard: numbers, entries
Task = TypeVar("Task")
Result = TypeVar("Result")


class RecordChecks:
    """The checks of one field's records; each adds its problems to ``found``.

    Args:
        folder: the dataset's folder.
        manifest: its manifest.
        records: the entries, ``RECORD``.
        key_of: returns a sample's key, for messages.
        found: the problems.
        field: the records' field; None: the images of a dataset of version 1.0.
        stored: the shards, if they are in a store.
        sample_of: returns the sample of a record of a list of pictures, and its place there.
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
        sample_of: Callable[[int], tuple[int, int]] | None = None,
    ) -> None:
        self.folder, self.manifest, self.records, self.found = folder, manifest, records, found
        self._stored, self._given = stored, field
        self._key_of, self._sample_of = key_of, sample_of
        kind = field.kind if field is not None else None
        kind = kind.each if isinstance(kind, Images) else kind
        self._kind = kind if isinstance(kind, Image | Mask) else None
        is_index = field is None or field == manifest.schema.index_field
        self._field = "" if field is None or is_index else field.name
        self._of = f" of field {self._field!r}" if self._field else ""

    def spans(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield the records in spans, so that the memory does not grow with the set."""
        for start in range(0, len(self.records), SPAN):
            yield start, self.records[start : start + SPAN]

    def problem(self, sample: int, reason: str) -> Problem:
        """Return a problem of one record."""
        record = self.records[sample]
        number = int(record["shard"])
        known = number < len(self.manifest.shards)
        shard = self.manifest.shards[number].file if known else f"shard {number}"
        words = f"field {self._field!r}: {reason}" if self._field else reason
        if self._sample_of is not None:
            sample, place = self._sample_of(sample)
            words = f"field {self._field!r}, picture {place}: {reason}"
        return Problem(words, shard, self._key_of(sample), sample, int(record["offset"]))

    def samples(self, kind: str, samples: npt.NDArray[np.int64], reason: str) -> None:
        """Add a problem for many records, of which only the first are looked at."""
        first = samples[: self.found.room(kind)].tolist()
        self.found.add(kind, (self.problem(sample, reason) for sample in first))
        self.found.count(kind, len(samples) - len(first))

    def entries(self, labels: int) -> None:
        """Find entries that break a rule by themselves; legal labels are -1 and those below ``labels``."""
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

    def without_pictures(self, labels: int) -> None:
        """Find entries of samples without a picture in the index that say more than a label and a shard."""
        for begin, records in self.spans():
            plain = records.copy()
            plain["label"], plain["shard"] = 0, 0
            plain["flags"] &= ~np.uint8(ESCAPED)
            rules = [
                (plain != np.zeros(1, RECORD)[0], "names bytes, and the set has no field of pictures for it"),
                (records["shard"] >= len(self.manifest.shards), "names a shard that does not exist"),
                ((records["label"] < -1) | (records["label"] >= labels), "has a label outside the classes"),
            ]
            for bad, reason in rules:
                self.samples(f"an entry {reason}", begin + np.flatnonzero(bad), reason)

    def overlaps(self) -> None:
        """Find records that share bytes."""
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
        """Return whether each record of ``order`` shares bytes with the next one."""
        shards, offsets = self.records["shard"][order], self.records["offset"][order]
        ends = offsets + self.records["length"][order]
        shared: npt.NDArray[np.bool_] = (shards[1:] == shards[:-1]) & (offsets[1:] < ends[:-1])
        return shared

    def _in_file_order(self) -> bool:
        """Whether each record begins after the end of the previous one or in a later shard, as packs are
        written: then none overlap, and nothing needs to be sorted."""
        shard, end = np.uint32(0), np.uint64(0)
        for _, records in self.spans():
            shards = np.concatenate([[shard], records["shard"]])
            ends = np.concatenate([[end], records["offset"] + records["length"]])
            behind = (shards[1:] == shards[:-1]) & (records["offset"] >= ends[:-1])
            if not (behind | (shards[1:] > shards[:-1])).all():
                return False
            shard, end = shards[-1], ends[-1]
        return True

    def contents(self, readable: set[int], decode: bool, spread: Spread | None = None) -> None:
        """Find records whose bytes differ from their CRC-32C or, with ``decode``, are not a whole image.

        Args:
            readable: the numbers of the existing shards.
            spread: see :func:`verify`.
        """
        found = self.wrong(readable, decode)
        if spread is not None:
            common = (self.folder, self.manifest, self._given, self._stored, decode)
            found = spread(_wrong_in_part, common, self._parts(readable))
        for wrong in found:
            for kind, place, reason in wrong:
                if isinstance(place, str):
                    self.found.add(kind, [Problem(reason, place)])
                else:
                    self.found.add(kind, [self.problem(place, reason)])

    def wrong(self, readable: set[int], decode: bool, threads: int | None = None) -> Iterator[list[Wrong]]:
        """Yield what is wrong with the records, some at a time, in order."""
        own = len(os.sched_getaffinity(0)) if threads is None else threads
        check = partial(self._check, decode=decode)
        return _in_order(check, self._tasks(readable), own if self._stored is None else THREADS)

    def _of_shards(self, readable: set[int]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield shard and record numbers of each span."""
        for start, records in self.spans():
            for number in np.unique(records["shard"]).tolist():
                if number in readable:
                    yield number, start + np.flatnonzero(records["shard"] == number)

    def _parts(self, readable: set[int]) -> Iterator[Part]:
        """Yield the records in the same order, about :data:`WINDOW_BYTES` of one shard at a time."""
        for _, ids in self._of_shards(readable):
            step = max(1, WINDOW_BYTES // max(1, int(self.records["length"][ids].mean())))
            for at in range(0, len(ids), step):
                yield ids[at : at + step], np.ascontiguousarray(self.records[ids[at : at + step]])

    def _tasks(self, readable: set[int]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield shard and sample ids of at most :data:`_CHUNK` records of one file."""
        for number, ids in self._of_shards(readable):
            step = _CHUNK
            if self._stored is not None:  # these records are in memory meanwhile
                mean = max(1, int(self.records["length"][ids].mean()))
                step = min(_CHUNK, max(1, WINDOW_BYTES // (2 * THREADS) // mean))
            yield from ((number, ids[at : at + step]) for at in range(0, len(ids), step))

    def _check(self, task: tuple[int, npt.NDArray[np.int64]], decode: bool) -> list[Wrong]:
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
            return [("a shard cannot be read", shard, str(error))]

    def _problems(
        self,
        path: Path,
        ids: npt.NDArray[np.int64],
        records: npt.NDArray[np.void],
        decode: bool,
        number: int,
    ) -> list[Wrong]:
        """Return what is wrong with records of the file at ``path``, which has those of shard ``number``."""
        failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        for _ in range(MOST_AGAIN if self._stored is not None else 0):
            if failures:
                assert self._stored is not None
                self._stored.fetch_again(number, records[sorted(failures)], path)
                failures = dict(_C.verify_file(os.fsencode(path), as_rows(records)))
        problems: list[Wrong] = [
            (f"a record{self._of} is damaged", int(ids[i]), reason.decode()) for i, reason in failures.items()
        ]
        if decode:
            undamaged = [i for i in range(len(ids)) if i not in failures]
            problems += [
                (f"a record{self._of} does not decode", int(ids[i]), reason)
                for i, reason in _undecodable(path, records, undamaged, self._kind)
            ]
        return problems


def _wrong_in_part(
    common: tuple[Path, Manifest, Field | None, StoredShards | None, bool], part: Part
) -> list[Wrong]:
    """Return what is wrong with some records of a shard, on a worker."""
    folder, manifest, field, stored, decode = common
    ids, records = part
    if stored is None:
        check_seen(folder, manifest.seal)
    checks = RecordChecks(folder, manifest, records, str, Problems(), field, stored)
    found = chain.from_iterable(checks.wrong({int(records["shard"][0])}, decode, 1))
    return [
        (kind, place if isinstance(place, str) else int(ids[place]), reason) for kind, place, reason in found
    ]


def _in_order(function: Callable[[Task], Result], tasks: Iterable[Task], threads: int) -> Iterator[Result]:
    """Yield ``function`` of each task, in order; ``threads`` threads work a few tasks ahead."""
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
                    decoder.decode(pixels, wanted_format(kind), raw_format(record), shown=kind.shown)
                elif record["codec"] == RAW:
                    decoder.decode_raw(pixels, int(record["width"]), int(record["height"]))
                else:
                    decoder.decode_rgb(pixels)
                picture = file_of(int(record["codec"]), data)
                turned = kind is not None and kind.shown[0] and record["codec"] == COEFFICIENTS
                if turned and _C.orientation(np.frombuffer(picture, np.uint8)) != 1:
                    yield i, "is a coefficient record of a JPEG that EXIF turns, which is not turned so"
            except (FastloadError, ValueError) as error:
                yield i, f"does not decode: {error}"


def overlaps_across(checks: list[RecordChecks]) -> None:
    """Find records of one field that share bytes with those of another."""
    if len(checks) < 2:
        return
    count = [len(check.records) for check in checks]
    shards = np.concatenate([check.records["shard"] for check in checks])
    begins = np.concatenate([check.records["offset"] for check in checks])
    ends = begins + np.concatenate([check.records["length"] for check in checks])
    firsts = np.cumsum([0, *count])
    order = np.lexsort((begins, shards))
    shared = (shards[order][1:] == shards[order][:-1]) & (begins[order][1:] < ends[order][:-1])
    for place in np.flatnonzero(shared).tolist():
        a, b = int(order[place]), int(order[place + 1])
        of_a, of_b = (int(np.searchsorted(firsts, row, "right")) - 1 for row in (a, b))
        if of_a != of_b:
            reason = f"overlaps sample {a - firsts[of_a]} of another field"
            problem = checks[of_b].problem(b - int(firsts[of_b]), reason)
            checks[of_b].found.add("a record overlaps one of another field", [problem])


# ---- Checks of a field's own file -------------------------------------------------------------------

_BYTES, _MOST = 32 << 20, 1 << 18  # bytes and samples examined at a time, of values of one width
_SAMPLES = 1024  # the same for values that differ in length


class ColumnChecks:
    """The checks of one field's file; each adds its problems to ``found``.

    Args:
        folder: the dataset's folder.
        manifest: its manifest.
        number: the field's position.
        field: the field.
        key_of: returns a sample's key, for messages.
        found: the problems.
        stored: the shards, if they are in a store.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        number: int,
        field: Field,
        key_of: Callable[[int], str],
        found: Problems,
        stored: StoredShards | None = None,
    ) -> None:
        self._folder, self._manifest, self.field, self._found = folder, manifest, field, found
        self._key_of, self._stored = key_of, stored
        self._file = column_file(number, manifest.fields[number])
        self._column: Any = None
        #: The checks of a record field's records, once its file has been checked.
        self.records: RecordChecks | None = None

    def open(self) -> None:
        """Open the file, or report that it is missing, damaged, or another manifest's."""
        path = self._folder / self._file.file
        try:
            column = open_column(path, self.field)
            column.verify()
            size = path.stat().st_size
        except FastloadError as error:
            self._found.add("", [Problem(f"field {self.field.name!r}: {error}", self._file.file)])
            return
        wrong = column_wrong(column, self._file, self._manifest.num_records)
        if size != self._file.size or wrong:
            reason = wrong or f"has {size} bytes, the manifest says {self._file.size}"
            self._found.add("", [Problem(f"field {self.field.name!r}: {reason}", self._file.file)])
            return
        self._column = column
        if self.field.storage == "record":
            header = np.fromfile(path, HEADER, 1)[0]
            at, count = int(header["data_offset"]), len(column)
            # Mapped from the file, not held in memory; every page has been checked.
            entries = np.memmap(path, RECORD, "r", at, count) if count else np.zeros(0, RECORD)
            self.records = RecordChecks(
                self._folder, self._manifest, entries, self._key_of, self._found, self.field, self._stored
            )
        if self.field.storage == "records":
            self._open_lists()

    @property
    def is_open(self) -> bool:
        """Whether the file is whole and the manifest's."""
        return self._column is not None

    def _open_lists(self) -> None:
        """Check the entries without a picture, and find the others' samples."""
        entries = self._column.records().view(RECORD)[:, 0]
        parts = (np.diff(ends) // RECORD.itemsize for _, _, ends in self._chunks())
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *parts]))  # of each sample's entries
        there = np.flatnonzero(entries["length"] > 0)

        def sample_of(number: int) -> tuple[int, int]:
            entry = int(there[number])
            sample = int(np.searchsorted(ends, entry, "right")) - 1
            return sample, entry - int(ends[sample])

        self.records = RecordChecks(
            self._folder, self._manifest, entries[there], self._key_of, self._found, self.field, self._stored,
            sample_of,
        )  # fmt: skip

    def values(self) -> None:
        """Find values that the field cannot hold."""
        if self._column is None or self.field.storage == "record":
            return
        if self.field.storage == "records":
            wrong = self._wrong_lists()
        elif self.field.storage == "fixed" or self.field.kind.has_rows:
            wrong = self._wrong_numbers()
        else:
            wrong = self._wrong_objects()
        kind = f"a value that field {self.field.name!r} cannot hold"
        for sample, reason in wrong:
            self._found.add(kind, [Problem(reason, self._file.file, self._key_of(sample), sample)])

    def rows_of(self, leader: ColumnChecks) -> None:
        """Find samples whose number of rows differs from that of the field that these rows go with."""
        if self._column is None or leader._column is None:
            return
        kind = "rows that do not go with those of another field"
        for (start, data, ends), others in zip(self._chunks(), leader._chunks(), strict=True):
            counts, wanted = _row_counts(self.field, data, ends), _row_counts(leader.field, *others[1:])
            for at in np.flatnonzero(counts != wanted).tolist():
                reason = f"has {counts[at]} rows of {self.field.name!r}, {wanted[at]} of {self.field.of!r}"
                problem = Problem(reason, self._file.file, self._key_of(start + at), start + at)
                self._found.add(kind, [problem])

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Yield first sample id, bytes, and where each value's bytes begin, for some samples at a time."""
        fixed = self.field.storage == "fixed"
        step = min(_MOST, max(1, _BYTES // self.field.item_bytes)) if fixed else _SAMPLES
        for start in range(0, len(self._column), step):
            ids = np.arange(start, min(start + step, len(self._column)))
            yield start, *self._column.gather(ids)

    def _wrong_numbers(self) -> Iterator[tuple[int, str]]:
        kind, width = self.field.kind, self.field.item_bytes
        empty = np.zeros((0, *kind.item_shape), kind.item_dtype)
        if not wrong_rows(kind, empty):
            return  # any numbers are legal
        for start, data, ends in self._chunks():
            rows = data.view(kind.item_dtype).reshape(-1, *kind.item_shape)
            for reason, wrong in wrong_rows(kind, rows):
                for row in np.flatnonzero(wrong).tolist():
                    at = int(np.searchsorted(ends, row * width, "right")) - 1
                    where = f" in row {row - int(ends[at]) // width}" if kind.has_rows else ""
                    values = data[row * width : (row + 1) * width].view(_shown(kind.item_dtype)).tolist()
                    yield start + at, f"field {self.field.name!r} {reason}. Found: {values}{where}"

    def _wrong_lists(self) -> Iterator[tuple[int, str]]:
        """Find entries without a picture that say something."""
        nothing = np.zeros(1, RECORD)
        nothing["label"] = -1
        for start, data, ends in self._chunks():
            entries = data.view(RECORD)
            counts = np.diff(ends) // RECORD.itemsize
            owners = np.repeat(np.arange(len(counts)), counts)
            empty = entries["length"] == 0
            plain = entries.copy()
            alone = counts[owners] == 1
            plain["flags"][alone] &= ~np.uint8(NO_LIST_FLAG)
            for entry in np.flatnonzero(empty & (plain != nothing[0])).tolist():
                place = entry - int(ends[owners[entry]]) // RECORD.itemsize
                reason = f"field {self.field.name!r}, place {place}: an entry without a picture says more"
                yield start + int(owners[entry]), reason

    def _wrong_objects(self) -> Iterator[tuple[int, str]]:
        for start, data, ends in self._chunks():
            for at in range(len(ends) - 1):
                try:
                    self.field.check_bytes(data[ends[at] : ends[at + 1]].tobytes())
                except FastloadError as error:
                    yield start + at, str(error)


def _row_counts(
    field: Field, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    places = ends.tolist()
    counts = [row_count(field.kind, data[a:b].tobytes()) for a, b in pairwise(places)]
    return np.array(counts, np.int64)


def _shown(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which a wrong value is shown: the byte of a bool may be any."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


# ---- ``fastload verify`` ----------------------------------------------------------------------------


class _Checks:
    """The checks of one dataset; each adds its problems to ``found``."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        index: _C.Index,
        found: Problems,
        stored: StoredShards | None = None,
    ) -> None:
        self.folder, self.manifest, self.index, self.found = folder, manifest, index, found
        self.stored = stored
        entries = index.records().view(RECORD)[:, 0]
        field = manifest.schema.index_field if manifest.fields else None
        self._has_pictures = not manifest.fields or field is not None
        self.records = RecordChecks(folder, manifest, entries, self.key, found, field, stored)
        self.columns = [
            ColumnChecks(folder, manifest, number, field, self.key, found, stored)
            for number, field in manifest.schema.columns
        ]
        self._readable: set[int] = set()

    def key(self, sample: int) -> str:
        """Return a sample's key, for messages."""
        try:
            return str(self.index.key(sample).decode("utf-8", "backslashreplace"))
        except FastloadError:
            return "?"  # keys() reports why

    def sizes(self) -> None:
        """Find shard files that are missing or have another size than the manifest says."""
        if self.stored is not None:
            self._stored_sizes(self.stored)
            return
        for number, shard in enumerate(self.manifest.shards):
            try:
                status = os.stat(self.folder / shard.file)
            except (OSError, ValueError) as error:
                reason = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
                self.found.add("shards that cannot be opened", [Problem(reason, shard.file)])
                continue
            if not stat.S_ISREG(status.st_mode):
                self.found.add("shards that are not files", [Problem("is not a regular file", shard.file)])
                continue
            self._readable.add(number)
            if status.st_size != shard.size:
                reason = f"has {status.st_size} bytes, the manifest says {shard.size}"
                self.found.add("shards of another size", [Problem(reason, shard.file)])

    def _stored_sizes(self, stored: StoredShards) -> None:
        with started_pool(THREADS, "look") as pool:
            for number, size in enumerate(pool.map(stored.size, range(len(self.manifest.shards)))):
                shard = self.manifest.shards[number]
                if size is None:
                    problem = Problem("is not in the store", shard.file)
                    self.found.add("shards that cannot be opened", [problem])
                    continue
                self._readable.add(number)
                if size != shard.size:
                    reason = f"has {size} bytes, the manifest says {shard.size}"
                    self.found.add("shards of another size", [Problem(reason, shard.file)])

    def fields(self) -> None:
        """Find an index with another digest of the manifest's fields; damaged or other sets' columns."""
        try:
            check_fields(self.folder / self.manifest.index_name, fields_digest(self.manifest.fields))
        except FastloadError as error:
            self.found.add("", [Problem(str(error), self.manifest.index_name)])
        for column in self.columns:
            column.open()

    def dropped(self) -> None:
        """Find a damaged file of dropped samples."""
        try:
            read_dropped(self.folder, self.manifest.dropped, len(self.index))
        except FastloadError as error:
            assert self.manifest.dropped is not None
            self.found.add("", [Problem(str(error), self.manifest.dropped.file)])

    def carried(self) -> None:
        """Find files that the source had as they are, and that are missing or were changed."""
        if CARRIED not in self.manifest.options:
            return
        for folder in carried_by(self._dataset()):
            for read in folder.files.values():
                try:
                    read()
                except (FastloadError, OSError) as error:
                    self.found.add("files of the source's own folders", [Problem(str(error), MANIFEST_NAME)])

    def runs(self) -> None:
        """Find damaged runs, and others than columns and keys give, if these are whole."""
        known = self.manifest.runs
        if known is None:
            return
        try:
            found = read_runs(self.folder / known.file, known, len(self.index))
            if not all(column.is_open for column in self.columns):
                return
            wanted = table_of(
                WrittenTables(self.folder, self.manifest), known.spec.fitted(self.manifest.schema)
            )
        except (FastloadError, ValueError) as error:
            self.found.add("", [Problem(str(error), known.file)])
            return
        tables: list[list[Any]] = [[*found], [*wanted]]
        if not all(map(np.array_equal, *tables)):
            self.found.add("", [Problem("has other runs than the set's columns and keys give", known.file)])

    def content(self) -> None:
        """Find a manifest whose content id is not that of its files, if these are whole."""
        wanted = self.manifest.content
        if not wanted or not all(column.is_open for column in self.columns):
            return
        found = content_id(self.manifest, self.folder)
        if found != wanted:
            reason = f"says content id {wanted}, its files have {found}; states of other samples would fit it"
            self.found.add("", [Problem(reason, MANIFEST_NAME)])

    def entries(self) -> None:
        """Find entries that break a rule by themselves, and records that share bytes."""
        labels = len(self.manifest.classes) or int(np.iinfo(np.int32).max)
        legal = labels if self.manifest.schema.label_field is not None else 0
        if self._has_pictures:
            self.records.entries(legal)
            self.records.overlaps()
        else:
            self.records.without_pictures(legal)
        fields = [column.records for column in self.columns if column.records is not None]
        for records in fields:
            records.entries(0)
            records.overlaps()
        overlaps_across([*([self.records] if self._has_pictures else []), *fields])

    def keys(self) -> None:
        """Find keys that lie outside the index or are not UTF-8."""
        for sample in range(len(self.index)):
            try:
                self.index.key(sample).decode("utf-8")
            except (FastloadError, UnicodeDecodeError) as error:
                self.records.samples("a damaged key", np.array([sample]), f"has a damaged key: {error}")

    def totals(self) -> None:
        """Find sums that differ between manifest and index."""
        summary, shards = Summary(), self.manifest.shards
        counts = np.zeros(len(shards) + 1, np.int64)  # the last is for records of no shard
        for _, records in self.records.spans():
            summary.add(records)
            counts += np.bincount(records["shard"].clip(0, len(shards)), minlength=len(counts))
        for number, shard in enumerate(shards):
            if counts[number] != shard.records:
                reason = f"the index has {counts[number]} records, the manifest says {shard.records}"
                self.found.add("another number of records", [Problem(reason, shard.file)])
        if summary.bytes != self.manifest.data_bytes:
            reason = f"the records have {summary.bytes} bytes, the manifest says {self.manifest.data_bytes}"
            self.found.add("another number of bytes", [Problem(reason)])

    def contents(self, decode: bool, spread: Spread | None) -> None:
        """Find records whose bytes are wrong, and values that their fields cannot hold."""
        if self._has_pictures:
            self.records.contents(self._readable, decode, spread)
        for column in self.columns:
            column.values()
            if column.field.of is not None:
                column.rows_of(next(c for c in self.columns if c.field.name == column.field.of))
            if column.records is not None:
                column.records.contents(self._readable, decode, spread)

    def entry_points(self, recompute: bool, spread: Spread | None) -> None:
        """Find entry points that are damaged, missing or, if they are computed again, wrong."""
        path = self.folder / self.manifest.entries_name
        folder = self.folder if self.stored is None else self.stored.location
        again = f"'fastload index {folder} --entries'"
        try:
            if exists(path):
                _C.Entries(str(path), self.index).verify()
            if not recompute or not exists(path):
                return
            for sample in self._wrong_entries(spread):
                reason = f"has other entry points than its bytes give; {again} remakes them"
                self.records.samples("other entry points", np.array([sample]), reason)
        except FastloadError as error:
            words = f"{error} It is optional, but decoding is slower without it; {again} makes it anew"
            self.found.add("", [Problem(words, path.name)])

    def _wrong_entries(self, spread: Spread | None) -> Iterator[int]:
        stored = self.stored
        options = None if stored is None else stored.options
        made = None if spread is None else entries_by(spread, None, options)
        return wrong_entries(self._dataset(), len(os.sched_getaffinity(0)), self.folder, made)

    def _dataset(self) -> PackedFiles:
        return PackedFiles(self.folder, entries=False) if self.stored is None else self.stored.dataset()


def verify(
    folder: str | os.PathLike[str],
    decode: bool = False,
    entries: bool = False,
    spread: Spread | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[list[Problem], int]:
    """Check the index, the shards' sizes, every record's place and bytes, every field's values, and the
    checksums of the entry points.

    Args:
        folder: a packed dataset, or its URL in a store, whose records are all read once.
        decode: whether to decode every record, too.
        entries: whether to compute all entry points again and compare them with the stored ones.
        spread: lets processes that see the same folder, or reach the same store, do the work; None: threads
            of this process do.
        storage_options: for a URL, credentials, endpoint and so on.

    Returns:
        The problems, and how many records were checked. The first :data:`LISTED` of each kind are listed; one
        more problem stands for the others, and its ``count`` says how many they are.

    Raises:
        FormatError: the manifest is missing or unreadable, so there is nothing to check against.
        RemoteError: the store refuses or does not answer.
        PackError: a process of ``spread`` failed, or sees another set.
    """
    folder, location, options = place_of(folder, storage_options)
    place = Path(folder).absolute()
    if location is None:
        manifest = Manifest.read(place)
        if not manifest.in_store:
            refuse_options(folder, options)
            return _verified(place, decode, entries, spread)
    if location is None:
        _, store, shards = shards_in_store(place, manifest, options)
        stored = StoredShards(store, shards, place, options)
        return _verified(place, decode, entries, spread, stored)
    with TemporaryFolder("verify") as root:
        copy = copy_as_it_is(location, options, root)
        stored = StoredShards(copy.store, copy.shards, location, options)
        return _verified(copy.folder, decode, entries, spread, stored)


def _verified(
    place: Path,
    decode: bool,
    entries: bool,
    spread: Spread | None,
    stored: StoredShards | None = None,
) -> tuple[list[Problem], int]:
    manifest = Manifest.read(place)
    path = place / manifest.index_name
    try:
        index = _C.Index(str(path))
        index.verify()
    except FastloadError as error:
        return [Problem(str(error), manifest.index_name)], 0
    problems = Problems()
    said = (manifest.num_records, manifest.index_crc, manifest.index_size)
    belongs = (len(index), index.digest, path.stat().st_size) == said
    if not belongs:
        reason = (
            f"belongs to another manifest: {len(index)} records, digest {index.digest:#010x}; "
            f"the manifest says {manifest.num_records} and {manifest.index_crc:#010x}"
        )
        problems.add("", [Problem(reason, manifest.index_name)])
    checks = _Checks(place, manifest, index, problems, stored)
    checks.sizes()
    checks.carried()
    for check in (checks.fields, checks.entries, checks.keys, checks.totals, checks.dropped):
        check()
    if belongs:
        checks.content()
        checks.runs()
    checks.contents(decode, spread)
    checks.entry_points(entries, spread)
    return problems.listed(), len(index)
