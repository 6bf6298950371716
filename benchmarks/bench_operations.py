"""Microseconds per picture of each operation on pixels, by instruction set, beside Pillow.

    python benchmarks/bench_operations.py [--size 224] [--only hue,equalize] [--repeats 9]

One thread, in its own CPU time; instruction sets and Pillow take turns. The table has the median and spread,
(greatest - least) / median, of the repeats; the time to copy the picture (first row) is subtracted from the
core's. The picture is like a photograph: smooth, with noise. Pillow's rows are the calls of torchvision and
timm on a PIL picture, without the Python around them.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
from bench_transform import Results, Task, add_options, available, measure, parsed, report
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from fastload._native import _C

Run = Callable[[Image.Image], object]
COPY = "(copy)"
NEAREST, BILINEAR, BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
GRAY = (128.0, 128.0, 128.0)


def enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance], factor: float) -> Run:
    return lambda picture: kind(picture).enhance(factor)


def turned(picture: Image.Image) -> Image.Image:
    hue, saturation, value = picture.convert("HSV").split()
    moved = Image.fromarray(np.asarray(hue) + np.uint8(25))
    return Image.merge("HSV", (moved, saturation, value)).convert("RGB")


def moved(coefficients: tuple[float, ...], resample: Image.Resampling = NEAREST) -> Run:
    kind = Image.Transform.AFFINE if len(coefficients) == 6 else Image.Transform.PERSPECTIVE
    return lambda picture: picture.transform(picture.size, kind, coefficients, resample, fillcolor=(128,) * 3)


SHEAR_X, SHEAR_Y = (1.0, 0.3, 0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.3, 1.0, 0.0)
SCALE = (0.91, 0.0, -10.0, 0.0, 0.91, -10.0)
TURN = (0.9, 0.3, -20.0, -0.3, 0.9, 50.0)

# Title, row of the registry, its numbers, and Pillow's like.
ROWS: list[tuple[str, str, tuple[float, ...], Run | None]] = [
    ("grayscale", "grayscale", (), lambda picture: picture.convert("L").convert("RGB")),
    ("invert", "invert", (), ImageOps.invert),
    ("solarize", "solarize", (128.0,), partial(ImageOps.solarize, threshold=128)),
    ("solarize_add", "solarize_add", (60.0, 128.0), None),
    ("posterize", "posterize", (4.0,), partial(ImageOps.posterize, bits=4)),
    ("brightness", "brightness", (1.37,), enhanced(ImageEnhance.Brightness, 1.37)),
    ("contrast", "contrast", (1.37,), enhanced(ImageEnhance.Contrast, 1.37)),
    ("saturation", "saturation", (1.37,), enhanced(ImageEnhance.Color, 1.37)),
    ("saturation, 1.3", "saturation", (1.3,), enhanced(ImageEnhance.Color, 1.3)),
    ("hue", "hue", (0.1,), turned),
    ("grayscale, of tensors", "tensor_grayscale", (), None),
    ("contrast, of tensors", "tensor_contrast", (1.37,), None),
    ("saturation, of tensors", "tensor_saturation", (0.63,), None),
    ("hue, of tensors", "tensor_hue", (0.1,), None),
    ("sharpness", "sharpness", (1.37,), enhanced(ImageEnhance.Sharpness, 1.37)),
    ("autocontrast", "autocontrast", (), ImageOps.autocontrast),
    ("equalize", "equalize", (), ImageOps.equalize),
    ("channel_permutation", "channel_permutation", (5.0,), None),
    ("gaussian_noise", "gaussian_noise", (0.0, 0.1, 1.0), None),
    ("gaussian_blur 23, sigma 0.3", "gaussian_blur", (23.0, 23.0, 0.3), None),
    ("gaussian_blur 23, sigma 2", "gaussian_blur", (23.0, 23.0, 2.0), None),
    (
        "gaussian_blur_pillow 1",
        "gaussian_blur_pillow",
        (1.0,),
        lambda p: p.filter(ImageFilter.GaussianBlur(1)),
    ),
    ("shear_x, nearest", "shear_x", (0.3, 0.0, 0.0, *GRAY), moved(SHEAR_X)),
    ("shear_x, bicubic", "shear_x", (0.3, 0.0, 2.0, *GRAY), moved(SHEAR_X, BICUBIC)),
    ("shear_x, bilinear", "shear_x", (0.27, 0.0, 1.0, *GRAY), moved((1, 0.27, 0, 0, 1, 0), BILINEAR)),
    ("shear_y, nearest", "shear_y", (0.3, 0.0, 0.0, *GRAY), moved(SHEAR_Y)),
    ("shear_y, bicubic", "shear_y", (0.27, 0.0, 2.0, *GRAY), moved((1, 0, 0, 0.27, 1, 0), BICUBIC)),
    ("translate_x, nearest", "translate_x", (30.0, 0.0, 1.0, 0.0, *GRAY), moved((1, 0, -30, 0, 1, 0))),
    ("translate_y, nearest", "translate_y", (30.0, 0.0, 1.0, 0.0, *GRAY), moved((1, 0, 0, 0, 1, -30))),
    (
        "translate_x, bicubic",
        "translate_x",
        (30.3, 0.0, 0.0, 2.0, *GRAY),
        moved((1, 0, -30.3, 0, 1, 0), BICUBIC),
    ),
    (
        "translate_y, bicubic",
        "translate_y",
        (30.3, 0.0, 0.0, 2.0, *GRAY),
        moved((1, 0, 0, 0, 1, -30.3), BICUBIC),
    ),
    ("rotate, nearest", "rotate", (17.0, 0.0, 0.0, 0.0, 0.0, *GRAY), lambda p: p.rotate(17, NEAREST)),
    ("rotate, bilinear", "rotate", (17.0, 0.0, 0.0, 0.0, 1.0, *GRAY), lambda p: p.rotate(17, BILINEAR)),
    ("rotate, bicubic", "rotate", (17.0, 0.0, 0.0, 0.0, 2.0, *GRAY), lambda p: p.rotate(17, BICUBIC)),
    (
        "affine, bilinear",
        "affine",
        (17.0, 0.1, 0.1, 1.1, 5.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, *GRAY),
        moved(TURN, BILINEAR),
    ),
    (
        "affine, scaled, bilinear",
        "affine",
        (0.0, 0.1, 0.1, 1.1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, *GRAY),
        moved(SCALE, BILINEAR),
    ),
    ("horizontal_flip", "horizontal_flip", (), ImageOps.mirror),
    ("vertical_flip", "vertical_flip", (), ImageOps.flip),
    (
        "perspective, bilinear",
        "perspective",
        (0.5, 1.0, *GRAY),
        moved((0.9, 0.1, 5.0, 0.1, 0.9, 5.0, 2e-4, 1e-4), BILINEAR),
    ),
]


def photograph(size: int) -> np.ndarray:
    """Smooth, with noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    channels = [np.sin(math.tau * (x * (c + 1) + y)) * 60 + 90 + 60 * x * y for c in range(3)]
    noise = np.random.default_rng(0).normal(0, 6, (size, size, 3))
    return np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8)


