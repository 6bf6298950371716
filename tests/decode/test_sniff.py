"""Codecs are told by the leading bytes, never by a name."""

from __future__ import annotations

import numpy as np
import pytest
from decode_images import encode, photo

from fastload._native import _C
from fastload.errors import DecodeError
from fastload.shard.codecs import CODECS, JPEG, PILLOW_FORMATS, RAW

FORMATS = {"jpeg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF"}


def test_codec_values_are_those_of_the_index_format():
    assert list(_C.CODECS) == ["unknown", "jpeg", "png", "webp", "gif", "bmp", "tiff", "raw", "coefficients"]


def test_what_python_knows_of_codecs_is_the_core_s_table():
    assert [(codec.number, codec.name) for codec in CODECS] == list(enumerate(_C.CODECS))
    assert tuple(FORMATS.values()) == PILLOW_FORMATS
    assert CODECS[JPEG].extension == ".jpg"
    assert CODECS[RAW].extension == CODECS[RAW].pillow == ""
    assert [path for path in _C.Decoder().counts() if path in _C.CODECS] == [
        "jpeg",
        "png",
        "webp",
        "raw",
        "coefficients",
    ]


@pytest.mark.parametrize("codec", FORMATS)
def test_what_pillow_writes_is_recognised(codec):
    data = encode(photo(30, 20), FORMATS[codec])
    assert _C.sniff(data) == codec
    assert _C.sniff(np.frombuffer(data, np.uint8)) == codec
    assert _C.probe(data)[:3] == (codec, 30, 20)


@pytest.mark.parametrize("magic", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"])
def test_both_byte_orders_of_tiff_and_bigtiff(magic):
    assert _C.sniff(magic + bytes(20)) == "tiff"


@pytest.mark.parametrize(
    "data", [b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n\x1a\n"]
)
def test_magic_cut_short_is_unknown(data):
    assert _C.sniff(data) != "unknown"
    assert _C.sniff(data[:-1]) == "unknown"


@pytest.mark.parametrize("data", [b"", b"x", b"hello world, not an image", b"\0" * 100, b"%PDF-1.7", b"BM"])
def test_others_are_refused(data):
    assert _C.sniff(data) == "unknown"
    with pytest.raises(DecodeError, match=r"0 bytes|not a JPEG"):
        _C.probe(data)
    with pytest.raises(DecodeError):
        _C.decode_rgb(data)


def test_message_shows_the_leading_bytes():
    with pytest.raises(DecodeError, match="25 bytes that begin with 3c 68 74 6d 6c 3e 20 20"):
        _C.probe(b"<html>" + b" " * 19)


def test_bmp_with_negative_height_and_the_old_header():
    top_down = bytearray(encode(photo(30, 20), "BMP"))
    top_down[22:26] = (-20).to_bytes(4, "little", signed=True)
    assert _C.probe(bytes(top_down))[:3] == ("bmp", 30, 20)
    old = b"BM" + bytes(12) + (12).to_bytes(4, "little") + bytes([30, 0, 20, 0, 1, 0, 24, 0])
    assert _C.probe(old)[:3] == ("bmp", 30, 20)
