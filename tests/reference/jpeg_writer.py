"""Writes baseline JPEG files from quantised coefficients: for what no encoder would make.

A plain transcription of ITU-T T.81, Annex F: any sampling factors, restart intervals, Huffman code
lengths and coefficient values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ZIGZAG = sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8 if (i // 8 + i % 8) % 2 else i % 8)))


@dataclass
class Layout:
    """What goes into the headers. `factors` are (horizontal, vertical) for each component."""

    width: int
    height: int
    factors: tuple[tuple[int, int], ...] = ((1, 1),)
    restart: int = 0
    steps: int | NDArray[np.uint16] = 1  # quantisation, natural order
    skewed: bool = False  # Huffman codes of 1 to 16 bits instead of 8 for every symbol
    extra: bytes = b""  # segments before the frame header

    def mcus(self) -> tuple[int, int]:
        """Across and down."""
        h, v = (max(f[i] for f in self.factors) for i in (0, 1)) if len(self.factors) > 1 else (1, 1)
        return -(-self.width // (8 * h)), -(-self.height // (8 * v))

    def blocks(self) -> int:
        """Blocks of the whole scan, in the order of the stream."""
        across, down = self.mcus()
        per_mcu = sum(h * v for h, v in self.factors) if len(self.factors) > 1 else 1
        return across * down * per_mcu


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def code_table(symbols: list[int], skewed: bool) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Counts of code lengths 1..16, and (code, length) of each symbol."""
    counts = [0] * 16
    if skewed:  # one code each of 1..7 bits, the others of 16
        for length in range(7):
            counts[length] = 1
        counts[15] = len(symbols) - 7
    else:
        counts[8] = len(symbols)
    codes, code, at = {}, 0, 0
    for length, count in enumerate(counts, 1):
        for _ in range(count):
            codes[symbols[at]] = (code, length)
            code, at = code + 1, at + 1
        code <<= 1
    return counts, codes


def bits_of(value: int) -> tuple[int, int]:
    """Size category and the bits that follow the code."""
    size = abs(value).bit_length()
    return size, value if value >= 0 else value + (1 << size) - 1


class BitWriter:
    def __init__(self) -> None:
        self.bits: list[str] = []

    def put(self, value: int, count: int) -> None:
        if count:
            self.bits.append(format(value, f"0{count}b"))

    def take(self) -> bytes:
        text = "".join(self.bits)
        text += "1" * (-len(text) % 8)
        self.bits = []
        data = int(text, 2).to_bytes(len(text) // 8, "big") if text else b""
        return data.replace(b"\xff", b"\xff\x00")


def write_block(
    out: BitWriter,
    block: NDArray[np.int64],
    predictor: int,
    dc: dict[int, tuple[int, int]],
    ac: dict[int, tuple[int, int]],
) -> int:
    size, bits = bits_of(int(block[0]) - predictor)
    out.put(*dc[size])
    out.put(bits, size)
    run = 0
    for k in range(1, 64):
        value = int(block[ZIGZAG[k]])
        if value == 0:
            run += 1
            continue
        while run > 15:
            out.put(*ac[0xF0])
            run -= 16
        size, bits = bits_of(value)
        out.put(*ac[run << 4 | size])
        out.put(bits, size)
        run = 0
    if run:
        out.put(*ac[0x00])
    return int(block[0])


def write_jpeg(layout: Layout, coefficients: NDArray[np.int64]) -> bytes:
    """`coefficients`: int [layout.blocks(), 64] in natural order, blocks in the order of the stream."""
    dc_counts, dc = code_table(list(range(16)), layout.skewed)
    ac_symbols = [0x01, 0x00, 0x02, 0x11, 0x03, 0x04, 0x21, 0xF0]
    ac_symbols += [r << 4 | s for r in range(16) for s in range(1, 16) if r << 4 | s not in ac_symbols]
    ac_counts, ac = code_table(ac_symbols, layout.skewed)
    steps = np.broadcast_to(np.asarray(layout.steps, np.uint16), 64)
    count = len(layout.factors)
    frame = bytes([8]) + layout.height.to_bytes(2, "big") + layout.width.to_bytes(2, "big") + bytes([count])
    frame += b"".join(bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(layout.factors))
    file = b"\xff\xd8" + layout.extra
    file += segment(0xDB, b"\x10" + b"".join(int(steps[i]).to_bytes(2, "big") for i in ZIGZAG))
    file += segment(0xC1, frame)
    file += segment(0xC4, b"\x00" + bytes(dc_counts) + bytes(range(16)))
    file += segment(0xC4, b"\x10" + bytes(ac_counts) + bytes(ac_symbols))
    if layout.restart:
        file += segment(0xDD, layout.restart.to_bytes(2, "big"))
    file += segment(0xDA, bytes([count]) + b"".join(bytes([i + 1, 0]) for i in range(count)) + b"\0\x3f\0")
    return file + write_scan(layout, coefficients, dc, ac) + b"\xff\xd9"


def write_scan(
    layout: Layout,
    coefficients: NDArray[np.int64],
    dc: dict[int, tuple[int, int]],
    ac: dict[int, tuple[int, int]],
) -> bytes:
    order = [c for c, (h, v) in enumerate(layout.factors) for _ in range(h * v)]
    if len(layout.factors) == 1:
        order = [0]
    out, data, predictors, restarts = BitWriter(), b"", [0] * len(layout.factors), 0
    for start in range(0, len(coefficients), len(order)):
        mcu = start // len(order)
        if layout.restart and mcu and mcu % layout.restart == 0:
            data += out.take() + bytes([0xFF, 0xD0 + restarts % 8])
            predictors, restarts = [0] * len(predictors), restarts + 1
        for i, component in enumerate(order):
            predictors[component] = write_block(out, coefficients[start + i], predictors[component], dc, ac)
    return data + out.take()
