"""A shard: batches in, its file and its part of the index out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.files import failed_writes_reported, publish, publishing, remove, temporary_of
from fastload.packing.rows import Batch
from fastload.sample.schema import Schema
from fastload.shard.columns import Chunk
from fastload.shard.formats import Format, ShardSpec, Writer
from fastload.shard.index import RECORD, as_rows

# ---- Part files: a finished shard's share of the index, until the manifest is published -------------

_AT_ONCE = 1 << 20
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def _damaged(path: Path, error: Exception) -> Exception:
    if isinstance(error.__context__, OSError):
        return error.__context__  # zipfile reports what the system could not read as damage
    return PackError(f"{path} is damaged ({error}); pack again with --restart.")


@dataclass(frozen=True)
class ShardPart:
    """Entries (offsets in the shard file; ``shard`` not yet set), keys and skipped files of one shard."""

    records: npt.NDArray[np.void]  # RECORD
    keys: list[bytes]
    skipped: list[tuple[str, str]]  # key, reason
    shard_bytes: int
    transcoded: int = 0  # progressive JPEGs that became baseline ones
    further: tuple[Chunk, ...] = ()  # the values of the schema's columns; not read by read()
    stop: int = 0  # one past the last sample position that the shard covers
    plan: str = ""  # PackPlan.digest of the plan that the shard was written by
    left_out: Sequence[tuple[str, str, str]] = ()  # annotations: key, which, reason
    facts: Mapping[str, Any] = field(default_factory=dict)  # of an indexed file, or of JPEGs; JSON
    spooled: Spooled | None = field(default=None, compare=False)  # has the bytes of ``further``

    def close(self) -> None:
        """Let go of what is spooled."""
        if self.spooled is not None:
            self.spooled.close()

    def write(self, path: Path) -> None:
        """Publish atomically; from then on the shard counts as finished."""
        ends = np.cumsum([len(key) for key in self.keys], dtype=np.uint64)
        facts = {"skipped": self.skipped, "shard_bytes": self.shard_bytes, "transcoded": self.transcoded}
        facts |= {"left_out": list(self.left_out), "facts": dict(self.facts)}
        texts = json.dumps({**facts, "stop": self.stop, "plan": self.plan}).encode()
        arrays: dict[str, npt.NDArray[Any] | IO[bytes]] = {
            "records": self.records.view(np.uint8),
            "ends": ends,
            "keys": np.frombuffer(b"".join(self.keys), np.uint8),
            "texts": np.frombuffer(texts, np.uint8),
        }
        for number, chunk in enumerate(self.further):
            arrays[f"data{number}"] = chunk.data if self.spooled is None else self.spooled.files[number]
            arrays[f"lengths{number}"] = chunk.lengths
            if chunk.records is not None:
                arrays[f"records{number}"] = chunk.records.view(np.uint8)
            if chunk.counts is not None:
                arrays[f"counts{number}"] = chunk.counts
        # As np.savez writes it, but not held in memory.
        with publishing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                    _write(values, out)

    @classmethod
    def read(cls, path: Path) -> ShardPart:
        """Read what :meth:`write` wrote.

        Raises:
            PackError: the part is damaged.
            OSError: it cannot be read, though it may be undamaged.
        """
        try:
            with np.load(path) as arrays:
                blob, ends = arrays["keys"].tobytes(), arrays["ends"].tolist()
                records = arrays["records"].view(RECORD)
                texts = json.loads(arrays["texts"].tobytes())
            starts: Sequence[int] = [0, *ends[:-1]]
            keys = [blob[begin:end] for begin, end in zip(starts, ends, strict=False)]
            skipped = [(str(key), str(reason)) for key, reason in texts["skipped"]]
            transcoded, stop = int(texts.get("transcoded", 0)), int(texts.get("stop", 0))
            plan = str(texts.get("plan", ""))
            left_out = [(str(key), str(which), str(why)) for key, which, why in texts.get("left_out", ())]
            size = int(texts["shard_bytes"])
            facts = dict(texts.get("facts", {}))
            return cls(records, keys, skipped, size, transcoded, (), stop, plan, left_out, facts)
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_column(path: Path, number: int) -> Chunk:
        """Read the values of one of the schema's columns that :meth:`write` wrote, without the others.

        Raises:
            PackError: the part is damaged.
        """
        try:
            with np.load(path) as arrays:
                name = f"records{number}"
                records = arrays[name].view(RECORD) if name in arrays else None
                if records is not None:
                    counts = arrays.get(f"counts{number}")
                    return Chunk(np.zeros(0, np.uint8), arrays[f"lengths{number}"], records, counts)
                return Chunk(arrays[f"data{number}"], arrays[f"lengths{number}"])
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_lengths(path: Path, number: int) -> npt.NDArray[np.uint64]:
        """Read the lengths of a column's values.

        Raises:
            PackError: the part is damaged.
        """
        try:
            with np.load(path) as arrays:
                lengths: npt.NDArray[np.uint64] = arrays[f"lengths{number}"]
                return lengths
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_values(path: Path, number: int, width: int = 1) -> Iterator[bytes]:
        """Read the bytes of a column without records, in pieces whose length is a multiple of ``width``.

        Raises:
            PackError: the part is damaged.
        """
        most = max(_AT_ONCE // width, 1) * width
        try:
            with zipfile.ZipFile(path) as archive, archive.open(f"data{number}.npy") as file:
                np.lib.format.read_magic(file)
                (left,), _, _ = np.lib.format.read_array_header_1_0(file)
                while left:
                    data = file.read(min(most, left))
                    if not data:
                        raise EOFError(f"data{number} ends {left} bytes early")
                    left -= len(data)
                    yield data
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def finished(path: Path, data_file: Path) -> bool:
        """Whether this part and its whole shard exist."""
        if not exists(path) or not exists(data_file):
            return False
        return ShardPart.read(path).shard_bytes == os.stat(data_file).st_size


def _write(values: npt.NDArray[Any] | IO[bytes], out: IO[bytes]) -> None:
    """Write an array as np.save does; the bytes of a file as such an array."""
    if isinstance(values, np.ndarray):
        np.lib.format.write_array(out, values)
        return
    size = values.seek(0, os.SEEK_END)
    header = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(out, header)
    values.seek(0)
    shutil.copyfileobj(values, out, _AT_ONCE)


# ---- One shard that is being written ----------------------------------------------------------------

GROUP_BYTES = 16 << 20  # of records in memory at a time; also an Arrow record batch
GROUP_RECORDS = 1000
_SPOT_CHECKS = 16  # records per field whose bytes are read back
_NO_RECORDS = np.zeros(0, RECORD)
_NOTHING = np.zeros(0, np.uint8)


def classes_of(schema: Schema) -> tuple[str, ...]:
    """Return the class names of a schema's label; none without one."""
    label = schema.label_field
    return label.kind.classes if label is not None else ()  # type: ignore[attr-defined,no-any-return]


