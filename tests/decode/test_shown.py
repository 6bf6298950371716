"""Pictures as they are shown: turned as EXIF says, and on white, equal to what Pillow makes of them."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from long_forms import SEED, how_many
from PIL import Image, ImageOps

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil
from fastload.errors import DecodeError

FORMATS = ("JPEG", "PNG", "WEBP")
SIZES = ((37, 51), (1, 7), (64, 64), (129, 33), (8, 1))
TURNED, WHITE = (True, False), (False, True)


def array_of(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def file_of(picture: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def exif_of(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def pixels(height: int, width: int, channels: int = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(SEED).integers(0, 256, (height, width, channels), np.uint8)


def upright(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def on_white(picture: Image.Image) -> np.ndarray[Any, Any]:
    if picture.mode not in ("LA", "RGBA", "PA") and "transparency" not in picture.info:
        return np.asarray(picture.convert("RGB"))
    over = picture.convert("RGBA")
    white = Image.new("RGBA", over.size, (255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(white, over).convert("RGB"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", SIZES)
def test_turned(form: str, size: tuple[int, int]) -> None:
    """Every orientation, whole and in parts, which count in the turned picture; 0 and 9 are none."""
    draw, decoder = np.random.default_rng(SEED), _C.Decoder()
    for orientation in range(10):
        picture = Image.fromarray(pixels(size[1], size[0]))
        data = array_of(file_of(picture, form, exif=exif_of(orientation)))
        wanted = upright(data.tobytes())
        height, width = wanted.shape[:2]
        assert _C.probe(data, TURNED)[1:3] == (width, height)
        assert np.array_equal(decoder.decode_rgb(data, shown=TURNED), wanted)
        assert np.array_equal(
            decoder.decode_rgb(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        )
        gray = np.asarray(Image.fromarray(wanted).convert("L"))
        assert np.array_equal(decoder.decode(data, (1, 8, False), shown=TURNED)[..., 0], gray)
        for _ in range(6):
            x, y = int(draw.integers(width)), int(draw.integers(height))
            part = x, y, int(draw.integers(1, width - x + 1)), int(draw.integers(1, height - y + 1))
            found = decoder.decode_rgb(data, part, TURNED)
            assert np.array_equal(found, wanted[y : y + part[3], x : x + part[2]])


def test_every_value_with_every_alpha() -> None:
    value, alpha = np.meshgrid(np.arange(256), np.arange(256))
    given = Image.fromarray(np.stack([value, value[::-1], 255 - value, alpha], -1).astype(np.uint8))
    both = Image.fromarray(np.stack([value, alpha], -1).astype(np.uint8))
    lossless = {"lossless": True, "exact": True}
    files = [file_of(given, "PNG"), file_of(given, "WEBP", **lossless), file_of(given, "WEBP", quality=70)]
    for data in (*files, file_of(both, "PNG")):
        wanted = on_white(Image.open(io.BytesIO(data)))
        decoder = _C.Decoder()
        assert np.array_equal(decoder.decode_rgb(array_of(data), shown=WHITE), wanted)
        assert np.array_equal(decoder.decode_rgb(array_of(data), (3, 5, 100, 77), WHITE), wanted[5:82, 3:103])
        gray = np.asarray(Image.fromarray(wanted).convert("L"))
        assert np.array_equal(decoder.decode(array_of(data), (1, 8, False), shown=WHITE)[..., 0], gray)


def transparent() -> Iterator[tuple[str, bytes]]:
    """Yield PNGs whose transparency is not a channel."""
    colours = Image.fromarray(pixels(40, 50))
    few = np.random.default_rng(SEED).integers(0, 3, (40, 50, 3)).astype(np.uint8) * 100
    many = colours.quantize(64)
    yield "palette", file_of(many, "PNG", transparency=bytes(range(0, 256, 4)))
    yield "one colour of a palette", file_of(many, "PNG", transparency=5)
    yield "RGB", file_of(Image.fromarray(few), "PNG", transparency=(100, 0, 200))
    yield "gray", file_of(Image.fromarray(few[..., 0]), "PNG", transparency=100)
    bits = Image.fromarray((few[..., 0] > 50).astype(np.uint8) * 255).convert("1")
    yield "black of two", file_of(bits, "PNG", transparency=0)
    yield "white of two", file_of(bits, "PNG", transparency=1)
    for depth in (1, 2, 4):
        entries = bytes([0, 128, 255, 30][: 2**depth])
        yield f"{depth} bits", file_of(colours.quantize(2**depth), "PNG", bits=depth, transparency=entries)
    yield "none", file_of(many, "PNG")


@pytest.mark.parametrize(("what", "data"), list(transparent()))
def test_transparency_of_a_png(what: str, data: bytes) -> None:
    found = _C.Decoder().decode_rgb(array_of(data), shown=WHITE)
    assert np.array_equal(found, on_white(Image.open(io.BytesIO(data)))), what


def test_pillow_shows_what_it_decodes() -> None:
    few = Image.fromarray(pixels(30, 20)).quantize(16)
    gif, tiff = file_of(few, "GIF", transparency=3), file_of(few.convert("RGBA"), "TIFF")
    for data in (gif, tiff):
        decoder = _C.Decoder(fallback=decode_with_pil)
        assert np.array_equal(
            decoder.decode_rgb(array_of(data), shown=WHITE), on_white(Image.open(io.BytesIO(data)))
        )
        plain = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.array_equal(decoder.decode_rgb(array_of(data)), plain)
    for orientation in range(1, 9):
        data = file_of(few.convert("RGB"), "TIFF", exif=exif_of(orientation))
        found = _C.Decoder(fallback=decode_with_pil).decode_rgb(array_of(data), shown=TURNED)
        wanted = upright(data)
        assert np.array_equal(found, wanted)
        assert _C.probe(array_of(data), TURNED)[1:3] == wanted.shape[1::-1]


# ---- Which way: by Pillow, of any bytes -------------------------------------------------------------


def by_pillow(data: bytes) -> int:
    """Return the orientation that ``exif_transpose`` goes by; 1 where it fails, or turns nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            picture = Image.open(io.BytesIO(data))
            found = picture.getexif().get(0x0112, 1)
        except Exception:  # SyntaxError, struct.error, IndexError and others
            return 1
    return int(found) if found in range(1, 9) else 1


