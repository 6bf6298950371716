"""collate=Patches("siglip2") against the image processor of transformers, and a step of such a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from field_sets import write_field_set
from pictures import encoded, picture
from PIL import Image as PilImage
from transformers import Siglip2VisionConfig, Siglip2VisionModel
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

import fastload
from fastload import DataLoader, Patches
from fastload import transforms as T

COUNT, PATCH, MOST = 9, 16, 49
CHAIN = T.Compose(
    [T.ResizeToPatches(PATCH, MOST), T.ToDtype("float32", scale=True), T.Normalize([0.5] * 3, [0.5] * 3)]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [
        {"image": encoded(picture(number, 40 + 31 * number, 300 - 25 * number)), "title": f"{number}"}
        for number in range(COUNT)
    ]
    schema = {"image": fastload.Image(), "title": fastload.Text()}
    return write_field_set(tmp_path_factory.mktemp("siglip") / "set", schema, samples)


def test_batches_are_those_of_the_processor(folder: Path) -> None:
    dataset = fastload.PackedDataset(folder)
    pictures = [
        PilImage.fromarray(dataset.sample(number)["image"].permute(1, 2, 0).numpy())
        for number in range(COUNT)
    ]
    processor = Siglip2ImageProcessorPil(patch_size=PATCH, max_num_patches=MOST)
    wanted = processor(pictures, return_tensors="pt")
    with DataLoader(folder, COUNT, transform=CHAIN, collate=Patches("siglip2", PATCH, MOST)) as loader:
        found = next(iter(loader))
    assert torch.equal(found["pixel_attention_mask"], wanted["pixel_attention_mask"])
    assert found["pixel_attention_mask"].dtype == wanted["pixel_attention_mask"].dtype
    assert torch.equal(found["spatial_shapes"], wanted["spatial_shapes"])
    assert found["pixel_values"].shape == wanted["pixel_values"].shape
    assert torch.equal(found["pixel_values"], wanted["pixel_values"])


def test_a_model_takes_them(folder: Path) -> None:
    torch.manual_seed(0)
    config = Siglip2VisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_patches=64
    )
    model = Siglip2VisionModel(config)
    with DataLoader(folder, COUNT, transform=CHAIN, collate=Patches("siglip2", PATCH, MOST)) as loader:
        batch = next(iter(loader))
    names = ("pixel_values", "pixel_attention_mask", "spatial_shapes")
    found = model(**{name: batch[name] for name in names}).last_hidden_state
    assert found.shape == (COUNT, MOST, 32)
    assert bool(torch.isfinite(found).all())
