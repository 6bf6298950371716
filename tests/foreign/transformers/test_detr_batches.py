"""``collate="detr"`` against transformers' own image processor on the same pictures and annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from example_programs import pack_objects
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

from fastload import DataLoader, Fields, PackedDataset
from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 4


@pytest.mark.parametrize("size", [None, (160, 200)], ids=["as stored", "resized"])
def test_batches_are_the_processors(tmp_path: Path, size: tuple[int, int] | None) -> None:
    """Pictures, their masks, classes and boxes. Boxes are in parts of the picture here, of the padded batch
    there; areas are those of the annotations here, and grow with the picture there."""
    packed, made = pack_objects(tmp_path)
    dataset = PackedDataset(packed)
    options = {"do_resize": size is not None, "resample": 2}
    if size is not None:
        options["size"] = {"shortest_edge": size[0], "longest_edge": size[1]}
    processor = DetrImageProcessorPil(image_mean=MEAN, image_std=STD, **options)
    resize = [] if size is None else [T.Resize(size[0], max_size=size[1])]
    chain = T.Compose([*resize, T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)])
    objects = 0
    with DataLoader(packed, BATCH, transform=chain, collate="detr", fields=Fields(masks="dense")) as loader:
        for first, batch in zip(range(0, len(dataset), BATCH), loader, strict=True):
            numbers = range(first, min(first + BATCH, len(dataset)))
            theirs = processor(
                [dataset.sample(number)["image"].permute(1, 2, 0).numpy() for number in numbers],
                annotations=[
                    {"image_id": made.instances["images"][n]["id"], "annotations": made.objects_of(n)}
                    for n in numbers
                ],
                return_tensors="pt",
            )
            assert torch.equal(batch["pixel_mask"], theirs["pixel_mask"])
            assert torch.allclose(batch["pixel_values"], theirs["pixel_values"], atol=2e-6)
            padded = np.array(batch["pixel_values"].shape[-2:])
            for one, other in zip(batch["labels"], theirs["labels"], strict=True):
                for name in ("image_id", "class_labels", "iscrowd", "orig_size"):
                    assert torch.equal(one[name], other[name]), name
                    assert one[name].dtype == other[name].dtype
                shown = one["size"].numpy() / padded
                parts = one["boxes"].numpy() * np.array([*shown[::-1]] * 2)
                assert np.allclose(parts, other["boxes"].numpy(), atol=1e-6)
                grown = float(torch.prod(one["size"] / one["orig_size"]))
                assert np.allclose(one["area"].numpy() * grown, other["area"].numpy(), rtol=1e-5)
                objects += len(parts)
    assert objects > 15
