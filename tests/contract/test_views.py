"""Subset, random_split, ConcatDataset, + and slices of packed datasets: by the engine, as torch would."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, joined, same
from pictures import jpegs
from plain_pack import plain_pack
from torch.utils.data import ConcatDataset, Subset, random_split

import fastload
from fastload import DataLoader, PackedDataset, Ranks, errors
from fastload import transforms as T
from fastload.dataset import views
from fastload.dataset.views import SourceKind, kind_of

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
EVAL = T.Compose([T.Resize(40), T.CenterCrop(32)])
OPTIONS = {"batch_size": 8, "num_workers": 2, "seed": 7}


@pytest.fixture(autouse=True)
def no_other_warning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is not expected to be warned of is not; and what was said in another test may be said again."""
    monkeypatch.setattr(views, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", errors.SlowPathWarning)
        yield


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """20 more pictures in the same classes as ``packed``."""
    blobs = jpegs(72)[52:]
    return plain_pack(tmp_path_factory.mktemp("other"), blobs, [i % 5 for i in range(20)], list("abcde"))


def load(dataset: Any, **options: Any) -> DataLoader:
    loader = DataLoader(dataset, **{**OPTIONS, "transform": CROP, **options})
    assert kind_of(loader.dataset) is SourceKind.PACKED  # by the engine
    return loader


def by_sample(dataset: PackedDataset, **options: Any) -> list[torch.Tensor]:
    """Each sample of a dataset in epoch 0, by its id."""
    return list(torch.cat([images for images, _ in all_batches(load(dataset, **options))]))


def images_of(loader: DataLoader) -> torch.Tensor:
    return torch.cat([images for images, _ in all_batches(loader)])


def labels_of(loader: DataLoader) -> list[int]:
    return torch.cat([labels for _, labels in all_batches(loader)]).tolist()


@pytest.mark.parametrize(
    "indices",
    [
        [5, 3, 51, 0, 17],
        range(40, 10, -3),
        np.array([9, 1], np.int32),
        torch.tensor([4, 44, 14]),
        [torch.tensor(4), np.int64(2)],
        [-1, 3, -52],
    ],
)
def test_a_subset_has_these_samples_in_this_order(packed: PackedDataset, indices: Any) -> None:
    """Augmented as they are in the whole set: random numbers are keyed by the sample."""
    subset = Subset(packed, indices)
    loader = load(subset)
    whole = by_sample(packed)
    expected = [int(i) % 52 for i in indices]
    assert torch.equal(images_of(loader), torch.stack([whole[i] for i in expected]))
    assert labels_of(load(subset)) == [packed.label(i) for i in expected]
    assert len(loader.dataset) == len(subset)


def test_what_torch_would_give_it_gives(packed: PackedDataset, other: PackedDataset) -> None:
    """Position by position, against the dataset's own ``[i]``, through any nest."""
    train, held = random_split(packed, [0.7, 0.3], torch.Generator().manual_seed(1))
    nests = [
        train,
        held,
        packed[10:30],
        Subset(train, [3, 1, 2]),
        packed + other,
        Subset(packed + other, [60, 2, 71, 51, 52]),
        ConcatDataset([held, other[5:8], packed]),
        Subset(ConcatDataset([Subset(packed, [7, 8]), ConcatDataset([other, held])]), range(0, 30, 2)),
        fastload.mix([packed, other])[50:55],
    ]
    for nest in nests:
        loader = load(nest, transform=EVAL)
        pictures = [nest[i] for i in range(len(nest))]  # type: ignore[arg-type]
        assert labels_of(loader) == [label for _, label in pictures]
        one = by_sample(packed, transform=EVAL) + by_sample(other, transform=EVAL)
        listed = {packed[i][0].tobytes(): i for i in range(52)} | {
            other[i][0].tobytes(): 52 + i for i in range(20)
        }
        expected = torch.stack([one[listed[image.tobytes()]] for image, _ in pictures])
        assert torch.equal(images_of(load(nest, transform=EVAL)), expected)
        assert isinstance(loader.dataset, type(nest))
        assert [label for _, label in loader.dataset] == [label for _, label in pictures]


def test_shuffling_is_over_the_subset(packed: PackedDataset) -> None:
    chosen = [40, 3, 17, 29, 8, 50, 31, 2, 11]
    loader = load(Subset(packed, chosen), shuffle=True, batch_size=2)
    whole = by_sample(packed)
    seen = []
    for batch, _ in loader:
        for image in batch:
            seen.append(next(i for i, one in enumerate(whole) if torch.equal(one, image)))
    assert sorted(seen) == sorted(chosen)
    assert seen != chosen
    again = load(Subset(packed, chosen), shuffle=True, batch_size=2)
    assert [chosen[int(i)] for i in again.sampler] == seen


def test_samplers_give_positions(packed: PackedDataset) -> None:
    subset = Subset(packed, range(50, 10, -1))
    for options in (
        {"sampler": fastload.SubsetSampler([0, 39, 5], shuffle=False)},
        {"batch_sampler": [[0, 39], [5]], "batch_size": 1},
    ):
        loader = load(subset, **options)
        assert labels_of(loader) == [packed.label(i) for i in (50, 11, 45)]
    for options in ({"sampler": [40]}, {"batch_sampler": [[0], [40]], "batch_size": 1}):
        with pytest.raises(IndexError, match="sample id 40; legal are 0 to 39"):
            all_batches(load(subset, **options))


def test_a_sample_that_stands_twice_is_augmented_differently(packed: PackedDataset) -> None:
    for nest in (
        Subset(packed, [5] * 6),
        ConcatDataset([packed[5:6]] * 6),
        Subset(packed + packed, [5, 57] * 3),
    ):
        for shuffle in (False, True):
            images = images_of(load(nest, shuffle=shuffle))
            assert len({image.numpy().tobytes() for image in images}) == 6
    both = images_of(load(packed + packed))
    assert all(not torch.equal(both[i], both[52 + i]) for i in range(52))
    evaluated = images_of(load(packed + packed, transform=EVAL))
    assert torch.equal(evaluated[:52], evaluated[52:])


def test_a_concatenation_has_all_samples_of_both(packed: PackedDataset, other: PackedDataset) -> None:
    loader = load(packed + other, transform=EVAL)
    assert torch.equal(
        images_of(loader), torch.stack(by_sample(packed, transform=EVAL) + by_sample(other, transform=EVAL))
    )
    assert len(loader) == 9
    mixed = load(fastload.mix([packed, other]))
    assert same(
        all_batches(load(packed + other)), all_batches(mixed)
    )  # the same sample ids, so the same crops


@pytest.mark.parametrize("world", [1, 3])
def test_ranks_and_resuming(packed: PackedDataset, other: PackedDataset, world: int) -> None:
    nest = ConcatDataset([packed[3:20], Subset(other, [1, 1, 5, 7]), packed[40:52]])
    expected = all_batches(load(nest, shuffle=True, batch_size=12))
    for step in range(3):
        loaders = [
            load(nest, shuffle=True, batch_size=12 // world, ranks=Ranks(rank, world))
            for rank in range(world)
        ]
        state = load(nest, shuffle=True, batch_size=12)
        iterator = iter(state)
        for _ in range(step):
            next(iterator)
        for loader in loaders:
            loader.load_state_dict(state.state_dict())
        whole = joined([all_batches(loader) for loader in loaders])
        assert same(whole[: len(expected) - step - 1], expected[step:-1])
        if world == 1:
            assert same(whole, expected[step:])


def test_a_state_of_another_choice_is_refused(packed: PackedDataset) -> None:
    state = load(Subset(packed, [1, 2, 3])).state_dict()
    load(Subset(PackedDataset(packed.folder), np.array([1, 2, 3]))).load_state_dict(state)
    for nest in (Subset(packed, [1, 2, 4]), Subset(packed, [3, 2, 1]), packed):
        with pytest.raises(errors.StateError, match="dataset was"):
            load(nest).load_state_dict(state)


def test_loaders_and_views_pickle(packed: PackedDataset, other: PackedDataset) -> None:
    for nest in (packed[5:30], packed[5:30] + other, packed + packed):
        loader = load(nest, shuffle=True)
        next(iter(loader))
        assert same(all_batches(pickle.loads(pickle.dumps(loader))), all_batches(loader))
    assert len(pickle.dumps(load(packed[:50]).dataset)) < 2000


def test_the_indices_take_eight_bytes_each(packed: PackedDataset) -> None:
    loader = load(Subset(packed, [7] * 100_000))
    assert loader.dataset.sample_ids.nbytes == 800_000
    assert loader.dataset.indices[0] == 7
    assert loader.memory_plan()["slots"] > 0
    assert load(packed + packed[:0]).dataset.sample_ids is None  # all samples in order need none


def test_the_transform_of_the_datasets_is_the_loaders(folder: Path, packed: PackedDataset) -> None:
    own = PackedDataset(folder, CROP)
    expected = all_batches(load(packed[3:9]))
    assert same(all_batches(load(own[3:9], transform=None)), expected)
    again = PackedDataset(folder, T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()]))
    assert len(all_batches(load(own + again, transform=None))) == 13
    with pytest.raises(ValueError, match="has a transform and the loader was given one, too"):
        load(own[3:9])


