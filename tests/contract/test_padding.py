"""Evaluation on several ranks: every sample once, in batches without rows that are no samples."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import fastload
from fastload import DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload.backends import choice as backends
from fastload.transforms.batch import MixUp

EVAL = T.Compose([T.Resize(28), T.CenterCrop(24)])


def ranks(dataset: Any, world: int, batch_size: int = 8, **options: Any) -> list[list[Any]]:
    return [
        list(DataLoader(dataset, batch_size, ranks=Ranks(rank, world), seed=0, **options))
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("batch_size", [3, 8])
def test_padding_dropped_gives_each_sample_once_in_equally_many_batches(
    packed: PackedDataset, world: int, batch_size: int
) -> None:
    found = ranks(packed, world, batch_size, transform=EVAL, padding="drop")
    assert len({len(batches) for batches in found}) == 1
    labels = torch.cat([labels for batches in found for _, labels in batches])
    assert sorted(labels.tolist()) == sorted(packed.targets)
    pixels = [image for batches in found for images, _ in batches for image in images]
    whole = [image for images, _ in DataLoader(packed, 52, transform=EVAL) for image in images]
    assert len(pixels) == len(whole) == 52
    unmatched = list(whole)
    for image in pixels:
        place = next(i for i, other in enumerate(unmatched) if torch.equal(image, other))
        del unmatched[place]


def test_a_rank_without_samples_gets_an_empty_batch(packed: PackedDataset) -> None:
    found = ranks(packed, 3, 17, transform=EVAL, padding="drop")  # 52 = 3 * 17 + 1
    last = [batches[-1] for batches in found]
    assert sorted(len(images) for images, _ in last) == [0, 0, 1]
    assert all(images.shape[1:] == (3, 24, 24) and len(images) == len(labels) for images, labels in last)


def test_padding_dropped_with_shuffle_gives_each_sample_once(packed: PackedDataset) -> None:
    for options in ({"transform": EVAL}, {"transform": T.Compose([EVAL, T.ToDtype("float32")])}):
        found = ranks(packed, 3, shuffle=True, padding="drop", **options)
        labels = torch.cat([labels for batches in found for _, labels in batches])
        assert sorted(labels.tolist()) == sorted(packed.targets)


def test_padding_dropped_for_a_torch_dataset(packed: PackedDataset) -> None:
    data = TensorDataset(torch.arange(29))
    found = ranks(data, 3, 4, padding="drop")
    assert sorted(torch.cat([x for batches in found for (x,) in batches]).tolist()) == list(range(29))
    assert [len(batches) for batches in found] == [3, 3, 3]
    loader = DataLoader(data, 4, ranks=Ranks(0, 7), seed=0, padding="drop")  # 29 = 7 * 4 + 1
    with pytest.raises(ValueError, match="padding='drop' leaves 1 sample for the last batch of 7 ranks"):
        next(iter(loader))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"backend": "dali"}, marks=pytest.mark.dali),
        {"batch_transform": MixUp(5), "transform": T.Compose([EVAL, T.ToDtype("float32", scale=True)])},
        {"device": "cuda"},
        {"collate_fn": len},
        {"batch_size": None},
    ],
    ids=["dali", "batch_transform", "device", "collate_fn", "unbatched"],
)
def test_batches_of_no_samples_are_refused_where_nobody_makes_them(
    packed: PackedDataset, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Before the epoch's first batch, not at its end."""
    monkeypatch.setattr(backends, "goes_to_gpu", lambda device: device is not None)
    ranks_given = {"ranks": Ranks(0, 3), "seed": 0, "padding": "drop"}  # 52 = 3 * 17 + 1
    loader = DataLoader(packed, **{"batch_size": 17, "transform": EVAL, **ranks_given, **options})
    with pytest.raises(ValueError, match="padding='drop' leaves 1 sample for the last batch of 3 ranks"):
        next(iter(loader))


def test_padding_dropped_does_not_go_with_a_batch_sampler(packed: PackedDataset) -> None:
    with pytest.raises(ValueError, match="batch_sampler excludes padding='drop'"):
        DataLoader(packed, batch_sampler=[[0, 1]], padding="drop")


def test_end_lies_behind_all_samples_of_all_ranks(packed: PackedDataset) -> None:
    found = ranks(packed, 3, padding="end", transform=EVAL)
    steps = zip(*found, strict=True)
    gathered = [torch.cat([labels for _, labels in step]).tolist() for step in steps]
    assert [label for step in gathered for label in step] == [*packed.targets, -100, -100]


def test_valid_keeps_the_samples(packed: PackedDataset) -> None:
    found = ranks(packed, 3, transform=EVAL)
    counts = [
        (len(fastload.valid(batch)[0]), int((batch[1] != -100).sum()))
        for batches in found
        for batch in batches
    ]
    assert all(kept == real for kept, real in counts)
    assert sum(kept for kept, _ in counts) == 52
    whole = found[0][0]
    assert fastload.valid(whole) is whole


def test_valid_takes_batches_of_many_kinds() -> None:
    Pair = namedtuple("Pair", "images labels")
    images, labels = torch.arange(6).view(3, 2), torch.tensor([4, -100, 5])
    for batch in ((images, labels), [images, labels], Pair(images, labels)):
        kept = fastload.valid(batch)
        assert type(kept) is type(batch)
        assert kept[0].tolist() == [[0, 1], [4, 5]]
        assert kept[1].tolist() == [4, 5]
    named = fastload.valid(
        {"image": images, "labels": labels, "text": ["a", "b", "c"], "size": 2, "x": (1, 2)}
    )
    assert named["image"].tolist() == [[0, 1], [4, 5]]
    assert (named["text"], named["size"], named["x"]) == (["a", "c"], 2, (1, 2))
    for wrong in (images, {"pixels": images}, (images.float(),), (images, labels.float()), "x"):
        with pytest.raises(TypeError, match=r"valid\(\) looks for labels"):
            fastload.valid(wrong)


def test_an_epoch_without_a_batch_is_told_of_once(packed: PackedDataset) -> None:
    loader = DataLoader(packed.folder, len(packed) + 1, drop_last=True)
    with pytest.warns(
        UserWarning, match="An epoch has no batch: 52 samples, batch_size=53 and drop_last=True"
    ):
        assert list(loader) == []
    assert list(loader) == []  # warnings are errors here
    enough = DataLoader(packed.folder, len(packed), drop_last=True, transform=T.Resize((8, 8)))
    assert len(list(enough)) == 1
