"""A reader of coefficient records that is written from FORMAT.md alone reads what the core writes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from coefficient_files import FORMS, SAMPLINGS, jpeg, picture, to_record, with_frame
from coefficient_jpeg import to_jpeg
from coefficient_reader import mask_code_lengths, read_record
from jpeg_writer import ZIGZAG, Layout, write_jpeg
from PIL import Image

from fastload.errors import DecodeError


def check_file(data: bytes) -> None:
    """Both forms say the same coefficients, and the file comes back from each."""
    fast, small = (read_record(to_record(data, form)) for form in FORMS)
    assert (fast.header.form, small.header.form) == (1, 2)
    assert len(fast.coefficients) == fast.header.components
    for one, other in zip(fast.coefficients, small.coefficients, strict=True):
        assert np.array_equal(one, other)
    assert to_jpeg(fast) == data
    assert to_jpeg(small) == data


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sizes(sampling: str, progressive: bool) -> None:
    mode, subsampling = SAMPLINGS[sampling]
    for width, height in [(1, 1), (8, 9), (16, 16), (17, 3), (64, 8), (65, 17), (70, 50)]:
        data = jpeg(
            picture(width, height, mode), quality=80, subsampling=subsampling, progressive=progressive
        )
        check_file(data)


def test_qualities() -> None:
    for quality in range(1, 101):
        sampling = list(SAMPLINGS)[quality % 4]
        mode, subsampling = SAMPLINGS[sampling]
        progressive = quality % 3 == 0
        data = jpeg(picture(30, 20, mode), quality=quality, subsampling=subsampling, progressive=progressive)
        check_file(data)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"optimize": True},
        {"restart_marker_blocks": 1},
        {"restart_marker_blocks": 3},
        {"restart_marker_rows": 1},
        {"comment": b"\xff\xd8\xff\xd9\xff\xda" * 50},
        {"exif": b"Exif\0\0" + bytes(range(256))},
        {"qtables": [[*range(1, 65)], [300] * 64]},
    ],
    ids=str,
)
def test_what_encoders_do(options: dict[str, object], progressive: bool) -> None:
    for mode in ("RGB", "L"):
        check_file(jpeg(picture(50, 40, mode), progressive=progressive, **{"quality": 70} | options))


SCAN = "ffda000c03 0100 0211 0311 003f00"
SCANS = {
    "each component": "ffda000801 0100 003f00 ffda000801 0211 003f00 ffda000801 0311 003f00",
    "luma, then chroma": "ffda000801 0100 003f00 ffda000a02 0211 0311 003f00",
    "luma and a chroma, then the other": "ffda000a02 0100 0211 003f00 ffda000801 0311 003f00",
    "chroma first": "ffda000a02 0211 0311 003f00 ffda000801 0100 003f00",
    "restarts in between": "ffda000801 0100 003f00 ffdd00040002 ffda000a02 0211 0311 003f00",
}


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("scans", SCANS)
def test_several_scans(scans: str, sampling: str) -> None:
    """Of a sequential JPEG, which Pillow does not write: of its record with another rest."""
    original = to_record(jpeg(picture(41, 37), quality=80, subsampling=SAMPLINGS[sampling][1]), "fast")
    old, new = bytes.fromhex(SCAN), bytes.fromhex(SCANS[scans])
    data = to_jpeg(read_record(with_frame(original, lambda frame: frame.replace(old, new))))
    assert data.count(b"\xff\xda") == new.count(b"\xff\xda") > 1
    assert np.asarray(Image.open(io.BytesIO(data))).shape == (37, 41, 3)
    check_file(data)


def test_steps_of_0() -> None:
    data = write_jpeg(Layout(16, 9, steps=np.arange(64).astype(np.uint16)), np.ones((4, 64), np.int64))
    check_file(data)


def test_bytes_behind_the_end() -> None:
    check_file(jpeg(picture(20, 20)) + b"\xff\xda and the like\xff\xd9\0")


def test_padding_of_zeros() -> None:
    layout = Layout(16, 16, ((2, 2), (1, 1), (1, 1)))
    data = bytearray(write_jpeg(layout, np.ones((6, 64), np.int64)))
    found = 0
    for bits in range(1, 8):
        changed = data.copy()
        changed[-3] &= 0xFF << bits & 0xFF
        try:
            record = read_record(to_record(bytes(changed), "fast"))
        except DecodeError:
            continue  # more than padding was changed
        assert to_jpeg(record) == changed
        found += not record.pads_with_ones
    assert found > 0


FACTORS = [((1, 1),), *(((h, v), (1, 1), (1, 1)) for h in (1, 2) for v in (1, 2))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_coefficients_are_those_of_the_file(factors: tuple[tuple[int, int], ...], form: str) -> None:
    rng = np.random.default_rng(len(factors) + factors[0][0])
    layout = Layout(83, 37, factors, steps=np.arange(64, 0, -1).astype(np.uint16) * 5)
    shape = (layout.blocks(), 64)
    values = rng.integers(-1023, 1024, shape) >> rng.integers(0, 10, (1, 64))
    blocks = np.where(rng.random(shape) < rng.random((shape[0], 1)) ** 3, values, 0)
    data = write_jpeg(layout, blocks)
    record = read_record(to_record(data, form))
    across, down = layout.mcus()
    mcu = blocks[:, ZIGZAG].reshape(down, across, -1, 64)
    at = 0
    for (h, v), found in zip(factors, record.coefficients, strict=True):
        own = mcu[:, :, at : at + h * v].reshape(down, across, v, h, 64)
        assert np.array_equal(found, own.transpose(0, 2, 1, 3, 4).reshape(down * v, across * h, 64))
        at += h * v
    assert np.array_equal(record.header.steps, np.asarray(layout.steps)[None])
    assert to_jpeg(record) == data


def test_pixels_are_those_of_the_coefficients() -> None:
    """Luma by an inverse DCT in floating point: within 1 of libjpeg's, whose result is rounded twice."""
    k = np.arange(8)
    basis = np.cos((2 * k[:, None] + 1) * k * np.pi / 16) * np.where(k == 0, np.sqrt(0.125), 0.5)
    for sampling, (mode, subsampling) in SAMPLINGS.items():
        data = jpeg(picture(70, 50, mode), quality=85, subsampling=subsampling)
        image = Image.open(io.BytesIO(data))
        image.draft("YCbCr" if mode == "RGB" else "L", None)
        wanted = np.asarray(image, np.float64).reshape(50, 70, -1)[..., 0]
        record = read_record(to_record(data, "fast"))
        natural = np.zeros(record.coefficients[0].shape)
        natural[..., ZIGZAG] = record.coefficients[0]
        natural *= record.header.steps[record.header.table_of[0]]
        rows, columns = natural.shape[:2]
        samples = basis @ natural.reshape(rows, columns, 8, 8) @ basis.T + 128
        plane = samples.swapaxes(1, 2).reshape(8 * rows, 8 * columns)[:50, :70]
        assert np.abs(np.clip(plane, 0, 255) - wanted).max() <= 1, sampling


def test_codes_use_every_string_of_bits() -> None:
    """So no string of bits is a code that is none."""
    counts, masks = mask_code_lengths()
    assert (len(counts), len(masks)) == (18, 15)
    for lengths in counts + masks:
        assert sum(2.0**-length for length in lengths if length) == 1
