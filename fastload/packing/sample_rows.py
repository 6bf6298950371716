"""Samples with fields, from Python or annotated sets: their schema, and their bytes in order."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.packing.files import ESCAPED, encode_key, outside_key, raise_if_transient
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.pictures import (
    HEAD,
    NUMPY_SUFFIX,
    Picture,
    PictureList,
    Value,
    is_any,
    path_of,
    picture_list_of,
    picture_of,
    pictures_in,
    unfit,
)
from fastload.packing.recoding import Transcoder
from fastload.packing.rows import Batch, FailedSample, PartialSample, Rows, Sample, StoredSample
from fastload.packing.spread import die_with, interrupts_blocked
from fastload.packing.tables import table_path
from fastload.sample.fields import Image, Images, Mask
from fastload.sample.schema import Schema
from fastload.shard.codecs import NO_LIST_FLAG, RAW, suffix_of
from fastload.shard.columns import Chunk
from fastload.shard.index import RECORD, as_rows

# ---- From samples (dicts) to the bytes of their fields ----------------------------------------------

MOST_SAMPLES, MOST_BYTES = 256, 16 << 20  # of one Batch, unless a single sample is larger
_NO_FILE = b""


@dataclass(frozen=True)
class Encoder:
    """Turns samples into bytes by their schema.

    Args:
        schema: the fields; other values of a sample are left out.
        root: the folder that relative paths start from.
        strings: whether texts go into C strings, which cannot hold a NUL (HDF5).
        transcoder: changes the values before they are stored.
        first_number: the number of the first sample, for the keys of samples without a file.
    """

    schema: Schema
    root: bytes
    strings: bool = False
    transcoder: Transcoder | None = None
    first_number: int = 0

    def encode(
        self, start: int, samples: Iterable[Sample | StoredSample | FailedSample | PartialSample]
    ) -> Iterator[Batch]:
        """Yield the samples from position ``start`` on, in pieces of bounded size."""
        piece = _Piece(self, start)
        for position, sample in enumerate(samples, start):
            piece.add(position, sample)
            if piece.is_full:
                yield piece.finish()
                piece = _Piece(self, position + 1)
        if piece.stop > piece.start:
            yield piece.finish()

    def values(self, sample: Sample | StoredSample) -> list[Value]:
        """Return the fields' bytes of one sample.

        Raises:
            KeyError, OSError, TypeError, ValueError, and what Pillow raises: it cannot be packed.
        """
        values = [*sample.values] if isinstance(sample, StoredSample) else self._encoded(sample)
        for named, data in zip(self.schema, values, strict=True) if self.strings else ():
            if named.kind.name == "text" and isinstance(data, bytes) and b"\0" in data:
                raise ValueError(f"field {named.name!r}: HDF5's strings hold no NUL; use another format")
        self.schema.check_rows([value if isinstance(value, bytes) else None for value in values])
        return values if self.transcoder is None else self.transcoder.values(values)

    def _encoded(self, sample: Sample) -> list[Value]:
        if not isinstance(sample, Mapping):
            raise TypeError(f"a sample must be a dict of values by field. Found: {type(sample).__name__}")
        values: list[Value] = []
        for named in self.schema:
            if named.name not in sample and not isinstance(named.kind, Images):
                raise KeyError(f"the sample has no {named.name!r}, only {', '.join(map(str, sample))}")
            value = sample.get(named.name)
            if isinstance(named.kind, (Image, Images, Mask)):
                try:
                    is_list = isinstance(named.kind, Images)
                    make: Callable[..., Value] = picture_list_of if is_list else picture_of
                    values.append(make(named.kind, value, self.root))
                except Exception as error:
                    raise ValueError(f"field {named.name!r}: {_words(error)}") from error
                continue
            values.append(named.encode(value))
        return values

    def digest(self, sample: Mapping[str, Any] | FailedSample) -> bytes:
        """Return 16 bytes that tell a sample from others; the same for all that cannot be packed."""
        hashed = hashlib.blake2b(digest_size=16)
        try:
            if isinstance(sample, FailedSample):
                return hashed.digest()
            values = self.values(sample)
        except Exception:  # Pillow and users' code raise anything
            return hashed.digest()
        for value in values:
            data = bytes_of(value)
            hashed.update(len(data).to_bytes(8, "little") + data)
        return hashed.digest()

    def size(self, sample: Mapping[str, Any] | FailedSample) -> int:
        """Return the bytes that a sample takes on disk until it is packed; 0 if it cannot be packed."""
        try:
            values = [] if isinstance(sample, FailedSample) else self.values(sample)
        except Exception:  # Pillow and users' code raise anything
            return 0
            # Values other than pictures lie in the shard, in its part of the index, and in the column's file.
        return sum(3 * len(v) if isinstance(v, bytes) else len(v.data) for v in values)

    def key(self, sample: Sample | StoredSample) -> bytes:
        """Return the path of the record's file below the root; empty: it has no file."""
        if isinstance(sample, StoredSample):
            return sample.path
        index = self.schema.index_field
        path = None if index is None else path_of(sample[index.name])
        if path is None:
            return _NO_FILE
        inside = table_path(self.root, os.fsdecode(path))
        return outside_key(inside) if os.path.isabs(inside) else inside


