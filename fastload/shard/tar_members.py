"""The members of a tar file and where their bytes lie; nothing is read but headers.

Names and sizes are those of ustar, GNU tar and pax, as POSIX.1-2017 (pax, "ustar Interchange Format") and GNU
tar's manual ("Basic Tar Format") have them. Whatever a header says is compared with the file and with the
header's checksum before anything is concluded from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fastload.errors import FormatError
from fastload.machine.paths import read_at

__all__ = ["BLOCK", "Member", "is_tar", "members_of"]

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MOST_EXTENSION = 1 << 20  # bytes of a pax header or a long name
_CHECKED = 4096  # headers whose checksums are compared at once
_CHECKSUM = slice(148, 156)
_OLD_REGULAR, _FOLDER = b"\0", b"5"
_REGULAR = (b"0", _OLD_REGULAR, b"7")  # 7: contiguous, for systems that knew the difference
_WORDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")


@dataclass(frozen=True, slots=True)
class Member:
    """One member: a file, or what is none."""

    name: bytes
    offset: int  # of its bytes in the tar
    size: int
    what: str = ""  # what it is where it is no plain file


@dataclass(slots=True)
class _Said:
    """What extended headers say of the member that comes next."""

    everywhere: dict[bytes, bytes] = field(default_factory=dict)
    once: dict[bytes, bytes] = field(default_factory=dict)
    long_name: bytes | None = None

    def get(self, key: bytes) -> bytes | None:
        return self.once.get(key, self.everywhere.get(key))

    @property
    def is_sparse(self) -> bool:
        return any(key.startswith(b"GNU.sparse.") for key in (*self.once, *self.everywhere))


def is_tar(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a tar: its first header has the right checksum."""
    return len(head) >= BLOCK and head[:BLOCK] != _ZEROS and _checksum_said(head) in _checksums(head[:BLOCK])


def members_of(path: Path) -> Iterator[Member]:
    """All members but folders, in their order; what the checksums say is known after the last one of each
    few thousand.

    Raises:
        FormatError: no whole tar, or one whose members are no plain byte ranges.
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
        """The header at an offset; None: the end."""
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
        """Compare the checksums of the headers that came since the last time."""
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
        if kind in _WORDS:  # some writers give a hard link its file's size, and there are no bytes
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
        """Take up an extended header or a long name; returns where the next header is."""
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
        elif kind != b"K":  # a long name of a link, which is no file
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
        """Behind the end there may be zeros: another tar there would be overlooked, as tar does."""
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
    """The sum of a header's bytes with spaces for the checksum; and as old tars on signed bytes made it."""
    blank = head[:148] + b" " * 8 + head[156:]
    total = sum(blank)
    return total, total - 256 * sum(byte >= 128 for byte in blank)
