"""Pictures as rows for vision-language models: each bit of tests/reference/vision_reference.py's, by every
instruction set, in every dtype."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from pictures import encoded
from PIL import Image
from vision_reference import CASES, byte_rows, rows, table

from fastload._native import _C

# (width, height); Qwen's take no ratio above 200.
SMALL = [(1, 1), (7, 100), (90, 77), (199, 1), (1, 201)]
SIZES = [*SMALL, (7, 300), (300, 7), (2000, 700), (375, 500), (448, 448)]
SMALL_CASES = (  # few pixels in a tile: a case of each kind of rows
    "Qwen, small", "SigLIP2, 14", "Idefics3, small", "LLaVA, few canvases", "InternVL, 3 to 6", "PaliGemma",
    "Gemma3, pan and scan",
)  # fmt: skip
PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13  # earlier ones do the passes in another order
pytestmark = pytest.mark.skipif(not PILLOW_13, reason="this Pillow does the two passes in another order")


def noise(width: int, height: int, seed: int) -> np.ndarray:
    """Random pixels, in every second picture only 0 and 255: what makes filters overshoot."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return (pixels > 127).astype(np.uint8) * 255 if seed % 2 == 0 else pixels


def as_png(pixels: np.ndarray) -> np.ndarray:
    return np.frombuffer(encoded(Image.fromarray(pixels), "PNG", compress_level=1), np.uint8)


def rule(name: str, **numbers: Any) -> Any:
    family, given = CASES[name]
    return _C.VisionRule(family, **given, **numbers)


def check(name: str, size: tuple[int, int], seed: int, pictures: int = 1) -> None:
    pixels = noise(*size, seed)
    data, made = as_png(pixels), rule(name)
    wanted = rows(name, pixels, pictures)
    found = _C.vision_rows(made, data, pictures)
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))
    half = torch.from_numpy(_C.vision_rows(made, data, pictures, "bfloat16")).view(torch.bfloat16)
    assert torch.equal(half, torch.from_numpy(wanted).to(torch.bfloat16))
    assert np.array_equal(_C.vision_rows(made, data, pictures, "uint8"), byte_rows(name, pixels, pictures))


def check_all(name: str, sizes: list[tuple[int, int]]) -> int:
    """How many pictures were checked."""
    family, _ = CASES[name]
    for seed, size in enumerate(sizes):
        if family == "qwen2_vl" and size == (1, 201):
            with pytest.raises(ValueError, match="at most 200 times"):
                _C.vision_rows(rule(name), as_png(noise(*size, seed)))
        else:
            check(name, size, seed)
    return len(sizes)


@pytest.mark.parametrize("name", SMALL_CASES)
def test_small_rows(name: str, level: str) -> None:
    assert check_all(name, SMALL) == len(SMALL)


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str, level: str) -> None:
    assert check_all(name, SIZES) == len(SIZES)


@pytest.mark.parametrize("size", SMALL)
def test_several_pictures_of_llava(size: tuple[int, int], level: str) -> None:
    check("LLaVA, few canvases", size, 1, pictures=2)


# The least numbers by which vectors make other bits than the table are not easily found: any may be tried.
@pytest.mark.parametrize("seed", range(20))
def test_any_mean_and_std(seed: int, levels: list[str]) -> None:
    rng = np.random.default_rng(seed)
    numbers = {
        "mean": tuple(rng.uniform(0, 1, 3).tolist()),
        "std": tuple(rng.choice([rng.uniform(0.1, 1, 3), [1.0] * 3, rng.uniform(-9, 9, 3)]).tolist()),
        "rescale": float(rng.choice([1 / 255, 1.0, 1 / 127.5, rng.uniform(0.001, 2)])),
    }
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    made = _C.VisionRule("siglip2", **numbers, max_patches=1)
    scaled = (np.arange(256).astype(np.float64) * numbers["rescale"]).astype(np.float32)
    mean, std = (np.array(numbers[word], np.float32) for word in ("mean", "std"))
    wanted = ((scaled[:, None] - mean) / std).reshape(1, -1)
    for level in levels:
        _C.set_simd_level(level)
        found = _C.vision_rows(made, as_png(pixels))
        assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))


def test_the_table_is_not_to_dtype_and_normalize() -> None:
    """The reference can tell them: other operations on the same numbers differ in some last bits."""
    x = np.arange(256, dtype=np.float32)
    assert not np.array_equal(
        table("Qwen2-VL")[0], (x / 255 - np.float32(0.48145466)) * np.float32(1 / 0.26862954)
    )


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}])
def test_jpegs(options: dict[str, Any]) -> None:
    data = encoded(Image.fromarray(noise(333, 222, 5) // 4), quality=90, **options)
    shown = np.asarray(Image.open(io.BytesIO(data)))
    assert np.array_equal(
        _C.vision_rows(rule("SmolVLM"), np.frombuffer(data, np.uint8)), rows("SmolVLM", shown)
    )


def test_what_is_refused() -> None:
    data = as_png(noise(40, 30, 1))
    with pytest.raises(ValueError, match=r"Rows of pictures are uint8, bfloat16 or float32"):
        _C.vision_rows(rule("SigLIP2"), data, dtype="float16")
    with pytest.raises(ValueError, match=r"must make finite numbers"):
        _C.vision_rows(_C.VisionRule("siglip2", std=(1e-38, 1, 1), mean=(9999.0, 0, 0)), data)
