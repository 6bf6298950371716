"""PNG: every kind of the specification against Pillow; 16-bit against the exact quotient."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb
from decode_png_writer import CHANNELS, GRAY, KINDS, PALETTE, RGB, chunk, random_png, write_png
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload._native import _C
from fastload.errors import DecodeError, LimitError

EIGHT_BIT = [kind for kind in KINDS if kind[1] <= 8]
SIXTEEN_BIT = [kind for kind in KINDS if kind[1] == 16]


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), EIGHT_BIT)
def test_equals_pillow_bit_for_bit(colour, depth, interlaced):
    for width, height in ((1, 1), (3, 2), (7, 9), (33, 17), (50, 40)):
        data = random_png(colour, depth, width, height, interlaced=interlaced)
        np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), SIXTEEN_BIT)
def test_sixteen_bit_is_divided_by_257_and_rounded(colour, depth, interlaced):
    """Pillow clips 16-bit gray at 255 and cuts off the low byte of 16-bit colour: a stated difference."""
    rng = np.random.default_rng(7)
    samples = rng.integers(0, 65536, (40, 50, CHANNELS[colour]))
    samples[0, :6, 0] = [0, 128, 129, 255, 256, 65535]
    data = write_png(samples, depth, colour, interlaced=interlaced)
    expected = np.rint(samples / 257).astype(np.uint8)
    expected = expected[..., :3] if CHANNELS[colour] >= 3 else expected[..., :1].repeat(3, axis=2)
    got = _C.decode_rgb(data)
    np.testing.assert_array_equal(got, expected)
    if colour != GRAY:
        assert np.abs(got.astype(int) - pillow_rgb(data)).max() <= 1
    assert _C.probe(data)[4] == _C.FLAG_SIXTEEN_BIT


@pytest.mark.parametrize(
    ("colour", "depth", "transparent"),
    [
        (GRAY, 8, struct.pack(">H", 7)),
        (GRAY, 2, struct.pack(">H", 1)),
        (RGB, 8, struct.pack(">HHH", 1, 2, 3)),
        (PALETTE, 8, bytes(range(256))),
        (PALETTE, 2, b"\x00\x80"),
    ],
)
def test_transparent_colours_keep_their_colour(colour, depth, transparent):
    data = random_png(colour, depth, 20, 10, extra=chunk(b"tRNS", transparent))
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))


def test_gamma_profile_and_text_change_nothing():
    extra = chunk(b"gAMA", struct.pack(">I", 100_000)) + chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(500)))
    extra += chunk(b"tEXt", b"Comment\0hello") + chunk(b"sBIT", b"\x05\x05\x05")
    plain = random_png(RGB, 8, 20, 10)
    np.testing.assert_array_equal(
        _C.decode_rgb(random_png(RGB, 8, 20, 10, extra=extra)), _C.decode_rgb(plain)
    )


def test_indices_above_the_palette_are_black_as_in_pillow():
    samples = np.arange(256).reshape(16, 16, 1)
    data = write_png(samples, 8, PALETTE, palette=np.array([[9, 8, 7], [6, 5, 4]]))
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))


def test_filtered_rows_of_a_real_encoder():
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        data = encode(photo(70, 50), "PNG", mode=mode)
        np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.booleans(), st.integers(1, 40), st.integers(1, 40), st.data())
def test_roi_equals_crop_of_full_decode(kind, interlaced, width, height, data):
    png = random_png(*kind, width, height, interlaced=interlaced)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    full = _C.decode_rgb(png)
    np.testing.assert_array_equal(_C.decode_rgb(png, (x, y, w, h)), full[y : y + h, x : x + w])


@pytest.mark.parametrize("interlaced", [False, True])
def test_cut_at_every_byte(interlaced):
    data = random_png(RGB, 8, 12, 12, interlaced=interlaced)
    assert len(data) > 200
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            _C.decode_rgb(data[:length])


def test_rows_above_the_cut_are_still_given():
    data = random_png(RGB, 8, 100, 100)
    np.testing.assert_array_equal(_C.decode_rgb(data[:-2000], (0, 0, 100, 50)), _C.decode_rgb(data)[:50])
    with pytest.raises(DecodeError, match="ends early"):
        _C.decode_rgb(data[:-2000], (0, 50, 100, 50))


def test_damaged_checksum_of_the_pixels():
    data = bytearray(random_png(RGB, 8, 12, 12))
    data[data.index(b"IEND") - 5] ^= 1  # last byte of IDAT's CRC
    with pytest.raises(DecodeError, match="IDAT: CRC error"):
        _C.decode_rgb(bytes(data))


def test_damaged_text_chunk_is_a_warning():
    text = bytearray(chunk(b"tEXt", b"Comment\0hello"))
    text[-1] ^= 1
    decoder = _C.Decoder()
    decoder.decode_rgb(random_png(RGB, 8, 12, 12, extra=bytes(text)))
    assert decoder.counts()["png"] == 1
    assert decoder.counts()["warnings"] == 1


def test_header_checks():
    data = random_png(RGB, 8, 12, 12)
    assert _C.probe(data) == ("png", 12, 12, 3, 0)
    with pytest.raises(DecodeError, match="width or height is 0"):
        _C.probe(data[:16] + bytes(4) + data[20:])
    with pytest.raises(DecodeError, match="colour type 5"):
        _C.probe(data[:25] + b"\x05" + data[26:])
    with pytest.raises(LimitError, match="max_pixels"):
        _C.decode_rgb(data[:16] + struct.pack(">II", 30_000, 30_000) + data[24:])
    with pytest.raises(LimitError, match="max_side"):
        _C.decode_rgb(data[:16] + struct.pack(">II", 70_000, 1) + data[24:])


def test_animation_gives_the_first_frame():
    from PIL import Image

    frames = [Image.fromarray(photo(20, 20, seed)) for seed in range(3)]
    data = encode(photo(20, 20, 0), "PNG", save_all=True, append_images=frames[1:])
    assert _C.probe(data)[4] == _C.FLAG_ANIMATED
    np.testing.assert_array_equal(_C.decode_rgb(data), np.asarray(frames[0]))