def jpeg_with(*segments: bytes) -> bytes:
    body = b"".join(b"\xff\xe1" + struct.pack(">H", len(one) + 2) + one for one in segments)
    plain = file_of(Image.new("RGB", (5, 3)), "JPEG")
    end = 4 + int.from_bytes(plain[4:6], "big")
    assert plain[2:4] == b"\xff\xe0"
    return plain[:2] + body + plain[end:]  # without the JFIF segment, whose resolution Pillow would use


def png_with(*chunks: tuple[bytes, bytes], last: bool = False) -> bytes:
    plain = file_of(Image.new("RGB", (5, 3)), "PNG")
    at = len(plain) - 12 if last else 33
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return plain[:at] + body + plain[at:]


def tiff_of(
    order: str, entries: list[tuple[int, int, int, bytes]], tail: bytes = b"", more: int = 0
) -> bytes:
    """Return a directory of (tag, type, count, 4 bytes); ``more``: entries that it says it has besides."""
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8)
    count = struct.pack(order + "H", len(entries) + more)
    rows = b"".join(struct.pack(order + "HHI", *one[:3]) + one[3] for one in entries)
    return head + count + rows + tail


def entry(order: str, kind: int, number: int) -> tuple[int, int, int, bytes]:
    code = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 13: "I"}[kind]
    return 0x0112, kind, 1, struct.pack(order + code, number).ljust(4, b"\0")


@pytest.mark.parametrize("order", ["<", ">"])
def test_types_and_byte_orders(order: str) -> None:
    found = set()
    for kind in (1, 3, 4, 6, 8, 9, 11, 13):
        for number in range(10):
            exif = b"Exif\0\0" + tiff_of(order, [entry(order, kind, number)], bytes(4))
            for data in (
                jpeg_with(exif),
                png_with((b"eXIf", exif[6:])),
                png_with((b"eXIf", exif[6:]), last=True),
            ):
                assert _C.orientation(array_of(data)) == by_pillow(data), (kind, number)
            found.add((kind, _C.orientation(array_of(data))))
    assert {number for kind, number in found if kind == 3} == set(range(1, 9))
    assert {number for kind, number in found if kind == 1} == {1}  # bytes are no numbers


XMP = b"http://ns.adobe.com/xap/1.0/\0"


