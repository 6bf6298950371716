"""Samples with fields, from Python or from annotated sets: their schema, encoded in order, also by
several processes."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.packing.coefficients import RecodeOutcome
from fastload.packing.files import ESCAPED, encode_key, outside_key
from fastload.packing.folders import as_rows
from fastload.packing.pictures import HEAD, NUMPY_SUFFIX, Picture, is_any, path_of, picture_of, unfit
from fastload.packing.recoding import Transcoder
from fastload.packing.tables import table_path
from fastload.packing.work import die_with, interrupts_blocked
from fastload.sample.fields import Image, Mask
from fastload.sample.schema import Schema
from fastload.shard.codecs import RAW, suffix_of
from fastload.shard.columns import Chunk
from fastload.shard.index import RECORD

# ---- From samples (dicts) to the bytes of their fields, some at a time ------------------------------

MOST_SAMPLES, MOST_BYTES = 256, 16 << 20  # of one Encoded; one larger sample makes a larger one
_NO_FILE = b""


@dataclass(frozen=True)
class FailedSample:
    """What a source gives in place of a sample that it cannot make."""

    error: Exception
    path: bytes = _NO_FILE  # of its picture from the root on, where that is known


@dataclass(frozen=True)
class PartialSample:
    """What a source gives in place of a sample some of whose annotations cannot be packed."""

    sample: Mapping[str, Any]  # without them
    left_out: Sequence[tuple[str, str]]  # which annotation, reason


@dataclass(frozen=True)
class Encoded:
    """Samples as bytes, in the order of the source."""

    positions: npt.NDArray[np.int64]  # in the source
    keys: list[bytes]
    fields: list[Chunk]  # in the schema's order
    stop: int  # one past the last position that was looked at
    failures: list[tuple[int, str, str]] = field(default_factory=list)  # position, key, reason
    left_out: list[tuple[int, str, str, str]] = field(default_factory=list)  # with the annotation before it
    outcomes: list[tuple[int, str, RecodeOutcome]] = field(default_factory=list)  # of JPEGs: position, key

    @property
    def sizes(self) -> npt.NDArray[np.uint64]:
        """Bytes of each sample."""
        lengths = [chunk.lengths for chunk in self.fields]
        total: npt.NDArray[np.uint64] = np.sum(lengths, axis=0, dtype=np.uint64)
        return total


@dataclass(frozen=True)
class Encoder:
    """Makes bytes of samples by their schema.

    Args:
        schema: the fields; what else a sample has is left out.
        root: the folder that relative paths start from.
        strings: texts go into C strings, which cannot hold a NUL (HDF5).
        transcoder: what changes the values before they are stored.
    """

    schema: Schema
    root: bytes
    strings: bool = False
    transcoder: Transcoder | None = None

    def encode(
        self, start: int, samples: Iterable[Mapping[str, Any] | FailedSample | PartialSample]
    ) -> Iterator[Encoded]:
        """The samples from position ``start`` on, in pieces of bounded size."""
        piece = _Piece(self, start)
        for position, sample in enumerate(samples, start):
            piece.add(position, sample)
            if piece.is_full:
                yield piece.finish()
                piece = _Piece(self, position + 1)
        if piece.stop > piece.start:
            yield piece.finish()

    def values(self, sample: Mapping[str, Any]) -> list[Picture | bytes]:
        """The fields' bytes of one sample.

        Raises:
            KeyError, OSError, TypeError, ValueError, and what Pillow raises: it cannot be packed.
        """
        if not isinstance(sample, Mapping):
            raise TypeError(f"a sample must be a dict of values by field. Found: {type(sample).__name__}")
        found: list[Picture | bytes] = []
        for named in self.schema:
            if named.name not in sample:
                raise KeyError(f"the sample has no {named.name!r}, only {', '.join(map(str, sample))}")
            value = sample[named.name]
            if isinstance(named.kind, (Image, Mask)):
                try:
                    found.append(picture_of(named.kind, value, self.root))
                except Exception as error:
                    raise ValueError(f"field {named.name!r}: {_words(error)}") from error
                continue
            data = named.encode(value)
            if self.strings and named.kind.name == "text" and b"\0" in data:
                raise ValueError(f"field {named.name!r}: HDF5's strings hold no NUL; use another format")
            found.append(data)
        self.schema.check_rows([value if isinstance(value, bytes) else None for value in found])
        return found if self.transcoder is None else self.transcoder.values(found)

    def digest(self, sample: Mapping[str, Any] | FailedSample) -> bytes:
        """16 bytes that tell a sample from others; those that cannot be packed are all the same."""
        hashed = hashlib.blake2b(digest_size=16)
        try:
            if isinstance(sample, FailedSample):
                return hashed.digest()
            values = self.values(sample)
        except Exception:  # Pillow and users' code raise anything
            return hashed.digest()
        for value in values:
            data = value.data if isinstance(value, Picture) else value
            hashed.update(len(data).to_bytes(8, "little") + data)
        return hashed.digest()

    def size(self, sample: Mapping[str, Any] | FailedSample) -> int:
        """Bytes that a sample takes on disk until it is packed; 0 of one that cannot be."""
        try:
            values = [] if isinstance(sample, FailedSample) else self.values(sample)
        except Exception:  # Pillow and users' code raise anything
            return 0
        # What is no picture lies in the shard, in its part of the index, and in the column's file.
        return sum(len(v.data) if isinstance(v, Picture) else 3 * len(v) for v in values)

    def key(self, sample: Mapping[str, Any]) -> bytes:
        """The path of the record's file below the root; empty: it has no file."""
        path = path_of(sample[self.schema.index_field.name])
        if path is None:
            return _NO_FILE
        inside = table_path(self.root, os.fsdecode(path))
        return outside_key(inside) if os.path.isabs(inside) else inside


