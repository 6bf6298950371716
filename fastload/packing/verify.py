"""``fastload verify``: everything about a packed dataset that can be checked."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.threads import started_pool
from fastload.packing.column_checks import ColumnChecks
from fastload.packing.entries import wrong_entries
from fastload.packing.fetched import THREADS, StoredShards, in_windows
from fastload.packing.problems import Problem, Problems
from fastload.packing.record_checks import RecordChecks, overlaps_across
from fastload.packing.spans import opened_once, spans_of
from fastload.packing.summary import Summary
from fastload.remote.opening import place_of, refuse_options, shared_store
from fastload.shard.dataset import PackedFiles, check_fields
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME, MANIFEST_NAME, Manifest, fields_digest
from fastload.shard.node_sets import copy_as_it_is, read_manifest, shards_in_store

__all__ = ["Problem", "has_entries", "manifest_at", "sets_in", "verify"]

Spread = Callable[[Callable[[Any, Any], Any], Any, Iterable[Any]], Iterator[Any]]


def manifest_at(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Manifest:
    """The manifest of a folder or of a URL.

    Raises:
        FormatError: there is none, or a damaged one.
        RemoteError: the store does not give it.
    """
    folder, location, options = place_of(folder, storage_options)
    if location is None:
        return Manifest.read(Path(folder).absolute())
    return read_manifest(location, shared_store(location, options))


def sets_in(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """The packed datasets that are folders of a folder, or of a URL; none where that is one itself.

    Raises:
        RemoteError: the store does not tell.
    """
    place, location, options = place_of(folder, storage_options)
    if location is None:
        if exists(Path(place) / MANIFEST_NAME):
            return []
        return sorted(str(path.parent) for path in Path(place).glob(f"*/{MANIFEST_NAME}"))
    prefix = f"{location.path}/" if location.path else ""
    inside = [found.path[len(prefix) :] for found in shared_store(location, options).list(prefix)]
    if MANIFEST_NAME in inside:
        return []
    names = [name.removesuffix(f"/{MANIFEST_NAME}") for name in inside if name.endswith(f"/{MANIFEST_NAME}")]
    return sorted(str(location / name) for name in names if "/" not in name)


def has_entries(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a folder or a URL has entry points.

    Raises:
        RemoteError: the store does not tell.
    """
    folder, location, options = place_of(folder, storage_options)
    if location is None:
        return exists(Path(folder).absolute() / ENTRIES_NAME)
    return shared_store(location, options).head((location / ENTRIES_NAME).path) is not None


class _Checks:
    """The checks of one dataset; each puts what it finds into ``found``."""

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
        self.records = RecordChecks(folder, manifest, entries, self.key, found, field, stored)
        self.columns = [
            ColumnChecks(folder, manifest, number, field, self.key, found, stored)
            for number, field in manifest.schema.columns
        ]
        self._readable: set[int] = set()

    def key(self, sample: int) -> str:
        """A sample's key, for messages."""
        try:
            return str(self.index.key(sample).decode("utf-8", "backslashreplace"))
        except FastloadError:
            return "?"  # keys() tells why

    def sizes(self) -> None:
        """Shard files that are missing or have another size than the manifest says."""
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
                self.found.add("shards that are no files", [Problem("is not a regular file", shard.file)])
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
        """Another digest of the manifest's fields in the index; columns that are damaged or another's."""
        try:
            check_fields(self.folder / self.manifest.index_name, fields_digest(self.manifest.fields))
        except FastloadError as error:
            self.found.add("", [Problem(str(error), self.manifest.index_name)])
        for column in self.columns:
            column.open()

    def entries(self) -> None:
        """Entries that break a rule by themselves, and records that share bytes."""
        labels = len(self.manifest.classes) or int(np.iinfo(np.int32).max)
        self.records.entries(labels if self.manifest.schema.label_field is not None else 0)
        self.records.overlaps()
        fields = [column.records for column in self.columns if column.records is not None]
        for records in fields:
            records.entries(0)
            records.overlaps()
        overlaps_across([self.records, *fields])

    def keys(self) -> None:
        """Keys that lie outside the index or are not UTF-8."""
        for sample in range(len(self.index)):
            try:
                self.index.key(sample).decode("utf-8")
            except (FastloadError, UnicodeDecodeError) as error:
                self.records.samples("a damaged key", np.array([sample]), f"has a damaged key: {error}")

    def totals(self) -> None:
        """Sums that differ between manifest and index."""
        summary, shards = Summary(), self.manifest.shards
        counts = np.zeros(len(shards) + 1, np.int64)  # the last: of no shard
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
        """Records whose bytes are wrong, and values that their fields cannot hold."""
        if spread is None:
            self.records.contents(self._readable, decode)
        else:
            common = (self.folder, self.manifest.id, frozenset(self._readable), decode)
            spans = spans_of(self.manifest)
            for problems in spread(_records_of_span, common, spans):
                for kind, problem in problems:
                    self.found.add(kind, [problem])
        for column in self.columns:
            column.values()
            if column.field.of is not None:
                column.rows_of(next(one for one in self.columns if one.field.name == column.field.of))
            if column.records is not None:
                column.records.contents(self._readable, decode)

    def entry_points(self, recompute: bool, spread: Spread | None) -> None:
        """Entry points that are damaged, missing or, if they are to be computed again, wrong."""
        path = self.folder / ENTRIES_NAME
        folder = self.folder if self.stored is None else self.stored.location
        again = f"'fastload index {folder} --entries'"
        try:
            if exists(path):
                _C.Entries(str(path), self.index).verify()
            if not recompute or not exists(path):
                return
            for sample in self._wrong_entries(spread):
                reason = f"has other entry points than its bytes give; {again} makes them again"
                self.records.samples("other entry points", np.array([sample]), reason)
        except FastloadError as error:
            words = f"{error} Nothing needs it, decoding takes longer without; {again} makes it anew"
            self.found.add("", [Problem(words, ENTRIES_NAME)])

    def _wrong_entries(self, spread: Spread | None) -> Iterator[int]:
        if self.stored is not None:
            dataset = self.stored.dataset()
            for ids, part in in_windows(dataset):
                yield from wrong_entries(part, len(os.sched_getaffinity(0)), ids, self.folder)
            return
        dataset = PackedFiles(self.folder, entries=False)
        if spread is None:
            yield from wrong_entries(dataset, len(os.sched_getaffinity(0)))
            return
        common = (self.folder, dataset.id)
        yield from chain.from_iterable(spread(_entries_of_span, common, spans_of(dataset.manifest)))


