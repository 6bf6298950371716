"""Subclasses of the loader, and what is changed on one before its first batch, as with torch's."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import jpegs
from plain_pack import plain_pack
from process import HANG
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, Subset, TensorDataset

from fastload import DataLoader, PackedDataset, Ranks, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.loader.data_loader import View
from fastload.loader.view import view_of
from fastload.transforms import batch as batch_transforms

CROP = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip()])
COUNT = 21


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder; sample i has label i."""
    folder = tmp_path_factory.mktemp("numbered") / "set"
    return plain_pack(folder, jpegs(COUNT), range(COUNT), [f"{i:02d}" for i in range(COUNT)]).folder


class Repeating:
    """A sampler, again and again: what timm and Ultralytics put around the loader's own."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


class MultiEpochs(DataLoader[Any]):
    """As timm's MultiEpochsDataLoader: the workers see one epoch that never ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        if self.batch_sampler is None:
            self.sampler = Repeating(self.sampler)
        else:
            self.batch_sampler = Repeating(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.sampler.sampler) if self.batch_sampler is None else len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator[Any]:
        return (next(self.iterator) for _ in range(len(self)))


class Infinite(DataLoader[Any]):
    """As Ultralytics' InfiniteDataLoader."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator[Any]:
        return (next(self.iterator) for _ in range(len(self)))

    def reset(self) -> None:
        """Begin anew, after mosaics are switched off."""
        self.iterator = self._get_iterator()


def labels(batches: Any) -> list[int]:
    return [label for _, found in batches for label in torch.as_tensor(found).reshape(-1).tolist()]


def by_label(batches: Any) -> dict[int, torch.Tensor]:
    return {int(one): image for images, own in batches for image, one in zip(images, own, strict=True)}


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "path": lambda folder: {"dataset": folder, "transform": CROP},
    "packed": lambda folder: {"dataset": PackedDataset(folder, transform=CROP)},
    "subset": lambda folder: {
        "dataset": Subset(PackedDataset(folder, transform=CROP), range(COUNT)),
        "sampler": DistributedSampler(range(COUNT), 1, 0),  # type: ignore[arg-type]
    },
    "torch": lambda folder: {"dataset": TensorDataset(torch.zeros(COUNT, 1), torch.arange(COUNT))},
}


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("kind", [MultiEpochs, Infinite])
def test_a_batch_sampler_that_repeats_the_loaders_own(numbered: Path, kind: Any, form: str) -> None:
    given = FORMS[form](numbered)
    order = {} if "sampler" in given else {"shuffle": True}
    loader = kind(**given, batch_size=4, seed=3, **order)
    plain = DataLoader(**FORMS[form](numbered), batch_size=4, seed=3, **order)
    assert len(loader) == len(plain) == 6
    epochs = [list(loader) for _ in range(3)]
    assert [labels(epoch) for epoch in epochs] == [labels(plain) for _ in range(3)]
    assert sorted(labels(epochs[0])) == list(range(COUNT))
    if form != "torch":  # a sample's crops differ from pass to pass
        first, second = map(by_label, epochs[:2])
        assert any(not torch.equal(first[label], second[label]) for label in range(COUNT))


def test_without_batches_the_sampler_is_repeated(numbered: Path) -> None:
    loader = MultiEpochs(numbered, batch_size=None, shuffle=True, transform=CROP, seed=1)
    plain = DataLoader(numbered, batch_size=None, shuffle=True, transform=CROP, seed=1)
    assert [labels(loader) for _ in range(3)] == [labels(plain) for _ in range(3)]


def test_a_repeated_order_resumes_and_is_copied(numbered: Path) -> None:
    def make() -> Any:
        return Infinite(numbered, batch_size=4, shuffle=True, transform=CROP)

    torch.manual_seed(5)
    loader = make()
    list(loader)
    state = loader.state_dict()
    expected = labels(loader) + labels(loader)
    torch.manual_seed(6)
    resumed = make()
    resumed.load_state_dict(state)
    assert labels(resumed) + labels(resumed) == expected
    torch.manual_seed(5)
    other = pickle.loads(pickle.dumps(make()))
    assert sorted(labels(other)) == list(range(COUNT))


def test_the_seed_of_a_repeated_order_is_torchs(numbered: Path) -> None:
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        found.append(labels(Infinite(numbered, batch_size=4, shuffle=True, transform=CROP)))
    assert found[0] == found[2] != found[1]


def test_reset_begins_anew(numbered: Path) -> None:
    loader = Infinite(numbered, batch_size=4, shuffle=True, transform=CROP, seed=2)
    next(iter(loader))
    loader.reset()
    assert sorted(labels(loader)) == list(range(COUNT))


def test_an_order_is_not_replaced_later(numbered: Path) -> None:
    loader = DataLoader(numbered, 4, transform=CROP)
    with pytest.raises(ValueError, match="batch_sampler attribute should not be set after"):
        loader.batch_sampler = [[0]]
    next(iter(loader))
    with pytest.raises(errors.StateError, match="was set after the first batch"):
        object.__setattr__(loader, "batch_sampler", [[0]])


def test_a_samplers_owner_sees_it_on_the_loader(numbered: Path) -> None:
    """As torch's: frameworks ask loader.sampler whose it is, and set its epoch."""
    own: Any = DistributedSampler(range(COUNT), 2, 1)  # type: ignore[arg-type]
    batches = [[0, 1], [2]]
    dataset = PackedDataset(numbered, transform=CROP)
    for given in (numbered, dataset):
        options: Any = {"transform": CROP} if given is numbered else {}
        assert DataLoader(given, 2, sampler=own, **options).sampler is own
        assert DataLoader(given, batch_sampler=batches, **options).batch_sampler is batches
    assert isinstance(DataLoader(dataset, shuffle=True).sampler, RandomSampler)
    assert isinstance(DataLoader(dataset).sampler, SequentialSampler)
    assert not isinstance(DataLoader(dataset).sampler, DistributedSampler)
    assert isinstance(DataLoader(numbered, transform=CROP).sampler, DistributedSampler)
    assert isinstance(DataLoader(dataset, ranks=Ranks(0, 2)).sampler, DistributedSampler)