class _Piece:
    """Samples on their way into one :class:`Encoded`."""

    def __init__(self, encoder: Encoder, start: int) -> None:
        self._encoder = encoder
        self.start = self.stop = start
        self._positions: list[int] = []
        self._paths: list[bytes] = []
        self._values: list[list[Picture | bytes]] = []
        self._bytes = 0
        self._failures: list[tuple[int, str, str]] = []
        self._left_out: list[tuple[int, str, str, str]] = []

    @property
    def is_full(self) -> bool:
        return self.stop - self.start >= MOST_SAMPLES or self._bytes >= MOST_BYTES

    def add(self, position: int, sample: Mapping[str, Any] | FailedSample | PartialSample) -> None:
        self.stop = position + 1
        path = sample.path if isinstance(sample, FailedSample) else _NO_FILE
        left_out = sample.left_out if isinstance(sample, PartialSample) else ()
        sample = sample.sample if isinstance(sample, PartialSample) else sample
        try:
            if isinstance(sample, FailedSample):
                raise sample.error
            if isinstance(sample, Mapping) and self._encoder.schema.index_field.name in sample:
                path = self._encoder.key(sample)
            values = self._encoder.values(sample)
        except Exception as error:  # Pillow and users' code raise anything
            self._failures.append((position, self._name(position, path), _words(error)))
            return
        self._left_out += [(position, self._name(position, path), *one) for one in left_out]
        self._positions.append(position)
        self._paths.append(path)
        self._values.append(values)
        self._bytes += sum(len(value.data if isinstance(value, Picture) else value) for value in values)

    def _name(self, position: int, path: bytes) -> str:
        return encode_key(path)[0].decode() if path else f"{position:08d}"

    def finish(self) -> Encoded:
        chunks: list[Chunk] = []
        good = np.ones(len(self._values), np.bool_)
        for number, named in enumerate(self._encoder.schema):
            values = [values[number] for values in self._values]
            if isinstance(named.kind, (Image, Mask)):
                chunk, problems = _records(named.kind, [v for v in values if isinstance(v, Picture)])
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
        index = chunks[self._encoder.schema.position(self._encoder.schema.index_field.name)].records
        assert index is not None
        keys = self._keys(kept, index)
        positions = np.array([self._positions[i] for i in kept], np.int64)
        failed = {position for position, _, _ in self._failures}
        left_out = [one for one in self._left_out if one[0] not in failed]
        outcomes = [
            (self._positions[i], key.decode(), value.outcome)
            for i, key in zip(kept, keys, strict=True)
            for value in self._values[i]
            if isinstance(value, Picture) and value.outcome is not None
        ]
        return Encoded(positions, keys, chunks, self.stop, sorted(self._failures), left_out, outcomes)

    def _keys(self, kept: list[int], records: npt.NDArray[np.void]) -> list[bytes]:
        keys = []
        for record, i in zip(records, kept, strict=True):
            path = self._paths[i]
            suffix = _suffix_of(record)
            made = f"{self._positions[i]:08d}".encode() + suffix
            key, escaped = encode_key(path or made)
            if escaped:
                record["flags"] |= ESCAPED
            keys.append(key)
        return keys