def bytes_of(value: Value) -> bytes:
    """Return the bytes of a field's value."""
    return value if isinstance(value, bytes) else value.data


class _Piece:
    """A piece of samples on their way into one :class:`Batch`."""

    def __init__(self, encoder: Encoder, start: int) -> None:
        self._encoder = encoder
        self.start = self.stop = start
        self._positions: list[int] = []
        self._paths: list[bytes] = []
        self._values: list[list[Value]] = []
        self._bytes = 0
        self._failures: list[tuple[int, str, str]] = []
        self._left_out: list[tuple[int, str, str, str]] = []

    @property
    def is_full(self) -> bool:
        return self.stop - self.start >= MOST_SAMPLES or self._bytes >= MOST_BYTES

    def add(self, position: int, sample: Sample | StoredSample | FailedSample | PartialSample) -> None:
        self.stop = position + 1
        path = sample.path if isinstance(sample, FailedSample) else _NO_FILE
        left_out = sample.left_out if isinstance(sample, PartialSample) else ()
        sample = sample.sample if isinstance(sample, PartialSample) else sample
        try:
            if isinstance(sample, FailedSample):
                raise sample.error
            index = self._encoder.schema.index_field
            has_index = isinstance(sample, Mapping) and index is not None and index.name in sample
            if isinstance(sample, StoredSample) or has_index:
                path = self._encoder.key(sample)
            values = self._encoder.values(sample)
        except Exception as error:  # Pillow and users' code raise anything
            self._failures.append((position, self._name(position, path), _words(error)))
            return
        self._left_out += [(position, self._name(position, path), *entry) for entry in left_out]
        self._positions.append(position)
        self._paths.append(path)
        self._values.append(values)
        self._bytes += sum(len(bytes_of(value)) for value in values)

    def _name(self, position: int, path: bytes) -> str:
        return encode_key(path)[0].decode() if path else self._numbered(position)

    def _numbered(self, position: int) -> str:
        return f"{self._encoder.first_number + position:08d}"

    def finish(self) -> Batch:
        chunks: list[Chunk] = []
        good = np.ones(len(self._values), np.bool_)
        for number, named in enumerate(self._encoder.schema):
            values = [values[number] for values in self._values]
            if isinstance(named.kind, (Image, Images, Mask)):
                chunk, problems = (
                    _lists(named.kind, [v for v in values if isinstance(v, PictureList)])
                    if isinstance(named.kind, Images)
                    else _records(named.kind, [v for v in values if isinstance(v, Picture)])
                )
                for i, reason in problems:
                    if good[i]:
                        position = self._positions[i]
                        reason = f"field {named.name!r}: {reason}"
                        self._failures.append((position, self._name(position, self._paths[i]), reason))
                    good[i] = False
            else:
                chunk = Chunk.of([value for value in values if isinstance(value, bytes)])
            chunks.append(chunk)
        chunks = [chunk.keep(good) for chunk in chunks]
        kept = np.flatnonzero(good).tolist()
        index = self._encoder.schema.index_field
        first = None if index is None else chunks[self._encoder.schema.position(index.name)].records
        keys = self._keys(kept, np.zeros(len(kept), RECORD) if first is None else first)
        positions = np.array([self._positions[i] for i in kept], np.int64)
        failed = {position for position, _, _ in self._failures}
        left_out = [entry for entry in self._left_out if entry[0] not in failed]
        outcomes = [
            (self._positions[i], key.decode(), picture.outcome)
            for i, key in zip(kept, keys, strict=True)
            for value in self._values[i]
            for picture in pictures_in(value)
            if picture.outcome is not None
        ]
        return Batch(positions, keys, chunks, self.stop, sorted(self._failures), left_out, outcomes)

    def _keys(self, kept: list[int], records: npt.NDArray[np.void]) -> list[bytes]:
        keys = []
        for record, i in zip(records, kept, strict=True):
            path = self._paths[i]
            suffix = _suffix_of(record)
            key, escaped = encode_key(path or self._numbered(self._positions[i]).encode() + suffix)
            if escaped:
                record["flags"] |= ESCAPED
            keys.append(key)
        return keys


