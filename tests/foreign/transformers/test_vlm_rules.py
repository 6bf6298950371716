"""Picture rules against transformers' own image processors (PIL): settings, sizes, tokens and batches."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from long_forms import SEED, as_drawn, how_many
from PIL import Image
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches
from vision_reference import all_rows

from fastload.vlm.layouts import batch_of
from fastload.vlm.reading import Vision
from fastload.vlm.rules import (
    Gemma3,
    Grid,
    Idefics3,
    InternVL,
    LlavaOneVision,
    PaliGemma,
    Qwen2VL,
    Rule,
    SigLIP2,
)

pytestmark = pytest.mark.timeout(1800)  # the long form of the largest tiles

SIZES = how_many(3000, 100_000)
PICTURES = how_many(50, 250)
ODD = [(1, 1), (7, 300), (300, 7), (2000, 700), (1, 60), (2, 398), (5, 1000), (995, 5), (28, 28), (384, 384)]
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def made(module: str, name: str, **settings: Any) -> Any:
    """An image processor of transformers."""
    return getattr(importlib.import_module(f"transformers.models.{module}"), f"{name}ImageProcessorPil")(
        **settings
    )


def qwen(**settings: Any) -> Any:
    return made("qwen2_vl.image_processing_pil_qwen2_vl", "Qwen2VL", **settings)


def internvl(**settings: Any) -> Any:
    return made("got_ocr2.image_processing_pil_got_ocr2", "GotOcr2", **settings)


def gemma(**settings: Any) -> Any:
    return made("gemma3.image_processing_pil_gemma3", "Gemma3", **settings)


def of_idefics3(**settings: Any) -> Any:
    return made("idefics3.image_processing_pil_idefics3", "Idefics3", **settings)


def llava(**settings: Any) -> Any:
    return made("llava_onevision.image_processing_pil_llava_onevision", "LlavaOnevision", **settings)


QWEN3 = {"patch_size": 16, "size": {"shortest_edge": 65536, "longest_edge": 16777216}, **HALF}
PAN = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 64,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}
SMOL = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
#: Processors, and the rules that they are.
CASES: dict[str, tuple[Any, Rule]] = {
    "qwen2_vl": (qwen(), Qwen2VL()),
    "qwen2.5_vl": (qwen(max_pixels=12845056), Qwen2VL(max_pixels=12845056)),
    "qwen3_vl": (
        qwen(**QWEN3),
        Qwen2VL(16, min_pixels=65536, max_pixels=16777216, mean=(0.5,) * 3, std=(0.5,) * 3),
    ),
    "qwen_plain": (
        qwen(do_normalize=False, resample=2),
        Qwen2VL(mean=(0,) * 3, std=(1,) * 3, filter="bilinear"),
    ),
    "siglip2": (made("siglip2.image_processing_pil_siglip2", "Siglip2"), SigLIP2()),
    "siglip2_few": (
        made("siglip2.image_processing_pil_siglip2", "Siglip2", max_num_patches=49, patch_size=14),
        SigLIP2(14, 49),
    ),
    "idefics3": (of_idefics3(), Idefics3()),
    "idefics3_small": (
        of_idefics3(size={"longest_edge": 728}, max_image_size={"longest_edge": 364}),
        Idefics3(728),
    ),
    "idefics3_whole": (of_idefics3(do_image_splitting=False), Idefics3(crop_to_patches=False)),
    "smolvlm": (
        made("smolvlm.image_processing_pil_smolvlm", "SmolVLM", **SMOL),
        Idefics3(2048, 512, tile_tokens=64),
    ),
    "llava_onevision": (llava(), LlavaOneVision()),
    "internvl": (
        internvl(size={"height": 448, "width": 448}, crop_to_patches=True, **IMAGENET),
        InternVL(448, True, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ),
    "internvl_few": (
        internvl(size={"height": 64, "width": 64}, crop_to_patches=True, min_patches=2, max_patches=6),
        InternVL(64, True, 2, 6),
    ),
    "internvl_whole": (internvl(), InternVL()),
    "gemma3": (gemma(size={"height": 896, "width": 896}), Gemma3((896, 896))),
    "gemma3_pan": (gemma(**PAN), Gemma3(pan_and_scan=True, pan_min_crop=64)),
    "paligemma": (made("siglip.image_processing_pil_siglip", "Siglip"), PaliGemma()),
}


def drawn_sizes(count: int) -> list[tuple[int, int]]:
    """Log-uniform sides from 1 to 8,000 pixels, and small ones, for which rounding counts most."""
    rng = np.random.default_rng(SEED)
    large = np.exp(rng.uniform(0, math.log(8000), (count, 2))).astype(int)
    small = rng.integers(1, 64, (count // 4, 2))
    return [*ODD, (1, 199), (1, 200), (1, 201), *map(tuple, large.tolist()), *map(tuple, small.tolist())]


# ---- Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_settings_are_read(case: str) -> None:
    processor, rule = CASES[case]
    assert Vision(processor).rule == rule


def test_whole_processors_are_read() -> None:
    """What they pass to their image processors goes first, and they know the tokens of a tile."""
    whole = object.__new__(InternVLProcessor)
    whole.__dict__.update(image_processor=internvl(), image_seq_length=169)
    assert Vision(whole).rule == InternVL(crop_to_patches=True, tile_tokens=169)
    whole = object.__new__(Gemma3Processor)
    whole.__dict__.update(image_processor=gemma(**PAN), image_seq_length=256)
    assert Vision(whole).rule == Gemma3()
    whole = object.__new__(LlavaOnevisionProcessor)
    whole.__dict__.update(
        image_processor=llava(), num_image_tokens=100, vision_aspect_ratio="anyres_max_4",
        vision_feature_select_strategy="default",
    )  # fmt: skip
    assert Vision(whole).rule == LlavaOneVision(tile_tokens=100, anyres_max=4, select="default")


# ---- Sizes and tokens -------------------------------------------------------------------------------


def check_sizes(case: str, wanted: Callable[[int, int], tuple[int, ...]], *parts: str) -> None:
    """Compare parts of the grids of drawn sizes, and their tokens by NumPy."""
    rule = CASES[case][1]
    sizes = drawn_sizes(SIZES)
    if isinstance(rule, Qwen2VL):
        sizes = [(h, w) for h, w in sizes if max(h, w) / min(h, w) <= 200]
    assert len(sizes) > 1000
    grids = [rule.sizes(*size) for size in sizes]
    for size, grid in zip(sizes, grids, strict=True):
        assert tuple(getattr(grid, part) for part in parts) == wanted(*size), as_drawn(size)
    assert np.array_equal(rule.tokens_of(np.array(sizes)), [grid.tokens for grid in grids])


@pytest.mark.parametrize("case", [name for name, (_, rule) in CASES.items() if isinstance(rule, Qwen2VL)])
def test_sizes_of_qwen2_vl(case: str) -> None:
    processor, rule = CASES[case]
    assert isinstance(rule, Qwen2VL)

    def wanted(height: int, width: int) -> tuple[int, ...]:
        factor = rule.patch * rule.merge
        down, across = smart_resize(height, width, factor, rule.min_pixels, rule.max_pixels)
        return down, across, processor.get_number_of_image_patches(height, width, {}) // rule.merge**2

    check_sizes(case, wanted, "height", "width", "tokens")
    for height, width in ((1, 201), (4020, 20 - 1)):
        with pytest.raises(ValueError, match="smaller than 200"):
            smart_resize(height, width)
        with pytest.raises(ValueError, match="at most 200 times"):
            rule.sizes(height, width)


@pytest.mark.parametrize("case", ["siglip2", "siglip2_few"])
def test_sizes_of_siglip2(case: str) -> None:
    processor, _ = CASES[case]

    def wanted(height: int, width: int) -> tuple[int, ...]:
        patch = processor.patch_size
        down, across = get_image_size_for_max_num_patches(height, width, patch, processor.max_num_patches)
        return down, across, down // patch * (across // patch)

    check_sizes(case, wanted, "height", "width", "tokens")


@pytest.mark.parametrize("case", ["idefics3", "idefics3_small", "smolvlm"])
def test_sizes_of_idefics3(case: str) -> None:
    """By the functions that resize: pictures are replaced by their shapes."""
    processor, rule = CASES[case]
    tile = processor.max_image_size["longest_edge"]

    def wanted(height: int, width: int) -> tuple[int, ...]:
        longest = idefics3.get_resize_output_image_size(
            np.broadcast_to(np.uint8(0), (3, height, width)), processor.size.longest_edge
        )
        seen: list[Any] = []
        resizer = SimpleNamespace(resize=lambda image, size, resample: seen.append(size))
        idefics3.Idefics3ImageProcessorPil.resize_for_vision_encoder(
            resizer, np.broadcast_to(np.uint8(0), (3, *longest)), tile
        )
        rows, columns = seen[0].height // tile, seen[0].width // tile
        count, *cells = processor.get_number_of_image_patches(height, width, {"size": dict(processor.size)})
        assert max(1, count) * rule.tile_tokens == rule.sizes(height, width).tokens  # type: ignore[attr-defined]
        assert cells == ([rows, columns] if rows * columns > 1 else [0, 0])
        return seen[0].height, seen[0].width, *cells

    check_sizes(case, wanted, "height", "width", "rows", "columns")


def test_sizes_of_llava_onevision() -> None:
    """By the processor's own count; several pictures have a tile and a line end each."""
    processor, rule = CASES["llava_onevision"]
    whole = object.__new__(LlavaOnevisionProcessor)
    whole.__dict__.update(image_processor=processor, num_image_tokens=729, vision_aspect_ratio="anyres_max_9")

    def wanted(height: int, width: int) -> tuple[int, ...]:
        return (whole._get_number_of_features(height, width, 384, 384),)

    check_sizes("llava_onevision", wanted, "tokens")
    assert rule.sizes(300, 200, 2) == Grid(384, 384, 0, 0, 730)
    assert rule.tokens_of(np.array([(300, 200)]), 3).tolist() == [730]


