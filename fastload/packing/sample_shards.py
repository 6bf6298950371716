"""Shards of samples with fields: cut while they are written, published, and resumed after a stop."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.coefficients import FACTS, NOTE, RecodeCounts, RecodeOutcome
from fastload.packing.entries import ensure_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import (
    failed_writes_reported,
    folder_lock,
    make_folder,
    publish,
    remove,
    require_space,
    sync_folder,
    temporary_of,
)
from fastload.packing.folders import GROUP_BYTES, GROUP_RECORDS, as_rows
from fastload.packing.options import PackOptions
from fastload.packing.output import RUN_NAME, OutputFolder
from fastload.packing.plan import WORK_NAME, check_options, listed
from fastload.packing.progress import Observer, Work
from fastload.packing.publish import PackResult, make_manifest, publish_index, write_skipped
from fastload.packing.recoding import Transcoder
from fastload.packing.sample_rows import Encoded, Encoder, Given, encoded
from fastload.packing.work import BadFiles, ShardPart
from fastload.remote.location import is_url
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import Chunk, write_column
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import FORMATS, Format, ShardSpec, Writer, format_of
from fastload.shard.index import RECORD
from fastload.shard.manifest import (
    INDEX_NAME,
    MANIFEST_NAME,
    SECOND_INDEX,
    ColumnFile,
    Entries,
    Manifest,
    Shard,
    column_name,
    entries_of,
    fields_digest,
)

# ---- Writing encoded samples into shards, in the source's order -------------------------------------

_SPOT_CHECKS = 16  # records per field whose bytes are read back
_NO_RECORDS = np.zeros(0, RECORD)
_NOTHING = np.zeros(0, np.uint8)


class Shards:
    """The shards of one pack, in its work folder.

    A shard is cut before the sample that would take it over ``shard_size`` bytes, and batches within it by
    the same rule, so that neither an interruption nor the number of processes changes anything.

    Args:
        work: the work folder, in which shards and parts are named by number.
        shards: the format.
        suffix: the suffix of shards' names.
        schema: the fields.
        shard_size: most bytes of samples per shard (each shard holds at least one sample).
        skip: whether samples that cannot be packed are left out.
        advance: called with the numbers of samples and bytes written.
        raw: whether images are pixels, not files.
        coefficients: whether JPEGs become coefficient records.
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
        self._outcomes: list[tuple[int, str, RecodeOutcome]] = []
        self._open: OpenShard | None = None
        self.number = 0  # of the next shard

    def path(self, number: int) -> Path:
        """Return the path of a shard in the work folder."""
        return self._work / f"{number:05d}{self._suffix}"

    def part_path(self, number: int) -> Path:
        """Return the path of its part of the index."""
        return self._work / f"{number:05d}.part"

    def finished(self) -> int:
        """Skip the shards that are already finished; return the position of the first sample after them."""
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
            BadFiles: samples or their annotations cannot be packed and are not to be skipped.
            PackError: there is no room, or what was written does not read back.
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
        """End the shard: all positions before ``stop`` are in it, in an earlier one, or failed."""
        if self._open is None:
            self._open = self._begin()
        part, spooled = self._open.finish()
        self._open = None
        mine = [(key, reason) for position, key, reason in self._failures if position < stop]
        lost = [entry[1:] for entry in self._left_out if entry[0] < stop]
        self._failures = [failure for failure in self._failures if failure[0] >= stop]
        self._left_out = [entry for entry in self._left_out if entry[0] >= stop]
        facts = self._facts(stop)
        path = self.part_path(self.number)
        try:
            with failed_writes_reported(path, self._shard_size):  # it holds the values of the columns
                full_part = replace(part, skipped=mine, left_out=lost, stop=stop, facts=facts)
                full_part.write(path, spooled.files)
        except BaseException:
            remove(temporary_of(path))
            remove(self.path(self.number))
            raise
        finally:
            spooled.close()
        self.number += 1

    def _facts(self, stop: int) -> dict[str, Any]:
        """Return the outcomes of JPEGs before ``stop`` that are in no earlier shard, if asked for."""
        if not self._coefficients:
            return {}
        tally = RecodeCounts()
        for position, key, outcome in self._outcomes:
            if position < stop:
                tally.add(key, outcome)
        self._outcomes = [entry for entry in self._outcomes if entry[0] >= stop]
        return {FACTS: tally.to_json()}


