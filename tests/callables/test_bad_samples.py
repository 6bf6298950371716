"""on_error where pictures differ in size, and Python callables or a collate function see to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import encoded, picture
from PIL import Image
from plain_pack import plain_pack
from torchvision_likes import MEAN, STD

from fastload import DataLoader, OnError, PackedDataset, Ranks, errors
from fastload import transforms as T

WORKERS = pytest.mark.parametrize("workers", [0, 2])
BAD = (3, 9)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """12 pictures of different sizes, two of them damaged: one behind its header, one all through."""
    blobs = [encoded(picture(i, 20 + i, 30 - i), "PNG") for i in range(12)]
    blobs[3] = blobs[3][:60]
    blobs[9] = b"no picture at all"
    folder = tmp_path_factory.mktemp("damaged")
    return plain_pack(folder, blobs, [i + 1 for i in range(12)], probe=False)


def mean_and_size(image: Image.Image) -> torch.Tensor:
    return torch.tensor([float(np.array(image).mean()), image.width, image.height])


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def load(dataset: PackedDataset, workers: int, **options: Any) -> DataLoader:
    options = {"transform": T.Compose([T.Resize(18), mean_and_size]), **options}
    return DataLoader(dataset, 4, seed=3, num_workers=workers, **options)


@WORKERS
def test_raise_names_the_sample(damaged: PackedDataset, workers: int) -> None:
    loader = load(damaged, workers)
    with pytest.raises(
        errors.SampleError, match=rf"Sample 3 \(key '3.img' in {damaged.folder}.*on_error="
    ) as caught:
        list(loader)
    assert (caught.value.sample, caught.value.key) == (3, "3.img")
    assert isinstance(caught.value.__cause__, errors.DecodeError)
    [report] = loader.errors
    assert (report.sample, report.step, report.position, report.error) == (3, 0, 3, "DecodeError")


@WORKERS
def test_skip_gives_black_pictures_and_marks_them(
    damaged: PackedDataset, workers: int, tmp_path: Path
) -> None:
    log = tmp_path / "bad.jsonl"
    loader = load(damaged, workers, on_error=OnError("skip", log=log))
    values = torch.cat([images for images, _ in loader])
    labels = torch.cat([labels for _, labels in loader])
    assert labels.tolist() == [-100 if i in BAD else i + 1 for i in range(12)]
    for sample, (mean, width, height) in enumerate(values.tolist()):
        assert (mean == 0) == (sample in BAD)
        assert min(width, height) == 18
    assert [report.sample for report in loader.errors] == [*BAD, *BAD]
    assert [json.loads(line)["sample"] for line in log.read_text().splitlines()] == [*BAD, *BAD]


@WORKERS
def test_skipped_pictures_have_the_size_of_the_index(tmp_path: Path, workers: int) -> None:
    """Where it has one: a record damaged behind its header."""
    whole = encoded(picture(1, 40, 20), "PNG")
    dataset = plain_pack(tmp_path, [whole, whole[:80]], [5, 6])
    assert dataset.record(1)["width"] == 40
    for transform, dtype in ((T.Resize(10), torch.uint8), (T.Normalize(MEAN, STD), torch.float32)):
        options = {"transform": transform, "on_error": "skip", "collate_fn": as_list, "num_workers": workers}
        [[(good, label), (black, marked)]] = DataLoader(mixed_sizes(dataset, tmp_path), 2, **options)
        assert good.shape == black.shape
        assert good.dtype == black.dtype == dtype
        assert (label, marked, int(black.count_nonzero())) == (5, -100, 0)


def mixed_sizes(dataset: PackedDataset, folder: Path) -> Any:
    return torch.utils.data.Subset(dataset, [0, 1])


@WORKERS
def test_replace_takes_the_same_substitutes_in_every_run(damaged: PackedDataset, workers: int) -> None:
    def run(workers: int) -> tuple[list[Any], list[Any]]:
        loader = load(damaged, workers, on_error="replace", shuffle=True)
        batches = [torch.cat([images, labels[:, None]], 1).tolist() for images, labels in loader]
        return [row for batch in batches for row in batch], loader.errors

    rows, reports = run(workers)
    plain, _ = run(0)
    assert rows == plain
    assert sorted(report.sample for report in reports) == list(BAD)
    good = {int(row[3]): row for row in rows}
    for report in reports:
        assert report.substitute is not None
        assert report.substitute not in BAD
        row = rows[report.step * 4 + report.position]
        assert row == good[report.substitute + 1]


@WORKERS
def test_nothing_to_replace_with_is_an_error(tmp_path: Path, workers: int) -> None:
    dataset = plain_pack(tmp_path, [b"nothing"] * 4, [0] * 4, probe=False)
    with pytest.raises(errors.SampleError, match=r"Sample 0 .*none of 16 substitutes could be decoded"):
        next(iter(load(dataset, workers, on_error="replace")))


@WORKERS
def test_the_engine_s_bad_samples_keep_their_policy(damaged: PackedDataset, workers: int) -> None:
    """Pictures of one size, which the core decodes: before the callables."""
    chain = T.Compose([T.Resize((9, 9)), mean_and_size])
    loader = load(damaged, workers, transform=chain, on_error="skip")
    found = [(value, label) for values, labels in loader for value, label in zip(values, labels, strict=True)]
    assert [int(label) for _, label in found] == [-100 if i in BAD else i + 1 for i in range(12)]
    assert all((value[0] == 0) == (label == -100) for value, label in found)
    with pytest.raises(errors.SampleError, match="Sample 3 "):
        list(load(damaged, workers, transform=chain))


@WORKERS
def test_padding_is_black(damaged: PackedDataset, workers: int) -> None:
    """Even where the first sample, whose size it has, cannot be decoded."""
    bad_first = torch.utils.data.Subset(damaged, [9, 0, 1])
    ranks = [load(bad_first, workers, on_error="skip", ranks=Ranks(r, 2)) for r in range(2)]  # type: ignore[arg-type]
    batches = [batch for rank in ranks for batch in rank]
    labels = torch.cat([labels for _, labels in batches]).tolist()
    values = torch.cat([values for values, _ in batches])
    assert sorted(labels) == [-100, -100, 1, 2]
    assert all((value[0] == 0) == (label == -100) for value, label in zip(values, labels, strict=True))


@WORKERS
def test_an_iteration_goes_on_after_an_error(damaged: PackedDataset, workers: int) -> None:
    iterator = iter(load(damaged, workers, shuffle=False))
    with pytest.raises(errors.SampleError, match="Sample 3 "):
        next(iterator)
    _, labels = next(iterator)
    assert labels.tolist() == [5, 6, 7, 8]


def process_of(image: Any) -> torch.Tensor:
    return torch.tensor([os.getpid()])


def fails_on_some(image: Any) -> torch.Tensor:
    if int(np.array(image).sum()) % 3 == 0:
        raise ValueError("not this one")
    return torch.tensor([os.getpid()])


@pytest.mark.parametrize("tail", [process_of, fails_on_some])
@pytest.mark.parametrize("engine", [False, True])
def test_workers_outlive_an_error_of_a_sample(damaged: PackedDataset, tail: Any, engine: bool) -> None:
    """Without batches: of bad samples, which the engine or a worker finds, and of callables. With "raise"
    each is an error, and what follows comes from the same processes."""
    steps = T.Compose([T.Resize((8, 8)), T.ToDtype("uint8"), tail] if engine else [T.Resize(18), tail])
    with DataLoader(damaged, None, seed=3, num_workers=2, on_error="raise", transform=steps) as loader:
        for _ in range(2):  # an epoch begins anew
            iterator, processes, failed, count = iter(loader), set(), 0, 0
            while True:
                try:
                    sample = next(iterator)
                except StopIteration:
                    break
                except errors.SampleError:
                    failed += 1
                    continue
                processes.add(int(sample[0]))
                count += 1
            assert failed >= 2
            assert failed + count == 12
            assert len(processes) <= 2
            assert os.getpid() not in processes