def test_labels_that_mean_different_classes_are_told(packed: PackedDataset, tmp_path: Path) -> None:
    cats = plain_pack(tmp_path / "cats", jpegs(3), [0, 1, 0], ["a", "cat"])
    with pytest.warns(
        UserWarning, match=r"labels mean different classes: 1 is 'b' in .* and 'cat' in .*fastload.mix"
    ):
        loader = load(packed[:3] + cats)
    assert labels_of(loader) == [0, 1, 2, 0, 1, 0]
    load(packed[:3] + cats)
    more = plain_pack(tmp_path / "more", jpegs(3), [0, 1, 5], ["a", "b", "c", "d", "e", "f"])
    load(packed + more)  # the same classes, and one more


def test_a_mixs_weights_do_not_count_in_a_subset_and_that_is_told(
    packed: PackedDataset, other: PackedDataset
) -> None:
    load(fastload.mix([packed, other])[:9])
    with pytest.warns(UserWarning, match="the weights and num_samples of the mix do not count"):
        loader = load(fastload.mix([packed, other], [1, 3])[50:54])
    assert labels_of(loader) == [0, 1, 0, 1]


def test_bad_samples_are_named_by_their_own_folder(packed: PackedDataset, tmp_path: Path) -> None:
    bad = plain_pack(tmp_path / "bad", [b"\xff\xd8\xff no JPEG", *jpegs(2)], [0] * 3, probe=False)
    nest = ConcatDataset([packed[:2], Subset(bad, [1, 0])])
    with pytest.raises(errors.SampleError, match=rf"\(key '0.img' in {bad.folder}"):
        all_batches(load(nest))
    skipping = load(nest, on_error="skip")
    assert labels_of(skipping) == [0, 1, 0, -100]
    assert skipping.errors[0].key == "0.img"
    replaced = images_of(load(nest, on_error="replace", transform=EVAL))
    assert any(torch.equal(replaced[3], replaced[i]) for i in range(3))