def _suffix_of(record: np.void) -> bytes:
    """Return the suffix of the file that unpacking makes of a record."""
    if record["codec"] == RAW:
        return b".png" if record["channels"] in (1, 3) else NUMPY_SUFFIX
    return suffix_of(int(record["codec"])).encode()


def _records(kind: Image | Mask, pictures: list[Picture]) -> tuple[Chunk, list[tuple[int, str]]]:
    """Return the pictures with their index entries, and which of them are no pictures, with reasons."""
    chunk = Chunk.of([picture.data for picture in pictures])
    records = np.zeros(len(pictures), RECORD)
    for i, picture in enumerate(pictures):
        if picture.entry is not None:
            records[i] = picture.entry
        for name, value in (picture.raw or {}).items():
            records[i][name] = value
    records["length"] = chunk.lengths
    records["label"], records["shard"] = -1, 0
    records["offset"] = np.cumsum(chunk.lengths) - chunk.lengths
    records["flags"] &= ~np.uint8(ESCAPED)
    new = [i for i, picture in enumerate(pictures) if picture.entry is None]
    made = records[new]
    described = _C.describe(chunk.data, as_rows(made), kind.shown)
    records[new] = made
    problems = [(new[i], reason.decode("utf-8", "backslashreplace")) for i, reason in described]
    bad = {i for i, _ in problems}
    for i, picture in enumerate(pictures if not is_any(kind) else ()):
        if i in bad or picture.entry is not None:
            continue
        reason = unfit(kind, records[i], picture.data[:HEAD], picture.whole)
        if reason:
            problems.append((i, reason))
    return Chunk(chunk.data, chunk.lengths, records), problems


def _lists(kind: Images, lists: list[PictureList]) -> tuple[Chunk, list[tuple[int, str]]]:
    """Return lists of pictures with the index entries of all of them, and which samples have some that are no
    pictures, with reasons."""
    entries, counts, owners, flat = [], [], [], list[Picture]()
    for sample, each in enumerate(lists):
        pictures = (None,) if each.pictures is None else each.pictures
        counts.append(len(pictures))
        for place, one in enumerate(pictures):
            entries.append(one is not None)
            if one is not None:
                owners.append((sample, place))
                flat.append(one)
    chunk = Chunk.of([each.data for each in lists])
    described, problems = _records(kind.each, flat)
    assert described.records is not None
    records = np.zeros(len(entries), RECORD)
    records["label"] = -1
    records[np.array(entries, np.bool_)] = described.records
    counted = np.array(counts, np.int64)
    gone = np.array([each.pictures is None for each in lists], np.bool_)
    records["flags"][(np.cumsum(counted) - counted)[gone]] |= NO_LIST_FLAG
    _place(records, chunk.lengths, counted, gone)
    reasons = [(owners[i][0], f"picture {owners[i][1]}: {reason}") for i, reason in problems]
    return Chunk(chunk.data, chunk.lengths, records, counted), reasons


def _place(
    records: npt.NDArray[np.void],
    lengths: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    gone: npt.NDArray[np.bool_],
) -> None:
    """Set the offsets of pictures in the values of :func:`fastload.sample.values.pack_list`."""
    sizes = records["length"].astype(np.int64)
    before = np.cumsum(sizes) - sizes  # of pictures alone
    heads = np.where((counts > 0) & ~gone, 4 + 4 * counts, 0)
    begins = np.cumsum(lengths).astype(np.int64) - lengths.astype(np.int64) + heads
    firsts = np.cumsum(counts) - counts
    start = np.append(before, 0)[np.minimum(firsts, len(before))]
    offsets = before + np.repeat(begins - start, counts)
    records["offset"] = np.where(sizes > 0, offsets, 0)


