"""Pictures that lie about themselves, in sets whose index is right."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attack_rules import MIB, Rule, attack, honest
from coefficient_files import jpeg, picture, summed, to_record
from plain_pack import plain_pack
from uses import BLOBS, crops, read_all

KIND = "pictures"
LIMITS = Rule(
    "SECURITY.md",
    "What is checked",
    "width, height and number of progressive scans are compared with limits before pixels are allocated",
)
SIDES = Rule("SECURITY.md", "What is checked", "65,500 pixels a side, 100 scans")
ENDS = Rule(
    "SECURITY.md",
    "What is checked",
    "An image that ends before the rows that are needed of it is an error, never a picture filled up "
    "with gray",
)
OTHERS = Rule(
    "SECURITY.md",
    "What is checked",
    "may open JPEG, PNG, WebP, GIF, BMP and TIFF only, none of its other formats",
)
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
RAW = Rule("FORMAT.md", "Records", "they are uint8 RGB, `width * height * 3` bytes")
RECORD = Rule(
    "FORMAT.md", "Coefficient records", "A reader MUST refuse whatever else is not as the table says"
)
LENGTH = Rule("FORMAT.md", "Coefficient records", "The record's length MUST be exactly what follows")
REST = Rule(
    "FORMAT.md", "Coefficient records", "how many bytes there are when they are not packed: at most 64 MiB"
)


def of(folder: Path, *blobs: bytes, probe: bool = False) -> Path:
    """A set whose last records are these; their sizes are not in the index, unless they can be read."""
    return plain_pack(folder, [*BLOBS, *blobs], probe=probe).folder


def both(folder: Path, *blobs: bytes) -> Callable[[], Any]:
    """An epoch of crops, which only reads what is needed, then each whole picture."""
    of(folder, *blobs)

    def use() -> Any:
        found = None
        try:
            crops(folder)()
        except Exception as error:
            found = error
        values = read_all(folder)()
        if found is not None:
            raise found
        return values

    return use


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *more: bytes, colour: int = 2, body: bytes = b"") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def sized(data: bytes, width: int, height: int) -> bytes:
    """A baseline JPEG with another size in its frame's header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def encoded(kind: str, mode: str = "RGB", side: int = 40, **options: Any) -> bytes:
    out = io.BytesIO()
    picture(side, side).convert(mode).save(out, kind, **options)
    return out.getvalue()


@honest(KIND)
def small_pictures_of_all_kinds(folder: Path) -> Callable[[], Any]:
    kinds = [encoded(kind) for kind in ("PNG", "WEBP", "GIF", "BMP", "TIFF")]
    of(
        folder,
        *kinds,
        encoded("JPEG", progressive=True),
        to_record(jpeg(picture(40, 40)), "fast"),
        probe=True,
    )
    return read_all(folder)


@honest(KIND)
def an_epoch_of_pictures_of_all_kinds(folder: Path) -> Callable[[], Any]:
    kinds = [encoded(kind, side=300) for kind in ("PNG", "WEBP", "GIF", "BMP", "TIFF")]
    of(
        folder,
        *kinds,
        encoded("JPEG", progressive=True),
        to_record(jpeg(picture(40, 40)), "fast"),
        probe=True,
    )
    return crops(folder)


@attack(KIND, LIMITS, "pixels")
def a_jpeg_of_65500_x_65500(folder: Path) -> Callable[[], Any]:
    return both(folder, sized(BLOBS[0], 65500, 65500))


@attack(KIND, ENDS, "ends|truncated|damaged|cut|Premature|premature", extra=640 * MIB)
def a_jpeg_just_within_the_limit_without_its_rows(folder: Path) -> Callable[[], Any]:
    return both(folder, sized(BLOBS[0], 9400, 9400))


@attack(KIND, SIDES, "side|pixels|scans|65")
def a_jpeg_of_65535_x_1(folder: Path) -> Callable[[], Any]:
    return both(folder, sized(BLOBS[0], 65535, 1))


