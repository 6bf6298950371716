"""The benchmarks' digits.py, draw_photos.py and page_cache.py: what they read where nothing is given."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import draw_photos
import numpy as np
import pytest
from harness import page_cache
from PIL import Image
from sets import digits


def test_drawn_digits_are_gray_mostly_black_and_repeatable() -> None:
    first, again = list(digits.draw_digits(200)), list(digits.draw_digits(200))
    assert {label for _, label in first} == set(range(10))
    assert all(np.array_equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(first, again, strict=True))
    pixels = np.stack([picture for picture, _ in first])
    assert pixels.shape == (200, 28, 28)
    assert pixels.dtype == np.uint8
    assert 0.6 < (pixels == 0).mean() < 0.95
    assert pixels.max(axis=(1, 2)).min() > 100
    ones, eights = (np.mean([p for p, label in first if label == digit], axis=0) for digit in (1, 8))
    assert np.abs(ones - eights).max() > 50  # the label belongs to the picture


@pytest.mark.parametrize("packed", [False, True])
def test_mnists_own_files_become_a_folder_of_png(tmp_path: Path, packed: bool) -> None:
    pixels = np.arange(3 * 28 * 28).astype(np.uint8).reshape(3, 28, 28)
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 28, 28) + pixels.tobytes()
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([7, 0, 7])
    for name, data in zip(digits.TRAIN_FILES, (images, labels), strict=True):
        path = tmp_path / (name + (".gz" if packed else ""))
        path.write_bytes(gzip.compress(data) if packed else data)
    assert digits.write_folder(digits.read_idx(tmp_path), tmp_path / "png") == 3
    files = sorted((tmp_path / "png").rglob("*.png"))
    assert [path.parent.name for path in files] == ["0", "7", "7"]
    for path, number in zip(files, (1, 0, 2), strict=True):
        with Image.open(path) as image:
            assert image.mode == "L"
            assert np.array_equal(np.asarray(image), pixels[number])


def test_wrong_mnist_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train-images"):
        next(digits.read_idx(tmp_path))
    for name in digits.TRAIN_FILES:
        (tmp_path / name).write_bytes(b"GIF89a..")
    with pytest.raises(ValueError, match="not an IDX file"):
        next(digits.read_idx(tmp_path))
    (tmp_path / digits.TRAIN_FILES[0]).write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 1, 1, 1) + b"x")
    (tmp_path / digits.TRAIN_FILES[1]).write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 2) + b"xy")
    with pytest.raises(ValueError, match="do not belong together"):
        next(digits.read_idx(tmp_path))


def test_drawn_photos_cost_as_much_as_photographs(tmp_path: Path) -> None:
    draw_photos.main([str(tmp_path), "--count", "4"])
    files = sorted(tmp_path.rglob("*.jpg"))
    assert {path.parent.name for path in files} == {"class0", "class1"}
    with Image.open(files[0]) as image:
        assert image.size == (500, 375)
        pixels = np.asarray(image).astype(float)
    near, far = (np.corrcoef(pixels[:, :-step].ravel(), pixels[:, step:].ravel())[0, 1] for step in (1, 60))
    assert near > 0.9 > far  # neighbours are alike, as in photographs
    assert 20_000 < sum(path.stat().st_size for path in files) / 4 < 200_000


def test_drawn_photos_of_another_size(tmp_path: Path) -> None:
    draw_photos.main([str(tmp_path), "--count", "1", "--size", "80", "50"])
    with Image.open(tmp_path / "class0" / "00000.jpg") as image:
        assert image.size == (80, 50)


def test_the_page_cache_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1_000_000)
    path.read_bytes()
    assert page_cache.resident_share(path) == 1.0
    stayed = page_cache.evict(path)
    assert 0.0 <= stayed <= 1.0
    assert path.read_bytes() == b"x" * 1_000_000
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(100 << 20)
    assert page_cache.resident_share(sparse) < 0.5  # nobody has read it
    (tmp_path / "empty").touch()
    assert page_cache.resident_share(tmp_path / "empty") == 0.0