def test_an_infinite_sampler_in_a_loader(numbered: Path) -> None:
    def endless() -> Iterator[int]:
        return itertools.cycle(range(COUNT))

    class Endless:
        def __iter__(self) -> Iterator[int]:
            return endless()

    for dataset in (numbered, FORMS["torch"](numbered)["dataset"]):
        options: Any = {"transform": CROP, "on_error": "replace"} if dataset is numbered else {}
        loader = DataLoader(dataset, 4, sampler=Endless(), seed=0, **options)
        iterator = iter(loader)
        found = labels(itertools.islice(iterator, 20))
        assert found == list(itertools.islice(endless(), 80))
        with pytest.raises(TypeError, match="has no len"):
            len(loader)
        resumed = DataLoader(dataset, 4, sampler=Endless(), seed=0, **options)
        resumed.load_state_dict(loader.state_dict())
        assert labels(itertools.islice(iter(resumed), 3)) == labels(itertools.islice(iterator, 3))
        loader.close()
        resumed.close()


@pytest.mark.parametrize("form", ["packed", "subset"])
def test_a_transform_that_is_set_before_the_first_batch_counts(numbered: Path, form: str) -> None:
    """deit sets loader.dataset.transform after it has made the loader."""
    loader = DataLoader(**FORMS[form](numbered), batch_size=4)
    dataset = getattr(loader.dataset, "dataset", loader.dataset)
    dataset.transform = T.Resize((12, 10))
    dataset.target_transform = lambda label: label + 100
    images, found = next(iter(loader))
    assert images.shape == (4, 3, 12, 10)
    assert min(found.tolist()) >= 100
    assert "Resize" in str(loader.explain())
    dataset.transform = T.Resize((9, 9))
    with pytest.raises(errors.StateError, match="was changed after"):
        next(iter(loader))


def test_a_transform_of_a_dataset_that_the_loader_opened(numbered: Path) -> None:
    loader = DataLoader(numbered, 4, num_workers=1)
    loader.dataset.transform = T.Resize((12, 10))
    assert next(iter(loader))[0].shape == (4, 3, 12, 10)


def test_a_batch_is_a_list_as_torchs(numbered: Path) -> None:
    """Training loops write into it: batch[0] = batch[0].to(device)."""
    for options in ({"batch_size": 4}, {"batch_size": None}):
        for more in ({}, {"batch_transform": batch_transforms.LabelSmoothing(COUNT, 0.1)}):
            if options["batch_size"] is None and more:
                continue
            batch = next(iter(DataLoader(numbered, transform=CROP, **options, **more)))  # type: ignore[arg-type]
            assert type(batch) is list
            batch[0] = batch[0] + 1
    kept = next(iter(DataLoader(numbered, 4, transform=CROP, collate_fn=tuple)))
    assert type(kept) is tuple
    made = next(
        iter(DataLoader(numbered, 4, transform=CROP, batch_transform=lambda images, own: (images, own)))
    )
    assert type(made) is tuple


