"""JPEGs whose data ends before the picture that the header declares: an error where missing rows are needed.

libjpeg, and so Pillow, only warns and fills them with gray.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, patch_frame, photo, pillow_rgb, scans
from plain_pack import plain_pack

from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import DecodeError, SampleError
from fastload.packing.entries import build_entries
from fastload.packing.verify import verify

END = b"\xff\xd9"
KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:0": {"subsampling": "4:2:0"},
    "gray": {"mode": "L"},
    "CMYK": {"mode": "CMYK"},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 3},
    "a restart marker a row": {"restart_marker_rows": 1},
}


def taller(data: bytes, height: int) -> bytes:
    """The same file, its header saying another height."""
    return patch_frame(data, height=height)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_the_file_does_not_have(kind: str) -> None:
    whole = encode(photo(64, 48), "JPEG", **KINDS[kind])
    data, expected = taller(whole, 200), _C.decode_rgb(whole)
    assert pillow_rgb(data).shape == (200, 64, 3)  # Pillow takes it
    for roi in (None, (0, 0, 64, 200), (3, 100, 8, 8), (0, 199, 64, 1), (60, 60, 4, 30)):
        with pytest.raises(DecodeError, match=r"the image data ends before row \d+ of 200"):
            _C.decode_rgb(data, roi)
    if kind == "progressive":
        return  # each scan passes the whole picture, so that no crop can be had without the rest
    # What needs the rows that are there only, and not their interpolated neighbours, is right.
    np.testing.assert_array_equal(_C.decode_rgb(data, (5, 2, 40, 28)), expected[2:30, 5:45])


@pytest.mark.parametrize("size", [(9000, 9000), (64, 9000), (9000, 48), (65, 49)])
def test_a_header_that_promises_more(size: tuple[int, int]) -> None:
    data = patch_frame(encode(photo(64, 48), "JPEG"), width=size[0], height=size[1])
    try:
        pixels = _C.decode_rgb(data)
    except DecodeError as error:
        assert "the image data ends before row" in str(error)  # noqa: PT017
        return
    assert size == (65, 49)  # another row of blocks, and the last one is what may be short
    np.testing.assert_array_equal(pixels, pillow_rgb(data))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_and_closed_by_an_end_marker(kind: str) -> None:
    """As an editor or a proxy leaves it; without the marker it is the end of the file that is an error."""
    whole = encode(photo(200, 160), "JPEG", quality=92, **KINDS[kind])
    cut = whole[: len(whole) // 2]
    if kind == "progressive":  # within the second scan
        cut = whole[: sum(scans(whole)[1]) // 2]
    assert pillow_rgb(cut + END).shape == (160, 200, 3)
    with pytest.raises(DecodeError, match="the image data ends before row"):
        _C.decode_rgb(cut + END)
    with pytest.raises(DecodeError):
        _C.decode_rgb(cut)


def test_a_progressive_file_that_ends_behind_its_first_scans() -> None:
    """All rows are there, with less detail: what Pillow gives, as near as two versions of libjpeg agree."""
    whole = encode(photo(200, 160), "JPEG", progressive=True)
    data = whole[: scans(whole)[3][1]] + END
    difference = np.abs(_C.decode_rgb(data).astype(int) - pillow_rgb(data))
    assert difference.max() <= 8
    assert difference.mean() < 0.1


def test_a_marker_in_the_middle_of_the_data() -> None:
    """Two damaged bytes that look like a marker, behind which libjpeg sees nothing."""
    whole = encode(photo(200, 160), "JPEG", quality=92)
    at = len(whole) // 2
    data = whole[:at] + b"\xff\xd3" + whole[at + 2 :]
    assert pillow_rgb(data).shape == (160, 200, 3)
    with pytest.raises(DecodeError):
        _C.decode_rgb(data)


def test_the_last_row_of_blocks_may_be_short() -> None:
    """A few missing bytes at the very end: decoded as libjpeg does, and counted as a warning."""
    whole = encode(photo(200, 160), "JPEG", quality=92)
    data = whole[:-12] + END
    decoder = _C.Decoder()
    np.testing.assert_array_equal(decoder.decode_rgb(data), pillow_rgb(data))
    assert decoder.counts()["warnings"] == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pictures; of samples 2 and 4 the header promises more rows than there are."""
    blobs = [encode(photo(64, 48, seed), "JPEG") for seed in range(6)]
    blobs[2] = patch_frame(blobs[2], width=9000, height=9000)
    blobs[4] = taller(blobs[4], 400)
    dataset = plain_pack(tmp_path / "set", blobs, range(6))
    report = build_entries(dataset, 16, 1)
    assert report.with_entries == 4
    return dataset.folder


def test_verify_sees_them(folder: Path) -> None:
    assert verify(folder)[0] == []
    problems, _ = verify(folder, decode=True)
    assert [problem.sample for problem in problems] == [2, 4]
    assert all("the image data ends before row" in problem.reason for problem in problems)


CHAINS = {
    "whole": [T.Resize((32, 32))],
    "val": [T.Resize(40), T.CenterCrop(32)],
    "crop": [T.RandomResizedCrop(32, scale=(0.9, 1.0))],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_the_loader_sees_them(folder: Path, chain: str) -> None:
    transform = T.Compose(CHAINS[chain])
    with pytest.raises(SampleError):
        list(DataLoader(folder, 6, transform=transform, seed=0))
    [(_, labels)] = list(DataLoader(folder, 6, transform=transform, on_error="skip", seed=0))
    assert labels.tolist() == [0, 1, -100, 3, -100, 5]
