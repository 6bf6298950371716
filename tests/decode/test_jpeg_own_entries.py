"""JPEG entry points: their layout, and that wrong ones are found."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastload import errors
from fastload._native import _C

U8 = NDArray[np.uint8]


def jpeg(width: int, height: int, seed: int, mode: str = "RGB", **options: object) -> U8:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode)
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return np.frombuffer(out.getvalue(), np.uint8)


def unpack(entries: U8, components: int) -> list[tuple[int, int, list[int]]]:
    """(byte offset from the first entropy-coded byte, bit, predictors): the layout, written down again."""
    size, delta_bits = (5, 26) if components == 1 else (7, 20)
    result, offset = [], 0
    for at in range(0, len(entries), size):
        word = int.from_bytes(entries[at : at + size].tobytes(), "little")
        offset += word >> 3 & (1 << delta_bits) - 1
        raw = [word >> 3 + delta_bits + 11 * c & 2047 for c in range(components)]
        result.append((offset, word & 7, [r - 2048 if r >= 1024 else r for r in raw]))
    return result


@pytest.mark.parametrize(("mode", "components"), [("L", 1), ("RGB", 3)])
def test_layout(mode: str, components: int) -> None:
    data = jpeg(200, 100, 1, mode, quality=92, subsampling=0)
    row, fine = (unpack(_C.jpeg_build_entries(data, spacing), components) for spacing in (0, 64))
    assert len(row) == 13
    assert len(fine) == 13 * 4  # ceil(25 MCUs / 8) segments a row
    assert row[0] == fine[0] == (0, 0, [0] * components)
    assert fine[::4] == row, "each row starts a segment"
    positions = [offset * 8 + bit for offset, bit, _ in fine]
    assert positions == sorted(set(positions))
    assert any(p < 0 for _, _, predictors in fine for p in predictors)


def test_offsets_name_bytes_of_the_file() -> None:
    data = jpeg(128, 96, 2, quality=95, subsampling=2)
    scan = data.tobytes().index(b"\xff\xda") + 14
    points = unpack(_C.jpeg_build_entries(data, 16), 3)
    assert len(points) > 10
    for offset, _, _ in points:
        assert scan + offset < len(data)
        assert data[scan + offset - 1] != 0xFF, "never the 00 of FF 00"


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_only_the_needed_bytes_are_read(subsampling: int) -> None:
    """With entries, damage before the region does not matter: nothing there is looked at."""
    data = jpeg(320, 320, 3, quality=90, subsampling=subsampling)
    entries = _C.jpeg_build_entries(data, 64)
    offsets = [offset for offset, _, _ in unpack(entries, 3)]
    expected = _C.jpeg_decode(data, (100, 200, 90, 70))
    scan = data.tobytes().index(b"\xff\xda") + 14
    broken = data.copy()
    broken[scan : scan + offsets[len(offsets) // 2]] = 0x55
    np.testing.assert_array_equal(_C.jpeg_decode(broken, (100, 200, 90, 70), entries, 64), expected)


def test_damaged_entries_are_found_or_harmless() -> None:
    """A wrong entry is an error or is not used: never other pixels where the next entry is crossed."""
    data = jpeg(300, 200, 4, quality=90, subsampling=0)
    entries = _C.jpeg_build_entries(data, 64)
    roi = (0, 40, 300, 100)  # whole rows: each segment of these rows is decoded to its end
    expected = _C.jpeg_decode(data, roi)
    rng = random.Random(6)
    found = 0
    for _ in range(1500):
        broken = entries.copy()
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        try:
            np.testing.assert_array_equal(_C.jpeg_decode(data, roi, broken, 64), expected)
        except (errors.DecodeError, errors.FormatError):
            found += 1
    assert found > 700


def test_random_entries_never_get_out_of_bounds() -> None:
    data = jpeg(100, 80, 5, quality=50, subsampling=2)
    entries = _C.jpeg_build_entries(data, 32)
    rng = np.random.default_rng(7)
    for _ in range(500):
        noise = rng.integers(0, 256, len(entries), dtype=np.uint8)
        noise.reshape(-1, 7)[:, 1:3] >>= rng.integers(
            0, 8, dtype=np.uint8
        )  # small deltas stay inside the file
        with pytest.raises((errors.DecodeError, errors.FormatError)):
            _C.jpeg_decode(data, (0, 0, 100, 80), noise, 32)


@pytest.mark.parametrize("change", [-7, -1, 1, 7])
def test_their_number_is_checked(change: int) -> None:
    data = jpeg(100, 80, 8)
    entries = _C.jpeg_build_entries(data, 64)
    wrong = np.resize(entries, len(entries) + change)
    with pytest.raises(errors.FormatError, match="entry points"):
        _C.jpeg_decode(data, None, wrong, 64)


@pytest.mark.parametrize(("mode", "size"), [("L", 5), ("RGB", 7)])
def test_a_forged_first_entry_is_found(mode: str, size: int) -> None:
    """A picture of one segment has no later entry to prove the first one, which is zeros by definition."""
    data = jpeg(20, 8, 9, mode)
    entries = _C.jpeg_build_entries(data, 0)
    assert entries.tolist() == [0] * size
    for byte in range(size):
        forged = entries.copy()
        forged[byte] = 1
        with pytest.raises(errors.FormatError, match="first one must be all zeros"):
            _C.jpeg_decode(data, None, forged, 0)


def test_files_without_entries() -> None:
    assert len(_C.jpeg_build_entries(jpeg(64, 64, 1, progressive=True), 64)) == 0
    assert len(_C.jpeg_build_entries(jpeg(64, 64, 1, restart_marker_rows=1), 64)) == 0
    assert len(_C.jpeg_build_entries(jpeg(64, 64, 1, quality=95)[:-200], 64)) == 0, "a truncated file"
    assert len(_C.jpeg_build_entries(np.zeros(10, np.uint8), 64)) == 0
    with pytest.raises(ValueError, match="spacing"):
        _C.jpeg_build_entries(jpeg(64, 64, 1), -1)
