"""The JPEG of a coefficient record, written again from FORMAT.md and ITU-T T.81 alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from coefficient_coders import BitWriter, Coder, Codes, Parameters, chosen_coder
from coefficient_reader import Blocks, Record, check
from jpeg_writer import ZIGZAG
from numpy.typing import NDArray

__all__ = ["to_jpeg"]

SOF, DHT, EOI, SOS, DQT, DRI, COM = (0xC0, 0xC1, 0xC2), 0xC4, 0xD9, 0xDA, 0xDB, 0xDD, 0xFE
APP0, APP14, APP = 0xE0, 0xEE, range(0xE0, 0xF0)
MOST_SCANS = 100
MOST_LOW = 13  # Al


@dataclass
class Component:
    blocks: Blocks
    number: int
    factors: tuple[int, int]  # horizontal, vertical; those of one component 1
    own: tuple[int, int]  # rows of blocks, and blocks of a row, of a scan of it alone
    table: int


@dataclass
class Scan:
    parameters: Parameters
    members: list[Component]
    dc: list[Codes]
    ac: list[Codes]


@dataclass
class Frame:
    """What segments have said so far."""

    record: Record
    components: list[Component] = field(default_factory=list)
    steps: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # in natural order
    # By the byte of DHT: class and number. None: more codes than there are of their lengths.
    codes: dict[int, Codes | None] = field(default_factory=dict)
    restart: int = 0
    scans: int = 0
    jfif: bool = False
    adobe: int | None = None


class Body:
    """Of a marker segment."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        check(self.at + count <= len(self.data), "A marker segment is too short.")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count: int = 1) -> int:
        return int.from_bytes(self.take(count), "big")

    def has_more(self) -> bool:
        return self.at < len(self.data)


def to_jpeg(record: Record) -> bytes:
    """Raises ValueError where the rest is not of the record's JPEG."""
    data, frame = record.frame, Frame(record)
    check(data[:2] == b"\xff\xd8", "The rest does not begin as a JPEG does.")
    written, start, at = b"", 0, 2  # what is written ends with data[:start]
    while True:
        check(data[at : at + 1] == b"\xff", f"There is no marker at byte {at} of the rest.")
        while data[at : at + 1] == b"\xff":
            at += 1
        check(at < len(data), "The rest ends without a marker.")
        marker, at = data[at], at + 1
        if marker == EOI:
            check(frame.scans > 0, "The rest has no scan.")
            return written + data[start:]
        size = int.from_bytes(data[at : at + 2], "big")
        check(size >= 2 and at + size <= len(data), f"A segment of the rest ends behind it: byte {at}.")
        body, at = Body(data[at + 2 : at + size]), at + size
        if marker == SOS:
            written += data[start:at] + write_scan(frame, read_scan(frame, body))
            start = at
        else:
            read_segment(frame, marker, body)
        check(not body.has_more() or marker in APP or marker == COM, "A marker segment is too long.")


def read_segment(frame: Frame, marker: int, body: Body) -> None:
    if marker == DHT:
        read_codes(frame, body)
    elif marker == DRI:
        frame.restart = body.number(2)
    elif marker in APP or marker == COM:
        if marker == APP0 and len(body.data) >= 14 and body.data[:5] == b"JFIF\0":
            frame.jfif = True
        if marker == APP14 and len(body.data) >= 12 and body.data[:5] == b"Adobe":
            frame.adobe = body.data[11]
    else:
        check(frame.scans == 0 and (marker == DQT or marker in SOF), f"The marker {marker:#x} is not legal.")
        if marker == DQT:
            read_steps(frame, body)
        else:
            read_frame(frame, body, marker == 0xC2)


def read_steps(frame: Frame, body: Body) -> None:
    while body.has_more():
        head = body.number()
        check(head & 15 <= 3 and head >> 4 <= 1, f"There is no quantisation table {head:#x}.")
        steps = np.zeros(64, np.int64)
        steps[ZIGZAG] = [body.number(1 + (head >> 4)) for _ in range(64)]
        frame.steps[head & 15] = steps


def read_codes(frame: Frame, body: Body) -> None:
    while body.has_more():
        head, counts = body.number(), body.take(16)
        check(head & 15 <= 3 and head >> 4 <= 1, f"There is no Huffman table {head:#x}.")
        check(sum(counts) <= 256, "A Huffman table has more than 256 values.")
        found: Codes = {}
        code, fits = 0, True
        for length, count in enumerate(counts, 1):
            for value in body.take(count):
                fits = fits and code >> length == 0
                found.setdefault(value, (code, length))
                code += 1
            code <<= 1
        frame.codes[head] = found if fits else None