def _words(error: BaseException) -> str:
    """Return what went wrong, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else str(error.strerror)
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    text = str(error) or type(error).__name__
    known = isinstance(error, (TypeError, ValueError))
    return (text if known else f"{type(error).__name__}: {text}").removesuffix(".")


# ---- Rows that are samples: of a table, of annotated pictures, from Python ---------------------------

_Samples = TypeVar("_Samples", bound="SampleRows")
_LOOKED_AT = 16  # samples that tell sequences apart and give the fields' guesses


class SampleRows(Rows):
    """The common part of rows that are samples.

    Subclasses give samples (:meth:`samples`), and what tells them from others (:meth:`settings`). Those whose
    rows have known sizes list them (:meth:`listed`).

    Args:
        root: the folder that relative paths start from.
        schema: the fields.
    """

    process_bytes = 64 << 20  # Python encodes each value

    def __init__(self, root: bytes, schema: Schema) -> None:
        self.root, self.schema = root, schema

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample | PartialSample]:
        """Yield the samples from position ``start`` to before ``stop`` (None: all)."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return what besides files decides the samples, as JSON values."""
        raise NotImplementedError

    def moved(self: _Samples, to: Callable[[bytes], bytes]) -> _Samples:
        """Return the same samples with their files elsewhere: ``to`` says where a folder of them is."""
        other = copy.copy(self)
        other.root = to(self.root)
        return other

    def encoder(self, options: PackOptions) -> Encoder:
        """Return what turns the samples into bytes."""
        transcoder = Transcoder(self.schema, options) if options.transcodes else None
        strings = options.format == "hdf5"
        return Encoder(self.schema, self.root, strings, transcoder, options.first_number)

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        return self.encoder(options).encode(start, self.samples(start, stop))

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        assert totals is not None
        given = {"samples": totals.files, "files": totals.content, **self.settings()}
        return {"given": given, "schema": json.loads(self.schema.to_json())}

    def first(self) -> list[Sample]:
        """Return some samples."""
        some = self.samples(0, _LOOKED_AT)
        samples = (each.sample if isinstance(each, PartialSample) else each for each in some)
        return [sample for sample in samples if not isinstance(sample, FailedSample)]


def row_of(root: bytes, files: Iterable[bytes]) -> Row:
    """Return what is known of a row that is made of files, whether they exist or not.

    Raises:
        PackError: the system cannot look at a file for the moment.
    """
    names, size, newest = [], 0, 0
    for name in files:
        if b"\0" in name:
            continue  # no file has such a name
        names.append(name)
        try:
            status = os.stat(os.path.join(root, name))
            size, newest = size + status.st_size, max(newest, status.st_mtime_ns)
        except OSError as error:
            raise_if_transient(name, error)
    return Row(b"\0".join(names), size, newest)


class IterableRows(SampleRows):
    """An iterable of samples, which come once, in their order."""

    def __init__(self, samples: Iterable[Sample], root: bytes, limit: int | None = None) -> None:
        self.root = root
        self._rest = islice(iter(samples), limit)
        self._first: list[Sample] = []
        self._position = 0

    def __len__(self) -> int:
        raise TypeError("an iterable has no length")

    def first(self) -> list[Sample]:
        if not self._first:
            self._first = list(islice(self._next(), _LOOKED_AT))
        return self._first

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample]:
        yield from self._first
        self._position = len(self._first)
        for sample in self._next():
            self._position += 1
            yield sample

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        return None

    def _next(self) -> Iterator[Sample]:
        try:
            yield from self._rest
        except Exception as error:
            raise PackError(
                f"the iterable of samples raised {type(error).__name__} after {self._position} samples: "
                f"{error}. Nothing can be asked of it again: mend it and pack anew."
            ) from error


