"""Coefficient records under the DALI back end: the native decoder's pixels, and a word about it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from epochs import Batch, all_batches
from pictures import encoded, picture
from two_backends import TRAIN, with_dali

import fastload
from fastload import DataLoader, Image, Label, PackedDataset
from fastload.errors import SlowPathWarning

pytestmark = pytest.mark.dali


def by_dali(dataset: PackedDataset) -> list[Batch]:
    with with_dali(dataset) as loader:
        batches = all_batches(loader)
        assert loader.stats()["decoders"]["samples"] == {"native": 24, "dali": 0}
        return batches


def test_they_are_decoded_natively(tmp_path: Path) -> None:
    samples = [{"image": encoded(picture(i, 90 + i, 110)), "label": i} for i in range(24)]
    for i in range(20, 24):
        samples[i]["image"] = encoded(picture(i, 90, 110).convert("CMYK"))
    fastload.pack(samples, tmp_path / "set", {"image": Image(), "label": Label()}, coefficients="fast")
    dataset = PackedDataset(tmp_path / "set")
    assert dataset.manifest.codecs == {"coefficients": 20, "jpeg": 4}
    with DataLoader(dataset, batch_size=8, transform=TRAIN, seed=0, num_workers=2) as native:
        wanted = all_batches(native)
    with pytest.warns(SlowPathWarning, match="does not know them: 20 coefficient records of 24"):
        found = by_dali(dataset)
    assert len(found) == 3
    for (images, labels), (others, same) in zip(found, wanted, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, same)
