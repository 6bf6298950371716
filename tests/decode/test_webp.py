"""WebP: pixels equal Pillow's, and an ROI equals the crop of the full decode."""

from __future__ import annotations

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil
from fastload.errors import DecodeError

OPTIONS = [{"quality": 80}, {"quality": 5}, {"lossless": True}, {"quality": 80, "method": 0}]


def with_alpha(width: int, height: int) -> np.ndarray:
    alpha = np.linspace(0, 255, width * height).astype(np.uint8).reshape(height, width, 1)
    return np.concatenate([photo(width, height), alpha], axis=2)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (17, 9), (33, 64), (100, 75)])
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_pillow_bit_for_bit(options, size):
    data = encode(photo(*size), "WEBP", **options)
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))
    assert _C.probe(data) == ("webp", *size, 3, 0)


@pytest.mark.parametrize("options", [*OPTIONS, {"lossless": True, "exact": True}, {"exact": True}])
def test_alpha_is_dropped_and_the_colour_kept(options):
    data = encode(with_alpha(60, 40), "WEBP", mode="RGBA", **options)
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))
    assert _C.probe(data) == ("webp", 60, 40, 4, 0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(OPTIONS), st.booleans(), st.integers(1, 90), st.integers(1, 70), st.data())
def test_roi_equals_crop_of_full_decode(options, alpha, width, height, data):
    pixels = with_alpha(width, height) if alpha else photo(width, height)
    webp = encode(pixels, "WEBP", mode="RGBA" if alpha else "RGB", **options)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    full = pillow_rgb(webp)
    np.testing.assert_array_equal(_C.decode_rgb(webp, (x, y, w, h)), full[y : y + h, x : x + w])


@pytest.mark.parametrize("options", [{"quality": 20}, {"lossless": True}])
def test_cut_at_every_byte(options):
    data = encode(photo(24, 24), "WEBP", **options)
    assert len(data) > 100
    for length in range(len(data) - 1):  # the last byte may be padding to an even length
        with pytest.raises(DecodeError):
            _C.decode_rgb(data[:length])


@pytest.mark.parametrize(("at", "damage"), [(0, 0x02), (0, 0x20), (0, 0x80), (1, 0xFF), (2, 0xFF)])
def test_an_alpha_chunk_with_a_damaged_head_is_refused(at, damage):
    """libwebp 1.6 calls that a lack of memory: an unknown method, a damaged header of the picture in it."""
    data = bytearray(encode(with_alpha(60, 40), "WEBP", mode="RGBA", quality=80))
    data[data.index(b"ALPH") + 8 + at] ^= damage
    with pytest.raises(DecodeError, match="damaged"):
        _C.decode_rgb(bytes(data))


def test_animation_goes_to_the_fallback():
    frames = [Image.fromarray(photo(20, 20, seed)) for seed in range(3)]
    data = encode(photo(20, 20), "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert _C.probe(data)[4] == _C.FLAG_ANIMATED | _C.FLAG_NEEDS_FALLBACK
    np.testing.assert_array_equal(_C.decode_rgb(data, fallback=decode_with_pil), np.asarray(frames[0]))
    with pytest.raises(DecodeError, match=r"fastload\[pil\]"):
        _C.decode_rgb(data)
