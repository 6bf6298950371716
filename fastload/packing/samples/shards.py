"""Writing encoded samples into shards, one after another, in the order of the source."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastload._native import _C
from fastload.errors import PackError
from fastload.packing.coefficients import FACTS, Outcome, Tally
from fastload.packing.files import failed_writes_reported, publish, remove, temporary_of
from fastload.packing.ingest import GROUP_BYTES, GROUP_RECORDS, as_rows
from fastload.packing.part import ShardPart
from fastload.packing.samples.encode import Encoded
from fastload.packing.shard_job import BadFiles
from fastload.sample.schema import Schema
from fastload.shard.columns import Chunk
from fastload.shard.formats import Format, ShardSpec, Writer
from fastload.shard.index import RECORD

__all__ = ["OpenShard", "Shards"]

_SPOT_CHECKS = 16  # records of a field whose bytes are read back
_NO_RECORDS = np.zeros(0, RECORD)
_NOTHING = np.zeros(0, np.uint8)


class Shards:
    """The shards of one pack, in its work folder.

    A shard is cut before the sample that would take it over ``shard_size`` bytes, and batches within it by
    the same rule, so that neither an interruption nor the number of processes changes anything.

    Args:
        work: the work folder; shards and parts are called by their numbers in it.
        shards: the format.
        suffix: of shards' names.
        schema: the fields.
        shard_size: bytes of samples a shard holds at most (one sample at least).
        skip: whether samples that cannot be packed are left out.
        advance: called with numbers of samples and bytes that were written.
        raw: whether images are pixels, not files.
        coefficients: whether JPEGs are to be coefficient records.
    """

    def __init__(
        self, work: Path, shards: Format, suffix: str, schema: Schema, shard_size: int, skip: bool,
        advance: Callable[[int, int], None], raw: bool = False, coefficients: bool = False,
    ) -> None:  # fmt: skip
        self._work, self._format, self._suffix = work, shards, suffix
        self._schema, self._shard_size, self._skip, self._advance = schema, shard_size, skip, advance
        self._raw, self._coefficients = raw, coefficients
        self._failures: list[tuple[int, str, str]] = []
        self._left_out: list[tuple[int, str, str, str]] = []
        self._outcomes: list[tuple[int, str, Outcome]] = []
        self._open: OpenShard | None = None
        self.number = 0  # of the shard that comes next

    def path(self, number: int) -> Path:
        """A shard in the work folder."""
        return self._work / f"{number:05d}{self._suffix}"

    def part_path(self, number: int) -> Path:
        """Its part of the index."""
        return self._work / f"{number:05d}.part"

    def finished(self) -> int:
        """Take up what was finished before; returns the position of the first sample after it."""
        stop = 0
        while True:
            path = self.path(self.number)
            if not ShardPart.finished(self.part_path(self.number), self._format.data_file(path)):
                return stop
            stop = ShardPart.read(self.part_path(self.number)).stop
            self.number += 1

    def write(self, pieces: Iterable[Encoded]) -> None:
        """Write all samples.

        Raises:
            BadFiles: some or their annotations cannot be packed, and they are not to be skipped.
            PackError: no room, or what was written does not read back.
        """
        stop = 0
        try:
            for piece in pieces:
                self._failures += piece.failures
                self._left_out += piece.left_out
                self._outcomes += piece.outcomes
                stop = piece.stop
                if (self._failures or self._left_out) and not self._skip:
                    raise BadFiles(
                        [(key, reason) for _, key, reason in self._failures],
                        [(f"{key}, {which}", reason) for _, key, which, reason in self._left_out],
                    )
                self._add(piece)
            if self._open is not None or self._failures:
                self._finish(stop)
        finally:
            if self._open is not None:
                self._open.abort()

    def _add(self, piece: Encoded) -> None:
        sizes = piece.sizes.tolist()
        begin = 0
        for i, size in enumerate(sizes):
            if self._open is not None and self._open.bytes + size > self._shard_size:
                self._take(piece, begin, i)
                begin = i
                self._finish(int(piece.positions[i]))
            if self._open is None:
                self._open = self._begin()
            if not self._open.fits(size):
                self._take(piece, begin, i)
                begin = i
                self._open.flush()
            self._open.count(size)
        if self._open is not None:
            self._take(piece, begin, len(sizes))
        self._advance(len(sizes), sum(sizes))

    def _take(self, piece: Encoded, begin: int, end: int) -> None:
        if end > begin:
            assert self._open is not None
            self._open.take(piece.keys[begin:end], [chunk.slice(begin, end) for chunk in piece.fields])

    def _begin(self) -> OpenShard:
        return OpenShard(self.path(self.number), self._format, self._schema, self._shard_size, self._raw)

    def _finish(self, stop: int) -> None:
        """End the shard: all positions before ``stop`` are in it, or in those before it, or failed."""
        if self._open is None:
            self._open = self._begin()
        part, spooled = self._open.finish()
        self._open = None
        mine = [(key, reason) for position, key, reason in self._failures if position < stop]
        lost = [one[1:] for one in self._left_out if one[0] < stop]
        self._failures = [failure for failure in self._failures if failure[0] >= stop]
        self._left_out = [one for one in self._left_out if one[0] >= stop]
        facts = self._facts(stop)
        path = self.part_path(self.number)
        try:
            with failed_writes_reported(path, self._shard_size):  # it holds the values of the columns
                whole = replace(part, skipped=mine, left_out=lost, stop=stop, facts=facts)
                whole.write(path, spooled.files)
        except BaseException:
            remove(temporary_of(path))
            remove(self.path(self.number))
            raise
        finally:
            spooled.close()
        self.number += 1

    def _facts(self, stop: int) -> dict[str, Any]:
        """What came of the JPEGs before ``stop`` that are in no earlier shard, where that was asked."""
        if not self._coefficients:
            return {}
        tally = Tally()
        for position, key, outcome in self._outcomes:
            if position < stop:
                tally.add(key, outcome)
        self._outcomes = [one for one in self._outcomes if one[0] >= stop]
        return {FACTS: tally.to_json()}


class OpenShard:
    """A shard that is being written.

    Args:
        final: its place.
        shards: the format.
        schema: the fields.
        about: its bytes, about.
        raw: whether images are pixels, not files.
    """

    def __init__(self, final: Path, shards: Format, schema: Schema, about: int, raw: bool) -> None:
        self._final, self._format, self._schema = final, shards, schema
        self._temporary = temporary_of(final)
        remove(self._temporary)
        self._classes = schema.label_field.kind.classes if schema.label_field is not None else ()  # type: ignore[attr-defined]
        spec = ShardSpec(self._classes, 0, about, raw, schema=None if schema.is_plain else schema)
        self._about = about
        with failed_writes_reported(final, about):
            self._spooled = Spooled(final.parent, schema)
            self._writer: Writer = shards.Writer(self._temporary, spec)
        self._batch: list[tuple[list[bytes], list[Chunk]]] = []
        self._batch_samples = self._batch_bytes = 0
        self._records: list[Chunk] = []
        self._keys: list[bytes] = []
        self.bytes = 0

    def fits(self, size: int) -> bool:
        """Whether a sample of so many bytes goes into the batch that is collected."""
        full = self._batch_samples >= GROUP_RECORDS or self._batch_bytes + size > GROUP_BYTES
        return not self._batch_samples or not full

    def count(self, size: int) -> None:
        """A sample of so many bytes will be taken."""
        self.bytes += size
        self._batch_bytes += size
        self._batch_samples += 1

    def take(self, keys: list[bytes], fields: list[Chunk]) -> None:
        """Samples of the batch."""
        self._batch.append((keys, fields))

    def flush(self) -> None:
        """Write the batch."""
        if not self._batch:
            return
        keys = [key for part, _ in self._batch for key in part]
        fields = [Chunk.join(parts) for parts in zip(*(fields for _, fields in self._batch), strict=True)]
        self._batch.clear()
        self._batch_samples = self._batch_bytes = 0
        index, label = self._schema.index_field, self._schema.label_field
        pictures = fields[self._schema.position(index.name)]
        assert pictures.records is not None
        values = fields[self._schema.position(label.name)].data.view("<i4") if label is not None else -1
        pictures.records["label"] = values
        further = [fields[number] for number, _ in self._schema.columns]
        with failed_writes_reported(self._final, self._about):
            self._writer.append(pictures.data, pictures.records, keys, further)
            self._spooled.add(further)
        self._keys += keys
        self._records.append(Chunk(_NOTHING, pictures.lengths, pictures.records))

    def finish(self) -> tuple[ShardPart, Spooled]:
        """Write what is left, find the records in the file, and give it its name. The part has all but the
        bytes of columns without records: those are in the files, which are the caller's to close."""
        try:
            self.flush()
            with failed_writes_reported(self._final, self._about):
                self._writer.close()
            none = Chunk(_NOTHING, np.zeros(0, np.uint64), _NO_RECORDS)
            records, further = Chunk.join(self._records, like=none), self._spooled.columns()
            self._locate([records, *(chunk for chunk in further if chunk.records is not None)])
            size = os.stat(self._format.data_file(self._temporary)).st_size
            with failed_writes_reported(self._final, self._about):
                publish(self._temporary, self._final)
        except BaseException:
            self.abort()
            raise
        assert records.records is not None
        return ShardPart(records.records, self._keys, [], size, further=tuple(further)), self._spooled

    def abort(self) -> None:
        """Let go of the files, and remove the shard."""
        self._spooled.close()
        self._writer.abort()
        remove(self._temporary)

    def _locate(self, pictures: list[Chunk]) -> None:
        """Set the records' offsets to where the format's library put them, and look whether it is so."""
        names = [self._schema.index_field.name]
        names += [field.name for _, field in self._schema.columns if field.storage == "record"]
        data_file = os.fsencode(self._format.data_file(self._temporary))
        found = self._format.locate(self._temporary, names)
        for name, chunk, located in zip(names, pictures, found, strict=True):
            assert chunk.records is not None
            if not np.array_equal(located.lengths, chunk.lengths):
                raise PackError(
                    f"{self._temporary} does not read back: {len(located.lengths)} records of {name!r}, "
                    f"{len(chunk)} written, or other lengths. Either this program or the format's library is "
                    "at fault; please report it."
                )
            chunk.records["offset"] = located.offsets
            some = np.ascontiguousarray(chunk.records[:: max(1, len(chunk) // _SPOT_CHECKS)])
            failures = _C.verify_file(data_file, as_rows(some))
            if failures:
                raise PackError(
                    f"{self._temporary} does not read back: {failures[0][1].decode()}. Check the disk."
                )


class Spooled:
    """The columns' values of an open shard: they wait for its part in files without names, not in memory."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        fields = [field for _, field in schema.columns]
        self._places: list[list[Chunk]] = [[] for _ in fields]
        self._none = [
            Chunk(_NOTHING, np.zeros(0, np.uint64), _NO_RECORDS if field.storage == "record" else None)
            for field in fields
        ]
        self._opened = ExitStack()
        self.files: list[IO[bytes]] = [
            self._opened.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
            for _ in fields
        ]

    def add(self, values: list[Chunk]) -> None:
        """Those of some more samples, a chunk a column."""
        for file, places, chunk in zip(self.files, self._places, values, strict=True):
            if chunk.records is None:
                file.write(chunk.data.data)
            places.append(Chunk(_NOTHING, chunk.lengths, chunk.records))

    def columns(self) -> list[Chunk]:
        """Lengths and records of all samples, without their bytes."""
        return [Chunk.join(places, like=none) for places, none in zip(self._places, self._none, strict=True)]

    def close(self) -> None:
        """Let go of the files."""
        with suppress(OSError):  # what no disk has taken is not wanted any more
            self._opened.close()
