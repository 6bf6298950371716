"""Blocks to Huffman codes: ITU-T T.81, F.1.2 and G.1.2, and the choices that FORMAT.md says are libjpeg's."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

__all__ = ["BitWriter", "Coder", "Codes", "Parameters", "chosen_coder"]

LONGEST_RUN = 0x7FFF  # of blocks without further coefficients
MOST_WAITING = 937  # correction bits
Codes = dict[int, tuple[int, int]]  # value: code, bits


@dataclass
class Parameters:
    """Ss, Se, Ah and Al."""

    first: int
    last: int
    high: int
    low: int


class BitWriter:
    """The highest bit of a byte first; 00 behind FF."""

    def __init__(self, ones: bool) -> None:
        self.pad, self.waiting, self.data = "1" if ones else "0", [""], b""

    def put(self, value: int, count: int) -> None:
        if count:
            self.waiting.append(format(value & (1 << count) - 1, f"0{count}b"))

    def fill_up(self) -> None:
        text = "".join(self.waiting)
        text += self.pad * (-len(text) % 8)
        if text:
            self.data += int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")
        self.waiting = []


class Coder:
    """Of the blocks of a scan. This one: of sequential JPEGs."""

    def __init__(self, scan: Parameters, dc: list[Codes], ac: list[Codes], out: BitWriter) -> None:
        self.scan, self.dc, self.ac, self.out = scan, dc, ac, out
        self.before = [0] * len(dc)

    def write(self, member: int, block: NDArray) -> None:
        """``member``: of the scan's components."""
        self.write_dc(member, int(block[0]))
        run = 0
        for value in block[1:].tolist():
            if value == 0:
                run += 1
                continue
            self.write_value(self.ac[member], run, value)
            run = 0
        if run:
            self.code(self.ac[member], 0)

    def end(self) -> None:
        """Before a restart marker, and behind the last block."""
        self.before = [0] * len(self.before)

    def write_dc(self, member: int, value: int) -> None:
        difference, self.before[member] = value - self.before[member], value
        size = abs(difference).bit_length()
        self.code(self.dc[member], size)
        self.out.put(difference - (difference < 0), size)

    def write_value(self, codes: Codes, run: int, value: int) -> None:
        for _ in range(run // 16):
            self.code(codes, 0xF0)
        size = abs(value).bit_length()
        self.code(codes, run % 16 << 4 | size)
        self.out.put(value - (value < 0), size)

    def code(self, codes: Codes, value: int) -> None:
        if value not in codes:
            raise ValueError(f"The file has no code for {value:#x}.")
        self.out.put(*codes[value])


class DcFirst(Coder):
    def write(self, member: int, block: NDArray) -> None:
        self.write_dc(member, int(block[0]) >> self.scan.low)


class DcFurther(Coder):
    def write(self, member: int, block: NDArray) -> None:
        self.out.put(int(block[0]) >> self.scan.low, 1)


class AcFirst(Coder):
    """Blocks behind whose last coefficient nothing follows are counted, and written as a run of them."""

    run = 0  # blocks
    waiting = ""  # their correction bits (AcFurther)

    def band(self, block: NDArray) -> list[int]:
        """Without the bits that later scans have; towards zero."""
        band = block[self.scan.first : self.scan.last + 1].tolist()
        return [(abs(value) >> self.scan.low) * (1 if value > 0 else -1) for value in band]

    def write(self, member: int, block: NDArray) -> None:
        zeros = 0
        for value in self.band(block):
            if value == 0:
                zeros += 1
                continue
            self.end_run()
            self.write_value(self.ac[0], zeros, value)
            zeros = 0
        if zeros:
            self.lengthen_run("")

    def lengthen_run(self, bits: str) -> None:
        self.run += 1
        self.waiting += bits
        if self.run == LONGEST_RUN or len(self.waiting) > MOST_WAITING:
            self.end_run()

    def end_run(self) -> None:
        if self.run:
            size = self.run.bit_length() - 1
            self.code(self.ac[0], size << 4)
            self.out.put(self.run, size)
            self.out.waiting.append(self.waiting)
            self.run, self.waiting = 0, ""

    def end(self) -> None:
        self.end_run()


class AcFurther(AcFirst):
    def write(self, member: int, block: NDArray) -> None:
        band = self.band(block)
        last_new = max((k for k, value in enumerate(band) if abs(value) == 1), default=-1)
        zeros, bits = 0, ""  # since the last code
        for k, value in enumerate(band):
            if value == 0:
                zeros += 1
                continue
            while zeros > 15 and k <= last_new:
                self.end_run()
                self.code(self.ac[0], 0xF0)
                self.out.waiting.append(bits)
                zeros, bits = zeros - 16, ""
            if abs(value) > 1:
                bits += str(abs(value) & 1)
                continue
            self.end_run()
            self.code(self.ac[0], zeros << 4 | 1)
            self.out.put(int(value > 0), 1)
            self.out.waiting.append(bits)
            zeros, bits = 0, ""
        if zeros or bits:
            self.lengthen_run(bits)


def chosen_coder(progressive: bool, scan: Parameters) -> type[Coder]:
    if not progressive:
        return Coder
    if scan.first == 0:
        return DcFurther if scan.high else DcFirst
    return AcFurther if scan.high else AcFirst
