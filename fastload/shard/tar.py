"""WebDataset tars that others wrote: their members, the samples these form, and where the pictures are."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.machine.paths import read_at
from fastload.sample.fields import MAX_VALUE_BYTES, Bytes, Image, Images, Json, Kind, Label, Mask, Text
from fastload.sample.schema import MAX_FIELDS, Field
from fastload.sample.values import absent
from fastload.shard.columns import Chunk
from fastload.shard.foreign_lists import lists_of
from fastload.shard.formats import Foreign, Kinds, Located, Values
from fastload.shard.index import RECORD

# ---- Tar members, from their headers alone ----
# Names and sizes are those of ustar, GNU tar and pax, as in POSIX.1-2017 (pax, "ustar Interchange Format")
# and GNU tar's manual ("Basic Tar Format"). Whatever a header says is compared with the file and with the
# header's checksum before it is used.

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MOST_EXTENSION = 1 << 20  # bytes of a pax header or a long name
_CHECKED = 4096  # headers whose checksums are compared at once
_CHECKSUM = slice(148, 156)
_OLD_REGULAR, _FOLDER = b"\0", b"5"
_REGULAR = (b"0", _OLD_REGULAR, b"7")  # 7: contiguous, for systems that distinguished it
_WORDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")


@dataclass(frozen=True, slots=True)
class Member:
    """One member: a file, or something else."""

    name: bytes
    offset: int  # of its bytes in the tar
    size: int
    what: str = ""  # what it is, unless a plain file


@dataclass(slots=True)
class _Said:
    """The settings of extended headers for the next member."""

    everywhere: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    once: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    long_name: bytes | None = None

    def get(self, key: bytes) -> bytes | None:
        return self.once.get(key, self.everywhere.get(key))

    @property
    def is_sparse(self) -> bool:
        return any(key.startswith(b"GNU.sparse.") for key in (*self.once, *self.everywhere))


def is_tar(head: bytes) -> bool:
    """Return whether a file beginning with these bytes is a tar: its first header's checksum is right."""
    return len(head) >= BLOCK and head[:BLOCK] != _ZEROS and _checksum_said(head) in _checksums(head[:BLOCK])