class SequenceRows(SampleRows):
    """A sequence: anything with ``__getitem__`` and ``__len__``, like torch's map-style datasets."""

    def __init__(self, samples: Any, root: bytes, limit: int | None = None) -> None:
        self.root = root
        self._samples = samples
        self._count = min(len(samples), limit or len(samples))

    def __len__(self) -> int:
        return self._count

    def first(self) -> list[Sample]:
        samples = (self._one(position) for position in self.compared())
        return [sample for sample in samples if not isinstance(sample, FailedSample)]

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample]:
        end = self._count if stop is None else min(stop, self._count)
        return (self._one(position) for position in range(start, end))

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        hashed, encoder = hashlib.blake2b(digest_size=16), self.encoder(options)
        for sample in map(self._one, self.compared()):
            hashed.update(encoder.digest(sample))
        given = {"samples": self._count, "some": hashed.hexdigest()}
        return {"given": given, "schema": json.loads(self.schema.to_json())}

    def least_bytes(self, options: PackOptions) -> int:
        """Return a lower bound of the bytes that will be stored: half of the average of some samples.

        A pack may be refused for lack of it, so a few large samples among those must not make it too high.
        """
        encoder = self.encoder(options)
        sizes = [size for size in (encoder.size(self._one(at)) for at in self.compared()) if size]
        return sum(sizes) * self._count // (2 * len(sizes)) if sizes else 0

    def compared(self) -> list[int]:
        """Return the positions that tell it from others: over the whole, with the first and the last."""
        return sorted({int(p) for p in np.linspace(0, max(self._count - 1, 0), min(_LOOKED_AT, self._count))})

    def _one(self, position: int) -> Sample | FailedSample:
        try:
            sample: Sample = self._samples[position]
        except Exception as error:  # a user's code
            return FailedSample(error)
        return sample


def rows_of(samples: Any, root: bytes, limit: int | None) -> IterableRows | SequenceRows:
    """Return the rows of samples given to :func:`fastload.pack`; they have no schema yet.

    Raises:
        TypeError: ``samples`` is neither an iterable nor a sequence.
    """
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__") and not isinstance(samples, Mapping):
        return SequenceRows(samples, root, limit)
    if isinstance(samples, Iterable) and not isinstance(samples, (str, bytes, Mapping)):
        return IterableRows(samples, root, limit)
    raise TypeError(
        "samples must be an iterable of dicts, something with __getitem__ and __len__, or a path. "
        f"Found: {type(samples).__name__}."
    )


# ---- Batches in the rows' order, from several processes ---------------------------------------------


def batches_by(rows: Rows, start: int, options: PackOptions, processes: int) -> Iterator[Batch]:
    """Yield all rows from position ``start`` on; ``processes`` changes the batches' ends, not their order.

    Process k makes every ``processes``-th run of rows and hands it over at its turn.

    Raises:
        PackError: the rows cannot be sent to other processes, or one of those has ended.
    """
    if processes <= 1:
        yield from rows.batches(start, None, options, None)
        return
    runs = range(start, len(rows), MOST_SAMPLES)
    context = multiprocessing.get_context("spawn")  # nothing of a program with threads is forked
    workers: list[tuple[Connection, BaseProcess]] = []
    try:
        for number in range(min(processes, len(runs))):
            here, theirs = context.Pipe()
            share = runs[number::processes]
            process: BaseProcess = context.Process(
                target=_serve, args=(rows, options, share, theirs, os.getpid()), daemon=True
            )
            try:
                with interrupts_blocked():
                    process.start()
            except Exception as error:  # pickle's own, TypeError, AttributeError, what users' classes raise
                raise PackError(
                    f"the samples cannot be sent to other processes ({type(error).__name__}: {error}). "
                    "Use num_proc=1."
                ) from None
            theirs.close()
            workers.append((here, process))
        for turn in range(len(runs)):
            yield from _run_of(*workers[turn % processes])
    finally:
        for pipe, process in workers:
            process.terminate()
            process.join()
            pipe.close()


def _run_of(pipe: Connection, process: BaseProcess) -> Iterator[Batch]:
    """Yield the pieces of one run of a process, up to the mark after them."""
    while True:
        try:
            piece = pipe.recv()
        except EOFError:
            process.join()
            raise PackError(
                f"a packing process ended with code {process.exitcode} (killed? out of memory? a "
                "script without 'if __name__ == \"__main__\":'?). Run it again: finished shards are kept."
            ) from None
        if piece is None:
            return
        if isinstance(piece, str):
            raise PackError(piece)
        yield piece


def _serve(rows: Rows, options: PackOptions, starts: range, pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    die_with(parent)
    try:
        for start in starts:
            for batch in rows.batches(start, start + MOST_SAMPLES, options, None):
                pipe.send(batch)
            pipe.send(None)
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(f"{type(error).__name__}: {error}")
