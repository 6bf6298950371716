"""The DALI back end gives the native one's batches: order, crops, flips, labels, dtypes, ranks, state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from pictures import encoded, picture
from plain_pack import plain_pack
from two_backends import TRAIN, apart, same_but_for_rounding, with_dali

import fastload
from fastload import Dali, DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload.transforms.batch import ColorJitter, RandomErasing

pytestmark = pytest.mark.dali

NUMBERS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GEOMETRIES = {
    "train": TRAIN,
    "train, bicubic": T.Compose([T.RandomResizedCrop(48, interpolation="bicubic"), T.RandomHorizontalFlip()]),
    "validation": T.Compose([T.Resize(64), T.CenterCrop(56)]),
    "validation, bicubic": T.Compose([T.Resize(64, interpolation="bicubic"), T.CenterCrop(56)]),
    "exact": T.Resize((50, 70)),
    "larger": T.RandomResizedCrop((150, 130)),
    "crop of a crop": T.Compose([T.RandomResizedCrop(64), T.CenterCrop(40), T.RandomHorizontalFlip()]),
    "middle": T.Compose([T.CenterCrop(80), T.RandomHorizontalFlip()]),
    "middle, padded": T.CenterCrop(120),  # some pictures are smaller: our own decoder's
}


def native(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(
        dataset, **{"batch_size": 8, "num_workers": 2, "transform": TRAIN, "seed": 0, **options}
    )


def check_same(dataset: Any, unit: float = 1.0, **options: Any) -> dict[str, Any]:
    """Two epochs by both; the DALI loader's stats."""
    with native(dataset, **options) as one, with_dali(dataset, **options) as other:
        for _ in range(2):
            assert same_but_for_rounding(all_batches(other), all_batches(one), unit)
        stats: dict[str, Any] = other.stats()["decoders"]
        return stats


@pytest.mark.parametrize("name", GEOMETRIES)
def test_windows(photos: PackedDataset, name: str) -> None:
    stats = check_same(photos, transform=GEOMETRIES[name], shuffle=True, seed=5)
    assert (stats["samples"]["native"] > 0) == (name == "middle, padded")
    assert stats["samples"]["dali"] > 0
    assert stats["built"] == 1


def test_a_window_without_a_resize_has_the_same_pixels(photos: PackedDataset) -> None:
    options = {"transform": GEOMETRIES["middle"], "shuffle": True}
    assert same(all_batches(with_dali(photos, **options)), all_batches(native(photos, **options)))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("steps", "unit"),
    [
        ([T.ToDtype("float32")], 1.0),
        ([T.ToDtype("float32", scale=True)], 1 / 255),
        ([T.Normalize(*NUMBERS)], 1 / 255 / 0.22),
        ([T.Normalize(*NUMBERS), T.ToDtype("float16")], 1.1 / 255 / 0.22),
        ([T.Normalize(*NUMBERS), T.ToDtype("bfloat16")], 1.9 / 255 / 0.22),
    ],
    ids=["0 to 255", "0 to 1", "float32", "float16", "bfloat16"],
)
def test_dtypes(photos: PackedDataset, steps: list[Any], unit: float, share: float) -> None:
    transform = T.Compose([*TRAIN.transforms, *steps])
    with native(photos, transform=transform) as one:
        wanted = all_batches(one)
    with with_dali(photos, transform=transform, backend=Dali(decode_share=share)) as other:
        assert same_but_for_rounding(all_batches(other), wanted, unit)
        parts = other.stats()["decoders"]["samples"]
    assert (parts["dali"] > 0, parts["native"] > 0) == (share < 1, share > 0)