def as_tensor(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_python_callables_see_the_same_samples(packed: PackedDataset, other: PackedDataset) -> None:
    nest = Subset(packed + other, [60, 2, 60])
    images = images_of(load(nest, transform=T.Compose([EVAL, as_tensor])))
    assert torch.equal(images, images_of(load(nest, transform=EVAL)))
    collated = list(load(nest, transform=EVAL, collate_fn=lambda samples: [label for _, label in samples]))
    assert collated == [[other.label(8), 2, other.label(8)]]


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([0, 52], IndexError, "index 52, which is out of range for 52 samples"),
        ([-53], IndexError, "index -53, which is out of range for 52 samples"),
        ([0.5, 1.0], TypeError, "must be a list of integers. Found: float64"),
        ([True, False], TypeError, "must be a list of integers. Found: bool"),
        ([[1], [2]], TypeError, "of the shape"),
    ],
)
def test_wrong_indices_are_refused(packed: PackedDataset, indices: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        load(Subset(packed, indices))


def test_an_empty_subset_has_no_batches(packed: PackedDataset) -> None:
    assert list(load(Subset(packed, []))) == []


def test_a_loader_that_a_framework_rebuilds_gets_the_engines_batches(packed: PackedDataset) -> None:
    """By ids that know their batch; and what is grouped otherwise is an error."""
    for nest in (Subset(packed, [5, 3, 51, 0, 17]), packed[:5] + packed[50:]):
        ours = load(nest, batch_size=2, shuffle=True)
        theirs = torch.utils.data.DataLoader(
            ours.dataset, batch_sampler=ours.batch_sampler, collate_fn=ours.collate_fn
        )
        assert same(all_batches(theirs), all_batches(load(nest, batch_size=2, shuffle=True)))
        regrouped = torch.utils.data.DataLoader(
            ours.dataset, 3, sampler=ours.sampler, collate_fn=ours.collate_fn
        )
        with pytest.raises(errors.StateError, match="grouped into other batches than its own"):
            list(regrouped)


def test_a_view_says_what_it_is(packed: PackedDataset) -> None:
    assert repr(load(packed[2:5]).dataset) == f"Subset(3 samples of {packed!r})"
    assert f"Concat(104 samples of {packed!r})" in repr(load(packed + packed))