def tasks(size: int, only: set[str]) -> dict[str, tuple[Task, Task | None]]:
    """Of each row: the core's, and Pillow's."""
    pixels = photograph(size)
    picture = Image.fromarray(pixels)

    def ours(spec: _C.PixelSpec, n: int) -> object:
        return _C.operate(pixels, spec, 0, 0, 0, repeat=n)

    def pillows(run: Run, n: int) -> object:
        return [run(picture) for _ in range(n)]

    found: dict[str, tuple[Task, Task | None]] = {COPY: (partial(ours, _C.PixelSpec([])), None)}
    for title, name, numbers, run in ROWS:
        if not only or name in only:
            spec = _C.PixelSpec([(name, 1.0, list(numbers))])
            found[title] = partial(ours, spec), partial(pillows, run) if run is not None else None
    return found


def without_copy(results: Results) -> Results:
    """The core's times less its copy's."""
    copies = {level: statistics.median(values) for level, values in results[COPY].items()}
    return {
        title: {
            column: [value - (copies.get(column, 0.0) if title != COPY else 0.0) for value in values]
            for column, values in row.items()
        }
        for title, row in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operations to run, separated by commas")
    add_options(parser)
    options = parsed(parser)
    only = set(filter(None, options.only.split(",")))
    if unknown := only - {name for _, name, _, _ in ROWS}:
        parser.error(f"no operations: {', '.join(sorted(unknown))}")
    results = without_copy(measure(tasks(options.size, only), available(), options.repeats))
    report(results, options, f"{options.size}x{options.size}")


if __name__ == "__main__":
    main()