def read_frame(frame: Frame, body: Body, progressive: bool) -> None:
    head = frame.record.header
    check(not frame.components, "There are two frames.")
    bits, height, width, count = body.number(), body.number(2), body.number(2), body.number()
    said = (bits, width, height, count, progressive)
    wanted = (8, head.width, head.height, head.components, head.progressive)
    check(said == wanted, f"The rest is of another picture: {said}, not {wanted}.")
    for i in range(count):
        number, factors, table = body.number(), body.number(), body.number()
        h, v = (factors >> 4, factors & 15)
        check(1 <= h <= 4 and 1 <= v <= 4 and table <= 3, "Sampling factors or a table that are not legal.")
        if count == 1:
            h, v = 1, 1
        check((h, v) == head.factors(i), f"Component {i} has sampling factors {h} and {v}.")
        own = (ceil(ceil(height * v / head.sampling[1]) / 8), ceil(ceil(width * h / head.sampling[0]) / 8))
        frame.components.append(Component(frame.record.coefficients[i], number, (h, v), own, table))
    check(len({component.number for component in frame.components}) == count, "Two components of one number.")


def check_picture(frame: Frame) -> None:
    """Whether it is the record's, by what stands before the first scan."""
    head, components = frame.record.header, frame.components
    check(components != [], "There is a scan before the frame.")
    for component, table in zip(components, head.table_of, strict=True):
        steps = frame.steps.get(component.table)
        check(steps is not None and np.array_equal(steps, head.steps[table]), "The rest has other steps.")
    if len(components) == 3 and not frame.jfif:
        is_rgb = bytes(component.number for component in components) == b"RGB"
        check(not is_rgb if frame.adobe is None else frame.adobe == 1, "The rest is not of a YCbCr picture.")


def read_scan(frame: Frame, body: Body) -> Scan:
    if frame.scans == 0:
        check_picture(frame)
    frame.scans += 1
    check(frame.scans <= MOST_SCANS, f"There are more than {MOST_SCANS} scans.")
    count, place = body.number(), -1
    check(1 <= count <= len(frame.components), f"A scan has {count} components.")
    members, tables = [], []
    numbers = [component.number for component in frame.components]
    for _ in range(count):
        number, table = body.number(), body.number()
        check(number in numbers[place + 1 :], "A scan's components have another order than the frame's.")
        place = numbers.index(number)
        check(table >> 4 <= 3 and table & 15 <= 3, f"There are no Huffman tables {table:#x}.")
        members.append(frame.components[place])
        tables.append(table)
    first, last, bits = body.number(), body.number(), body.number()
    scan = Parameters(first, last, bits >> 4, bits & 15)
    check_parameters(frame, scan, count)
    has_dc, has_ac = scan.first == 0 and scan.high == 0, scan.last > 0
    dc = [read_table(frame, table >> 4) if has_dc else {} for table in tables]
    ac = [read_table(frame, 0x10 | table & 15) if has_ac else {} for table in tables]
    return Scan(scan, members, dc, ac)


def check_parameters(frame: Frame, scan: Parameters, count: int) -> None:
    if frame.record.header.progressive:
        is_ac = count == 1 and 1 <= scan.first <= scan.last <= 63
        ok = (is_ac or scan.first == scan.last == 0) and scan.low <= MOST_LOW
        ok = ok and scan.high in (0, scan.low + 1)
    else:
        ok = (scan.first, scan.last, scan.high, scan.low) == (0, 63, 0, 0)
    check(ok, f"A scan has parameters that are not legal: {scan}.")


def read_table(frame: Frame, which: int) -> Codes:
    check(which in frame.codes, f"The Huffman table {which:#x} is missing.")
    codes = frame.codes[which]
    if codes is None:
        raise ValueError(f"The codes of Huffman table {which:#x} do not fit their lengths.")
    return codes


def mcus(frame: Frame, scan: Scan) -> Iterator[list[tuple[int, NDArray[np.int16]]]]:
    """Of each MCU the blocks, with the number of the scan's component that each is of."""
    if len(scan.members) == 1:
        component = scan.members[0]
        rows, across = component.own
        for row in range(rows):
            for x in range(across):
                yield [(0, component.blocks[row, x])]
        return
    across, down = frame.record.header.mcus()
    for row in range(down):
        for x in range(across):
            yield [
                (i, one.blocks[row * one.factors[1] + dy, x * one.factors[0] + dx])
                for i, one in enumerate(scan.members)
                for dy in range(one.factors[1])
                for dx in range(one.factors[0])
            ]


def write_scan(frame: Frame, scan: Scan) -> bytes:
    out = BitWriter(frame.record.pads_with_ones)
    kind = chosen_coder(frame.record.header.progressive, scan.parameters)
    coder: Coder = kind(scan.parameters, scan.dc, scan.ac, out)
    restarts = 0
    for i, mcu in enumerate(mcus(frame, scan)):
        if frame.restart and i and i % frame.restart == 0:
            coder.end()
            out.fill_up()
            out.data += bytes([0xFF, 0xD0 + restarts % 8])
            restarts += 1
        for member, block in mcu:
            coder.write(member, block)
    coder.end()
    out.fill_up()
    return out.data