def members_of(path: Path) -> Iterator[Member]:
    """Yield all members but folders, in their order; their checksums are known after the last one of each
    few thousand.

    Raises:
        FormatError: no complete tar, or one whose members are not plain byte ranges.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from _Walk(path, descriptor).members()
    finally:
        os.close(descriptor)


class _Walk:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._size = os.fstat(descriptor).st_size
        self._unchecked: list[bytes] = []
        self._places: list[int] = []

    def members(self) -> Iterator[Member]:
        at, said = 0, _Said()
        while (head := self._header(at)) is not None:
            kind = head[156:157]
            if kind in (b"x", b"X", b"g", b"L", b"K"):
                at = self._extension(head, at, said)
                continue
            member, at = self._member(head, at, kind, said)
            if member is not None:
                yield member
            if said.once or said.long_name is not None:
                said.once, said.long_name = {}, None
        if said.once or said.long_name is not None:
            raise self._wrong(at, "has an extended header and no member behind it")
        self._check()
        self._check_rest(at)

    def _header(self, at: int) -> bytes | None:
        """Return the header at an offset; None: the end."""
        head = read_at(self._descriptor, BLOCK, at)
        if len(head) < BLOCK:
            self._check()
            raise self._wrong(
                at,
                "ends without the two blocks of zeros that end a tar: it was cut off, or its writer was not "
                "closed. Copy or write it again; where it is known to be whole, append 1024 zeros",
            )
        if head[0] == 0 and head == _ZEROS:
            return None
        self._unchecked.append(head)
        self._places.append(at)
        if len(self._unchecked) >= _CHECKED:
            self._check()
        return head

    def _check(self) -> None:
        """Compare the checksums of the headers since the last call."""
        if not self._unchecked:
            return
        heads = np.frombuffer(b"".join(self._unchecked), np.uint8).reshape(-1, BLOCK)
        found = heads.sum(axis=1, dtype=np.int64) - heads[:, _CHECKSUM].sum(axis=1, dtype=np.int64) + 8 * 32
        said = [_checksum_said(head) for head in self._unchecked]
        for number in np.flatnonzero(found != np.array(said, np.int64)).tolist():
            if said[number] not in _checksums(self._unchecked[number]):
                raise self._wrong(
                    self._places[number],
                    f"has a header whose checksum is {found[number]}; the header says {said[number]}. Copy "
                    "or write it again",
                )
        self._unchecked.clear()
        self._places.clear()

    def _member(self, head: bytes, at: int, kind: bytes, said: _Said) -> tuple[Member | None, int]:
        size = self._size_of(head, at, said)
        name = said.get(b"path") or said.long_name or _name_of(head)
        begin = at + BLOCK
        if kind == b"S" or said.is_sparse:
            raise self._wrong(
                at, f"stores {_shown(name)} sparse, which is no plain range of bytes; {_pack(self._path)}"
            )
        if kind in (b"M", b"V", b"D", b"N"):
            raise self._wrong(
                at, f"has a member of GNU tar's type {_shown(kind)!r}, of a backup or of several volumes"
            )
        if kind in _WORDS:  # some writers give a hard link its file's size, but it has no bytes
            return Member(name, begin, 0, _WORDS[kind]), begin
        if kind == _FOLDER or (kind == _OLD_REGULAR and name.endswith(b"/")):
            return None, begin
        if size > self._size - begin:
            self._check()
            raise self._wrong(
                at, f"says that {_shown(name)} has {size} bytes; {self._size - begin} are left of the file"
            )
        what = "" if kind in _REGULAR else f"of the unknown type {_shown(kind)!r}"
        return Member(name, begin, size, what), begin + -(-size // BLOCK) * BLOCK

    def _size_of(self, head: bytes, at: int, said: _Said) -> int:
        text = said.get(b"size")
        if text is None:
            field_ = head[124:136]
            if field_[0] & 0x80:  # GNU tar's: binary, big-endian; a negative one has bit 0x40
                if field_[0] != 0x80:
                    raise self._wrong(at, f"has a size that is none: {field_!r}")
                return int.from_bytes(field_[1:], "big")
            text = field_.split(b"\0", 1)[0].strip(b" ")
            if text.translate(None, b"01234567"):
                raise self._wrong(at, f"has a size that is no octal number: {field_!r}")
            return int(text, 8) if text else 0
        if not text.isdigit() or len(text) > 20:
            raise self._wrong(at, f"has a size that is no number: {text[:80]!r}")
        return int(text)

    def _extension(self, head: bytes, at: int, said: _Said) -> int:
        """Read an extended header or a long name; return where the next header is."""
        kind, size = head[156:157], self._size_of(head, at, _Said())
        if size > min(_MOST_EXTENSION, self._size - at - BLOCK):
            self._check()
            raise self._wrong(
                at, f"has an extended header of {size} bytes; legal are {_MOST_EXTENSION}, and what is there"
            )
        if (kind == b"L" and said.long_name is not None) or (kind in (b"x", b"X") and said.once):
            raise self._wrong(at, "has two extended headers for one member")
        data = read_at(self._descriptor, size, at + BLOCK)
        if kind == b"L":
            said.long_name = data.split(b"\0", 1)[0]
        elif kind == b"g":
            said.everywhere.update(self._pax(data, at))
        elif kind != b"K":  # a long name of a link, which is not a file
            said.once.update(self._pax(data, at))
        return at + BLOCK + -(-size // BLOCK) * BLOCK

    def _pax(self, data: bytes, at: int) -> dict[bytes, bytes]:
        found, start = {}, 0
        while start < len(data) and data[start] != 0:
            match = _PAX_RECORD.match(data, start)
            end = start + int(match[1]) if match else 0
            if match is None or end > len(data) or end <= match.end() or data[end - 1 : end] != b"\n":
                raise self._wrong(at, f"has an extended header that is damaged: {data[start : start + 40]!r}")
            found[match[2]] = data[match.end() : end - 1]
            start = end
        return found

    def _check_rest(self, at: int) -> None:
        """Check that only zeros follow the end: another tar there would be overlooked, as by tar."""
        while at < self._size:
            part = read_at(self._descriptor, 1 << 20, at)
            if not part:
                break
            if part.count(0) != len(part):
                raise self._wrong(
                    at, f"has more bytes behind its end (tars one behind the other?); {_pack(self._path)}"
                )
            at += len(part)

    def _wrong(self, at: int, what: str) -> FormatError:
        return FormatError(f"{self._path}, byte {at}: the tar {what}.")


def _pack(path: Path) -> str:
    return f"'fastload pack {path} OUTPUT --as wds' packs it"


def _shown(name: bytes) -> str:
    return name[:200].decode("utf-8", "backslashreplace")


def _name_of(head: bytes) -> bytes:
    name = head[:100].split(b"\0", 1)[0]
    if head[345] and head[257:263] == b"ustar\0":
        return head[345:500].split(b"\0", 1)[0] + b"/" + name
    return name


def _checksum_said(head: bytes) -> int:
    text = head[_CHECKSUM].split(b"\0", 1)[0].strip(b" ")
    return -1 if not text or text.translate(None, b"01234567") else int(text, 8)


def _checksums(head: bytes) -> tuple[int, int]:
    """Return a header's checksum, with spaces in its place; and that of signed bytes, as in old tars."""
    blank = head[:148] + b" " * 8 + head[156:]
    total = sum(blank)
    return total, total - 256 * sum(byte >= 128 for byte in blank)