def _records_of_span(
    common: tuple[Path, str, frozenset[int], bool], span: tuple[int, int]
) -> list[tuple[str, Problem]]:
    """What is wrong with some samples' records."""
    folder, packed_as, readable, decode = common
    dataset = opened_once(folder, packed_as)
    checks = _Checks(folder, dataset.manifest, dataset.index, Problems())
    return checks.records.problems_of(range(*span), set(readable), decode)


def _entries_of_span(common: tuple[Path, str], span: tuple[int, int]) -> list[int]:
    """Samples of a span whose entry points are wrong."""
    return list(wrong_entries(opened_once(*common), 1, range(*span)))


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
        decode: decode every record, too.
        entries: compute all entry points again, too, and compare them with the stored ones.
        spread: calls a function with its first argument and each of the items, in processes that see the
            same folder, and gives the results in order; None: threads of this process do the work.
        storage_options: for a URL: credentials, endpoint and so on.

    Returns:
        The problems, and how many records were checked. Of each kind the first :data:`LISTED` are listed; one
        problem more stands for the others, and its ``count`` says how many they are.

    Raises:
        FormatError: no manifest, or one that cannot be read: there is nothing to check against.
        RemoteError: the store says no, or does not answer.
        PackError: spread, and records in a store.
    """
    folder, location, options = place_of(folder, storage_options)
    place = Path(folder).absolute()
    if location is None:
        manifest = Manifest.read(place)
        if not manifest.in_store:
            refuse_options(folder, options)
            return _verified(place, decode, entries, spread)
    if spread is not None:
        raise PackError(
            f"processes share the work on records that are on this machine. Found: {location or place}. "
            "Leave --ray out, or verify the folder that was uploaded."
        )
    if location is None:
        _, store, shards = shards_in_store(place, manifest, options)
        stored = StoredShards(store, shards, place, options)
        return _verified(place, decode, entries, None, stored)
    with tempfile.TemporaryDirectory(prefix="fastload-verify-") as root:
        copy = copy_as_it_is(location, options, Path(root))
        stored = StoredShards(copy.store, copy.shards, location, options)
        return _verified(copy.folder, decode, entries, None, stored)


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
    found = Problems()
    if (len(index), index.digest, path.stat().st_size) != (
        manifest.num_records, manifest.index_crc, manifest.index_size
    ):  # fmt: skip
        reason = (
            f"belongs to another manifest: {len(index)} records, digest {index.digest:#010x}; "
            f"the manifest says {manifest.num_records} and {manifest.index_crc:#010x}"
        )
        found.add("", [Problem(reason, manifest.index_name)])
    checks = _Checks(place, manifest, index, found, stored)
    for check in (checks.sizes, checks.fields, checks.entries, checks.keys, checks.totals):
        check()
    checks.contents(decode, spread)
    checks.entry_points(entries, spread)
    return found.listed(), len(index)
