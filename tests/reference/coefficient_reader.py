"""Reads coefficient records: written from FORMAT.md alone, without a look at the C++ readers, and slowly.

The tables of codes are read out of FORMAT.md itself. What breaks one of its rules raises ValueError.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Blocks",
    "Header",
    "Record",
    "check",
    "mask_bytes",
    "mask_code_lengths",
    "mask_decoders",
    "read_header",
    "read_masks",
    "read_record",
    "read_rest",
    "rest_dictionary",
]

FORMAT = Path(__file__).resolve().parents[2] / "FORMAT.md"
HEADER_BYTES = 64
LEAST_REST = 64  # bytes that the rest has at the end of a record, with its zeros
MOST_REST = 64 << 20
SEGMENT_PIXELS = 64

Blocks = NDArray[np.int16]  # [rows of blocks, blocks of a row, 64]


def check(ok: bool, what: str) -> None:
    if not ok:
        raise ValueError(what)


@cache
def crc32c_table() -> list[int]:
    """Of each byte (reflected polynomial 0x82F63B78)."""
    table = [*range(256)]
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


def crc32c(data: bytes) -> int:
    table, crc = crc32c_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@dataclass
class Header:
    """The first 64 bytes, the tables and the segments' lengths."""

    form: int
    components: int
    sampling: tuple[int, int]  # of luma: horizontal, vertical
    width: int
    height: int
    progressive: bool
    table_of: tuple[int, ...]
    rice: tuple[int, int]  # of lists A and B
    last_in_a: NDArray[np.uint8]  # [luma or chroma, bytes of the mask]
    class_bits: tuple[int, ...]
    steps: NDArray[np.uint16]  # [table, 64] in natural order
    lengths: tuple[int, ...]
    segments: bytes
    rest: bytes

    def mcus(self) -> tuple[int, int]:
        """Across and down."""
        h, v = self.sampling
        return -(-self.width // (8 * h)), -(-self.height // (8 * v))

    def factors(self, component: int) -> tuple[int, int]:
        return self.sampling if component == 0 else (1, 1)

    def mcus_of_segments(self) -> list[int]:
        """How many MCUs each segment of a row of MCUs has."""
        left, each = self.mcus()[0], SEGMENT_PIXELS // (8 * self.sampling[0])
        return [min(each, left - start) for start in range(0, left, each)]

    def rows_of(self, mcus: int) -> list[tuple[int, int, int]]:
        """Of a segment's rows of blocks: component, row in the row of MCUs, blocks."""
        factors = [self.factors(c) for c in range(self.components)]
        return [(c, row, mcus * h) for c, (h, v) in enumerate(factors) for row in range(v)]


@dataclass
class Record:
    header: Header
    coefficients: list[Blocks]  # of each component, in zig-zag order
    pads_with_ones: bool
    frame: bytes  # the file without its entropy-coded data


def read_header(data: bytes) -> Header:
    check(len(data) >= HEADER_BYTES, f"{len(data)} bytes are no header, which has 64.")
    check(data[:4] == b"\x8aFLC", "It does not begin as a record does.")
    _, version, form, components, sampling, width, height, flags, tables, table_of, rice = struct.unpack(
        "<4s4B2H4B", data[:16]
    )
    check(version == 1, f"Version {version}: 1 is known.")
    check(form in (1, 2), f"Form {form}: 1 and 2 are known.")
    check(components in (1, 3), f"{components} components: 1 or 3.")
    h, v = sampling & 15, sampling >> 4
    check(h in (1, 2) and v in (1, 2), f"Sampling factors {h} and {v}: 1 or 2.")
    check(components == 3 or sampling == 0x11, "One component has sampling factors of 1.")
    check(width > 0 and height > 0, f"{width} x {height} pixels.")
    check(flags < 4, f"Flags {flags:#x}: reserved bits are 0.")
    check(1 <= tables <= 3, f"{tables} quantisation tables: 1 to 3.")
    table = tuple(table_of >> 2 * c & 3 for c in range(components))
    check(table_of >> 2 * components == 0, "There is a table for a component that is not there.")
    check(max(table) < tables, f"Table {max(table)} of {tables}.")
    check(rice & 15 <= 3 and rice >> 4 <= 3, f"Rice parameters {rice & 15} and {rice >> 4}: at most 3.")
    last_in_a = np.frombuffer(data[16:34], np.uint8).reshape(2, 9)
    check(int(last_in_a.max()) <= 63, "The last position of list A is at most 63.")
    class_bits = tuple(data[34:50])
    check(max(class_bits) <= (63 if form == 1 else 0), "Masks have at most 63 bits, none in form small.")
    check(data[50:52] == b"\0\0", "Bytes 50 and 51 are not 0.")
    check(struct.unpack("<I", data[60:64])[0] == crc32c(data[:60] + data[64:]), "The CRC-32C is another.")
    head = Header(form, components, (h, v), width, height, bool(flags & 1), table, (rice & 15, rice >> 4),
                  last_in_a, class_bits, np.zeros((0, 64), np.uint16), (), b"", b"")  # fmt: skip
    read_sections(data, head, tables, wide=bool(flags & 2))
    return head


def read_sections(data: bytes, head: Header, tables: int, wide: bool) -> None:
    """What stands behind the 64 bytes."""
    count = len(head.mcus_of_segments()) * head.mcus()[1]
    lengths_at = HEADER_BYTES + 64 * tables * (1 + wide)
    segments_at = lengths_at + 2 * count
    check(len(data) >= segments_at, "The record is too short for its tables.")
    head.steps = (
        np.frombuffer(data[HEADER_BYTES:lengths_at], "<u2" if wide else "u1")
        .reshape(tables, 64)
        .astype(np.uint16)
    )
    head.lengths = struct.unpack(f"<{count}H", data[lengths_at:segments_at])
    segment_bytes, rest_bytes = struct.unpack("<2I", data[52:60])
    rest_at = segments_at + segment_bytes
    check(sum(head.lengths) == segment_bytes, f"Segments of {segment_bytes} bytes: their lengths differ.")
    end = rest_at + max(rest_bytes, LEAST_REST)
    check(len(data) == end, f"The record has {len(data)} bytes, not {end}.")
    head.segments, head.rest = data[segments_at:rest_at], data[rest_at : rest_at + rest_bytes]
    check(not any(data[rest_at + rest_bytes :]), "What fills up the rest is not 0.")


class Bits:
    """A segment, the lowest bit of a byte first."""

    def __init__(self, data: bytes) -> None:
        self.all = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        self.at = 0

    def take(self, count: int) -> NDArray[np.uint8]:
        check(self.at + count <= len(self.all), "A segment ends too soon.")
        self.at += count
        return self.all[self.at - count : self.at]

    def number(self, bits: int) -> int:
        return int.from_bytes(np.packbits(self.take(bits), bitorder="little").tobytes(), "little")

    def end(self) -> None:
        check(len(self.all) - self.at < 8, "A segment has bytes too many.")
        check(not self.all[self.at :].any(), "A segment's spare bits are not 0.")


@cache
def mask_code_lengths() -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Of FORMAT.md: the lengths of the codes of n for each context, and of those of the bytes."""
    text = FORMAT.read_text(encoding="utf-8").split("**Codes.**")[1].split("**The rest**")[0]
    rows = [(int(c), tuple(int(digit, 16) for digit in row))
            for c, row in re.findall(r"^\| (\d+) \| `([0-9a-f]+)` \|$", text, re.M)]  # fmt: skip
    counts = [row for row in rows if len(row[1]) == 9]
    masks = [row for row in rows if len(row[1]) == 256]
    if [c for c, _ in counts] != [*range(18)] or [c for c, _ in masks] != [*range(15)]:
        raise ValueError("FORMAT.md has other tables of codes.")
    return tuple(row for _, row in counts), tuple(row for _, row in masks)


Decoder = dict[tuple[int, int], int]  # length and code: value


@cache
def mask_decoders() -> tuple[tuple[Decoder, ...], tuple[Decoder, ...]]:
    counts, masks = mask_code_lengths()
    return tuple(map(canonical, counts)), tuple(map(canonical, masks))


def canonical(lengths: tuple[int, ...]) -> Decoder:
    """In order of length, then of value, each is the one before plus 1, filled up with zeros at its end."""
    found: Decoder = {}
    code, last = 0, 0
    for length, value in sorted((length, value) for value, length in enumerate(lengths) if length > 0):
        code = (code + 1 if found else 0) << length - last
        found[length, code] = value
        last = length
    return found


def read_code(bits: Bits, decoder: Decoder) -> int:
    code = 0
    for length in range(1, 16):
        code = code << 1 | int(bits.take(1)[0])
        if (length, code) in decoder:
            return decoder[length, code]
    raise ValueError("A segment has a code that is none.")


Row = tuple[int, int, int]
Masks = NDArray[np.uint8]  # [blocks, 64]: 1 where the coefficient is not 0


def read_dc(bits: Bits, rows: list[Row]) -> NDArray[np.int64]:
    widths = [bits.number(4) for _ in rows]
    check(max(widths) <= 12, f"DC of {max(widths)} bits: at most 12.")
    least = [(bits.number(12) ^ 0x800) - 0x800 for _ in rows]
    return np.array([
        low + bits.number(width)
        for (_, _, blocks), width, low in zip(rows, widths, least, strict=True)
        for _ in range(blocks)
    ])  # fmt: skip


def read_fixed_masks(bits: Bits, head: Header, rows: list[Row]) -> Masks:
    count = sum(blocks for _, _, blocks in rows)
    masks = np.zeros((count, 64), np.uint8)
    for block, kind in enumerate([bits.number(4) for _ in range(count)]):
        length = head.class_bits[kind]
        masks[block, 1 : 1 + length] = bits.take(length)
    return masks


def read_coded_masks(bits: Bits, rows: list[Row]) -> Masks:
    of_counts, of_bytes = mask_decoders()
    masks = []
    for component, _, blocks in rows:
        count = 4
        for _ in range(blocks):
            count = read_code(bits, of_counts[9 * (component > 0) + count])
            mask = [read_code(bits, of_bytes[3 * min(j, 4) + min(count - 1 - j, 2)]) for j in range(count)]
            check(count < 8 or mask[7] < 128, "Bit 63 of a mask is not 0.")
            masks.append(int.from_bytes(bytes(mask), "little") << 1)
    return np.array([[mask >> k & 1 for k in range(64)] for mask in masks], np.uint8)


def mask_bytes(masks: Masks) -> NDArray[np.int64]:
    """Of each block: the number of its mask's bytes up to the last one that is not zero."""
    last = np.where(masks.any(1), 63 - np.argmax(masks[:, ::-1], 1), 0)
    return (last + 7) // 8


def read_list(bits: Bits, count: int, rice: int) -> NDArray[np.int64]:
    if count == 0:
        return np.zeros(0, np.int64)
    negative = bits.take(count)
    low = np.zeros(count, np.int64)
    for plane in range(rice):
        low |= bits.take(count).astype(np.int64) << plane
    exponent = np.zeros(count, np.int64)
    level = 0
    while True:
        members = np.flatnonzero(exponent == level)
        level += 1
        said = bits.take(len(members))
        if not said.any():
            break
        check(level < 15 - rice, "A value is too large.")
        exponent[members] += said
    q = np.left_shift(1, exponent)
    for plane in range(level - 1):
        members = np.flatnonzero(exponent > plane)
        q[members] |= bits.take(len(members)).astype(np.int64) << plane
    magnitude = ((q - 1) << rice) + low + 1
    return np.where(negative == 1, -magnitude, magnitude)


def read_masks(head: Header, data: bytes, rows: list[Row]) -> tuple[Bits, NDArray[np.int64], Masks]:
    """A segment's DC and masks, and the bits behind them."""
    bits = Bits(data)
    dc = read_dc(bits, rows)
    return bits, dc, read_fixed_masks(bits, head, rows) if head.form == 1 else read_coded_masks(bits, rows)


def read_segment(head: Header, data: bytes, rows: list[Row]) -> NDArray[np.int64]:
    """[blocks, 64] in zig-zag order."""
    bits, dc, masks = read_masks(head, data, rows)
    chroma = np.repeat([int(component > 0) for component, _, _ in rows], [blocks for _, _, blocks in rows])
    last_in_a = head.last_in_a[chroma, mask_bytes(masks)]
    in_a = np.arange(64) <= last_in_a[:, None]
    values = masks.astype(np.int64)
    for members, rice in zip((in_a, ~in_a), head.rice, strict=True):
        where = (masks == 1) & members
        values[where] = read_list(bits, int(where.sum()), rice)
    bits.end()
    values[:, 0] = dc
    return values


def read_coefficients(head: Header) -> list[Blocks]:
    across, down = head.mcus()
    factors = [head.factors(c) for c in range(head.components)]
    found = [np.zeros((down * v, across * h, 64), np.int16) for h, v in factors]
    at, lengths = 0, iter(head.lengths)
    for mcu_row in range(down):
        mcu = 0
        for mcus in head.mcus_of_segments():
            length, rows = next(lengths), head.rows_of(mcus)
            values = read_segment(head, head.segments[at : at + length], rows)
            at, block = at + length, 0
            for component, row, blocks in rows:
                h, v = factors[component]
                found[component][mcu_row * v + row, mcu * h :][:blocks] = values[block : block + blocks]
                block += blocks
            mcu += mcus
    return found


# ITU-T T.81, K.3.3: code lengths and values of the example tables.
DC_VALUES = bytes(range(12))
DC_LUMA = bytes([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0])
DC_CHROMA = bytes([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
AC_LUMA = bytes([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7D])
AC_CHROMA = bytes([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77])
AC_LUMA_VALUES = bytes.fromhex(
    "0102030004110512213141061351610722711432" "8191a1082342b1c11552d1f02433627282090a16"
    "1718191a25262728292a3435363738393a434445" "464748494a535455565758595a63646566676869"
    "6a737475767778797a838485868788898a929394" "95969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6"
    "b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8" "d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8"
    "f9fa"
)  # fmt: skip
AC_CHROMA_VALUES = bytes.fromhex(
    "0001020311040521310612415107617113223281" "08144291a1b1c109233352f0156272d10a162434"
    "e125f11718191a262728292a35363738393a4344" "45464748494a535455565758595a636465666768"
    "696a737475767778797a82838485868788898a92" "939495969798999aa2a3a4a5a6a7a8a9aab2b3b4"
    "b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6" "d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8"
    "f9fa"
)  # fmt: skip


def rest_dictionary() -> bytes:
    tables = [
        (0x00, DC_LUMA, DC_VALUES),
        (0x10, AC_LUMA, AC_LUMA_VALUES),
        (0x01, DC_CHROMA, DC_VALUES),
        (0x11, AC_CHROMA, AC_CHROMA_VALUES),
    ]
    found = b""
    for name, counts, values in tables:
        body = bytes([name]) + counts + values
        found += b"\xff\xc4" + (len(body) + 2).to_bytes(2, "big") + body
    return found + bytes.fromhex("FFD8FFE000104A46494600010100000100010000")


def read_rest(rest: bytes) -> tuple[bool, bytes]:
    """Whether bytes are filled up with ones, and the file without its entropy-coded data."""
    check(len(rest) >= 5, f"A rest of {len(rest)} bytes: at least 5.")
    flags, size = struct.unpack("<BI", rest[:5])
    check(flags < 4, f"The rest's flags are {flags:#x}: reserved bits are 0.")
    check(size <= MOST_REST, f"A rest of {size} bytes: at most 64 MiB.")
    frame = rest[5:]
    if flags & 2:
        check(len(frame) >= 2 and bool(frame[1] & 0x20), "The rest is packed without the dictionary.")
        stream = zlib.decompressobj(zdict=rest_dictionary())
        try:
            frame = stream.decompress(rest[5:], size + 1)
        except zlib.error as error:
            raise ValueError(f"The rest cannot be unpacked: {error}.") from error
        check(stream.eof and not stream.unused_data, "The rest is not one stream of zlib.")
    check(len(frame) == size, f"The rest has {len(frame)} bytes, not {size}.")
    return bool(flags & 1), frame


def read_record(data: bytes) -> Record:
    """Raises ValueError where a rule of FORMAT.md is broken."""
    head = read_header(data)
    return Record(head, read_coefficients(head), *read_rest(head.rest))