def test_other_places() -> None:
    """XMP, several segments, and text chunks; EXIF goes before XMP."""
    tiff = tiff_of("<", [entry("<", 3, 6)], bytes(4))
    none = tiff_of("<", [(0x0100, 3, 1, b"\1\0\0\0")], bytes(4))
    six = b'<x tiff:Orientation="6"/>'
    compressed, hexed = zlib.compress(six), b"\nexif\n      26\n" + (b"Exif\0\0" + tiff).hex().encode()
    files = {
        "XMP": jpeg_with(XMP + six),
        "XMP as an element": jpeg_with(XMP + b"<tiff:Orientation>8</tiff:Orientation>"),
        "the second is one": jpeg_with(XMP + b'tiff:Orientation tiff:Orientation="7"'),
        "both": jpeg_with(XMP + b'tiff:Orientation="3"', b"Exif\0\0" + tiff),
        "EXIF without it": jpeg_with(XMP + six, b"Exif\0\0" + none),
        "damaged EXIF": jpeg_with(XMP + six, b"Exif\0\0nothing at all"),
        "empty EXIF": jpeg_with(XMP + six, b"Exif\0\0"),
        "twice Exif": jpeg_with(b"Exif\0\0Exif\0\0" + tiff),
        "two segments": jpeg_with(b"Exif\0\0" + tiff[:15], b"Exif\0\0" + tiff[15:]),
        "PNG's XMP": png_with((b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + six)),
        "compressed": png_with((b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + compressed)),
        "zTXt": png_with((b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(hexed))),
        "tEXt": png_with((b"tEXt", b"Raw profile type exif\0" + hexed), last=True),
        "eXIf before text": png_with((b"eXIf", none), (b"tEXt", b"Raw profile type exif\0" + hexed)),
        "no digits": png_with(
            (b"tEXt", b"Raw profile type exif\0\n\n\nxyz"), (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + six)
        ),
    }
    picture = Image.new("RGB", (5, 3))
    files["WebP's XMP"] = file_of(picture, "WEBP", xmp=six)
    files["WebP's both"] = file_of(picture, "WEBP", xmp=six, exif=b"Exif\0\0" + none)
    answers = {name: _C.orientation(array_of(data)) for name, data in files.items()}
    assert answers == {name: by_pillow(data) for name, data in files.items()}
    assert {1, 6, 7, 8} == set(answers.values())


@some.composite
def directories(draw: Any) -> bytes:
    """Draw a TIFF with entries of any tags, types and places, or cut off."""
    order = draw(some.sampled_from("<>"))
    tags = some.sampled_from([0x0112, 0x0112, 0x0100, 0x8769])
    count = some.one_of(some.integers(0, 3), some.integers(0, 2**32 - 1))
    value = some.one_of(
        some.integers(0, 9).map(lambda number: struct.pack(order + "HH", number, 0)),
        some.integers(0, 99).map(lambda number: struct.pack(order + "I", number)),
        some.binary(min_size=4, max_size=4),
    )
    rows = some.tuples(tags, some.integers(0, 18), count, value)
    data = tiff_of(
        order, draw(some.lists(rows, max_size=5)), draw(some.binary(max_size=24)), draw(some.integers(0, 2))
    )
    return data[: draw(some.integers(0, len(data)))] if draw(some.booleans()) else data


@given(directories())
@settings(max_examples=how_many(600, 20_000), deadline=None)
def test_drawn_directories(tiff: bytes) -> None:
    for data in (jpeg_with(b"Exif\0\0" + tiff), png_with((b"eXIf", tiff))):
        assert _C.orientation(array_of(data)) == by_pillow(data)


@given(some.sampled_from(FORMATS), some.integers(1, 8), some.data())
@settings(max_examples=how_many(300, 5_000), deadline=None)
def test_damaged_files(form: str, orientation: int, data: Any) -> None:
    """Any byte may be another one: an answer from 1 to 8, and pixels or an error in words."""
    file = bytearray(file_of(Image.fromarray(pixels(9, 13)), form, exif=exif_of(orientation)))
    for _ in range(data.draw(some.integers(1, 4))):
        file[data.draw(some.integers(4, len(file) - 1))] = data.draw(some.integers(0, 255))
    cut = file[: data.draw(some.integers(0, len(file)))] if data.draw(some.booleans()) else file
    given = array_of(bytes(cut))
    assert 1 <= _C.orientation(given) <= 8
    try:
        found = _C.Decoder(max_pixels=10**6).decode_rgb(given, shown=(True, True))
    except (DecodeError, MemoryError, ValueError):
        return
    assert found.shape[1::-1] == _C.probe(given, TURNED)[1:3]