@pytest.mark.parametrize("case", ["internvl", "internvl_few", "internvl_whole"])
def test_sizes_of_internvl(case: str) -> None:
    processor, _ = CASES[case]
    check_sizes(case, lambda h, w: (processor.get_number_of_image_patches(h, w, {}) * 256,), "tokens")


def test_crops_of_gemma3() -> None:
    processor, rule = CASES["gemma3_pan"]

    def wanted(height: int, width: int) -> tuple[int, ...]:
        crops = processor.pan_and_scan(np.broadcast_to(np.uint8(0), (3, height, width)), 64, 4, 1.2)
        assert all(crop.size for crop in crops)
        return (256 * (1 + len(crops)),)

    check_sizes("gemma3_pan", wanted, "tokens")
    assert rule.sizes(100, 400).columns == 4


# ---- Pixels and batches -----------------------------------------------------------------------------


def picture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Waves with noise: edges that ring, and values that reach both ends."""
    down, across = np.mgrid[:height, :width]
    waves = [np.sin(down / rng.uniform(2, 40) + across / rng.uniform(2, 40)) for _ in range(3)]
    noisy = 128 + 150 * np.stack(waves, axis=-1) + rng.normal(0, 20, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def pictures(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(SEED)
    sizes = [
        *ODD,
        *map(tuple, np.exp(rng.uniform(math.log(20), math.log(900), (count, 2))).astype(int).tolist()),
    ]
    return [picture(rng, *size) for size in sizes[:count]]


def batches(many: bool) -> list[list[list[np.ndarray]]]:
    """Samples of 1 picture, or of 0, 1 and several."""
    drawn = pictures(PICTURES)
    counts = [2, 0, 1, 3, 1] if many else [1, 1, 1]
    found: list[list[list[np.ndarray]]] = []
    while len(drawn) >= sum(counts):
        found.append([[drawn.pop() for _ in range(count)] for count in counts])
    return found


def theirs(processor: Any, rule: Rule, samples: Sequence[Sequence[np.ndarray]]) -> Any:
    """The batch that the class makes; only these two know samples."""
    nested = [[Image.fromarray(one) for one in sample] for sample in samples]
    if isinstance(rule, Idefics3 | LlavaOneVision):
        return processor(nested, return_tensors="pt")
    return processor([one for sample in nested for one in sample], return_tensors="pt")


@pytest.mark.parametrize("many", [False, True], ids=["one", "several"])
@pytest.mark.parametrize("case", CASES)
def test_batches_are_the_processors(case: str, many: bool) -> None:
    processor, rule = CASES[case]
    compared = 0
    for samples in batches(many):
        wanted = theirs(processor, rule, samples)
        found = batch_of(rule, *all_rows(rule, samples))
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            shapes = [one.shape[:2] for sample in samples for one in sample]
            assert found[name].dtype == value.dtype, name
            assert torch.equal(found[name], value), as_drawn((name, shapes))
        compared += sum(map(len, samples))
    assert compared >= PICTURES - 6


def test_llama_factorys_first_resize() -> None:
    """BasePlugin._preprocess_image of LLaMA-Factory, and then the processor."""
    most = 100_000
    rule = Qwen2VL(first_max_pixels=most)
    samples = [[one] for one in pictures(PICTURES) if one.shape[0] * one.shape[1] > most]
    assert len(samples) > 5
    first = []
    for (one,) in samples:
        image = Image.fromarray(one)
        factor = math.sqrt(most / (image.width * image.height))
        resized = image.resize((int(image.width * factor), int(image.height * factor)))
        first.append([np.asarray(resized)])
    wanted = theirs(qwen(), rule, first)
    found = batch_of(rule, *all_rows(rule, samples))
    assert torch.equal(found["pixel_values"], wanted["pixel_values"])
    assert torch.equal(found["image_grid_thw"], wanted["image_grid_thw"])