def test_conversion_is_the_same_line(photos: PackedDataset) -> None:
    """Where pixels are equal, float32 values are, up to its rounding."""
    transform = T.Compose([T.CenterCrop(80), T.Normalize(*NUMBERS)])
    batches = all_batches(native(photos, transform=transform))
    assert len(batches) > 1
    for (found, _), (wanted, _) in zip(with_dali(photos, transform=transform), batches, strict=True):
        assert (found.double() - wanted.double()).abs().max() <= 2.0**-20


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_ranks_and_threads_change_no_bit(photos: PackedDataset, share: float) -> None:
    options = {"shuffle": True, "seed": 3, "backend": Dali(decode_share=share)}
    whole = all_batches(with_dali(photos, num_workers=1, **options))
    ranks = [
        all_batches(with_dali(photos, batch_size=4, ranks=Ranks(rank, 2), **options)) for rank in range(2)
    ]
    assert same(joined(ranks), whole)
    assert sorted(torch.cat([labels for _, labels in whole]).tolist()) == list(range(40))


def test_state_goes_from_one_back_end_to_the_other(photos: PackedDataset) -> None:
    options = {"shuffle": True, "seed": 9}
    with native(photos, **options) as one, with_dali(photos, **options) as other:
        wanted = all_batches(one)
        iterator = iter(other)
        for _ in range(2):
            next(iterator)
        state = other.state_dict()
        assert state == {**one.state_dict(), "epoch": 0, "position": 16}
        rest = [(images.clone(), labels.clone()) for images, labels in iterator]
    for load in (native, with_dali):
        with load(photos, **options) as resumed:
            resumed.load_state_dict(state)
            assert same_but_for_rounding(all_batches(resumed), wanted[2:])
    assert same_but_for_rounding(rest, wanted[2:])


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 16, "drop_last": True},
        {"batch_size": 16},
        {"batch_size": 12, "ranks": Ranks(1, 3), "padding": "mark"},
        {"batch_size": 12, "ranks": Ranks(2, 3), "padding": "repeat"},
        {"batch_size": 64},
        {"batch_size": 1, "sampler": [3, 3, 7, 0]},
        {"batch_size": 1, "batch_sampler": [[1, 2, 3], [4], [5, 6]]},
        {"prefetch_factor": 1},
        {"sampler": fastload.WeightedSampler([1.0] * 20 + [3.0] * 20, 30)},
    ],
    ids=str,
)
def test_batches_of_all_kinds(photos: PackedDataset, options: dict[str, Any]) -> None:
    check_same(photos, **options)


def test_mixed_datasets(photos: PackedDataset, tmp_path: Any) -> None:
    others = plain_pack(tmp_path, [encoded(picture(90 + i, 100, 90), "PNG") for i in range(10)], range(10))
    stats = check_same(fastload.mix([photos, others], weights=[3, 2]), shuffle=True)
    assert stats["samples"]["native"] > 0
    assert stats["samples"]["dali"] > stats["samples"]["native"]


def test_batch_transforms(photos: PackedDataset) -> None:
    transform = T.Compose([*TRAIN.transforms, T.Normalize(*NUMBERS)])
    parts = [ColorJitter(brightness=0.4, contrast=0.4), RandomErasing(p=0.5)]
    options = {"transform": transform, "batch_transform": parts, "shuffle": True}
    with native(photos, **options) as one, with_dali(photos, **options) as other:
        batches = all_batches(one)
        assert len(batches) > 1
        for (found, labels), (wanted, same_labels) in zip(other, batches, strict=True):
            assert torch.equal(labels, same_labels)
            assert apart(found, wanted)[2] <= 0.02


def test_auto_share_moves_and_nothing_else_does(photos: PackedDataset) -> None:
    with (
        native(photos, shuffle=True) as one,
        with_dali(photos, backend=Dali(decode_share="auto"), shuffle=True) as other,
    ):
        for _ in range(4):
            assert same_but_for_rounding(all_batches(other), all_batches(one))
        stats = other.stats()["decoders"]
    assert 0 <= stats["share"] <= 1
    assert sum(stats["samples"].values()) == 4 * 40
    assert stats["samples"]["native"] > 0
    assert stats["samples"]["dali"] > 0


def test_consumers_keep_what_they_got(photos: PackedDataset) -> None:
    """Memory of one batch is not that of a later one."""
    with with_dali(photos) as loader:
        kept = list(loader)
        copies = [(images.clone(), labels.clone()) for images, labels in kept]
        all_batches(loader)
        kept[0][0].zero_()
    del loader
    assert same(kept[1:], copies[1:])