class OpenShard:
    """A shard that is being written.

    Args:
        final: its final path.
        shards: the format.
        schema: the fields.
        about: its approximate bytes.
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
        """Whether a sample of this many bytes fits into the current batch."""
        full = self._batch_samples >= GROUP_RECORDS or self._batch_bytes + size > GROUP_BYTES
        return not self._batch_samples or not full

    def count(self, size: int) -> None:
        """Count a sample of this many bytes, which will be taken."""
        self.bytes += size
        self._batch_bytes += size
        self._batch_samples += 1

    def take(self, keys: list[bytes], fields: list[Chunk]) -> None:
        """Take samples into the batch."""
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
        """Write what is left, find the records in the file, and give it its name. The part has everything but
        the bytes of columns without records: those are in the files, which the caller must close."""
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
        """Close the files and remove the shard."""
        self._spooled.close()
        self._writer.abort()
        remove(self._temporary)

    def _locate(self, pictures: list[Chunk]) -> None:
        """Set the records' offsets to where the format's library put them, and check some of them."""
        names = [self._schema.index_field.name]
        names += [field.name for _, field in self._schema.columns if field.storage == "record"]
        data_file = os.fsencode(self._format.data_file(self._temporary))
        all_located = self._format.locate(self._temporary, names)
        for name, chunk, located in zip(names, pictures, all_located, strict=True):
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
    """The column values of an open shard, kept in unnamed files, not in memory, until its part is written."""

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
        """Add the values of some more samples, one chunk per column."""
        for file, places, chunk in zip(self.files, self._places, values, strict=True):
            if chunk.records is None:
                file.write(chunk.data.data)
            places.append(Chunk(_NOTHING, chunk.lengths, chunk.records))

    def columns(self) -> list[Chunk]:
        """Return lengths and records of all samples, without their bytes."""
        return [Chunk.join(places, like=none) for places, none in zip(self._places, self._none, strict=True)]

    def close(self) -> None:
        """Close the files."""
        with suppress(OSError):  # what no disk has taken is not needed any more
            self._opened.close()


# ---- From finished shards of samples to a dataset: names, columns, index, manifest ------------------

T = TypeVar("T")


class _Each(Generic[T]):
    """The results of ``make`` for each part; iterable any number of times, with one part in memory."""

    def __init__(self, make: Callable[[int, Path], T], parts: list[Path]) -> None:
        self._make, self._parts = make, parts

    def __iter__(self) -> Iterator[T]:
        return (self._make(place, path) for place, path in enumerate(self._parts))


def publish_samples(
    folder: OutputFolder, shards: Shards, schema: Schema, format_name: str, identity: dict[str, Any]
) -> tuple[Manifest, Summary]:
    """Publish what was written, without shards whose samples were all skipped.

    After a kill at any moment, the same call resumes: what already has its name stays.

    Raises:
        PackError: not one sample could be packed.
    """
    skipped: list[tuple[str, str]] = []
    left_out: list[tuple[str, str, str]] = []
    kept: list[int] = []
    sizes: list[tuple[int, int]] = []
    summary, tally = Summary(), RecodeCounts()
    for number in range(shards.number):
        part = ShardPart.read(shards.part_path(number))
        skipped += part.skipped
        left_out += part.left_out
        if FACTS in part.facts:
            tally.merge(part.facts[FACTS])
        if len(part.records):
            kept.append(number)
            sizes.append((part.shard_bytes, len(part.records)))
            summary.add(part.records)
    if not kept:
        key, reason = skipped[0]
        raise PackError(f"none of {len(skipped)} samples can be packed; the first is {key}: {reason}.")
    names = _name(folder, shards, kept, schema, FORMATS[format_name].suffix)
    parts = [shards.part_path(number) for number in kept]
    about = sum(os.stat(path).st_size for path in parts)
    try:
        with failed_writes_reported(folder.path, about):
            entries, index = write_tables(folder.path, schema, parts, summary.records)
            write_skipped(folder.path, skipped, left_out)
    except BaseException:
        for temporary in folder.path.glob(".tmp-*"):
            remove(temporary)
        raise
    data_file = format_of(format_name).data_file
    listed = [
        Shard(str(data_file(folder.path / name).relative_to(folder.path)), size, records)
        for name, (size, records) in zip(names, sizes, strict=True)
    ]
    label = schema.label_field
    classes = label.kind.classes if label is not None else ()  # type: ignore[attr-defined]
    if identity.get("coefficients"):
        identity = {**identity, FACTS: {"note": NOTE, **tally.to_json()}}
    manifest = make_manifest(
        format_name, summary, classes, listed, index, identity, len(skipped), tuple(entries), len(left_out)
    )
    manifest.write(folder.path)
    return manifest, summary


def write_tables(
    output: Path, schema: Schema, parts: list[Path], count: int, mark: str = ""
) -> tuple[Entries, tuple[int, int]]:
    """Write the columns and the index of finished shards, each atomically.

    Args:
        output: the dataset's folder.
        schema: its fields.
        parts: the parts of its shards, in order.
        count: the number of samples.
        mark: appended to the files' names, as :data:`fastload.shard.manifest.SECOND`.

    Returns:
        The manifest's entries of the fields, and the index's size and digest.
    """
    entries = entries_of(schema, _write_columns(output, schema, parts, count, mark))
    keys = _Each(lambda _, path: ShardPart.read(path).keys, parts)
    name = SECOND_INDEX if mark else INDEX_NAME
    return entries, publish_index(output, _Each(_records, parts), keys, fields_digest(entries), name)


def _name(folder: OutputFolder, shards: Shards, kept: list[int], schema: Schema, suffix: str) -> list[str]:
    """Give the shards their names."""
    output = folder.path
    names = [f"{output.name}-{place:05d}-of-{len(kept):05d}{suffix}" for place in range(len(kept))]
    folder.announce([*names, *(column_name(number) for number, _ in schema.columns)])
    for number, name in zip(kept, names, strict=True):
        if exists(shards.path(number)):
            remove(output / name)
            os.replace(shards.path(number), output / name)
    sync_folder(output)
    return names


def _records(place: int, path: Path) -> npt.NDArray[np.void]:
    records = ShardPart.read(path).records
    records["shard"] = place
    return records


def _write_columns(
    output: Path, schema: Schema, parts: list[Path], count: int, mark: str
) -> dict[str, ColumnFile]:
    """Write the files of the fields that have their own."""
    files = {}
    for at, (number, field) in enumerate(schema.columns):
        files[field.name] = write_column(
            output / column_name(number, mark), field, count, **_column(field, parts, at)
        )
    return files


def _column(field: Field, parts: list[Path], at: int) -> dict[str, Iterable[Any]]:
    """Return the arguments that ``write_column`` takes for a field."""

    def records(place: int, path: Path) -> npt.NDArray[np.void]:
        column = ShardPart.read_column(path, at).records
        assert column is not None
        column["shard"] = place
        return column

    def pieces(width: int = 1) -> Iterator[bytes]:
        return (data for path in parts for data in ShardPart.read_values(path, at, width))

    if field.storage == "record":
        return {"fixed": _Each(records, parts)}
    if field.storage == "fixed":
        values = (np.frombuffer(data, field.item_dtype) for data in pieces(field.item_bytes))
        return {"fixed": (part.reshape(-1, *field.item_shape) for part in values)}
    return {
        "lengths": _Each(lambda _, path: ShardPart.read_lengths(path, at), parts),
        "chunks": pieces(),
    }


# ---- One pack of samples: started, resumed, published -----------------------------------------------

VERSION = 1


def pack_given(
    source: Given,
    output: str | os.PathLike[str],
    schema: Schema,
    options: PackOptions,
    observer: Observer | None = None,
) -> PackResult:
    """Pack samples whose schema is known.

    Raises:
        PackError: see :func:`fastload.pack`.
    """
    if is_url(output):
        raise PackError(
            f"{output} is not a folder of this machine, which samples are packed into; copy the packed "
            "folder there."
        )
    folder = Path(output).absolute()
    try:
        make_folder(folder)
        with folder_lock(folder):
            return _Run(folder, source, schema, options, observer or Observer()).run()
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot pack into {folder}: {error}.") from error


@dataclass(frozen=True)
class _Run:
    """A pack of samples of one schema into one folder; the caller holds its lock.

    Args:
        output: the folder.
        given: the samples.
        schema: their fields.
        options: the pack's options.
        observer: receives progress.
    """

    output: Path
    given: Given
    schema: Schema
    options: PackOptions
    observer: Observer

    def run(self) -> PackResult:
        """Pack or resume; if these very samples are already packed, only return the result.

        Raises:
            PackError: samples cannot be packed, the folder holds another pack, or the disk is full.
        """
        began = time.monotonic()
        folder = OutputFolder(self.output)
        identity = self.identity()
        if self.options.restart:  # other files in the folder stay
            folder.discard()
        state = "empty" if self.options.restart else folder.state()
        if state == "complete":
            return self._complete(Manifest.read(self.output), identity, began)
        if state == "foreign":
            raise folder.refusal()
        by_position = self._take_up(folder, identity)
        shards = self._shards()
        first = shards.finished()
        require_space(self.output, self._about_bytes(first))
        self.observer.started(
            Work("packing", self.output, "sample", self._length(), done=first, where="into")
        )
        processes = self.options.num_proc or 1
        try:
            shards.write(encoded(self.given, self._encoder(), first, processes if by_position else 1))
        except BadFiles as error:
            raise PackError(_bad_samples(error)) from None
        if not shards.number:
            raise PackError("there are no samples to pack.")
        manifest, summary = publish_samples(folder, shards, self.schema, self.options.format, identity)
        remove(folder.work)
        packed = time.monotonic()
        written = manifest.data_bytes
        return self._result(manifest, summary, packed - began, written)

    def identity(self) -> dict[str, Any]:
        """Return what decides the output's bytes besides the samples' values, as JSON values."""
        facts = self.options.identity()
        return {
            **facts,
            "given": self.given.identity(self._encoder()),
            "schema": json.loads(self.schema.to_json()),
        }

    def _length(self) -> int:
        """Return how many samples there are; 0: unknown."""
        try:
            return len(self.given)
        except TypeError:
            return 0

    def _about_bytes(self, done: int) -> int:
        """Estimate the bytes still to be written; 0: unknown."""
        about = self.given.about_bytes(self._encoder())
        return about * (len(self.given) - done) // len(self.given) if about else 0

    def _encoder(self) -> Encoder:
        transcoder = Transcoder(self.schema, self.options) if self.options.transcodes else None
        return Encoder(self.schema, self.given.root, self.options.format == "hdf5", transcoder)

    def _shards(self) -> Shards:
        name = self.options.format
        return Shards(
            self.output / WORK_NAME, format_of(name), FORMATS[name].suffix, self.schema,
            self.options.shard_size, self.options.on_error == "skip", self.observer.advanced,
            self.options.raw, self.options.coefficients is not None,
        )  # fmt: skip

    def _complete(self, manifest: Manifest, identity: dict[str, Any], began: float) -> PackResult:
        if identity["given"] is None:
            raise PackError(
                f"{self.output} holds a complete pack, and an iterable cannot be compared with it. Use "
                "restart=True to replace it, or choose another folder."
            )
        _check_same(manifest.options, identity, self.options, self.output)
        newest = self.given.newest_ns()
        if newest > (self.output / MANIFEST_NAME).stat().st_mtime_ns:
            raise PackError(
                f"{self.output} is a complete pack, and files of its source are newer. "
                "restart=True (--restart) throws it away and packs anew."
            )
        self._say_compared()
        OutputFolder(self.output).tidy()
        return self._result(manifest, None, time.monotonic() - began, 0)

    def _result(
        self, manifest: Manifest, summary: Summary | None, seconds: float, written: int
    ) -> PackResult:
        began = time.monotonic()
        if self.options.entries is not None:
            ensure_entries(self.output, self.options.entries, self.options.num_proc, self.observer)
        facts = entry_facts(PackedFiles(self.output))
        return PackResult(self.output, manifest, facts, summary, seconds, time.monotonic() - began, written)

    def _say_compared(self) -> None:
        """Say that only some samples were compared, for users who have changed others."""
        if self.given.compared() < len(self.given):
            self.observer.said(
                self.output,
                f"goes on with what is packed there already. {self.given.compared()} of the "
                f"{len(self.given)} samples were compared with it and are the same; if others have changed, "
                "pass restart=True.",
            )

    def _take_up(self, folder: OutputFolder, identity: dict[str, Any]) -> bool:
        """Make the work folder, or check that the existing one is this pack's.

        Returns:
            Whether samples can be asked for by position.
        """
        known = identity["given"] is not None
        path = folder.work / RUN_NAME
        if exists(path) and known:
            try:
                before = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise PackError(
                    f"{path} cannot be used ({error}); pack again with restart=True (--restart)."
                ) from None
            _check_same(before, identity, self.options, self.output)
            self._say_compared()
            return True
        folder.refuse_others(RUN_NAME)
        if exists(path):
            self.observer.said(
                self.output,
                "a pack was interrupted. An iterable cannot be asked for its samples again, so it begins "
                "anew; give something with __getitem__ and __len__ to go on where it was.",
            )
        folder.discard()
        folder.work.mkdir()
        temporary_of(path).write_text(json.dumps({**identity, "version": VERSION}), encoding="utf-8")
        publish(temporary_of(path), path)
        return known


def _bad_samples(bad: BadFiles) -> str:
    counts = (len(bad.failures), "sample"), (len(bad.annotations), "annotation")
    what = " and ".join(counted(count, name) for count, name in counts if count)
    return (
        f"{what} cannot be packed:\n{listed([*bad.failures, *bad.annotations])}\n"
        "Mend or remove them, or leave them out with on_error='skip' (--on-error skip). Finished shards "
        "are kept."
    )


def _check_same(
    before: Mapping[str, Any], now: Mapping[str, Any], options: PackOptions, output: Path
) -> None:
    check_options(before, options, output)
    for name, what in (("schema", "with another schema"), ("given", "of other samples")):
        if before.get(name) != now[name]:
            raise PackError(
                f"{output} holds a pack {what}. restart=True (--restart) throws it away and packs anew."
            )
