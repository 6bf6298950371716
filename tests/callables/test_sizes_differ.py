"""Pairs whose pictures differ in size, against the slow way: each decoded and transformed by itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import encoded, picture
from plain_pack import plain_pack
from torchvision_likes import MEAN, STD

import fastload
from fastload import Cache, DataLoader, PackedDataset, Ranks, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.cache.tiers import bounded_sizes
from fastload.dataset.decoding import decode_record
from fastload.transforms.compiler import compile_plan

SEED, COUNT, EPOCHS = 7, 14, 2
BAD = (3, 10)  # a PNG that is cut off, and no picture at all
STEPS = [
    T.RandomHorizontalFlip(),
    T.Resize(18),
    T.RandomPosterize(3),
    T.Normalize(MEAN, STD),
    T.RandomErasing(1),
]
WORKERS = pytest.mark.parametrize("workers", [0, 2])
ON_ERROR = pytest.mark.parametrize("on_error", ["skip", "replace"])


def blobs() -> list[bytes]:
    """PNG, JPEG and BMP, which only Pillow decodes, in turn."""
    made = [encoded(picture(i, 30 + 2 * i, 50 - i), ("PNG", "JPEG", "BMP")[i % 3]) for i in range(COUNT)]
    made[BAD[0]] = made[BAD[0]][:200]
    return made


@pytest.fixture(scope="module", params=["known", "unknown"])
def dataset(request: Any, tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """Labels are sample ids. The index knows the sizes of what the core decodes, or none."""
    made = blobs()
    probe = request.param == "known"
    made[BAD[1]] = made[0][:90] if probe else b"no picture at all"
    return plain_pack(tmp_path_factory.mktemp(request.param), made, range(COUNT), probe=probe)


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def listed(batch: Any) -> Any:
    return list(zip(*batch, strict=True))


def plain(image: torch.Tensor) -> torch.Tensor:
    assert isinstance(image, torch.Tensor)
    return image


#: How a loader gives samples that differ in size: as a batch of (image, label), or alone.
WAYS: dict[str, dict[str, Any]] = {
    "collate_fn": {"batch_size": 4, "collate_fn": as_list},
    "callable": {"batch_size": 4, "collate_fn": as_list, "transform": T.Compose([*STEPS, plain])},
    "collate": {"batch_size": 4, "collate": listed},
    "alone": {"batch_size": None},
    "alone, callable": {"batch_size": None, "transform": T.Compose([*STEPS, plain])},
}


def load(dataset: Any, way: str, **options: Any) -> DataLoader:
    return DataLoader(
        dataset, **{"shuffle": True, "seed": SEED, "transform": T.Compose(STEPS), **WAYS[way], **options}
    )


def one_by_one(
    dataset: PackedDataset, sample: int, epoch: int, draw: int = 0, side: Any = None
) -> torch.Tensor:
    """The picture, decoded and transformed by itself."""
    plan = compile_plan(T.Compose(STEPS))
    pixels: Any = decode_record(dataset, sample)
    height, width = pixels.shape[:2]
    bound = tuple(int(one) for one in bounded_sizes(width, height, side))
    if bound != (width, height):
        view = _C.View(((0, 0, width, height), bound, (0, 0, *bound), False))
        pixels = _C.resize(pixels, view).reshape(bound[1], bound[0], 3)
    made = plan.made_of(pixels, SEED, epoch, sample, draw)
    return torch.from_numpy(made).view(getattr(torch, plan.dtype)).permute(2, 0, 1)


def epoch_of(loader: DataLoader) -> tuple[list[int], list[Any]]:
    """The sample ids of an epoch, and the samples that come."""
    ids = [int(sample) for sample in loader.sampler]
    found: list[Any] = []
    for batch in loader:
        found += batch if isinstance(batch[0], (tuple, list)) else [batch]
    return ids, found


@WORKERS
@ON_ERROR
@pytest.mark.parametrize("way", list(WAYS))
def test_samples_are_those_that_are_decoded_one_by_one(
    dataset: PackedDataset, way: str, workers: int, on_error: str
) -> None:
    with load(dataset, way, num_workers=workers, on_error=on_error) as loader:
        for epoch in range(EPOCHS):
            reported = len(loader.errors)
            ids, found = epoch_of(loader)
            reports = {report.sample: report for report in loader.errors[reported:]}
            assert sorted(reports) == list(BAD)
            assert sorted(ids) == list(range(COUNT))
            for sample, (image, label) in zip(ids, found, strict=True):
                instead = reports[sample].substitute if sample in BAD else sample
                assert (instead is None) == (sample in BAD and on_error == "skip")
                if instead is None:
                    assert (label, int(image.count_nonzero())) == (-100, 0)
                    assert (image.dtype, min(image.shape[1:])) == (torch.float32, 18)
                else:
                    assert type(label) is int or label.dtype == torch.int64
                    assert int(label) == instead
                    assert torch.equal(image, one_by_one(dataset, instead, epoch))


@WORKERS
@pytest.mark.parametrize("way", list(WAYS))
def test_errors_are_raised_where_they_come(dataset: PackedDataset, way: str, workers: int) -> None:
    """Reports are those of the batches that have come, however far decoding is ahead."""
    with load(dataset, way, num_workers=workers, shuffle=False) as loader:
        with pytest.raises(errors.SampleError, match=r"Sample 3 \(key '3.img' .*on_error=") as caught:
            list(loader)
        assert isinstance(caught.value.__cause__, errors.DecodeError)
        step = 3 if loader.batch_size is None else 0
        assert [(report.sample, report.step) for report in loader.errors] == [(3, step)]


@pytest.mark.parametrize("way", list(WAYS))
def test_records_are_read_ahead(dataset: PackedDataset, way: str) -> None:
    with load(dataset, way, on_error="skip", num_workers=2, prefetch_factor=1) as loader:
        next(iter(loader))
        deadline = time.monotonic() + 60
        wanted = 2 * (loader.batch_size or 2)
        ahead: Mapping[str, int] = {"resident": 0, "ahead": 0}
        while ahead["resident"] + ahead["ahead"] < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
            ahead = loader.stats()["read_ahead"]
        assert ahead["resident"] + ahead["ahead"] >= wanted


@WORKERS
def test_repeated_samples_are_drawn_apart(dataset: PackedDataset, workers: int) -> None:
    places = [0, 5, 0, 0, 7]
    subset = torch.utils.data.Subset(dataset, places)
    loader = load(subset, "collate_fn", num_workers=workers, shuffle=False)
    _, found = epoch_of(loader)
    for position, (sample, (image, label)) in enumerate(zip(places, found, strict=True)):
        assert label == sample
        assert torch.equal(image, one_by_one(dataset, sample, 0, draw=position))
    assert not torch.equal(found[0][0], found[2][0])


@WORKERS
@pytest.mark.parametrize("way", list(WAYS))
def test_padding_is_black_and_of_the_first_pictures_size(
    dataset: PackedDataset, way: str, workers: int
) -> None:
    """No callable gets a picture without pixels."""
    options = {"num_workers": workers, "shuffle": False, "on_error": "skip"}
    found = []
    for rank in range(4):
        with load(dataset, way, ranks=Ranks(rank, 4), **options) as loader:
            found += epoch_of(loader)[1]
    padding = [image for image, label in found if int(label) == -100 and int(image.count_nonzero()) == 0]
    assert len(padding) == 2 + len(BAD)
    assert {min(image.shape[1:]) for image in padding} == {18}


def test_crops_are_cut_from_the_bounded_picture(known_sizes: PackedDataset) -> None:
    with load(known_sizes, "collate_fn", cache=Cache(size="off", decoded=40), num_workers=2) as loader:
        ids, found = epoch_of(loader)
        assert len(found) == COUNT
        wanted = [one_by_one(known_sizes, sample, 0, side=40) for sample in ids]
        assert all(torch.equal(image, one) for (image, _), one in zip(found, wanted, strict=True))


@pytest.mark.parametrize("way", list(WAYS))
def test_their_memory_can_be_planned(known_sizes: PackedDataset, way: str) -> None:
    plan = load(known_sizes, way, num_workers=0, prefetch_factor=2).memory_plan()
    sides = [one_by_one(known_sizes, sample, 0).shape[1:] for sample in range(COUNT)]
    largest = max(height * width for height, width in sides) * 3 * 4
    assert plan["slot_bytes"] >= largest * (4 if WAYS[way]["batch_size"] else 1)


@pytest.fixture(scope="module")
def known_sizes(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    made = [encoded(picture(i, 30 + 2 * i, 50 - i), "PNG") for i in range(COUNT)]
    return plain_pack(tmp_path_factory.mktemp("sizes"), made, range(COUNT))


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [{"image": picture(i, 30 + 2 * i, 50 - i), "label": i, "name": f"n{i}"} for i in range(COUNT)]
    folder = tmp_path_factory.mktemp("fields") / "set"
    fastload.pack(samples, folder)
    return folder


def test_a_callable_collate_gets_what_ragged_gives(known_sizes: PackedDataset, fields: Path) -> None:
    """A pair for a plain set, a dict for others. Nothing else stacks what differs."""
    options: dict[str, Any] = {"shuffle": True, "seed": SEED, "transform": T.Compose(STEPS), "num_workers": 2}
    seen: list[Any] = []

    def collate(batch: Any) -> Any:
        seen.append(batch)
        return batch

    for data in (known_sizes, fields):
        seen.clear()
        ragged = list(DataLoader(data, 4, collate="ragged", **options))
        assert len(list(DataLoader(data, 4, collate=collate, **options))) == len(ragged)
        for batch, wanted in zip(seen, ragged, strict=True):
            assert isinstance(wanted, dict)
            if data is known_sizes:
                images, labels = batch
            else:
                assert list(batch) == list(wanted)
                images, labels = batch["image"], batch["label"]
            assert isinstance(images, list)
            assert all(map(torch.equal, images, wanted["image"]))
            assert torch.equal(labels, wanted["label"])
        with pytest.raises(ValueError, match="or a collate_fn that makes a list of them"):
            next(iter(DataLoader(data, 4, **options)))


def test_pictures_of_one_size_are_still_stacked_for_a_callable_collate(tmp_path: Path) -> None:
    data = plain_pack(tmp_path, [encoded(picture(i, 30, 20), "PNG") for i in range(4)], range(4))
    images, _ = next(iter(DataLoader(data, 4, collate=list)))
    assert images.shape == (4, 3, 20, 30)


def test_what_stands_where_nobody_knows_a_size(tmp_path: Path) -> None:
    data = plain_pack(tmp_path, [b"nothing", b"at all"], [0, 1], probe=False)
    loader = DataLoader(data, 2, transform=T.Resize(18), collate_fn=as_list, on_error="skip")
    assert [(tuple(image.shape), label) for image, label in next(iter(loader))] == [((3, 18, 18), -100)] * 2
