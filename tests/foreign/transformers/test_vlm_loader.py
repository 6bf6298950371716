"""A DataLoader with a processor's rule: its batches are those that the processor makes of the same files."""

from __future__ import annotations

import importlib
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload

CLASSES = {
    "qwen2_vl": "Qwen2VL",
    "siglip2": "Siglip2",
    "idefics3": "Idefics3",
    "llava_onevision": "LlavaOnevision",
    "got_ocr2": "GotOcr2",
    "gemma3": "Gemma3",
}
#: Those that take a flat list of pictures, not a list for each sample.
FLAT = ("qwen2_vl", "siglip2", "got_ocr2")


def jpeg(number: int) -> bytes:
    """A picture of its own size."""
    draws = np.random.default_rng(number)
    height, width = draws.integers(40, 400, 2)
    small = draws.integers(0, 256, (6, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((int(width), int(height)), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


FILES = [jpeg(number) for number in range(20)]


@pytest.fixture(scope="module")
def rows() -> list[list[bytes] | None]:
    draws = random.Random(0)
    return [
        None,
        [],
        *([draws.choice(FILES) for _ in range(draws.choice([0, 1, 1, 2, 3]))] for _ in range(18)),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rows: list[list[bytes] | None]) -> Path:
    path = tmp_path_factory.mktemp("lists") / "set"
    samples = [{"images": images, "text": str(number)} for number, images in enumerate(rows)]
    fastload.pack(samples, path, schema={"images": "images", "text": "text"}, num_proc=1)
    return path


def opened(data: bytes) -> Any:
    return Image.open(io.BytesIO(data)).convert("RGB")


@pytest.mark.parametrize("family", CLASSES)
def test_batches_are_the_processor_s(family: str, folder: Path, rows: list[list[bytes] | None]) -> None:
    module = importlib.import_module(f"transformers.models.{family}.image_processing_pil_{family}")
    processor = getattr(module, f"{CLASSES[family]}ImageProcessorPil")()
    vision = fastload.Vision(processor)
    loader = fastload.DataLoader(folder, 5, shuffle=True, seed=3, transform=vision, num_workers=2)
    compared = 0
    for batch in loader:
        samples = [[opened(data) for data in rows[int(number)] or ()] for number in batch["text"]]
        given: Any = [one for sample in samples for one in sample] if family in FLAT else samples
        if family in ("llava_onevision", "gemma3"):  # they take no sample without pictures
            given = [sample for sample in samples if sample]
        made = processor(images=given, return_tensors="pt")
        for name, value in made.items():
            value = torch.as_tensor(value)
            assert batch[name].dtype == value.dtype, name
            assert torch.equal(batch[name], value), name
        compared += 1
    assert compared == 4
