"""Fields and records of other programs' files, as the index of a set has them."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FormatError, PackError
from fastload.machine.paths import read_at
from fastload.machine.sizes import counted
from fastload.packing.cut import MAX_LISTED
from fastload.packing.files import encode_key
from fastload.packing.pictures import AS_STORED, HEAD, is_any, shown_kind, unfit
from fastload.packing.shard_writer import ShardPart
from fastload.packing.table_columns import picture_kind
from fastload.packing.tables import Labels, read_table
from fastload.sample.fields import Image, Images, Kind, Label, Mask
from fastload.sample.schema import Field, Schema
from fastload.sample.values import absent
from fastload.shard.codecs import RAW
from fastload.shard.columns import Chunk, write_column
from fastload.shard.foreign_lists import lists_kept, owner_of
from fastload.shard.formats import Foreign
from fastload.shard.index import RECORD, as_rows
from fastload.shard.manifest import ColumnFile, column_name

# ---- Fields of other programs' files besides picture and label, and their columns -------------------


def field_of(entry: Mapping[str, Any]) -> Field:
    """Return the field of which ``to_json`` gave this."""
    return Field(entry["name"], Kind.from_json(entry), entry.get("of"), entry.get("source"))


def kind_in_set(name: str, kind: Kind, asked: Container[str], shown: tuple[str, str]) -> Kind:
    """Return what a field becomes; pictures of which users said nothing are what their name says. ``shown``:
    ``--exif`` and ``--alpha``."""
    return shown_kind(picture_kind(name, ()) if kind == Image() and name not in asked else kind, *shown)


class ForeignFields:
    """The fields of all files, and where each file's chunks have their values.

    Args:
        part: returns the path of a file's part, by its number.
        asked: kinds that users gave.
        loose: whether text, JSON or bytes may be missing in a whole file.
        shown: ``--exif`` and ``--alpha``.
    """

    def __init__(
        self,
        part: Callable[[int], Path],
        asked: Mapping[str, Kind | None],
        loose: bool,
        shown: tuple[str, str],
    ) -> None:
        self._part, self._asked, self._loose, self._shown = part, asked, loose, shown
        self._picture: tuple[str, Kind] | None = None  # of each sample; None: there are lists alone
        self._first: object = None  # the file that says so
        self._fields: dict[str, Field] = {}
        self._places: list[dict[str, int]] = []  # per file: its fields' chunks
        self._counts: list[int] = []
        self._paths: list[object] = []

    def add(self, path: object, first: Field | None, further: Sequence[Field], count: int) -> None:
        """Add the next file, with ``count`` good records; its part has a chunk of each further field.
        ``first``: of the pictures of each sample.

        Raises:
            FormatError: its fields differ from those of the files before.
        """
        self._places.append({field.name: place for place, field in enumerate(further)})
        self._counts.append(count)
        self._paths.append(path)
        if not count:
            return
        picture = None if first is None else (first.name, self._kind(first.name, first.kind))
        if self._first is not None and self._picture != picture:
            raise FormatError(
                f"{path} has its pictures in {_place(picture)}, the files before it in "
                f"{_place(self._picture)}; index them apart."
            )
        self._picture, self._first = picture, path
        for each in further:
            field = replace(each, kind=self._kind(each.name, each.kind))
            if self._fields.setdefault(field.name, field) != field:
                raise FormatError(f"{path} has another kind of {field.name!r} than the files before it.")

    def schema(self, label: Label | None) -> Schema | None:
        """Return the fields of samples; None: only an image and a label.

        Raises:
            FormatError: files lack fields that others have, or the fields are not legal.
        """
        plain = ("image", self._kind("image", Image()))
        picture = self._picture or (None if self._first is not None else plain)
        if not self._fields and picture == ("image", Image()):
            return None
        if not self._fields and picture is not None and picture[0] == "image":
            label = label or Label()  # as of the same pictures, shown as they are stored
        for number, places in enumerate(self._places):
            missing = [name for name in self._fields if name not in places and not self._may_lack(name)]
            if missing and self._counts[number]:
                raise FormatError(
                    f"{self._paths[number]} has no {', '.join(map(repr, missing))}, which other files have; "
                    f"index them apart, or leave it out: --field {missing[0]}=none."
                )
        try:
            fields = [] if picture is None else [Field(*picture)]
            fields += [Field("label", label)] if label is not None else []
            return Schema((*fields, *self._fields.values()))
        except ValueError as error:
            raise FormatError(f"these files' fields make no samples: {error}") from None

    def write(self, folder: Path, schema: Schema) -> dict[str, ColumnFile]:
        """Write the columns; a file's number in the index is its position."""
        count = sum(self._counts)
        return {
            field.name: write_column(folder / column_name(position), field, count, **self._column(field))
            for position, field in schema.columns
        }

    def _kind(self, name: str, kind: Kind) -> Kind:
        return kind_in_set(name, kind, self._asked, self._shown)

    def _may_lack(self, name: str) -> bool:
        return self._loose and self._fields[name].kind.name in ("text", "json", "bytes")

    def _column(self, field: Field) -> dict[str, Iterable[Any]]:
        """Return the arguments that ``write_column`` takes for a field."""

        def records(number: int, chunk: Chunk) -> Any:
            assert chunk.records is not None
            chunk.records["shard"] = np.where(chunk.records["length"] > 0, number, 0)
            return chunk.records

        def values(_: int, chunk: Chunk) -> Any:
            return chunk.data.view(field.item_dtype).reshape(-1, *field.item_shape)

        if field.storage == "record":
            return {"fixed": _Each(self._chunks, field.name, records)}
        if field.storage == "fixed":
            return {"fixed": _Each(self._chunks, field.name, values)}
        if field.storage == "records":
            return {
                "lengths": _Each(self._chunks, field.name, lambda _, chunk: chunk.entry_bytes),
                "chunks": _Each(self._chunks, field.name, lambda *part: records(*part).tobytes()),
            }
        return {
            "lengths": _Each(self._chunks, field.name, lambda _, chunk: chunk.lengths),
            "chunks": _Each(self._chunks, field.name, lambda _, chunk: chunk.data.tobytes()),
        }

    def _chunks(self, name: str) -> Iterator[tuple[int, Chunk]]:
        for number, places in enumerate(self._places):
            if not self._counts[number]:
                continue
            if name in places:
                yield number, ShardPart.read_column(self._part(number), places[name])
            else:
                yield number, Chunk.of([absent(self._fields[name].kind)] * self._counts[number])


