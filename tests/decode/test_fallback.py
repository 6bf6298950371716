"""What the core does not decode goes to a Python callable; its answers and errors come back."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import numpy as np
import pytest
from decode_images import encode, patch_frame, photo, pillow_rgb
from PIL import Image as PilImage

from fastload._native import _C
from fastload.dataset import decoding as pil
from fastload.errors import DecodeError, LimitError

KINDS = [
    ("GIF", "P"),
    ("GIF", "RGB"),
    ("BMP", "RGB"),
    ("BMP", "P"),
    ("BMP", "1"),
    ("TIFF", "RGB"),
    ("TIFF", "L"),
    ("TIFF", "CMYK"),
    ("TIFF", "RGBA"),
]


@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_pillow_decodes_the_rest(kind, mode):
    data = encode(photo(31, 20), kind, mode=mode)
    decoder = _C.Decoder(fallback=pil.decode_with_pil)
    np.testing.assert_array_equal(decoder.decode_rgb(data), pillow_rgb(data))
    np.testing.assert_array_equal(decoder.decode_rgb(data, (3, 4, 28, 16)), pillow_rgb(data)[4:, 3:])
    assert decoder.counts()["pil"] == 2


def test_the_native_codecs_never_ask():
    def refuse(_record: bytes) -> np.ndarray:
        raise AssertionError("not to be called")

    for kind in ("JPEG", "PNG", "WEBP"):
        assert _C.decode_rgb(encode(photo(9, 9), kind), fallback=refuse).shape == (9, 9, 3)


def test_without_a_fallback_the_message_says_what_helps():
    with pytest.raises(
        DecodeError, match=r"gif has no native decoder; Pillow decodes it \(fastload\[pil\]\)"
    ):
        _C.decode_rgb(encode(photo(9, 9), "GIF"))
    with pytest.raises(DecodeError, match=r"fastload\[pil\]"):
        _C.decode_rgb(patch_frame(encode(photo(9, 9), "JPEG"), precision=12))


def test_exceptions_keep_their_text():
    def broken(_record: bytes) -> np.ndarray:
        raise KeyError("no such thing")

    with pytest.raises(DecodeError, match="KeyError: 'no such thing'"):
        _C.decode_rgb(encode(photo(9, 9), "GIF"), fallback=broken)


def test_an_interrupt_is_not_a_bad_picture():
    def interrupted(_record: bytes) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _C.decode_rgb(encode(photo(9, 9), "GIF"), fallback=interrupted)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_a_wrong_answer_is_an_error(answer):
    with pytest.raises(DecodeError, match="fallback decoder"):
        _C.decode_rgb(encode(photo(9, 9), "GIF"), fallback=lambda _record: answer)


def test_limits_hold_for_the_fallback():
    data = encode(photo(30, 20), "GIF")
    with pytest.raises(LimitError, match="max_pixels"):
        _C.decode_rgb(data, max_pixels=599, fallback=pil.decode_with_pil)
    with pytest.raises(LimitError, match="max_pixels"):  # the header said less than the picture has
        _C.decode_rgb(data, max_pixels=600, fallback=lambda _record: np.zeros((21, 30, 3), np.uint8))


def test_called_from_another_thread_and_dropped_there():
    data = encode(photo(30, 20), "GIF")
    expected = pillow_rgb(data)
    results = []

    def job() -> None:
        decoder = _C.Decoder(fallback=pil.decode_with_pil)
        results.append(decoder.decode_rgb(data))

    threads = [threading.Thread(target=job) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_the_callable_is_released():
    class Callable:
        def __call__(self, _record: bytes) -> np.ndarray:
            return np.zeros((1, 1, 3), np.uint8)

    fallback = Callable()
    before = sys.getrefcount(fallback)
    decoder = _C.Decoder(fallback=fallback)
    assert sys.getrefcount(fallback) > before
    del decoder
    assert sys.getrefcount(fallback) == before


def test_decode_with_pil_allows_only_its_formats():
    with pytest.raises(DecodeError, match="Pillow"):
        pil.decode_with_pil(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    ppm = encode(photo(9, 9), "PPM")
    with pytest.raises(DecodeError, match="Pillow"):
        pil.decode_with_pil(ppm)


def test_decode_with_pil_limits_and_damage():
    data = encode(photo(30, 20), "TIFF")
    with pytest.raises(LimitError, match="600 pixels: at most 599"):
        pil.decode_with_pil(data, max_pixels=599)
    bomb = bytearray(encode(photo(30, 20), "BMP"))
    bomb[18:26] = (30_000).to_bytes(4, "little") * 2
    with pytest.raises(LimitError):
        pil.decode_with_pil(bytes(bomb))
    with pytest.raises(DecodeError, match="Pillow"):
        pil.decode_with_pil(encode(photo(30, 20), "BMP")[:-100])


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DecodeError, match=r'pip install "fastload\[pil\]"'):
        pil.decode_with_pil(encode_gif_once())


def encode_gif_once() -> bytes:
    """A GIF of one white pixel, written by hand: Pillow is hidden when it is needed."""
    return (
        b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00"
        b"\x02\x02D\x01\x00;"
    )


def damaged_tiffs() -> list[bytes]:
    """Of those that libtiff has words about."""
    whole = encode(photo(40, 30), "TIFF", compression="tiff_lzw")
    found = []
    for at in range(10, len(whole) - 200, 97):
        broken = bytearray(whole)
        broken[at : at + 6] = b"\xff\0\xff\0\xff\0"
        found.append(bytes(broken))
    return found


def test_a_damaged_tiff_is_an_error_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    """libtiff's lines about it went to standard error, from any thread."""
    errors: list[str] = []

    def decode() -> None:
        for data in damaged_tiffs():
            try:
                pil.decode_with_pil(data)
            except DecodeError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) > 8
    assert capfd.readouterr().err == ""
    assert pil._silenced == []


def test_a_users_own_pillow_says_what_it_said(capfd: pytest.CaptureFixture[str]) -> None:
    for data in damaged_tiffs():
        with contextlib.suppress(DecodeError):
            pil.decode_with_pil(data)
    assert capfd.readouterr().err == ""
    for data in damaged_tiffs():
        with contextlib.suppress(Exception):
            PilImage.open(io.BytesIO(data)).load()
    assert "code" in capfd.readouterr().err


@pytest.mark.parametrize("data", [b"GIF89a no", b"II*\0 no", b"BM no", b"\0\0\0\x0cjP  no"])
def test_words_are_the_same_in_every_run(data: bytes) -> None:
    words = "Pillow cannot identify the picture, or its beginning is damaged"
    with pytest.raises(DecodeError, match=f"^{words}$"):
        pil.decode_with_pil(data)


def test_words_of_pillow() -> None:
    assert pil.pillow_words(ValueError("a <_io.BytesIO object at 0x7f00> b")) == "a b"
    assert pil.pillow_words(SyntaxError()) == "None"
    assert pil.pillow_words(ValueError()) == "ValueError"
