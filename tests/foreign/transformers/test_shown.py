"""Pictures as transformers' ``load_image`` opens them: sets packed with ``exif="turn"`` give these."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import fastload
from fastload import DataLoader, Vision


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_turned_as_load_image_turns(tmp_path: Path, form: str) -> None:
    draw, paths = np.random.default_rng(1), []
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / f"{orientation}.{form.lower()}"
        out = io.BytesIO()
        picture = Image.fromarray(draw.integers(0, 256, (70, 100 + orientation, 3), np.uint8))
        picture.save(out, form, exif=exif.tobytes())
        path.write_bytes(out.getvalue())
        paths.append(str(path))
    processor = Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 9)
    wanted = processor([load_image(path) for path in paths], return_tensors="pt")
    rows = [{"images": paths[:3]}, {"images": paths[3:]}]
    fastload.pack(rows, tmp_path / "set", {"images": "images"}, exif="turn", num_proc=1)
    with DataLoader(tmp_path / "set", 2, transform=Vision(processor)) as loader:
        found = next(iter(loader))
    assert torch.equal(found["image_grid_thw"], wanted["image_grid_thw"])
    assert torch.equal(found["pixel_values"], wanted["pixel_values"])
    assert len({tuple(grid) for grid in found["image_grid_thw"].tolist()}) > 1