def test_a_collate_function_gets_what_the_dataset_gives(numbered: Path) -> None:
    """Without a transform a PackedDataset's samples are PIL pictures, in torch's loader and in ours."""
    from PIL import Image

    dataset = PackedDataset(numbered)
    theirs = torch.utils.data.DataLoader(dataset, 4, collate_fn=list)
    for given in (dataset, Subset(dataset, range(COUNT))):
        for ours, expected in zip(DataLoader(given, 4, collate_fn=list, num_workers=0), theirs, strict=True):
            for (picture, label), (wanted, own) in zip(ours, expected, strict=True):
                assert isinstance(picture, Image.Image)
                assert picture.tobytes() == wanted.tobytes()
                assert (label, type(label)) == (own, int)
    samples = next(iter(DataLoader(numbered, 4, collate_fn=list, num_workers=0)))
    assert all(isinstance(image, torch.Tensor) for image, _ in samples)


def test_batches_of_nothing_but_padding_are_announced(numbered: Path) -> None:
    loader = DataLoader(numbered, 4, transform=T.CenterCrop(8), ranks=Ranks(0, 5, handshake="off"))
    with pytest.warns(UserWarning, match=r"has 1 sample for 5 ranks: on 4 of them .* mean of it is nan"):
        list(loader)


def test_copies_keep_what_was_made(numbered: Path) -> None:
    loader = DataLoader(PackedDataset(numbered, transform=CROP), 4, shuffle=True, seed=1)
    assert labels(copy.copy(loader)) == labels(loader)


IN_TORCHS_PLACE = """
import sys

import torch.utils.data.dataloader

import fastload
from fastload.integrations.torch_loader import from_torch

theirs = torch.utils.data.DataLoader
setattr({module}, "DataLoader", fastload.DataLoader)
from {module} import DataLoader


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(10))


packed = fastload.PackedDataset(sys.argv[1], transform=lambda picture: picture.size[0])
for workers in (0, 1):
    for dataset in (list(range(10)), Stream()):
        assert [batch.tolist() for batch in DataLoader(dataset, 4, num_workers=workers)] == [
            [0, 1, 2, 3], [4, 5, 6, 7], [8, 9]
        ]
    with DataLoader(packed, 4, num_workers=workers) as loader:
        for _ in range(2):
            assert [row for _, rows in loader for row in rows.tolist()] == list(range({count}))
assert len(from_torch(theirs(packed, 4, num_workers=1))) == -(-{count} // 4)
with fastload.diagnose(theirs(list(range(10)), 4)):
    pass
"""


@pytest.mark.parametrize("module", ["torch.utils.data", "torch.utils.data.dataloader"])
def test_a_loader_in_torchs_place(numbered: Path, module: str) -> None:
    """As in a program of somebody else's. What the loader needs torch's own for is imported only then."""
    program = IN_TORCHS_PLACE.format(module=module, count=COUNT)
    command = [sys.executable, "-W", "ignore", "-c", program, str(numbered)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [MultiEpochs, Infinite])
def test_a_loader_that_is_dropped_ends_its_threads(numbered: Path, kind: Any) -> None:
    gc.collect()
    before = _C.pool_threads()
    loader = kind(numbered, 5, transform=CROP, num_workers=2)
    next(iter(loader))
    assert _C.pool_threads() > before
    del loader
    gc.collect()
    assert _C.pool_threads() == before


class Named(DataLoader[Any]):
    """A user's loader with attributes that fastload has words for, too."""

    def __init__(self, dataset: Any, options: Any, **more: Any) -> None:
        super().__init__(dataset, **more)
        for name in set(dir(View)) - set(dir(DataLoader)):
            if not name.startswith("_") and name != "dataset":  # which torch's loader refuses, too
                setattr(self, name, options)


def test_a_subclass_may_have_attributes_of_any_name(numbered: Path) -> None:
    with Named(str(numbered), "its own", batch_size=4, seed=1, transform=CROP) as loader:
        assert loader.order == loader.plan == loader.options == loader.arguments == "its own"
        (labels,) = {tuple(batch[1].tolist()) for batch in itertools.islice(loader, 1)}
        assert labels == (0, 1, 2, 3)
        view = view_of(loader)
        assert view is not None
        assert view.options.batch_size == 4
        assert view.arguments.seed == 1
        assert view.loader is loader
