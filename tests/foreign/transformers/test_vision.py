"""The core's rows of pictures against transformers' image processors that work with Pillow, bit for bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pictures import encoded, picture
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from fastload._native import _C

SIZES = [
    (1, 1), (7, 300), (300, 7), (2000, 700), (500, 375), (375, 500), (27, 29), (199, 1), (448, 448),
    (640, 213), (1, 201),
]  # fmt: skip
NARROW = (1, 201)  # Qwen's refuse it
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
PAN = {"pan_min_crop": 64, "pan_max_crops": 4, "pan_min_ratio": 1.2}
TALL = [(224, 224), (448, 224), (224, 672)]


def square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def qwen(**settings: Any) -> Any:
    return Qwen2VLImageProcessorPil(**settings)


def idefics(kind: Any, longest: int, tile: int) -> Any:
    return kind(
        size={"longest_edge": longest}, max_image_size={"longest_edge": tile}, return_row_col_info=True
    )


def gemma(side: int, **pan: Any) -> Any:
    named = {f"pan_and_scan_{name}": value for name, value in pan.items()}
    return Gemma3ImageProcessorPil(size=square(side), do_pan_and_scan=bool(pan), **named)


def internvl(side: int, **settings: Any) -> Any:
    colours = {"image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"]}
    return GotOcr2ImageProcessorPil(size=square(side), **colours, **settings)


def llava(side: int, pinpoints: list[tuple[int, int]]) -> Any:
    points = [list(pair) for pair in pinpoints]
    return LlavaOnevisionImageProcessorPil(size=square(side), image_grid_pinpoints=points)


CASES: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "Qwen2-VL": (qwen, "qwen2_vl", {}),
    "Qwen3-VL": (
        lambda: qwen(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, **HALF),
        "qwen2_vl",
        {"patch": 16, "min_pixels": 65536, "max_pixels": 16777216, "mean": [0.5] * 3, "std": [0.5] * 3},
    ),
    "Qwen, small": (
        lambda: qwen(
            size={"shortest_edge": 3136, "longest_edge": 50000}, merge_size=1, temporal_patch_size=1
        ),
        "qwen2_vl",
        {"max_pixels": 50000, "merge": 1, "temporal": 1},
    ),
    "SigLIP2": (Siglip2ImageProcessorPil, "siglip2", {}),
    "SigLIP2, 14": (
        lambda: Siglip2ImageProcessorPil(patch_size=14, max_num_patches=100),
        "siglip2",
        {"patch": 14, "max_patches": 100},
    ),
    "Idefics3": (lambda: idefics(Idefics3ImageProcessorPil, 1456, 364), "idefics3", {}),
    "SmolVLM": (
        lambda: idefics(SmolVLMImageProcessorPil, 2048, 512),
        "idefics3",
        {"longest_edge": 2048, "tile": 512, "tokens": 64},
    ),
    "Idefics3, one tile": (
        lambda: idefics(Idefics3ImageProcessorPil, 300, 364),
        "idefics3",
        {"longest_edge": 300},
    ),
    "Idefics3, whole": (
        lambda: Idefics3ImageProcessorPil(do_image_splitting=False),
        "idefics3",
        {"crop_to_patches": False},
    ),
    "LLaVA-OneVision": (LlavaOnevisionImageProcessorPil, "llava_onevision", {}),
    "LLaVA-OneVision, 224": (lambda: llava(224, TALL), "llava_onevision", {"tile": 224, "pinpoints": TALL}),
    "InternVL": (
        lambda: internvl(448, crop_to_patches=True),
        "internvl",
        {"tile": 448, "crop_to_patches": True, **IMAGENET},
    ),
    "InternVL, 3 to 6": (
        lambda: internvl(224, crop_to_patches=True, min_patches=3, max_patches=6),
        "internvl",
        {"tile": 224, "crop_to_patches": True, "min_tiles": 3, "max_tiles": 6, **IMAGENET},
    ),
    "GOT-OCR2": (GotOcr2ImageProcessorPil, "internvl", {}),
    "Gemma3": (lambda: gemma(896), "gemma3", {"size": (896, 896)}),
    "Gemma3, pan and scan": (
        lambda: gemma(224, min_crop_size=64, max_num_crops=4, min_ratio_to_activate=1.2),
        "gemma3",
        {"pan_and_scan": True, **PAN},
    ),
    "PaliGemma": (SiglipImageProcessorPil, "paligemma", {}),
    "PaliGemma, not square": (
        lambda: SiglipImageProcessorPil(size={"height": 100, "width": 201}),
        "paligemma",
        {"size": (100, 201)},
    ),
}


def files() -> list[bytes]:
    found = [encoded(picture(seed, *size), quality=90) for seed, size in enumerate(SIZES)]
    return [*found, encoded(picture(50, 333, 222), "PNG")]


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def rows_of(processor: Any, images: list[Image.Image]) -> torch.Tensor:
    """All rows of a picture, or of several of one sample, one behind the other."""
    found = processor([images] if len(images) > 1 else images, return_tensors="pt")
    values = found["pixel_values"]
    if "spatial_shapes" in found:
        return values[0, : int(found["spatial_shapes"][0].prod())]
    return values.flatten(0, 1) if values.ndim == 5 else values


def core_rows(rule: Any, data: bytes, **options: Any) -> torch.Tensor:
    return torch.from_numpy(_C.vision_rows(rule, np.frombuffer(data, np.uint8), **options))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_processor(name: str) -> None:
    make, family, numbers = CASES[name]
    processor, rule = make(), _C.VisionRule(family, **numbers)
    compared = 0
    for data in files():
        image = opened(data)
        if family == "qwen2_vl" and image.size == NARROW:
            with pytest.raises(ValueError, match="at most 200 times"):
                core_rows(rule, data)
            with pytest.raises(ValueError, match="must be smaller than 200"):
                rows_of(processor, [image])
            continue
        found, wanted = core_rows(rule, data), rows_of(processor, [image])
        assert found.shape == wanted.shape
        assert torch.equal(found, wanted)
        half = core_rows(rule, data, dtype="bfloat16").view(torch.bfloat16)
        assert torch.equal(half, wanted.to(torch.bfloat16))
        compared += 1
    assert compared >= len(SIZES)


def test_several_pictures_of_llava_onevision() -> None:
    processor, rule = LlavaOnevisionImageProcessorPil(), _C.VisionRule("llava_onevision")
    data = files()
    wanted = rows_of(processor, [opened(each) for each in data])
    found = torch.cat([core_rows(rule, each, pictures=len(data)) for each in data])
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    "name", ["Qwen2-VL", "Qwen3-VL", "Idefics3", "SmolVLM", "InternVL", "InternVL, 3 to 6"]
)
def test_numbers_of_patches(name: str) -> None:
    make, family, numbers = CASES[name]
    processor, rule = make(), _C.VisionRule(family, **numbers)
    rng = np.random.default_rng(5)
    for width, height in np.exp(rng.uniform(np.log(8), np.log(8000), (2000, 2))).astype(int):
        if max(width, height) > 200 * min(width, height):
            continue
        told = processor.get_number_of_image_patches(int(height), int(width), {})
        found = rule.plan(int(width), int(height))
        if family == "idefics3":
            assert told[1:] == found["grid"]
            assert (told[0] or 1) == found["rows"]
        else:
            assert told == found["rows"]