def _place(picture: tuple[str, Kind] | None) -> str:
    return "lists alone" if picture is None else repr(picture[0])


class _Each:
    """The results of ``make`` for each file's chunk; iterable any number of times, with one in memory."""

    def __init__(
        self,
        chunks: Callable[[str], Iterator[tuple[int, Chunk]]],
        name: str,
        make: Callable[[int, Chunk], Any],
    ) -> None:
        self._chunks, self._name, self._make = chunks, name, make

    def __iter__(self) -> Iterator[Any]:
        return (self._make(number, chunk) for number, chunk in self._chunks(self._name))


# ---- Records of one file of another program, for the index ------------------------------------------

_CHUNK = 512  # records described per call
_MOST = np.iinfo(np.uint32).max


class LabelTable:
    """Labels by key, from a CSV or JSONL file."""

    def __init__(self, path: Path) -> None:
        labels = Labels.of_table(path, can_have_fields=False)
        self.path, self.classes = path, labels.classes
        self._numbers = {key: labels.number(label) for key, label in read_table(path)}

    def label(self, key: str, file: object) -> int:
        """Return the label of one key.

        Raises:
            PackError: the table does not have it.
        """
        try:
            return self._numbers[key]
        except KeyError:
            raise PackError(f"{self.path} has no label for the record {key!r} of {file}.") from None


def described(
    file: Path, foreign: Foreign, asked: Container[str], shown: tuple[str, str]
) -> tuple[npt.NDArray[np.void], dict[int, str]]:
    """Return index entries of all records, and reasons for those that are no pictures (length 0). The
    entries of further pictures are filled in likewise. ``asked``, ``shown``: as :class:`ForeignFields`'."""
    located = foreign.located
    records = np.zeros(len(located.offsets), RECORD)
    records["offset"] = located.offsets
    if foreign.picture is not None:
        records["width"], records["height"] = foreign.picture
        records["codec"], records["channels"] = RAW, 3
    failures = dict(foreign.bad)
    kind = kind_in_set(foreign.name, foreign.kind or Image(), asked, shown)
    if not foreign.in_lists:
        records["length"] = np.minimum(located.lengths, np.uint64(_MOST))
        for number, reason in _describe(file, records, kind).items():
            failures.setdefault(number, reason)
    for name, values in foreign.fields.items():
        kind = kind_in_set(name, values.field.kind, asked, shown)
        for number, reason in _describe_further(file, values.chunk, kind).items():
            failures.setdefault(number, f"field {name!r}: {reason}")
    for number in failures:
        records["length"][number] = 0
    return records, failures