def _suffix_of(record: np.void) -> bytes:
    """Of the file that unpacking makes of a record."""
    if record["codec"] == RAW:
        return b".png" if record["channels"] in (1, 3) else NUMPY_SUFFIX
    return suffix_of(int(record["codec"])).encode()


def _records(kind: Image | Mask, pictures: list[Picture]) -> tuple[Chunk, list[tuple[int, str]]]:
    """The pictures with their index entries; and which are none, with reasons."""
    chunk = Chunk.of([picture.data for picture in pictures])
    records = np.zeros(len(pictures), RECORD)
    records["length"] = chunk.lengths
    records["label"] = -1
    records["offset"] = np.cumsum(chunk.lengths) - chunk.lengths
    for record, picture in zip(records, pictures, strict=True):
        for name, value in (picture.raw or {}).items():
            record[name] = value
    described = _C.describe(chunk.data, as_rows(records))
    problems = [(i, reason.decode("utf-8", "backslashreplace")) for i, reason in described]
    bad = {i for i, _ in problems}
    for i, picture in enumerate(pictures if not is_any(kind) else ()):
        reason = "" if i in bad else unfit(kind, records[i], picture.data[:HEAD], picture.whole)
        if reason:
            problems.append((i, reason))
    return Chunk(chunk.data, chunk.lengths, records), problems


def _words(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else str(error.strerror)
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    text = str(error) or type(error).__name__
    known = isinstance(error, (TypeError, ValueError))
    return (text if known else f"{type(error).__name__}: {text}").removesuffix(".")


# ---- Where samples come from ------------------------------------------------------------------------
# An iterable, a sequence that is asked by position, a table.

_LOOKED_AT = 16  # samples that tell one sequence from another, and whose fields are guessed from
Sample = Mapping[str, Any]


class Given(Protocol):
    """Samples to pack. Those that can be asked by position again and again have a length."""

    @property
    def root(self) -> bytes:
        """The folder that relative paths start from."""

    def __len__(self) -> int:
        """How many samples there are; TypeError: nobody knows."""

    def first(self) -> list[Sample]:
        """Some samples to guess the schema from; they come again."""

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample | PartialSample]:
        """Those from position ``start`` to before ``stop`` (None: all)."""

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        """What tells these samples from others, JSON values only; None: nothing does, they come once."""

    def compared(self) -> int:
        """How many samples :meth:`identity` looks at."""

    def about_bytes(self, encoder: Encoder) -> int:
        """At least about so many bytes will be stored; 0: nobody knows."""

    def newest_ns(self) -> int:
        """The latest modification time of the files that they are known to come from; 0: there are none."""


class AnnotatedSource(Given, Protocol):
    """Samples whose fields are known before any of them is made: of tables and of annotated pictures."""

    schema: Schema

    def needed_bytes(self) -> int:
        """Bytes of the files that they are made of."""


class IterableRows:
    """Samples that come once, in their order."""

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

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        return None

    def compared(self) -> int:
        return 0

    def about_bytes(self, encoder: Encoder) -> int:
        return 0

    def newest_ns(self) -> int:
        return 0

    def _next(self) -> Iterator[Sample]:
        try:
            yield from self._rest
        except Exception as error:
            raise PackError(
                f"the iterable of samples raised {type(error).__name__} after {self._position} samples: "
                f"{error}. Nothing can be asked of it again: mend it and pack anew."
            ) from error


def at_least(encoder: Encoder, some: Iterable[Sample | FailedSample], count: int) -> int:
    """Bytes that ``count`` samples have at least, by some of them: half of what they would have on average.

    A pack is refused for it, so it must not be too much where a few of those looked at are large.
    """
    sizes = [size for size in map(encoder.size, some) if size]
    return sum(sizes) * count // (2 * len(sizes)) if sizes else 0


