"""28x28 gray digits as an image folder: real MNIST where its files are given, else digits drawn here.

MNIST (LeCun, Cortes, Burges) cannot be downloaded everywhere. Drawn digits are what it is to a loader: 60,000
gray pictures of 28x28 pixels, most of them black, a few hundred bytes each as PNG. Their accuracy means
nothing.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

__all__ = ["SIDE", "draw_digits", "read_idx", "write_folder"]

SIDE = 28
LARGE = 56  # pixels a side of the glyphs that are turned and shrunk
TRAIN_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")

Pixels = npt.NDArray[np.uint8]
Sample = tuple[Pixels, int]


def draw_digits(count: int, seed: int = 0) -> Iterator[Sample]:
    """``count`` pictures (28, 28) uint8 and their digits: a glyph turned, scaled and moved."""
    random = np.random.default_rng(seed)
    font = ImageFont.load_default(LARGE)
    glyphs = []
    for digit in range(10):
        glyph = Image.new("L", (LARGE, LARGE))
        ImageDraw.Draw(glyph).text((LARGE / 2, LARGE / 2), str(digit), 255, font, anchor="mm")
        glyphs.append(glyph)
    for _ in range(count):
        digit = int(random.integers(10))
        turned = glyphs[digit].rotate(random.uniform(-20, 20), Image.Resampling.BILINEAR)
        small = turned.resize((side := int(random.integers(22, 31)), side), Image.Resampling.BILINEAR)
        picture = Image.new("L", (SIDE, SIDE))
        free = (SIDE - side) // 2
        picture.paste(small, (free + int(random.integers(-2, 3)), free + int(random.integers(-2, 3))))
        uneven = random.random((SIDE, SIDE), np.float32) * 0.3 + 0.7
        yield (np.asarray(picture) * uneven).astype(np.uint8), digit


def read_idx(folder: Path) -> Iterator[Sample]:
    """MNIST's training set from its own files, gzipped or not.

    Raises:
        FileNotFoundError: they are not in ``folder``.
        ValueError: they are not what they should be.
    """
    images, labels = (_idx(folder, name) for name in TRAIN_FILES)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(
            f"{folder}: {images.shape} pictures and {labels.shape} labels do not belong together."
        )
    for pixels, label in zip(images, labels, strict=True):
        yield pixels, int(label)


def _idx(folder: Path, name: str) -> Pixels:
    """One IDX file: two zero bytes, 8 (uint8), the number of dimensions, their sizes, the data."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            break
    else:
        raise FileNotFoundError(f"{folder} has neither {name} nor {name}.gz.")
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an IDX file of bytes: it begins with {data[:4]!r}.")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def write_folder(samples: Iterator[Sample], folder: Path) -> int:
    """Each sample as ``folder/<digit>/<number>.png``, gray; the number of them."""
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True, exist_ok=True)
    count = 0
    for count, (pixels, label) in enumerate(samples, 1):
        Image.fromarray(pixels).save(folder / str(label) / f"{count:05d}.png")
    return count
