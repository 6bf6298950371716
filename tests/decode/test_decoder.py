"""One Decoder for many pictures: regions, raw pixels, counts, errors in between, real photographs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil
from fastload.errors import DecodeError, LimitError

KINDS = ("JPEG", "PNG", "WEBP", "GIF")


@pytest.mark.parametrize(
    "roi",
    [
        (0, 0, 0, 5),
        (0, 0, 5, 0),
        (-1, 0, 5, 5),
        (0, -1, 5, 5),
        (26, 0, 5, 5),
        (0, 16, 5, 5),
        (0, 0, 31, 20),
        (0, 0, 30, 21),
        (2**31 - 1, 0, 2**31 - 1, 1),
        (0, 0, -1, -1),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_region_outside_is_refused(kind, roi):
    data = encode(photo(30, 20), kind)
    with pytest.raises(ValueError, match="30x20") as caught:
        _C.decode_rgb(data, roi, fallback=decode_with_pil)
    assert not isinstance(caught.value, DecodeError)


def test_raw_pixels_with_and_without_slack():
    """The last rows have no 64 readable bytes behind them; they must come out all the same."""
    for width, height in ((1, 1), (2, 40), (7, 5), (50, 33)):
        pixels = photo(width, height)
        flat = np.ascontiguousarray(pixels).reshape(-1)
        decoder = _C.Decoder()
        np.testing.assert_array_equal(decoder.decode_raw(flat, width, height), pixels)
        for x, y in ((0, 0), (width - 1, height - 1), (width // 2, height // 2)):
            part = decoder.decode_raw(flat, width, height, (x, y, width - x, height - y))
            np.testing.assert_array_equal(part, pixels[y:, x:])
        assert decoder.counts()["raw"] == 4


def test_raw_pixels_of_a_wrong_size():
    decoder = _C.Decoder(max_pixels=100)
    for size in (0, 299, 301):
        with pytest.raises(DecodeError, match="needs 300 bytes"):
            decoder.decode_raw(np.zeros(size, np.uint8), 10, 10)
    with pytest.raises(DecodeError, match="needs 0 bytes"):
        decoder.decode_raw(np.zeros(0, np.uint8), 0, 10)
    with pytest.raises(LimitError):
        decoder.decode_raw(np.zeros(303, np.uint8), 101, 1)


def test_scratch_and_counts_survive_errors_between_pictures():
    decoder = _C.Decoder(fallback=decode_with_pil, max_pixels=10_000)
    good = {kind: encode(photo(40 + i, 30), kind) for i, kind in enumerate(KINDS)}
    expected = {kind: pillow_rgb(data) for kind, data in good.items()}
    for _ in range(5):
        for kind in KINDS:
            for bad in (good[kind][:-20], b"", b"junk", encode(photo(200, 60), kind)):
                with pytest.raises((DecodeError, LimitError)):
                    decoder.decode_rgb(bad)
            np.testing.assert_array_equal(decoder.decode_rgb(good[kind]), expected[kind])
    counts = decoder.counts()
    none = dict.fromkeys(("jpeg_turbo", "raw", "coefficients", "warnings"), 0)
    assert counts == {"jpeg": 5, "png": 5, "webp": 5, "pil": 5, **none}


def test_the_array_owns_its_memory():
    data = encode(photo(64, 64), "PNG")
    decoder = _C.Decoder()
    first = decoder.decode_rgb(data)
    kept = first.copy()
    del decoder
    for _ in range(20):
        _C.decode_rgb(encode(photo(64, 64, seed=1), "PNG"))
    np.testing.assert_array_equal(first, kept)
    assert first.flags.c_contiguous
    assert first.flags.writeable


def test_threads_may_share_a_decoder():
    decoder = _C.Decoder()
    pictures = [encode(photo(50 + i, 40), ("JPEG", "PNG")[i % 2]) for i in range(4)]
    wrong = []

    def job(data: bytes) -> None:
        expected = pillow_rgb(data)
        wrong.extend(1 for _ in range(50) if not np.array_equal(decoder.decode_rgb(data), expected))

    threads = [threading.Thread(target=job, args=(data,)) for data in pictures]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert decoder.counts()["jpeg"] == 100


@pytest.mark.skipif(
    "FASTLOAD_TEST_IMAGES" not in os.environ, reason="FASTLOAD_TEST_IMAGES names no folder of images"
)
def test_real_photographs_equal_pillow():
    paths = sorted(p for p in Path(os.environ["FASTLOAD_TEST_IMAGES"]).rglob("*") if p.is_file())[:500]
    assert paths
    rng = np.random.default_rng(0)
    decoder = _C.Decoder(fallback=decode_with_pil)
    for path in paths:
        data = path.read_bytes()
        full = pillow_rgb(data)
        np.testing.assert_array_equal(decoder.decode_rgb(data), full, err_msg=str(path))
        height, width = full.shape[:2]
        x, y = int(rng.integers(width)), int(rng.integers(height))
        w, h = int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
        part = decoder.decode_rgb(data, (x, y, w, h))
        np.testing.assert_array_equal(part, full[y : y + h, x : x + w], err_msg=str(path))