class SequenceRows:
    """A sequence: anything with ``__getitem__`` and ``__len__``, as torch's map-style datasets are."""

    def __init__(self, samples: Any, root: bytes, limit: int | None = None) -> None:
        self.root = root
        self._samples = samples
        self._count = min(len(samples), limit or len(samples))

    def __len__(self) -> int:
        return self._count

    def first(self) -> list[Sample]:
        found = (self._one(position) for position in self._spread())
        return [sample for sample in found if not isinstance(sample, FailedSample)]

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample]:
        end = self._count if stop is None else min(stop, self._count)
        return (self._one(position) for position in range(start, end))

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        hashed = hashlib.blake2b(digest_size=16)
        for sample in map(self._one, self._spread()):
            hashed.update(encoder.digest(sample))
        return {"samples": self._count, "some": hashed.hexdigest()}

    def compared(self) -> int:
        return len(self._spread())

    def about_bytes(self, encoder: Encoder) -> int:
        return at_least(encoder, map(self._one, self._spread()), self._count)

    def newest_ns(self) -> int:
        return 0

    def _spread(self) -> list[int]:
        """Positions over the whole sequence, the first and the last among them."""
        return sorted({int(p) for p in np.linspace(0, max(self._count - 1, 0), min(_LOOKED_AT, self._count))})

    def _one(self, position: int) -> Sample | FailedSample:
        try:
            found: Sample = self._samples[position]
        except Exception as error:  # a user's code
            return FailedSample(error)
        return found


def given(samples: Any, root: bytes, limit: int | None) -> Given:
    """The samples of :func:`fastload.pack`.

    Raises:
        TypeError: neither an iterable nor a sequence.
    """
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__") and not isinstance(samples, Mapping):
        return SequenceRows(samples, root, limit)
    if isinstance(samples, Iterable) and not isinstance(samples, (str, bytes, Mapping)):
        return IterableRows(samples, root, limit)
    raise TypeError(
        "samples must be an iterable of dicts, something with __getitem__ and __len__, or a path. "
        f"Found: {type(samples).__name__}."
    )


# ---- Encoded samples in the order of their source, made by this process or by several ---------------


def encoded(source: Given, encoder: Encoder, start: int, processes: int) -> Iterator[Encoded]:
    """All samples from position ``start`` on. The pieces' borders depend on ``processes``, their order not.

    Raises:
        PackError: the samples cannot be sent to other processes, or one of those has ended.
    """
    if processes <= 1:
        yield from encoder.encode(start, source.samples(start, None))
    else:
        yield from _by_several(source, encoder, start, processes)


def _runs(start: int, count: int) -> range:
    return range(start, count, MOST_SAMPLES)


def _by_several(source: Given, encoder: Encoder, start: int, processes: int) -> Iterator[Encoded]:
    """Process k makes every ``processes``-th run of samples, and waits until its turn to hand it over."""
    runs = _runs(start, len(source))
    context = multiprocessing.get_context("spawn")  # nothing of a program with threads is forked
    workers: list[tuple[Connection, BaseProcess]] = []
    try:
        for number in range(min(processes, len(runs))):
            here, there = context.Pipe()
            share = runs[number::processes]
            process: BaseProcess = context.Process(
                target=_serve, args=(source, encoder, share, there, os.getpid()), daemon=True
            )
            try:
                with interrupts_blocked():
                    process.start()
            except Exception as error:  # pickle's own, TypeError, AttributeError, what users' classes raise
                raise PackError(
                    f"the samples cannot be sent to other processes ({type(error).__name__}: {error}). "
                    "Use num_proc=1."
                ) from None
            there.close()
            workers.append((here, process))
        for turn in range(len(runs)):
            yield from _run_of(*workers[turn % processes])
    finally:
        for pipe, process in workers:
            process.terminate()
            process.join()
            pipe.close()


def _run_of(pipe: Connection, process: BaseProcess) -> Iterator[Encoded]:
    """One run of a process: its pieces, up to the mark behind them."""
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


def _serve(source: Given, encoder: Encoder, starts: range, pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    die_with(parent)
    try:
        for start in starts:
            for piece in encoder.encode(start, source.samples(start, start + MOST_SAMPLES)):
                pipe.send(piece)
            pipe.send(None)
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(f"{type(error).__name__}: {error}")
