"""target_transform of packed datasets in a DataLoader; and that what changes later is not overlooked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, joined
from torch.utils.data import Subset

import fastload
from fastload import DataLoader, PackedDataset, Ranks, errors
from fastload import transforms as T

EVAL = T.Compose([T.Resize(40), T.CenterCrop(32)])
LABELS = [i % 5 for i in range(52)]


def even(label: int) -> int:
    assert label >= -1  # never padding's
    return label % 2


def one_hot(label: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(label), 5)


def load(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(dataset, **{"batch_size": 8, "seed": 7, "num_workers": 2, "transform": EVAL, **options})


def test_labels_are_transformed_and_images_are_not(folder: Path) -> None:
    dataset = PackedDataset(folder, target_transform=even)
    batches, plain = all_batches(load(dataset)), all_batches(load(folder))
    assert torch.cat([labels for _, labels in batches]).tolist() == [label % 2 for label in LABELS]
    assert batches[0][1].dtype == torch.int64
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches, plain, strict=True))
    assert "then Python" in repr(load(dataset))
    [collate] = [step for step in load(dataset).explain().steps if step.stage == "collate"]
    assert (collate.what, collate.why) == (
        "labels through even, then default_collate",
        "the dataset has a target_transform",
    )
    for nest in (
        dataset[3:20],
        Subset(dataset, [1, 3]) + dataset,
        fastload.mix([folder], target_transform=even),
    ):
        labels = torch.cat([labels for _, labels in load(nest)])
        assert labels.tolist() == [nest[i][1] for i in range(len(nest))]  # type: ignore[arg-type]


def test_it_may_make_anything(folder: Path) -> None:
    dataset = PackedDataset(folder, target_transform=one_hot)
    labels = torch.cat([labels for _, labels in load(dataset)])
    assert torch.equal(labels, torch.nn.functional.one_hot(torch.tensor(LABELS), 5))
    dataset.target_transform = lambda label: {"name": "abcde"[label]}
    assert next(iter(load(dataset)))[1] == {"name": list("abcdeabc")}


def test_a_collate_function_gets_transformed_labels(folder: Path) -> None:
    dataset = PackedDataset(folder, target_transform=even)
    found = list(load(dataset, collate_fn=lambda samples: [label for _, label in samples]))
    assert [label for batch in found for label in batch] == [label % 2 for label in LABELS]


def test_padding_and_skipped_samples_stay_marked(folder: Path) -> None:
    dataset = PackedDataset(folder, target_transform=even)
    ranks = [all_batches(load(dataset, batch_size=10, ranks=Ranks(rank, 3))) for rank in range(3)]
    labels = torch.cat([labels for _, labels in joined(ranks)]).tolist()
    assert labels.count(-100) == 2
    assert sorted(label for label in labels if label != -100) == sorted(label % 2 for label in LABELS)
    hot = PackedDataset(folder, target_transform=one_hot)
    with pytest.raises(Exception, match=r"target_transform makes Tensor of labels.*Pass padding='drop'"):
        [all_batches(load(hot, batch_size=10, ranks=Ranks(rank, 3))) for rank in range(3)]
    whole = [all_batches(load(hot, batch_size=10, ranks=Ranks(r, 3), padding="drop")) for r in range(3)]
    assert sum(len(labels) for rank in whole for _, labels in rank) == 52


def test_a_transform_that_is_changed_later_is_an_error(folder: Path) -> None:
    dataset = PackedDataset(folder, transform=EVAL)
    loader = load(dataset, transform=None, collate_fn=len)
    next(iter(loader))
    dataset.transform = T.CenterCrop(3)
    with pytest.raises(errors.StateError, match="transform or target_transform was changed after"):
        next(iter(loader))
    dataset.transform = EVAL
    loader = load(dataset[:9], transform=None)
    assert len(all_batches(loader)) == 2
    dataset.target_transform = even
    with pytest.raises(errors.StateError, match="transform or target_transform was changed after"):
        next(iter(loader))
    assert len(all_batches(load(dataset[:9], transform=None))) == 2


@pytest.mark.parametrize("change", ["in place", "longer", "another list"])
def test_indices_that_are_changed_later_are_an_error(packed: PackedDataset, change: str) -> None:
    subset = Subset(packed, [5, 6, 7])
    loader = load(subset)
    assert len(all_batches(loader)) == 1
    if change == "in place":
        subset.indices[1] = 0  # type: ignore[index]
    elif change == "longer":
        subset.indices.append(8)  # type: ignore[attr-defined]
    else:
        subset.indices = [1, 2]
    with pytest.raises(errors.StateError, match=r"samples of Subset\(3 samples of .* were changed after"):
        next(iter(loader))