# ---- WebDataset's rules: which members form a sample, and what their suffixes mean ----

#: The kinds that a member can have.
TAKEN = (Image, Images, Mask, Label, Text, Json, Bytes)
IMAGE, LABEL = "image", "label"  # names of the fields that all samples have in one form only

_PARTS = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)
_META = re.compile(rb"__[^/]*__($|/)")
_PICTURES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")
_BY_SUFFIX: dict[str, Kind] = {"txt": Text(), "text": Text(), "json": Json(), "jsn": Json()}
_NUMBER = re.compile(rb"\s*([+-]?\d{1,10})\s*")
_MOST_SUFFIXES = 1000  # maximum number of distinct ones

T = TypeVar("T")


@dataclass
class Grouped(Generic[T]):
    """One sample: neighbours in the tar whose names are equal up to the first dot of the last part."""

    key: bytes  # that part, like WebDataset's __key__
    values: dict[str, T] = dataclasses.field(default_factory=dict)  # by suffix, in lower case
    names: dict[str, bytes] = dataclasses.field(default_factory=dict)  # of the members, likewise
    twice: str = ""  # a suffix that occurred twice


def grouped(members: Iterable[tuple[bytes, T]], other: Callable[[bytes, str], None]) -> Iterator[Grouped[T]]:
    """Yield samples of a tar's members, in their order.

    Args:
        members: name and value of each plain file.
        other: called with names that are in no sample, and why.
    """
    sample: Grouped[T] | None = None
    for name, value in members:
        if _META.match(name):
            continue
        match = _PARTS.match(name)
        if match is None:
            other(name, "its name has no suffix")
            continue
        suffix = match[2].lower().decode("utf-8", "backslashreplace")
        if sample is None or sample.key != match[1]:
            if sample is not None:
                yield sample
            sample = Grouped(match[1])
        if suffix in sample.values:
            sample.twice = sample.twice or suffix
            continue
        sample.values[suffix], sample.names[suffix] = value, name
    if sample is not None:
        yield sample


def check_kinds(kinds: Kinds) -> tuple[str, str] | None:
    """Return the name of a field whose kind no member can have, and what it can be; None: all are legal."""
    for name, kind in kinds.items():
        if kind is not None and not isinstance(kind, TAKEN):
            return name, "a member of a tar can be image, images, mask, label, text, json, bytes or none"
        if kind is not None and "*" in name and not isinstance(kind, Images):
            return name, (
                f"--field {name}: a name with * stands for several members of a sample, which are images or "
                "none"
            )
    return None


_NUMBERED = re.compile(r"(\D*)(\d+)\.")


