"""Bad samples: raised, skipped or replaced; the batch keeps its size, the substitute is always the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from pictures import jpegs
from plain_pack import plain_pack

from fastload import DataLoader, OnError, PackedDataset, Ranks, errors
from fastload import transforms as T

TRAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
BAD = (3, 17, 20)


def broken(blobs: list[bytes]) -> list[bytes]:
    """Three bad ones: cut short, not an image, empty scan."""
    cut = blobs[3][: len(blobs[3]) // 3]
    return [{3: cut, 17: b"GARBAGE" * 9, 20: blobs[20][:300]}.get(i, blob) for i, blob in enumerate(blobs)]


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("bad"), broken(jpegs(40)), range(40), probe=False)


def load(dataset: PackedDataset, **options: Any) -> DataLoader:
    return DataLoader(
        dataset, **{"batch_size": 8, "num_workers": 3, "transform": TRAIN, "seed": 0, **options}
    )


def test_raise_names_shard_key_and_sample(bad: PackedDataset) -> None:
    loader = load(bad)
    with pytest.raises(
        errors.SampleError, match=r"Sample 3 \(key '3.img' in .*data.bin\): .*on_error="
    ) as caught:
        all_batches(loader)
    assert (caught.value.sample, caught.value.key) == (3, "3.img")
    assert isinstance(caught.value.__cause__, errors.DecodeError)
    assert loader.errors[0].sample == 3


def test_the_loader_goes_on_after_an_error(bad: PackedDataset) -> None:
    loader = load(bad, sampler=[0, 1, 2, 3, 4, 5], batch_size=2)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(errors.SampleError):
        next(iterator)
    assert next(iterator)[1].tolist() == [4, 5]
    with pytest.raises(StopIteration):
        next(iterator)
    assert next(iter(loader))[1].tolist() == [0, 1]


def test_skip_keeps_the_batch_and_marks_the_sample(bad: PackedDataset) -> None:
    loader = load(bad, on_error="skip")
    batches = all_batches(loader)
    assert [len(labels) for _, labels in batches] == [8] * 5
    images, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    assert labels.tolist() == [-100 if i in BAD else i for i in range(40)]
    assert not images[list(BAD)].any()
    assert [report.sample for report in loader.errors[:3]] == list(BAD)


def test_replace_is_the_same_for_any_threads_and_ranks(bad: PackedDataset) -> None:
    options = {"on_error": "replace", "shuffle": True, "drop_last": True}
    whole = all_batches(load(bad, **options, num_workers=1))
    assert same(whole, all_batches(load(bad, **options, num_workers=4)))
    ranks = [all_batches(load(bad, **options, batch_size=4, ranks=Ranks(r, 2))) for r in range(2)]
    assert same(joined(ranks), whole)
    labels = torch.cat([labels for _, labels in whole])
    assert len(labels) == 40
    assert not set(labels.tolist()) & set(BAD)


def test_replace_differs_by_epoch_and_stays_within_a_users_sampler(bad: PackedDataset) -> None:
    loader = load(bad, on_error="replace", sampler=[3, 5, 6, 7], batch_size=4)
    for _ in range(6):
        _, labels = next(iter(loader))
        assert labels[0] in (5, 6, 7)
    assert len({report.substitute for report in loader.errors}) > 1


def test_a_set_of_bad_samples_only_ends_with_an_error(bad: PackedDataset) -> None:
    with pytest.raises(errors.SampleError, match="none of 16 substitutes"):
        all_batches(load(bad, on_error="replace", sampler=[3, 17], batch_size=2))


def test_report_file(bad: PackedDataset, tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    loader = load(bad, on_error=OnError("replace", log=log))
    all_batches(loader)
    reports = [json.loads(line) for line in log.read_text().splitlines()][:3]
    assert [report["sample"] for report in reports] == list(BAD)
    for report in reports:
        assert report["key"] == f"{report['sample']}.img"
        assert report["error"] == "DecodeError"
        assert report["substitute"] not in BAD


def test_a_flipped_bit_is_found_on_first_read(tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path, jpegs(6), range(6))
    record = dataset.records[4]
    with open(tmp_path / "data.bin", "r+b") as file:
        file.seek(int(record["offset"]) + int(record["length"]) - 9)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(errors.SampleError, match=r"Sample 4 .*CRC-32C \d+, packed was \d+") as caught:
        all_batches(load(PackedDataset(tmp_path)))
    assert isinstance(caught.value.__cause__, errors.ChecksumError)
    loader = load(PackedDataset(tmp_path), on_error="skip")
    assert all_batches(loader)[0][1].tolist() == [0, 1, 2, 3, -100, 5]


def test_a_missing_shard_stops_whatever_the_policy(tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path, jpegs(6), range(6))
    (tmp_path / "data.bin").unlink()
    for policy in ("skip", "raise"):
        with pytest.raises(errors.SampleError, match=r"cannot open .*data.bin: No such file") as caught:
            all_batches(load(dataset, on_error=policy))
        # Neither would help.
        assert "fastload verify" not in str(caught.value)
        assert "on_error" not in str(caught.value)


def test_words_advise_what_can_help(tmp_path: Path) -> None:
    """A policy that is set is not advised, and a check of the set only where the set may be at fault."""
    dataset = plain_pack(tmp_path / "a", [data[: len(data) // 2] for data in jpegs(6)], range(6))
    check = f"Check the set with 'fastload verify {dataset.folder} --decode'"
    with pytest.raises(errors.SampleError) as caught:
        all_batches(load(dataset))
    assert str(caught.value).endswith(f'. {check}, or pass on_error="skip" or on_error="replace".')
    with pytest.raises(errors.SampleError, match="none of 16 substitutes") as caught:
        all_batches(load(dataset, on_error="replace"))
    assert str(caught.value).endswith(f". {check}.")
    mixed = plain_pack(tmp_path / "b", jpegs(6), range(6))
    with pytest.raises(errors.SampleError, match="add Resize") as caught:
        next(iter(DataLoader(mixed, 6)))
    assert "fastload verify" not in str(caught.value)


def test_a_picture_over_the_pixel_limit_is_a_bad_sample(tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path, jpegs(6), range(6))
    with pytest.raises(errors.SampleError) as caught:
        all_batches(load(dataset, on_error=OnError(max_pixels=500)))
    assert isinstance(caught.value.__cause__, errors.LimitError)
