"""Batches in pinned memory, which the training loop copies by itself, on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fastload import DataLoader, PackedDataset
from fastload import transforms as T

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]

CROP = T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()])
BUSY = 60_000_000  # device clocks: some 30 ms, in which the loader's threads fill several batches


def loader_of(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(dataset, 4, shuffle=True, num_workers=3, transform=CROP, seed=0, **options)


def batches(loader: Any, epochs: int) -> Iterator[Any]:
    for _ in range(epochs):
        yield from loader


@pytest.mark.parametrize(
    "order", ["images first", "labels first", "labels alone", "images of another stream"]
)
def test_a_copy_that_runs_late_finds_its_batch(packed: PackedDataset, order: str) -> None:
    """No memory is filled again while a copy from it waits behind a long step, whichever field it is of."""
    epochs = 3
    wanted = [(images.clone(), labels.clone()) for images, labels in batches(loader_of(packed), epochs)]
    found, side = [], torch.cuda.Stream()
    loader = loader_of(packed, pin_memory=True, prefetch_factor=1)
    for images, labels in batches(loader, epochs):
        assert images.is_pinned()
        if order == "images of another stream":
            with torch.cuda.stream(side):
                pixels = images.to("cuda", non_blocking=True)
        elif order == "labels alone":
            pixels = images.cuda()  # waits, and so leaves no trace in torch's allocator
        torch.cuda._sleep(BUSY)  # stands for the model's forward pass
        if order == "labels first":
            classes = labels.to("cuda", non_blocking=True)
            pixels = images.to("cuda", non_blocking=True)
        elif order == "images first":
            pixels = images.to("cuda", non_blocking=True)
            classes = labels.to("cuda", non_blocking=True)
        else:
            classes = labels.to("cuda", non_blocking=True)
        found.append((pixels, classes))
        del images, labels, pixels, classes  # the loader may have the memory back, once it is read
    torch.cuda.synchronize()
    assert len(found) == len(wanted) == epochs * len(loader)
    for part in range(2):
        pairs = zip(found, wanted, strict=True)
        assert [n for n, (a, b) in enumerate(pairs) if not torch.equal(a[part].cpu(), b[part])] == []


@pytest.mark.parametrize("alone", [0, 1])
def test_a_view_that_is_copied_late_is_found(packed: PackedDataset, alone: int) -> None:
    """The second view lies behind the first one in the same memory, and is copied when that is long done."""
    views = T.Views({"one": CROP, "two": CROP})
    options: dict[str, Any] = {"shuffle": True, "num_workers": 3, "seed": 0, "transform": views}
    wanted = [batch["two"].clone() for batch in batches(DataLoader(packed, 4, **options), 3)]
    found = []
    loader = DataLoader(packed, 4, pin_memory=True, prefetch_factor=1, **options)
    for batch in batches(loader, 3):
        assert batch["two"].is_pinned()
        if not alone:
            batch["one"].to("cuda", non_blocking=True)
        torch.cuda._sleep(BUSY)
        found.append(batch["two"].to("cuda", non_blocking=True))
        del batch
    torch.cuda.synchronize()
    pairs = zip(found, wanted, strict=True)
    assert [n for n, (two, same) in enumerate(pairs) if not torch.equal(two.cpu(), same)] == []