class ShardWriter:
    """A shard under its temporary name.

    Args:
        final: the path that it will get.
        shards: the format.
        schema: the fields.
        spec: what the format's writer may know before.
        needed: bytes on disk, approximately.
        reserve: whether to reserve them.
    """

    def __init__(
        self, final: Path, shards: Format, schema: Schema, spec: ShardSpec, needed: int, reserve: bool = False
    ) -> None:
        self._final, self._format, self._schema = final, shards, schema
        self._needed, self._reserves = needed, reserve
        self._temporary = temporary_of(final)
        remove(self._temporary)
        with failed_writes_reported(final, needed):
            self._spooled = Spooled(final.parent, schema)
            self._writer: Writer = shards.Writer(self._temporary, spec)
            try:
                if reserve:
                    _C.reserve(os.fsencode(self._data_file), needed)
            except BaseException:
                self.abort()
                raise
        self._group: list[tuple[list[bytes], Sequence[Chunk]]] = []
        self._group_samples = self._group_bytes = 0
        self._records: list[Chunk] = []
        self._keys: list[bytes] = []
        self.bytes = 0  # of the samples so far

    @property
    def _data_file(self) -> Path:
        return self._format.data_file(self._temporary)

    def add(self, batch: Batch) -> None:
        """Write a batch; see :meth:`add_samples`."""
        if batch.is_whole:
            self._append(batch.keys, batch.fields)
        else:
            self.add_samples(batch.keys, batch.fields)

    def add_samples(self, keys: list[bytes], fields: Sequence[Chunk]) -> None:
        """Write samples. The container's batches are the same however samples are divided among calls."""
        total: npt.NDArray[np.uint64] = np.sum([chunk.lengths for chunk in fields], axis=0, dtype=np.uint64)
        sizes, begin = total.tolist(), 0
        for i, size in enumerate(sizes):
            is_full = self._group_samples >= GROUP_RECORDS or self._group_bytes + size > GROUP_BYTES
            if self._group_samples and is_full:
                self._collect(keys, fields, begin, i)
                begin = i
                self._flush()
            self._group_samples += 1
            self._group_bytes += size
        self._collect(keys, fields, begin, len(sizes))
        self.bytes += sum(sizes)

    def _collect(self, keys: list[bytes], fields: Sequence[Chunk], begin: int, end: int) -> None:
        if end > begin:
            self._group.append((keys[begin:end], [chunk.slice(begin, end) for chunk in fields]))

    def _flush(self) -> None:
        if self._group:
            keys = [key for part, _ in self._group for key in part]
            self._append(
                keys, [Chunk.join(parts) for parts in zip(*(f for _, f in self._group), strict=True)]
            )
        self._group.clear()
        self._group_samples = self._group_bytes = 0

    def _append(self, keys: list[bytes], fields: Sequence[Chunk]) -> None:
        """Write one batch of the container."""
        index, label = self._schema.index_field, self._schema.label_field
        pictures = _no_records(len(keys)) if index is None else fields[self._schema.position(index.name)]
        assert pictures.records is not None
        values = fields[self._schema.position(label.name)].data.view("<i4") if label is not None else -1
        pictures.records["label"] = values
        further = [fields[number] for number, _ in self._schema.columns]
        if keys:
            with failed_writes_reported(self._final, self._needed):
                self._writer.append(pictures.data, pictures.records, keys, further)
                self._spooled.add(further)
        self._keys += keys
        self._records.append(Chunk(_NOTHING, pictures.lengths, pictures.records))

    def finish(self) -> ShardPart:
        """Write what is left, and find the records in the file. The part has everything but the bytes of
        columns without records: those are spooled, and the caller must close it."""
        self._flush()
        with failed_writes_reported(self._final, self._needed):
            self._writer.close()
            if self._reserves:
                _C.trim(os.fsencode(self._data_file))
        none = Chunk(_NOTHING, np.zeros(0, np.uint64), _NO_RECORDS)
        records, further = Chunk.join(self._records, like=none), self._spooled.columns()
        self._locate([records, *(chunk for chunk in further if chunk.records is not None)])
        assert records.records is not None
        size = os.stat(self._data_file).st_size
        return ShardPart(records.records, self._keys, [], size, further=tuple(further), spooled=self._spooled)

    def publish(self) -> None:
        """Give the finished shard its name."""
        with failed_writes_reported(self._final, self._needed):
            publish(self._temporary, self._final)

    def abort(self) -> None:
        """Close the files and remove the shard."""
        self._spooled.close()
        self._writer.abort()
        remove(self._temporary)

    def _locate(self, pictures: list[Chunk]) -> None:
        """Set the records' offsets to where the format's library put them, and check some of them."""
        index = self._schema.index_field
        names: list[str | None] = [None if index is None else index.name]
        names += [field.name for _, field in self._schema.columns if field.storage in ("record", "records")]
        data_file = os.fsencode(self._data_file)
        all_located = self._format.locate(self._temporary, names)
        for name, chunk, located in zip(names, pictures, all_located, strict=True):
            if name is None:
                continue
            assert chunk.records is not None
            if not np.array_equal(located.lengths, _lengths_there(chunk, self._format.LISTS_HAVE_HEADS)):
                raise PackError(
                    f"{self._temporary} does not read back: {len(located.lengths)} records of {name!r}, "
                    f"{len(chunk)} written, or other lengths. Either this program or the format's library is "
                    "at fault; please report it."
                )
            _set_places(chunk, located.offsets, self._format.LISTS_HAVE_HEADS)
            there = chunk.records[chunk.records["length"] > 0]
            some = np.ascontiguousarray(there[:: max(1, len(there) // _SPOT_CHECKS)])
            failures = _C.verify_file(data_file, as_rows(some))
            if failures:
                raise PackError(
                    f"{self._temporary} does not read back: {failures[0][1].decode()}. Check the disk."
                )


def _no_records(count: int) -> Chunk:
    """Return the entries of samples without a picture in the index."""
    return Chunk(_NOTHING, np.zeros(count, np.uint64), np.zeros(count, RECORD))


def _lengths_there(chunk: Chunk, has_heads: bool) -> npt.NDArray[np.uint64]:
    """Return the bytes of each sample's value in a shard; see :func:`_set_places`."""
    if chunk.counts is None or has_heads or chunk.records is None:
        return chunk.lengths
    sizes = np.append(0, np.cumsum(chunk.records["length"], dtype=np.uint64))
    ends = np.cumsum(chunk.counts)
    lengths: npt.NDArray[np.uint64] = sizes[ends] - sizes[ends - chunk.counts]
    return lengths


def _set_places(chunk: Chunk, offsets: npt.NDArray[np.uint64], has_heads: bool) -> None:
    """Set the offsets of records in the file: of lists from where in their value they are.

    Args:
        offsets: where each sample's value begins.
        has_heads: whether a list's lengths lie before its pictures; else these alone are there.
    """
    records = chunk.records
    assert records is not None
    if chunk.counts is None:
        records["offset"] = offsets
        return
    heads = (4 + 4 * chunk.counts) * (not has_heads)
    there = records["length"] > 0
    begins = np.repeat(offsets.astype(np.int64) - heads, chunk.counts)
    records["offset"][there] += begins[there].astype(np.uint64)


class Spooled:
    """The column values of an open shard, kept in unnamed files, not in memory, until its part is written."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        fields = [field for _, field in schema.columns]
        self._places: list[list[Chunk]] = [[] for _ in fields]
        self._none = [
            Chunk(
                _NOTHING,
                np.zeros(0, np.uint64),
                _NO_RECORDS if field.storage in ("record", "records") else None,
                np.zeros(0, np.int64) if field.storage == "records" else None,
            )
            for field in fields
        ]
        self._opened = ExitStack()
        self.files: list[IO[bytes]] = [
            self._opened.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
            for _ in fields
        ]

    def add(self, values: Sequence[Chunk]) -> None:
        """Add the values of some more samples, one chunk per column."""
        for file, places, chunk in zip(self.files, self._places, values, strict=True):
            if chunk.records is None:
                file.write(chunk.data.data)
            places.append(Chunk(_NOTHING, chunk.lengths, _in_values(chunk), chunk.counts))

    def columns(self) -> list[Chunk]:
        """Return lengths and records of all samples, without their bytes."""
        return [Chunk.join(places, like=none) for places, none in zip(self._places, self._none, strict=True)]

    def close(self) -> None:
        """Close the files."""
        with suppress(OSError):  # what no disk has taken is not needed any more
            self._opened.close()


def _in_values(chunk: Chunk) -> npt.NDArray[np.void] | None:
    """Return the entries; those of lists count from where their own value begins."""
    if chunk.records is None or chunk.counts is None:
        return chunk.records
    records: npt.NDArray[np.void] = chunk.records.copy()
    begins = np.repeat(np.cumsum(chunk.lengths) - chunk.lengths, chunk.counts)
    there = records["length"] > 0
    records["offset"][there] -= begins[there]
    return records
