"""WebDataset tars that others wrote: where their samples' pictures lie, and the values beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.machine.paths import read_at
from fastload.sample.fields import MAX_VALUE_BYTES, Image, Label
from fastload.sample.schema import MAX_FIELDS, Field
from fastload.sample.values import absent
from fastload.shard.chunk import Chunk
from fastload.shard.formats import Foreign, Kinds, Located, Values
from fastload.shard.index import RECORD
from fastload.shard.tar_members import Member, members_of
from fastload.shard.tar_samples import IMAGE, LABEL, TAKEN, Grouped, Suffixes, grouped, value_of

__all__ = ["data_file", "read_foreign"]


def data_file(path: Path) -> Path:
    """The tar itself."""
    return path


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Byte ranges of a tar's pictures, and the values of its other members.

    Raises:
        FormatError: no whole tar; members that are no plain byte ranges; pictures that could be either field.
        OSError: it cannot be read.
    """
    if column is not None:
        raise FormatError(f"{path}: a tar has suffixes, not columns; name their fields: --field SUFFIX=KIND.")
    for suffix, kind in kinds.items():
        if kind is not None and not isinstance(kind, TAKEN):
            raise FormatError(
                f"{path}: a member of a tar can be image, mask, label, text, json, bytes or none. Found: "
                f"{suffix}={kind.name}."
            )
    return _Reader(path, Suffixes(kinds)).read()


class _Reader:
    def __init__(self, path: Path, suffixes: Suffixes) -> None:
        self._path, self._suffixes = path, suffixes
        self._descriptor = -1
        self._left_out: list[tuple[str, str]] = []
        self._unknown: Counter[str] = Counter()
        self._fields: dict[str, Field] = {}
        self._keys: list[str] = []
        self._pictures: dict[str, dict[int, Member]] = {}  # by field, of samples
        self._values: dict[str, dict[int, bytes]] = {}
        self._labels: dict[int, int] = {}
        self._bad: dict[int, str] = {}

    def read(self) -> Foreign:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for sample in grouped(((m.name, m) for m in self._files()), self._leave_out):
                self._add(sample)
        finally:
            os.close(self._descriptor)
        self._left_out += [
            (f"*.{suffix}", f"{count} members of no kind that is known; --field {suffix}=bytes takes them")
            for suffix, count in self._unknown.items()
        ]
        return self._foreign()

    def _files(self) -> Any:
        for member in members_of(self._path):
            if member.what:
                self._leave_out(member.name, f"is {member.what}")
            else:
                yield member

    def _leave_out(self, name: bytes, why: str) -> None:
        self._left_out.append((name.decode("utf-8", "backslashreplace"), why))

    def _add(self, sample: Grouped[Member]) -> None:
        number = len(self._keys)
        name = b""
        if sample.twice:
            self._bad[number] = f"has two members .{sample.twice}"
        for suffix, member in sample.values.items():
            field = self._suffixes.field(suffix)
            if field is None:
                if self._suffixes.is_unknown(suffix):
                    self._unknown[suffix] += 1
                continue
            self._know(field)
            if field.storage == "record":
                self._picture(sample, number, field, member)
                name = name if name and field.name != IMAGE else sample.names[suffix]
                continue
            try:
                self._value(number, field, member)
            except ValueError as error:
                self._bad.setdefault(number, str(error).removesuffix("."))
        self._keys.append((name or sample.key).decode("utf-8", "surrogateescape"))

    def _know(self, field: Field) -> None:
        if field.name not in self._fields:
            if len(self._fields) >= MAX_FIELDS:
                raise FormatError(f"{self._path} has members of more than {MAX_FIELDS} suffixes.")
            self._fields[field.name] = field

    def _picture(self, sample: Grouped[Member], number: int, field: Field, member: Member) -> None:
        found = self._pictures.setdefault(field.name, {})
        if number in found:
            both = [s for s in sample.values if self._suffixes.field(s) == field]
            raise FormatError(
                f"{self._path}: {sample.names[both[0]].decode('utf-8', 'backslashreplace')} has "
                f"{len(both)} pictures ({', '.join(both)}), and nothing says which is what. Name them, as "
                f"--field {both[-1]}=mask, or --field {both[-1]}=none to leave one out."
            )
        found[number] = member

    def _value(self, number: int, field: Field, member: Member) -> None:
        if member.size > MAX_VALUE_BYTES:
            raise ValueError(f".{field.name} has {member.size} bytes; a value has at most {MAX_VALUE_BYTES}")
        data = read_at(self._descriptor, member.size, member.offset) if member.size else b""
        if len(data) != member.size:
            raise FormatError(f"{self._path} became shorter while it was read.")
        value = value_of(field, data)
        if field.name == LABEL:
            self._labels[number] = int.from_bytes(value, "little", signed=True)
        else:
            self._values.setdefault(field.name, {})[number] = value

    def _foreign(self) -> Foreign:
        first = self._first()
        count = len(self._keys)
        for name, found in self._pictures.items():
            for number in set(range(count)) - found.keys():
                self._bad.setdefault(number, f"has no picture {name!r}")
        if first is None:
            self._bad = dict.fromkeys(range(count), "has no picture") | self._bad
        located = _located(self._pictures.get(first.name, {}) if first else {}, count)
        fields = {}
        for name, field in self._fields.items():
            if field == first or name == LABEL:
                continue
            if field.storage == "record":
                chunk = _records(self._pictures[name], count)
            else:
                values, none = self._values.get(name, {}), absent(field.kind)
                chunk = Chunk.of([values.get(number, none) for number in range(count)])
            fields[name] = Values(field, chunk)
        labels = None
        if LABEL in self._fields:
            labels = np.array([self._labels.get(number, -1) for number in range(count)], np.int64)
        label = self._fields.get(LABEL)
        classes = label.kind.classes if label is not None and isinstance(label.kind, Label) else ()
        return Foreign(
            located, labels, self._keys, classes, fields=fields, bad=self._bad, left_out=self._left_out,
            name=first.name if first is not None else IMAGE, kind=first.kind if first is not None else None,
        )  # fmt: skip

    def _first(self) -> Field | None:
        """The field of the pictures that the index has."""
        pictures = [self._fields[name] for name in self._pictures]
        images = [field for field in pictures if isinstance(field.kind, Image)] or pictures
        return next((field for field in images if field.name == IMAGE), min(images, key=_name, default=None))


def _name(field: Field) -> str:
    return field.name


def _located(members: Mapping[int, Member], count: int) -> Located:
    offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for number, member in members.items():
        offsets[number], lengths[number] = member.offset, member.size
    return Located(offsets, lengths)


def _records(members: Mapping[int, Member], count: int) -> Chunk:
    """Index entries of further pictures, as far as they are known."""
    located = _located(members, count)
    records: npt.NDArray[np.void] = np.zeros(count, RECORD)
    records["offset"], records["label"] = located.offsets, -1
    return Chunk(np.zeros(0, np.uint8), located.lengths, records)
