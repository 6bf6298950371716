"""Code of the user's around packed datasets: it runs, in torch's workers, and that is said once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from torch.utils.data import ConcatDataset, Dataset, Subset

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.dataset import views
from fastload.dataset.views import SourceKind, kind_of
from fastload.errors import SlowPathWarning

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


@pytest.fixture(autouse=True)
def no_other_warning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is not expected to be warned of is not; and what was said in another test may be said again."""
    monkeypatch.setattr(views, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def load(dataset: Any) -> DataLoader:
    loader = DataLoader(dataset, 8, seed=7, num_workers=2, transform=CROP)
    assert kind_of(loader.dataset) is SourceKind.PACKED  # by the engine
    return loader


def test_different_transforms_are_torchs_work(folder: Path) -> None:
    def middle(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image.resize((16, 16))))

    def corner(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image.crop((0, 0, 16, 16))))

    both = PackedDataset(folder, middle) + PackedDataset(folder, corner)
    with pytest.warns(
        UserWarning, match="ConcatDataset with torch's workers.*packed datasets have different transforms"
    ):
        loader = DataLoader(both, 52)
    first, second = all_batches(loader)
    image, _ = PackedDataset(folder)[3]
    assert torch.equal(first[0][3], middle(image))
    assert torch.equal(second[0][3], corner(image))
    DataLoader(both, 52)  # says it once


class Transformed(Subset[Any]):
    """A wrapper that users write to give a part of a split a transform of its own."""

    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return torch.from_numpy(np.array(image.resize((16, 16)))), label + 100

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Wrapper(Dataset[Any]):
    def __init__(self, packed: PackedDataset) -> None:
        self.inner = [packed]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index, self.inner[0][index][1]


class Numbered(PackedDataset):
    """Tells the sample's number, too."""

    def __getitem__(self, index: Any) -> Any:
        return index, super().__getitem__(index)[1]


@pytest.mark.parametrize(
    ("make", "reason", "labels"),
    [
        (lambda packed: Transformed(packed, [3, 1]), "Transformed has its own __getitem__", [103, 101]),
        (
            lambda packed: Subset(Transformed(packed, [3, 1]), [1]),
            "Transformed has its own __getitem__",
            [101],
        ),
        (lambda packed: Wrapper(packed), "Wrapper has its own code", [0, 1, 2, 3]),
        (
            lambda packed: Numbered(packed.folder),
            "Numbered has its own __getitem__",
            [i % 5 for i in range(52)],
        ),
        (lambda packed: Subset(Numbered(packed.folder), [0, 1]), "Numbered has its own __getitem__", [0, 1]),
        (
            lambda packed: ConcatDataset([Transformed(packed, [2]), Wrapper(packed)]),
            "Transformed has its own __getitem__",
            [102, 0, 1, 2, 3],
        ),
    ],
)
def test_code_of_the_users_runs_and_is_named(
    packed: PackedDataset, make: Any, reason: str, labels: list[int]
) -> None:
    dataset = make(packed)
    with pytest.warns(SlowPathWarning, match=f"not with the engine: {reason}. To keep the engine, give"):
        loader = DataLoader(dataset, 1)
    assert [int(label) for _, label in loader] == labels
    assert loader.dataset is dataset
    told = loader.explain().steps[1]
    assert told.why == reason
    assert told.where.startswith("Python")
    assert "pass the packed dataset itself" in told.keep


def test_a_subclass_that_changes_no_sample_stays_native(folder: Path) -> None:
    class Named(PackedDataset):
        name = "mine"

        def info(self) -> str:
            return self.name

    class Stratified(Subset[Any]):
        labels = None

    dataset = Named(folder)
    assert same(all_batches(load(dataset)), all_batches(load(folder)))
    load(Stratified(dataset, [1]))


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_datasets_is_refused(packed: PackedDataset, kind: Any) -> None:
    with pytest.raises(TypeError, match=r"Found: a (list|tuple) of 2 folders. Pass fastload.mix\(\[...\]\)"):
        DataLoader(kind(["a", Path("b")]))
    with pytest.raises(TypeError, match=r"of 1 packed datasets. Pass fastload.mix\(\[...\]\)"):
        DataLoader(kind([packed]))
    assert next(iter(DataLoader(kind([1, 2]), 2))).tolist() == [1, 2]  # torch takes lists for datasets
