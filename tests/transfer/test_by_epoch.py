"""A transform that changes with the epoch: each epoch's batches are those of a loader with its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, Device, PackedDataset
from fastload import transforms as T
from fastload.transforms import compile_plan

Make = Callable[..., DataLoader]


def chain(side: int, *more: Any) -> Any:
    return T.Compose(
        [T.RandomResizedCrop(side), T.RandomHorizontalFlip(), T.Normalize((0.4,) * 3, (0.2,) * 3), *more]
    )


SIDES = {0: 3, 2: 5, 3: 4}
GROWING = T.ByEpoch({epoch: chain(side) for epoch, side in SIDES.items()})
OPTIONS: dict[str, Any] = {"num_workers": 2, "seed": 3, "shuffle": True}


def side_of(epoch: int) -> int:
    return SIDES[max(first for first in SIDES if first <= epoch)]


def wanted(dataset: PackedDataset, epoch: int, **options: Any) -> list[Any]:
    with DataLoader(dataset, 8, transform=chain(side_of(epoch)), **{**OPTIONS, **options}) as loader:
        loader.set_epoch(epoch)
        return [(images.clone(), labels.clone()) for images, labels in loader]


def same(found: list[Any], others: list[Any]) -> bool:
    assert len(found) == len(others) > 1
    return all(torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in zip(found, others, strict=True))


def test_each_epoch_is_that_of_its_transform(tiny: PackedDataset) -> None:
    with DataLoader(tiny, 8, transform=GROWING, **OPTIONS) as loader:
        for epoch in range(5):
            found = [(images.clone(), labels.clone()) for images, labels in loader]
            assert found[0][0].shape[2:] == (side_of(epoch),) * 2
            assert same(found, wanted(tiny, epoch))
        assert loader.stats()["threads"]


def test_resumed_in_the_middle(tiny: PackedDataset) -> None:
    with DataLoader(tiny, 8, transform=GROWING, **OPTIONS) as loader:
        loader.set_epoch(2)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
    with DataLoader(tiny, 8, transform=GROWING, **OPTIONS) as loader:
        loader.load_state_dict(state)
        rest = [(images.clone(), labels.clone()) for images, labels in loader]
        assert same(rest, wanted(tiny, 2)[4:])
        assert same([(i.clone(), y.clone()) for i, y in loader], wanted(tiny, 3))


def test_iterations_of_two_epochs_at_once(tiny: PackedDataset) -> None:
    with DataLoader(tiny, 8, transform=GROWING, **OPTIONS) as loader:
        loader.set_epoch(1)
        pairs = [(a.clone(), x.clone(), b.clone(), y.clone()) for (a, x), (b, y) in zip(loader, loader)]  # noqa: B905
    assert same([(a, x) for a, x, _, _ in pairs], wanted(tiny, 1))
    assert same([(b, y) for _, _, b, y in pairs], wanted(tiny, 2))


def test_on_a_device_and_by_name(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(2, 0.2)
    loader = on(gpu, tiny, transform=GROWING, **OPTIONS)
    for epoch in range(4):
        found = []
        for images, labels in loader:
            gpu.finish(gpu.current)
            found.append((images.clone(), labels.clone()))
        for (images, labels), (pixels, others) in zip(found, wanted(tiny, epoch), strict=True):
            assert (images - pixels).abs().max() < 1e-5
            assert torch.equal(labels, others)
    with DataLoader(tiny, 8, transform=GROWING, fields=["image", "label"], **OPTIONS) as named:
        for epoch in range(3):
            batches = [(batch["image"].clone(), batch["label"].clone()) for batch in named]
            assert same(batches, wanted(tiny, epoch))


def test_memory_is_planned_for_the_largest(tiny: PackedDataset) -> None:
    plans = {
        side: DataLoader(tiny, 8, transform=chain(side), **OPTIONS).memory_plan() for side in SIDES.values()
    }
    assert DataLoader(tiny, 8, transform=GROWING, **OPTIONS).memory_plan() == plans[5]
    assert plans[5]["slot_bytes"] > plans[4]["slot_bytes"] > plans[3]["slot_bytes"]


def test_explain_says_from_when(tiny: PackedDataset) -> None:
    loader = DataLoader(tiny, 8, transform=GROWING, **OPTIONS)
    names = [step.what for step in loader.explain().steps if step.stage == "transform"]
    assert [name[:14] for name in names] == ["from epoch 0: "] * 3 + ["from epoch 2: "] * 3 + [
        "from epoch 3: "
    ] * 3


def test_closed_and_faults_are_kept(tiny: PackedDataset) -> None:
    loader = DataLoader(tiny, 8, transform=GROWING, **OPTIONS)
    next(iter(loader))
    loader.close()
    with pytest.raises(Exception, match="closed"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: T.ByEpoch({1: chain(3)}), ValueError, r"needs a transform for epoch 0. Found: \[1\]"),
        (lambda: T.ByEpoch({0: chain(3), -1: chain(4)}), ValueError, "at least 0. Found: -1"),
        (lambda: T.ByEpoch({"a": chain(3)}), TypeError, "by their first epochs. Found: 'a'"),  # type: ignore[dict-item]
        (lambda: T.ByEpoch({0: 7}), TypeError, "a transform for each epoch. Found: 7"),
        (lambda: T.ByEpoch({0: T.ByEpoch({0: chain(3)})}), TypeError, "a transform for each epoch. Found"),
        (
            lambda: compile_plan(T.ByEpoch({0: chain(3), 1: T.CenterCrop(3)})),
            ValueError,
            r"must have the same dtype. Found, by epoch: \{0: \('float32',\), 1: \('uint8',\)\}",
        ),
        (
            lambda: compile_plan(T.ByEpoch({0: chain(3), 4: chain(3, abs)})),
            ValueError,
            "must have the same share of callables",
        ),
        (lambda: compile_plan(T.Compose([GROWING])), ValueError, "ByEpoch must be the whole transform"),
    ],
)
def test_what_cannot_be(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_reused_memory_has_one_size(tiny: PackedDataset) -> None:
    with pytest.raises(ValueError, match="memory='reuse'.* and ByEpoch exclude each other"):
        DataLoader(tiny, 8, transform=GROWING, device=Device("cuda", memory="reuse"))


def test_a_picture_alone_has_no_epoch(tiny: PackedDataset) -> None:
    dataset = PackedDataset(tiny.folder, transform=GROWING)
    with pytest.raises(ValueError, match=r"Epochs are made by fastload.DataLoader"):
        dataset[0]
