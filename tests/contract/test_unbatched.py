"""Packed data with ``batch_size=None``: (image, label) one by one, the same samples as in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset, Ranks
from fastload import transforms as T

CROP = T.RandomResizedCrop(16)


def noisy(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return image.float() + torch.rand(image.shape, generator=generator)


def load(folder: Path, **options: Any) -> DataLoader:
    return DataLoader(folder, **{"shuffle": True, "seed": 3, "num_workers": 2, "transform": CROP, **options})


def samples_of(batches: DataLoader) -> list[tuple[torch.Tensor, int]]:
    return [
        (image.clone(), int(label))
        for images, labels in batches
        for image, label in zip(images, labels, strict=True)
    ]


@pytest.mark.parametrize(
    "transform", [CROP, T.Compose([CROP, T.ToDtype("uint8"), noisy])], ids=["native", "callable"]
)
def test_samples_one_by_one_are_those_of_the_batches(folder: Path, transform: Any) -> None:
    batches = load(folder, batch_size=5, transform=transform)
    expected = samples_of(batches)
    loader = load(folder, batch_size=None, transform=transform)
    assert (len(loader), loader.batch_size, loader.batch_sampler) == (52, None, None)
    for _ in range(2):
        found = [(image.clone(), label) for image, label in loader]
        assert all(type(label) is int and image.shape == (3, 16, 16) for image, label in found)
        assert [label for _, label in found] == [label for _, label in expected]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(found, expected, strict=True))
        expected = samples_of(batches)


def test_a_collate_function_gets_a_sample(folder: Path) -> None:
    loader = load(folder, batch_size=None, collate_fn=lambda sample: {"x": sample[0].shape, "y": sample[1]})
    found = list(loader)
    assert {tuple(sample["x"]) for sample in found} == {(3, 16, 16)}
    assert sorted(sample["y"] for sample in found) == sorted(i % 5 for i in range(52))


def test_state_and_ranks(folder: Path) -> None:
    options = {"batch_size": None, "shuffle": False}
    loader = load(folder, **options)
    labels, states = [], []
    for _, label in loader:
        labels.append(label)
        states.append(loader.state_dict())
    assert labels == [i % 5 for i in range(52)]
    resumed = load(folder, **options)
    resumed.load_state_dict(states[19])
    assert [label for _, label in resumed] == labels[20:]
    ranks = [[label for _, label in load(folder, **options, ranks=Ranks(r, 3))] for r in range(3)]
    assert [label for step in zip(*ranks, strict=True) for label in step if label >= 0] == labels
    assert [rank.count(-100) for rank in ranks] == [0, 1, 1] or sum(rank.count(-100) for rank in ranks) == 2


def test_what_needs_batches_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="mutually exclusive with batch_transform"):
        load(folder, batch_size=None, batch_transform=lambda images, labels: (images, labels))


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    shapes = [(40, 30), (24, 50), (33, 33), (60, 20)]
    blobs = [encoded(picture(i, *shape), "PNG") for i, shape in enumerate(shapes)]
    return plain_pack(tmp_path_factory.mktemp("sizes"), blobs, range(4))


def test_pictures_of_different_sizes(sizes: PackedDataset) -> None:
    found = {
        label: image.shape for image, label in DataLoader(sizes, batch_size=None, transform=T.Resize(20))
    }
    assert len(found) == 4
    assert all(min(shape[1:]) == 20 for shape in found.values())
    assert len(set(found.values())) > 1
