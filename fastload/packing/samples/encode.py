"""From samples (dicts) to the bytes of their fields, some at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.packing.coefficients import Outcome
from fastload.packing.ingest import as_rows
from fastload.packing.names import ESCAPED, encode_key, outside_key
from fastload.packing.samples.pictures import HEAD, NUMPY_SUFFIX, Picture, is_any, path_of, picture_of, unfit
from fastload.packing.samples.transcode import Transcoder
from fastload.packing.tables import table_path
from fastload.sample.fields import Image, Mask
from fastload.sample.schema import Schema
from fastload.shard.codecs import RAW, suffix_of
from fastload.shard.columns import Chunk
from fastload.shard.index import RECORD

__all__ = ["Encoded", "Encoder", "Failed", "Lessened"]

MOST_SAMPLES, MOST_BYTES = 256, 16 << 20  # of one Encoded; one larger sample makes a larger one
_NO_FILE = b""


@dataclass(frozen=True)
class Failed:
    """What a source gives in place of a sample that it cannot make."""

    error: Exception
    path: bytes = _NO_FILE  # of its picture from the root on, where that is known


@dataclass(frozen=True)
class Lessened:
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
    outcomes: list[tuple[int, str, Outcome]] = field(default_factory=list)  # of JPEGs: position, key

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
        self, start: int, samples: Iterable[Mapping[str, Any] | Failed | Lessened]
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

    def digest(self, sample: Mapping[str, Any] | Failed) -> bytes:
        """16 bytes that tell a sample from others; those that cannot be packed are all the same."""
        hashed = hashlib.blake2b(digest_size=16)
        try:
            if isinstance(sample, Failed):
                return hashed.digest()
            values = self.values(sample)
        except Exception:  # Pillow and users' code raise anything
            return hashed.digest()
        for value in values:
            data = value.data if isinstance(value, Picture) else value
            hashed.update(len(data).to_bytes(8, "little") + data)
        return hashed.digest()

    def size(self, sample: Mapping[str, Any] | Failed) -> int:
        """Bytes that a sample takes on disk until it is packed; 0 of one that cannot be."""
        try:
            values = [] if isinstance(sample, Failed) else self.values(sample)
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

    def add(self, position: int, sample: Mapping[str, Any] | Failed | Lessened) -> None:
        self.stop = position + 1
        path = sample.path if isinstance(sample, Failed) else _NO_FILE
        left_out = sample.left_out if isinstance(sample, Lessened) else ()
        sample = sample.sample if isinstance(sample, Lessened) else sample
        try:
            if isinstance(sample, Failed):
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
