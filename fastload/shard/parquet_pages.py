"""Where the values of an uncompressed byte-array column of a Parquet file lie.

Pages, levels and Thrift's compact protocol as Apache Parquet's format describes them (parquet.thrift,
Encodings.md); the file's metadata are pyarrow's business.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.machine.paths import read_at

__all__ = ["ChunkReader", "hybrid"]

_HEADER, _MOST_HEADER = 1 << 16, 1 << 24  # bytes read for a page's header at first, at most
_MOST_DEEP = 16
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # types of pages
Ranges = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class ChunkReader:
    """Reads the pages of one column chunk.

    Args:
        descriptor: the open file.
        start: where the chunk begins in the file.
        stop: where it ends.
        level: the definition level of a value that is there.
    """

    def __init__(self, descriptor: int, start: int, stop: int, level: int) -> None:
        self._descriptor, self._at, self._stop, self._level = descriptor, start, stop, level
        self._dictionary: Ranges | None = None

    def ranges(self, count: int) -> Ranges:
        """Offsets in the file and lengths of the chunk's ``count`` values.

        Raises:
            FormatError: damage, rows without a value, encodings that are no plain ranges.
        """
        offsets, lengths, found = [], [], 0
        while found < count:
            one, two = self._page()
            offsets.append(one)
            lengths.append(two)
            found += len(one)
        if found != count:
            raise FormatError(f"its pages have {found} values, the metadata say {count}")
        nothing = np.zeros(0, np.uint64)
        return np.concatenate([nothing, *offsets]), np.concatenate([nothing, *lengths])

    def _page(self) -> Ranges:
        """The values of the next page of data."""
        while True:
            header, begin = self._header()
            size = _integer(header, 3)
            if not 0 <= size <= self._stop - begin:
                raise FormatError(f"a page at byte {self._at} says that it has {size} bytes")
            self._at = begin + size
            kind = _integer(header, 1)
            if kind == _DICTIONARY:
                about = _struct(header, 7)
                self._dictionary = self._plain(begin, self._at, _integer(about, 1))
            elif kind in (_DATA, _DATA_2):
                return self._data(_struct(header, 5 if kind == _DATA else 8), kind, begin)

    def _data(self, about: dict[int, Any], kind: int, begin: int) -> Ranges:
        count = _integer(about, 1)
        encoding = _integer(about, 2 if kind == _DATA else 4)
        if encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and self._dictionary is not None:
            most = len(self._dictionary[0])  # each value belongs to one row
        elif encoding == _PLAIN:
            most = (self._at - begin) // 4
        else:
            raise FormatError(f"its values have the encoding {encoding}, and are no plain ranges")
        if not 0 <= count <= most:
            raise FormatError(f"a page has {count} values, and bytes of {most}: rows share bytes, or damage")
        if kind == _DATA_2:
            levels = _integer(about, 5)
            if _integer(about, 6):
                raise FormatError("rows have several values each")
            first = begin
            begin += levels
        elif self._level:
            levels = int.from_bytes(self._read(begin, 4), "little")
            first = begin + 4
            begin = first + levels
        else:
            levels, first = 0, begin
        if not 0 <= levels <= self._at - first:
            raise FormatError(f"a page has {levels} bytes of levels, more than its own")
        if self._level:
            found = hybrid(self._read(first, levels), self._level.bit_length(), count)
            if (found != self._level).any():
                raise FormatError("there are rows without bytes")
        if encoding == _PLAIN:
            return self._plain(begin, self._at, count)
        assert self._dictionary is not None
        width = self._read(begin, 1)[0] if count else 0
        which = hybrid(self._read(begin + 1, self._at - begin - 1), width, count)
        if len(which) and int(which.max()) >= len(self._dictionary[0]):
            raise FormatError("a page names values that its dictionary does not have")
        return self._dictionary[0][which], self._dictionary[1][which]

    def _plain(self, begin: int, end: int, count: int) -> Ranges:
        """Values behind each other, each with its length (u32) in front."""
        if not 0 <= 4 * count <= end - begin:
            raise FormatError(f"a page of {end - begin} bytes says that it has {count} values")
        offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        at = begin
        for number in range(count):
            if at > end - 4:
                raise FormatError("a page ends within its values")
            length = int.from_bytes(self._read(at, 4), "little")
            offsets[number], lengths[number] = at + 4, length
            at += 4 + length
        if at > end:
            raise FormatError("a page ends within its values")
        return offsets, lengths

    def _read(self, at: int, size: int) -> bytes:
        data = read_at(self._descriptor, size, at)
        if len(data) != size:
            raise FormatError(f"it ends within a page, at byte {at}")
        return data

    def _header(self) -> tuple[dict[int, Any], int]:
        """The header of the page at the current place, and where the page's bytes begin."""
        size = _HEADER
        while True:
            data = read_at(self._descriptor, min(size, max(self._stop - self._at, 0)), self._at)
            try:
                thrift = _Thrift(data)
                return thrift.struct(), self._at + thrift.at
            except IndexError:
                if len(data) < size or size >= _MOST_HEADER:
                    raise FormatError(f"a page's header at byte {self._at} is cut off") from None
                size *= 16


class _Thrift:
    """Structs of the compact protocol as dicts of field numbers; raises IndexError at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, deep: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self._value(head & 15, deep, in_struct=True)

    def _value(self, kind: int, deep: int, in_struct: bool = False) -> Any:
        if deep > _MOST_DEEP:
            raise FormatError("a page's header is nested too deep")
        if kind in (1, 2):
            return kind == 1 if in_struct else self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self.varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self.varint()
            return [self._value(head & 15, deep + 1) for _ in range(min(count, len(self._data) + 1))]
        if kind == 12:
            return self.struct(deep + 1)
        raise FormatError(f"a page's header has a value of the unknown type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise FormatError("a page's header has a number of more than 64 bits")

    def _signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def hybrid(data: bytes, width: int, count: int) -> npt.NDArray[np.int64]:
    """Numbers of ``width`` bits in runs, each of one number or bit-packed.

    Raises:
        FormatError: too few, or wider than 32 bits.
    """
    if width > 32:
        raise FormatError(f"numbers of {width} bits; at most 32 are legal")
    if width == 0:
        return np.zeros(count, np.int64)
    parts, found, thrift = [], 0, _Thrift(data)
    try:
        while found < count:
            head = thrift.varint()
            if head & 1:
                size = (head >> 1) * width
                packed = np.frombuffer(data[thrift.at : thrift.at + size], np.uint8)
                bits = np.unpackbits(packed, bitorder="little")
                whole = bits[: len(bits) // width * width].reshape(-1, width).astype(np.int64)
                part = whole @ (np.int64(1) << np.arange(width, dtype=np.int64))
                thrift.at += size
            else:
                part = np.full(min(head >> 1, count - found), 0, np.int64)
                at, thrift.at = thrift.at, thrift.at + (width + 7) // 8
                part += int.from_bytes(data[at : thrift.at], "little")
            if not len(part):
                raise IndexError
            parts.append(part[: count - found])
            found += len(parts[-1])
    except IndexError:
        raise FormatError(f"a page has {found} of {count} levels or indices") from None
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _integer(header: dict[int, Any], number: int) -> int:
    value = header.get(number)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(f"a page's header lacks the number {number}")
    return value


def _struct(header: dict[int, Any], number: int) -> dict[int, Any]:
    value = header.get(number)
    if not isinstance(value, dict):
        raise FormatError(f"a page's header lacks the part {number}")
    return value
