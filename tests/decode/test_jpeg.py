"""JPEG: pixels equal Pillow's (libjpeg-turbo's defaults), and an ROI equals the crop of the full decode."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from decode_images import FACTORS, encode, frame_header, patch_frame, photo, pillow_rgb, resampled_jpeg, scans
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload._native import _C
from fastload.errors import DecodeError, LimitError

SIZES = [(1, 1), (2, 3), (7, 5), (8, 8), (17, 9), (16, 33), (65, 31), (100, 75), (203, 64)]
KINDS = {
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:2:0": {"subsampling": "4:2:0"},
    "gray": {"mode": "L"},
    "CMYK": {"mode": "CMYK"},
    "RGB": {"keep_rgb": True},
}


def rois(width: int, height: int) -> list[tuple[int, int, int, int]]:
    """Crops at every edge and corner, of one pixel, and inside."""
    xs = sorted({(0, width), (0, 1), (width - 1, 1), (width // 3, width - width // 3), (width // 2, 1)})
    ys = sorted({(0, height), (0, 1), (height - 1, 1), (height // 3, height - height // 3), (height // 2, 1)})
    return [(x, y, w, h) for (x, w), (y, h) in itertools.product(xs, ys)]


def check_rois(data: bytes) -> None:
    """Every ROI of rois() equals the crop of our own full decode."""
    decoder = _C.Decoder()
    full = decoder.decode_rgb(data)
    for x, y, width, height in rois(full.shape[1], full.shape[0]):
        part = decoder.decode_rgb(data, (x, y, width, height))
        np.testing.assert_array_equal(
            part, full[y : y + height, x : x + width], err_msg=str((x, y, width, height))
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_pillow_bit_for_bit(kind, progressive, size):
    data = encode(photo(*size), "JPEG", quality=85, progressive=progressive, **KINDS[kind])
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))
    check_rois(data)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("name", FACTORS)
def test_every_sampling(name, progressive):
    for columns, rows in ((1, 1), (3, 2), (9, 5)):
        for cut in ((0, 0),) if progressive else ((0, 0), (1, 1), (7, 3)):
            data = resampled_jpeg(name, columns, rows, cut, progressive=progressive)
            np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))
            check_rois(data)


@pytest.mark.parametrize(
    "options",
    [
        {"restart_marker_blocks": 1},
        {"restart_marker_blocks": 5},
        {"restart_marker_rows": 1},
        {"optimize": True},
        {"quality": 100},
        {"quality": 1},
    ],
)
def test_restart_markers_and_qualities(options):
    data = encode(photo(150, 90), "JPEG", **options)
    np.testing.assert_array_equal(_C.decode_rgb(data), pillow_rgb(data))
    check_rois(data)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_roi_equals_crop_of_full_decode(data):
    name = data.draw(st.sampled_from([*sorted(FACTORS), "4:4:4", "gray", "CMYK", "RGB"]))
    progressive = data.draw(st.booleans())
    columns, rows = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 9))
    if name in FACTORS:
        cut = (0, 0) if progressive else (data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7)))
        jpeg = resampled_jpeg(name, columns, rows, cut, progressive=progressive)
    else:
        size = columns * 16 - data.draw(st.integers(0, 15)), rows * 16 - data.draw(st.integers(0, 15))
        jpeg = encode(photo(*size), "JPEG", progressive=progressive, **KINDS[name])
    full = pillow_rgb(jpeg)
    height, width = full.shape[:2]
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    np.testing.assert_array_equal(_C.decode_rgb(jpeg, (x, y, w, h)), full[y : y + h, x : x + w])


def test_progressive_file_that_lacks_its_last_scans():
    """libjpeg then smooths between blocks, so neighbours matter; the ROI must not change that."""
    for options in ({"subsampling": "4:2:0"}, {"subsampling": "4:4:4"}, {"mode": "L"}):
        data = encode(photo(150, 90), "JPEG", quality=60, progressive=True, **options)
        ends = [end for _, end in scans(data)]
        assert len(ends) > 3
        for end in ends:
            part = data[:end] + b"\xff\xd9"
            check_rois(part)
            assert _C.decode_rgb(part).shape == (90, 150, 3)


def test_exif_orientation_and_profile_are_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    plain = encode(photo(40, 20), "JPEG")
    turned = encode(photo(40, 20), "JPEG", exif=exif, icc_profile=bytes(1000))
    np.testing.assert_array_equal(_C.decode_rgb(turned), _C.decode_rgb(plain))


def test_nothing_of_one_picture_reaches_the_next():
    """A file without Huffman tables uses the standard ones, not those of the picture before it."""
    data = encode(photo(64, 48), "JPEG")
    at, bare = 2, data[:2]
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        bare += b"" if data[at + 1] == 0xC4 else data[at:end]
        at = end
    bare += data[at:]
    other = encode(photo(64, 48, seed=1), "JPEG", optimize=True, quality=30)
    alone = _C.decode_rgb(bare)
    np.testing.assert_array_equal(alone, _C.decode_rgb(data))
    decoder = _C.Decoder()
    decoder.decode_rgb(other)
    np.testing.assert_array_equal(decoder.decode_rgb(bare), alone)


@pytest.mark.parametrize("progressive", [False, True])
def test_cut_at_every_byte(progressive):
    data = encode(photo(24, 24), "JPEG", quality=30, progressive=progressive)
    assert len(data) > 200
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            _C.decode_rgb(data[:length])


def test_rows_above_the_cut_are_still_given():
    data = encode(photo(200, 200), "JPEG")
    half = data[: len(data) // 2]
    np.testing.assert_array_equal(_C.decode_rgb(half, (0, 0, 200, 50)), _C.decode_rgb(data)[:50])
    with pytest.raises(DecodeError, match="ends early"):
        _C.decode_rgb(half, (0, 150, 200, 50))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("segment", ["ffee0000", "ffee0001", "fffe0000", "ffe30001"])
def test_a_segment_shorter_than_its_length_is_one_without_data(segment, progressive):
    data = encode(photo(40, 30), "JPEG", progressive=progressive)
    longer = data[:2] + bytes.fromhex(segment) + data[2:]
    assert _C.probe(longer)[1:3] == (40, 30)
    np.testing.assert_array_equal(_C.decode_rgb(longer), pillow_rgb(longer))


@pytest.mark.parametrize("marker", ["ffc0", "ffc2", "ffdb"])
def test_a_header_s_segment_shorter_than_its_length_is_damage(marker):
    data = encode(photo(40, 30), "JPEG")
    for length in ("0000", "0001"):
        with pytest.raises(DecodeError):
            _C.decode_rgb(data[:2] + bytes.fromhex(marker + length) + data[2:])


def test_warnings_are_counted_and_not_fatal():
    data = encode(photo(40, 40), "JPEG")
    with_garbage = data[:20] + b"garbage" + data[20:]  # behind JFIF: "extraneous bytes before marker"
    decoder = _C.Decoder()
    np.testing.assert_array_equal(decoder.decode_rgb(with_garbage), decoder.decode_rgb(data))
    counts = decoder.counts()
    assert (counts["jpeg"], counts["jpeg_turbo"]) == (1, 1)
    assert counts["warnings"] == 1


def test_scan_limit():
    data = encode(photo(40, 40), "JPEG", progressive=True)
    begin, end = scans(data)[-1]
    many = data[:end] + data[begin:end] * 200 + data[end:]
    with pytest.raises(LimitError, match="100 scans"):
        _C.decode_rgb(many)
    assert _C.Decoder(max_scans=300).decode_rgb(many).shape == (40, 40, 3)


def test_probe_reads_the_frame_header():
    data = encode(photo(40, 30), "JPEG")
    assert _C.probe(data) == ("jpeg", 40, 30, 3, 0)
    assert _C.probe(encode(photo(40, 30), "JPEG", mode="L")) == ("jpeg", 40, 30, 1, 0)
    assert _C.probe(encode(photo(40, 30), "JPEG", mode="CMYK")) == ("jpeg", 40, 30, 4, 0)
    assert _C.probe(encode(photo(40, 30), "JPEG", progressive=True)) == (
        "jpeg",
        40,
        30,
        3,
        _C.FLAG_PROGRESSIVE,
    )
    twelve = _C.probe(patch_frame(data, precision=12))
    assert twelve == ("jpeg", 40, 30, 3, _C.FLAG_SIXTEEN_BIT | _C.FLAG_NEEDS_FALLBACK)
    lossless = _C.probe(patch_frame(data, marker=0xC3))
    assert lossless == ("jpeg", 40, 30, 3, _C.FLAG_NEEDS_FALLBACK)


@pytest.mark.parametrize("changes", [{"width": 0}, {"height": 0}])
def test_damaged_frame_header(changes):
    with pytest.raises(DecodeError, match="at least 1"):
        _C.probe(patch_frame(encode(photo(9, 9), "JPEG"), **changes))


def test_second_frame_header_is_refused():
    data = encode(photo(9, 9), "JPEG")
    at = frame_header(data)
    header = data[at : at + 19]
    with pytest.raises(DecodeError, match="JPEG"):
        _C.decode_rgb(data[:at] + header + patch_frame(data, width=4000)[at:])


def test_bomb_is_refused_by_its_header():
    data = patch_frame(encode(photo(9, 9), "JPEG"), width=65500, height=65500)
    with pytest.raises(LimitError, match="max_pixels"):
        _C.decode_rgb(data)
    with pytest.raises(LimitError, match="max_side"):
        _C.decode_rgb(patch_frame(data, width=65535, height=1))
    with pytest.raises(LimitError, match="80"):
        _C.decode_rgb(encode(photo(9, 9), "JPEG"), max_pixels=80)


def test_concatenated_pictures_give_the_first():
    first, second = encode(photo(30, 20), "JPEG"), encode(photo(50, 60), "JPEG")
    np.testing.assert_array_equal(_C.decode_rgb(first + second), pillow_rgb(first))
    assert Image.open(io.BytesIO(first + second)).size == (30, 20)