@attack(KIND, LIMITS, "scans")
def a_jpeg_of_5000_scans(folder: Path) -> Callable[[], Any]:
    data = encoded("JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return both(folder, data[:last] + data[last:-2] * 5000 + data[-2:])


@attack(KIND, LIMITS, "pixels|side|invalid|IHDR")
def a_png_of_2_to_the_31_squared(folder: Path) -> Callable[[], Any]:
    return both(folder, png(2**31 - 1, 2**31 - 1))


@attack(KIND, MEMORY, None)
def a_png_with_a_gibibyte_of_packed_text(folder: Path) -> Callable[[], Any]:
    packer = zlib.compressobj(9)
    zeros = bytes(16 * MIB)
    text = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
    rows = zlib.compress(b"".join(b"\0" + bytes(90) for _ in range(30)))
    return both(folder, png(30, 30, chunk(b"zTXt", b"a\0\0" + text), body=rows))


@attack(KIND, MEMORY, None)
def a_png_with_a_gibibyte_of_colour_profile(folder: Path) -> Callable[[], Any]:
    packer = zlib.compressobj(9)
    zeros = bytes(16 * MIB)
    text = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
    rows = zlib.compress(b"".join(b"\0" + bytes(90) for _ in range(30)))
    return both(folder, png(30, 30, chunk(b"iCCP", b"a\0\0" + text), body=rows))


@attack(KIND, MEMORY, None)
def a_png_with_more_pixels_than_it_needs(folder: Path) -> Callable[[], Any]:
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(16 * MIB)) for _ in range(32)) + packer.flush()
    return both(folder, png(30, 30, body=body))


@attack(KIND, ENDS, "PNG|ends|data|truncated|decode")
def a_png_without_a_palette(folder: Path) -> Callable[[], Any]:
    return both(folder, png(30, 30, colour=3, body=zlib.compress(bytes(31 * 30))))


@attack(KIND, LIMITS, "pixels|ends|WebP|data|decode")
def a_webp_of_16384_x_16384(folder: Path) -> Callable[[], Any]:
    data = bytearray(encoded("WEBP", lossless=True))
    at = data.index(b"VP8L") + 9
    bits = (16383 | 16383 << 14) | (int.from_bytes(data[at : at + 4], "little") & ~((1 << 28) - 1))
    data[at : at + 4] = bits.to_bytes(4, "little")
    return both(folder, bytes(data))


@attack(KIND, LIMITS, "pixels")
def a_gif_of_65535_x_65535(folder: Path) -> Callable[[], Any]:
    data = bytearray(encoded("GIF"))
    data[6:10] = b"\xff" * 4
    return both(folder, bytes(data))


@attack(KIND, LIMITS, "pixels|side|decode|GIF|damaged|valid")
def a_gif_whose_frame_is_larger_than_the_screen(folder: Path) -> Callable[[], Any]:
    data = bytearray(encoded("GIF"))
    at = data.index(b"\x2c", 13 + 3 * (2 << (data[10] & 7)))
    data[at + 5 : at + 9] = b"\xff" * 4
    return both(folder, bytes(data))


@attack(KIND, MEMORY, None)
def a_gif_of_20000_frames(folder: Path) -> Callable[[], Any]:
    data = encoded("GIF", side=4)
    at = data.index(b"\x2c", 13 + 3 * (2 << (data[10] & 7)))
    return both(folder, data[:at] + data[at:-1] * 20_000 + b";")


@attack(KIND, LIMITS, "pixels|side|decode|BMP|valid|size")
def a_bmp_of_2_to_the_31_x_minus_2_to_the_31(folder: Path) -> Callable[[], Any]:
    data = bytearray(encoded("BMP"))
    data[18:26] = struct.pack("<ii", 2**31 - 1, -(2**31))
    return both(folder, bytes(data))


def tiff(*tags: tuple[int, int, int, int], following: int = 0, tail: bytes = b"") -> bytes:
    body = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + body + struct.pack("<I", following) + tail


BASE = (
    (256, 4, 1, 8),
    (257, 4, 1, 8),
    (258, 3, 1, 8),
    (259, 3, 1, 1),
    (262, 3, 1, 1),
    (277, 3, 1, 1),
    (278, 4, 1, 8),
)


@attack(KIND, LIMITS, "pixels|decode|TIFF|side|read")
def a_tiff_of_2_to_the_32_pixels_a_side(folder: Path) -> Callable[[], Any]:
    tags = ((256, 4, 1, 2**32 - 1), (257, 4, 1, 2**32 - 1), *BASE[2:])
    return both(folder, tiff(*tags, (273, 4, 1, 8), (279, 4, 1, 64)))


