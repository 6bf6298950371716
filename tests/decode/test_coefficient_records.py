"""Coefficient records: the same file back, the same pixels, and nothing but an error from damage."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import re
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from fastload import _C
from fastload.errors import DecodeError

FORMS = ("fast", "small")
HEADER = 64  # bytes


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Smooth colours with noise and an edge: few coefficients in some blocks, many in others."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (7.0 + 9 * c)) * np.cos(y / (11.0 + 5 * c)) for c in range(3)]
    noise = rng.normal(0, 25, (height, width, 3)) * (x > width // 2)[..., None]
    pixels = np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def jpeg(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def to_record(data: bytes, form: str) -> bytes:
    return _C.to_coefficients(np.frombuffer(data, np.uint8), form)


def to_record_of_pixels(data: bytes, form: str) -> bytes:
    return _C.to_coefficients(np.frombuffer(data, np.uint8), form, "pixels")


def to_jpeg(record: bytes) -> bytes:
    return _C.coefficients_to_jpeg(np.frombuffer(record, np.uint8))


def pixels_of(data: bytes, roi: tuple[int, int, int, int] | None = None) -> np.ndarray:
    return _C.decode_rgb(np.frombuffer(data, np.uint8), roi=roi)


def check(data: bytes, form: str) -> bytes:
    record = to_record(data, form)
    assert to_jpeg(record) == data
    assert to_record_of_pixels(data, form) == record
    wanted = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(pixels_of(record), wanted)
    return record


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("subsampling", "progressive"), [*itertools.product((0, 1, 2), (False, True))])
def test_every_size_gives_the_same_file_and_pixels(form: str, subsampling: int, progressive: bool) -> None:
    sizes = [*itertools.product((1, 2, 7, 8, 9, 16, 17), (1, 8, 15, 16, 17))]
    sizes += [(63, 33), (64, 16), (65, 40), (200, 131)]
    for width, height in sizes:
        data = jpeg(picture(width, height), quality=85, subsampling=subsampling, progressive=progressive)
        check(data, form)


@pytest.mark.parametrize("form", FORMS)
def test_every_quality(form: str) -> None:
    image = picture(75, 50)
    for quality in range(1, 101):
        data = jpeg(image, quality=quality, subsampling=2 * (quality % 2), progressive=quality % 3 == 0)
        check(data, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"optimize": True},
        {"restart_marker_blocks": 1},
        {"restart_marker_blocks": 7},
        {"restart_marker_rows": 1},
        {"restart_marker_rows": 1, "progressive": True},
        {"restart_marker_blocks": 3, "progressive": True},
        {"comment": b"\xff\xd8\xff" * 2000},
        {"exif": b"Exif\0\0" + bytes(range(256)) * 20},
    ],
    ids=str,
)
def test_what_encoders_do(form: str, options: dict[str, object]) -> None:
    for mode, quality in itertools.product(("RGB", "L"), (30, 95)):
        check(jpeg(picture(150, 90, mode), quality=quality, **options), form)


@pytest.mark.parametrize("form", FORMS)
def test_regions_equal_those_of_the_picture(form: str) -> None:
    rng = random.Random(1)
    for subsampling in (0, 1, 2):
        data = jpeg(picture(333, 217), quality=90, subsampling=subsampling)
        record = to_record(data, form)
        whole = pixels_of(data)
        for _ in range(40):
            width, height = rng.randint(1, 333), rng.randint(1, 217)
            x, y = rng.randint(0, 333 - width), rng.randint(0, 217 - height)
            part = pixels_of(record, (x, y, width, height))
            assert np.array_equal(part, whole[y : y + height, x : x + width]), (
                subsampling,
                x,
                y,
                width,
                height,
            )


@pytest.mark.parametrize("form", FORMS)
def test_bytes_behind_the_end_marker_come_back(form: str) -> None:
    data = jpeg(picture(50, 40)) + b"a second picture's \xff\xda and end\xff\xd9"
    check(data, form)


def test_zero_padding_bits_come_back() -> None:
    # A black picture's data ends inside a byte; its padding is set to zeros.
    data = bytearray(jpeg(picture(16, 16), quality=50))
    assert data[-2:] == b"\xff\xd9"
    found = 0
    for bits in range(1, 8):
        changed = bytearray(data)
        changed[-3] &= 0xFF << bits & 0xFF
        if changed[-3] == data[-3] or changed[-3] == 0xFF:
            continue
        try:
            record = to_record(bytes(changed), "fast")
        except DecodeError:
            continue  # more than padding was changed
        assert to_jpeg(record) == bytes(changed)
        found += 1
    assert found > 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "JPEG|empty|kind"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "kind"),
        (jpeg(picture(40, 30))[:-2], "end marker"),
        (jpeg(picture(40, 30).convert("CMYK")), "kind"),
        (jpeg(picture(40, 30)).replace(b"\xff\xdb", b"\x00\xff\xdb", 1), "kind|garbage"),
    ],
    ids=["empty", "png", "cut", "cmyk", "garbage"],
)
def test_what_cannot_be_a_record_says_why(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        to_record(data, "fast")


def test_a_form_that_is_none() -> None:
    with pytest.raises(ValueError, match="form must be"):
        to_record(jpeg(picture(8, 8)), "medium")


def crc32c(data: bytes) -> int:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def test_the_layout_is_what_format_md_says() -> None:
    record = check(jpeg(picture(100, 60), quality=90, subsampling=2), "fast")
    assert record[:4] == b"\x8aFLC"
    version, form, components, sampling, width, height, flags, tables, table_of, rice = struct.unpack(
        "<4B2H4B", record[4:16]
    )
    assert (version, form, components, sampling, width, height) == (1, 1, 3, 0x22, 100, 60)
    assert (flags, tables, table_of) == (0, 2, 0b010100)
    assert rice & 15 <= 3
    assert rice >> 4 <= 3
    segments, rest, crc = struct.unpack("<3I", record[52:64])
    lengths = struct.unpack("<8H", record[HEADER + 128 : HEADER + 128 + 16])  # 4 rows of 2 segments
    assert sum(lengths) == segments
    assert len(record) == HEADER + 128 + 16 + segments + max(rest, 64)
    assert crc == crc32c(record[:60] + record[64:])
    tail = record[HEADER + 128 + 16 + segments :][:rest]
    flags, size = tail[0], struct.unpack("<I", tail[1:5])[0]
    assert flags & 2
    assert size > 0
    with pytest.raises(zlib.error):  # a preset dictionary
        zlib.decompress(tail[5:])


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_an_error_or_another_picture_but_no_crash(form: str) -> None:
    rng = random.Random(5)
    original = to_record(jpeg(picture(120, 70), quality=92, subsampling=2), form)
    refused = 0
    for _ in range(3000):
        record = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            record[rng.randrange(len(record)) if rng.random() < 0.6 else rng.randrange(HEADER)] = (
                rng.randrange(256)
            )
        if rng.random() < 0.2:
            del record[rng.randrange(len(record)) :]
        if bytes(record) == original:
            continue
        for read in (pixels_of, to_jpeg):
            try:
                read(bytes(record))
            except (DecodeError, ValueError):
                refused += 1
    assert refused > 3000  # the CRC alone refuses each of coefficients_to_jpeg's


@pytest.mark.parametrize("form", FORMS)
def test_damage_with_a_true_checksum_is_met_in_words(form: str) -> None:
    rng = random.Random(6)
    original = to_record(jpeg(picture(60, 40), quality=80, progressive=True), form)
    for _ in range(150):
        record = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            record[rng.randrange(4, len(record))] = rng.randrange(256)
        record[60:64] = struct.pack("<I", crc32c(bytes(record[:60] + record[64:])))
        with contextlib.suppress(DecodeError, ValueError):
            to_jpeg(bytes(record))


def test_pixels_are_proved_where_the_file_does_not_come_back() -> None:
    data = jpeg(picture(160, 120), quality=90, restart_marker_blocks=2)
    found = 0
    for at in (match.start() for match in re.finditer(rb"\xff[\xd0-\xd7]", data)):
        changed = bytearray(data)
        changed[at - 1] &= 0xFE  # a padding bit, or the last bit of a value
        try:
            to_record(bytes(changed), "fast")
        except DecodeError as error:
            if "would differ" not in str(error):
                continue
        else:
            continue
        record = to_record_of_pixels(bytes(changed), "fast")
        assert np.array_equal(pixels_of(record), pixels_of(bytes(changed)))
        assert np.array_equal(pixels_of(record), pixels_of(data))
        found += 1
    assert found > 5


def test_an_unknown_proof_is_refused() -> None:
    with pytest.raises(ValueError, match='proof must be "file" or "pixels". Found: "none"'):
        _C.to_coefficients(np.frombuffer(jpeg(picture(16, 16)), np.uint8), "fast", "none")