def refuse_unfit(
    file: Path,
    foreign: Foreign,
    records: npt.NDArray[np.void],
    failures: dict[int, str],
    asked: Container[str],
) -> None:
    """Add the pictures that cannot be opened as their field says to the failures.

    Args:
        file, foreign: what they belong to.
        records, failures: as :func:`described` returns them.
        asked: the fields whose kinds users gave.
    """
    kind = kind_in_set(foreign.name, foreign.kind or Image(), asked, AS_STORED)
    misfits = dict(_unfit(file, records, kind))
    for name, values in foreign.fields.items():
        if values.chunk.records is not None:
            kind = kind_in_set(name, values.field.kind, asked, AS_STORED)
            kind = kind.each if isinstance(kind, Images) else kind
            for entry, reason in _unfit(file, values.chunk.records, kind):
                number, which = owner_of(values.chunk, entry)
                misfits.setdefault(number, f"field {name!r}: {which}{reason}")
    for number, reason in misfits.items():
        failures.setdefault(number, reason)
        records["length"][number] = 0


def _describe_further(file: Path, chunk: Chunk, kind: Kind) -> dict[int, str]:
    """Fill in the entries of further pictures; return the samples that have some which are none."""
    records, failures = chunk.records, dict[int, str]()
    if records is None:
        return failures
    if chunk.counts is None:
        records["length"] = np.minimum(chunk.lengths, np.uint64(_MOST))
        return _describe(file, records, kind)
    there = np.flatnonzero(records["length"] > 0)
    made = records[there]
    for number, reason in _describe(file, made, kind).items():
        sample, which = owner_of(chunk, int(there[number]))
        failures.setdefault(sample, which + reason)
    records[there] = made
    return failures


def _describe(file: Path, records: npt.NDArray[np.void], kind: Kind) -> dict[int, str]:
    """Fill in the entries of byte ranges; return those that are no pictures."""
    failures = {}
    for start in range(0, len(records), _CHUNK):
        some = as_rows(records[start : start + _CHUNK])
        problems = _C.describe_file(os.fsencode(file), some, kind.shown)
        for number, reason in problems:
            failures[start + number] = reason.decode("utf-8", "backslashreplace")
    return failures


def _unfit(file: Path, records: npt.NDArray[np.void], kind: Kind) -> Iterator[tuple[int, str]]:
    """Yield the pictures that cannot be opened as their field says, and why."""
    if not isinstance(kind, (Image, Mask)) or is_any(kind):
        return
    with open(file, "rb") as opened:
        for number, record in enumerate(records):
            length, offset = int(record["length"]), int(record["offset"])
            if length:
                part = functools.partial(read_at, opened.fileno(), length, offset)
                reason = unfit(kind, record, read_at(opened.fileno(), min(HEAD, length), offset), part)
                if reason:
                    yield number, reason


def kept(chunk: Chunk, good: npt.NDArray[np.bool_]) -> Chunk:
    """Return the values of the records for which ``good`` is true."""
    if chunk.counts is not None:
        return lists_kept(chunk, good)
    lengths = chunk.lengths[good]
    if chunk.records is not None:
        return Chunk(chunk.data, lengths, chunk.records[good])
    return Chunk(chunk.data[np.repeat(good, chunk.lengths.astype(np.int64))], lengths)


def key_of(name: str) -> tuple[bytes, bool]:
    """Return the key of a record's name in its file, and whether it had to be percent-encoded."""
    try:
        return encode_key(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace"), False


def bad_records(failed: Sequence[tuple[str, int, str]], keys: Sequence[str]) -> str:
    """Return the message about records of one file, as (file name, position, reason)."""
    lines = [f"  {name}, record {i} ({keys[i]}): {reason}" for name, i, reason in failed[:MAX_LISTED]]
    reasons = Counter(reason for _, _, reason in failed)
    more = f"\n  ... {len(failed)} in all" if len(failed) > MAX_LISTED else ""
    return (
        f"not usable as images: {counted(len(failed), 'record')} ({counted(len(reasons), 'reason')}):\n"
        + "\n".join(lines)
        + f"{more}\nLeave them out with --on-error skip."
    )