@attack(KIND, ENDS, "decode|TIFF|read|ends|data")
def a_tiff_whose_strips_lie_behind_its_end(folder: Path) -> Callable[[], Any]:
    return both(folder, tiff(*BASE, (273, 4, 1, 2**32 - 9), (279, 4, 1, 2**32 - 1)))


@attack(KIND, MEMORY, "decode|TIFF|read|ends|data")
def a_tiff_of_2_to_the_32_strips(folder: Path) -> Callable[[], Any]:
    return both(folder, tiff(*BASE, (273, 4, 2**32 - 1, 8), (279, 4, 2**32 - 1, 8), following=8))


@attack(KIND, OTHERS, "decode|recognised|format|codec|picture")
def postscript_in_a_pictures_place(folder: Path) -> Callable[[], Any]:
    return both(
        folder, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n" + bytes(99)
    )


@attack(KIND, OTHERS, "decode|recognised|format|codec|picture")
def a_fits_a_psd_and_an_fli_file(folder: Path) -> Callable[[], Any]:
    fli = struct.pack("<IHHHHHHI", 128, 0xAF11, 2**16 - 1, 320, 200, 8, 3, 5) + bytes(108)
    return both(folder, b"SIMPLE  =                    T" + bytes(2880), b"8BPS\0\1" + bytes(200), fli)


@attack(KIND, RAW, "bytes|size|raw")
def raw_pixels_of_another_size(folder: Path) -> Callable[[], Any]:
    plain_pack(folder, [bytes(12 * 12 * 3), bytes(5)], raw_size=(12, 12))
    return crops(folder)


@attack(KIND, RAW, "bytes|size|raw|pixels")
def raw_pixels_of_65535_x_65535(folder: Path) -> Callable[[], Any]:
    plain_pack(folder, [bytes(12 * 12 * 3)] * 3, raw_size=(65535, 65535))
    return crops(folder)


def record(form: str = "fast") -> bytes:
    return to_record(jpeg(picture(64, 48), quality=85), form)


@attack(KIND, LIMITS, "pixels|length|segments|damaged|record")
def a_coefficient_record_of_65535_x_65535(folder: Path) -> Callable[[], Any]:
    data = record()
    return both(folder, summed(data[:8] + b"\xff" * 4 + data[12:]))


@attack(KIND, LENGTH, "length|record|segments|bytes")
def a_coefficient_record_of_segments_of_4_gib(folder: Path) -> Callable[[], Any]:
    data = record()
    return both(folder, summed(data[:52] + b"\xff" * 8 + data[60:]))


@attack(KIND, RECORD, "version|record")
def a_coefficient_record_of_version_255(folder: Path) -> Callable[[], Any]:
    data = record("small")
    return both(folder, summed(data[:4] + b"\xff\xff\x03\x44" + data[8:]))


@attack(KIND, REST, "64 MiB|rest|bytes|finds")
def a_coefficient_record_with_a_gibibyte_of_rest(folder: Path) -> Callable[[], Any]:
    from coefficient_files import rebuilt
    from coefficient_reader import rest_dictionary

    packer = zlib.compressobj(9, zdict=rest_dictionary())
    body = b"".join(packer.compress(bytes(16 * MIB)) for _ in range(16)) + packer.flush()
    made = rebuilt(record(), rest=struct.pack("<BI", 2, 2**32 - 1) + body)
    plain_pack(folder, [*BLOBS, made])

    def use() -> Any:
        from fastload._native import _C

        return len(_C.coefficients_to_jpeg(np.frombuffer(made, np.uint8)))

    return use


@attack(KIND, ENDS, "decode|recognised|ends|codec|picture|finds|data")
def records_of_one_byte(folder: Path) -> Callable[[], Any]:
    return both(folder, b"\xff", b"\x89", b"R", b"G", b"B", b"I")


@attack(KIND, MEMORY, None)
def a_jpeg_with_16_mib_of_comments(folder: Path) -> Callable[[], Any]:
    data = encoded("JPEG")
    return both(folder, data[:2] + (b"\xff\xfe\xff\xff" + bytes(65533)) * 256 + data[2:])


@attack(KIND, LIMITS, "pixels")
def an_index_that_hides_how_large_a_picture_is(folder: Path) -> Callable[[], Any]:
    return crops(of(folder, png(60_000, 60_000)))