def numbered(values: Mapping[str, T]) -> list[tuple[str, T]]:
    """Return a sample's members by suffix: ``0.jpg``, ``1.jpg``, ... in the order of their numbers, as a tar
    whose names were sorted has 10 before 2. Others, and those that are named otherwise beside them, stay."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for suffix in values:
        if found := _NUMBERED.match(suffix):
            groups.setdefault(found[1], []).append((int(found[2]), suffix))
    sorted_of = {name: iter(sorted(group, key=lambda one: one[0])) for name, group in groups.items()}
    order = []
    for suffix in values:
        found = _NUMBERED.match(suffix)
        order.append(next(sorted_of[found[1]])[1] if found else suffix)
    return [(suffix, values[suffix]) for suffix in order]


class Suffixes:
    """The fields that suffixes stand for.

    Args:
        asked: the users' settings; ``*.jpg`` stands for all suffixes that end so, of one list of pictures.
    """

    def __init__(self, asked: Kinds) -> None:
        self.asked = asked
        self._known: dict[str, Field | None] = {}

    def field(self, suffix: str) -> Field | None:
        """Return the field of a suffix; None: it has none. A picture is an Image unless users said more."""
        if suffix in self._known:
            return self._known[suffix]
        field = self._field(suffix)
        if len(self._known) < _MOST_SUFFIXES:
            self._known[suffix] = field
            return field
        return field if field is not None and field.storage == "records" else None

    def lists(self) -> Iterator[Field]:
        """Yield the fields of lists of pictures, which every sample has."""
        for name, kind in self.asked.items():
            if isinstance(kind, Images):
                yield Field(kind.name if "*" in name else name, kind)

    def is_unknown(self, suffix: str) -> bool:
        """Return whether a suffix has no field although nobody excluded it."""
        return self.field(suffix) is None and not any(fnmatchcase(suffix, name) for name in self.asked)

    def _field(self, suffix: str) -> Field | None:
        if suffix not in self.asked:
            listed = next((name for name in self.asked if "*" in name and fnmatchcase(suffix, name)), None)
            if listed is not None:
                kind = self.asked[listed]
                return None if kind is None else Field(kind.name, kind)
        if suffix in self.asked:
            kind = self.asked[suffix]
            if kind is None:
                return None
            return Field(LABEL if isinstance(kind, Label) else suffix, kind)
        if suffix in _PICTURES:
            return Field(IMAGE, Image())
        if suffix == "cls":
            return Field(LABEL, Label())
        last = suffix.rsplit(".", 1)[-1]
        kind_of_suffix = Image() if last in _PICTURES else _BY_SUFFIX.get(last)
        try:
            return None if kind_of_suffix is None else Field(suffix, kind_of_suffix)
        except ValueError:  # not a legal name for a field
            return None


def value_of(field: Field, data: bytes) -> bytes:
    """Convert the bytes of a member, or of another format's column, to a value of a field.

    Raises:
        ValueError: they are not one; says why.
    """
    kind = field.kind
    if isinstance(kind, Bytes):
        return data
    if isinstance(kind, Label) and (number := _NUMBER.fullmatch(data)):
        return field.encode(int(number[1]))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{field.name!r} is not UTF-8: {error.reason} at byte {error.start}") from None
    if isinstance(kind, Label):
        if kind.classes:
            return field.encode(text.strip())
        raise ValueError(f"{field.name!r} must be a class's number. Found: {text[:80]!r}")
    if isinstance(kind, Text):
        return data
    try:
        return field.encode(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{field.name!r} is no JSON: {error}") from None


# ---- Reading tars ----


def data_file(path: Path) -> Path:
    """Return the tar itself."""
    return path


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Read byte ranges of a tar's pictures, and the values of its other members.

    Raises:
        FormatError: no complete tar; members that are not plain byte ranges; pictures that fit two fields.
        OSError: it cannot be read.
    """
    if column is not None:
        raise FormatError(f"{path}: a tar has suffixes, not columns; name their fields: --field SUFFIX=KIND.")
    wrong = check_kinds(kinds)
    if wrong is not None:
        name, legal = wrong
        raise FormatError(f"{path}: {legal}. Found: {name}={getattr(kinds[name], 'name', 'none')}.")
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
        self._lists: dict[str, dict[int, list[Member]]] = {}  # likewise, in the order of their numbers
        self._values: dict[str, dict[int, bytes]] = {}
        self._labels: dict[int, int] = {}
        self._bad: dict[int, str] = {}

    def read(self) -> Foreign:
        for field in self._suffixes.lists():
            self._know(field)
            self._lists[field.name] = {}
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
        for suffix, member in numbered(sample.values):
            field = self._suffixes.field(suffix)
            if field is None:
                if self._suffixes.is_unknown(suffix):
                    self._unknown[suffix] += 1
                continue
            self._know(field)
            if field.storage == "records":
                self._lists[field.name].setdefault(number, []).append(member)
                continue
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
        if first is None and not self._lists:
            self._bad = dict.fromkeys(range(count), "has no picture") | self._bad
        located = _located(self._pictures.get(first.name, {}) if first else {}, count)
        fields = {}
        for name, field in self._fields.items():
            if field == first or name == LABEL:
                continue
            if field.storage == "record":
                chunk = _records(self._pictures[name], count)
            elif field.storage == "records":
                chunk, bad = _member_lists(self._lists[name], count)
                for number, reason in bad.items():
                    self._bad.setdefault(number, f"field {name!r}: {reason}")
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
            in_lists=first is None and bool(self._lists),
        )  # fmt: skip

    def _first(self) -> Field | None:
        """Return the field of the pictures that the index has."""
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


def _member_lists(members: Mapping[int, Sequence[Member]], count: int) -> tuple[Chunk, dict[int, str]]:
    """Return the samples' lists of pictures, all of which have one, and the wrong ones."""
    lists = [members.get(number, ()) for number in range(count)]
    flat = [member for each in lists for member in each]
    offsets, lengths = (
        np.array([getattr(member, name) for member in flat], np.int64) for name in ("offset", "size")
    )
    counts = np.array([len(each) for each in lists], np.int64)
    return lists_of(offsets, lengths, np.ones(len(flat), np.bool_), counts, np.zeros(count, np.bool_))


def _records(members: Mapping[int, Member], count: int) -> Chunk:
    """Return index entries of further pictures, as far as they are known."""
    located = _located(members, count)
    records: npt.NDArray[np.void] = np.zeros(count, RECORD)
    records["offset"], records["label"] = located.offsets, -1
    return Chunk(np.zeros(0, np.uint8), located.lengths, records)
