"""What ``collate=`` makes of batches: words for sizes, and callables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set

import fastload
from fastload import DataLoader, Fields, Pad
from fastload import transforms as T

COUNT = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("collate") / "rich", RICH, rich_samples(COUNT))


def batches(folder: Any, **options: Any) -> list[Any]:
    with DataLoader(folder, batch_size=4, seed=1, num_workers=2, **options) as loader:
        return list(loader)


def test_pad_is_the_word_for_a_plain_pad(folder: Path) -> None:
    found, wanted = batches(folder, collate="pad"), batches(folder, collate=Pad())
    assert len(found) == len(wanted) == 3
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["image_sizes"], other["image_sizes"])


def test_stack_of_an_image_and_a_label_stays_a_pair(packed: fastload.PackedDataset) -> None:
    images, labels = batches(packed.folder, collate="stack", transform=T.CenterCrop(8))[0]
    assert images.shape == (4, 3, 8, 8)
    assert labels.dtype == torch.int64


def test_a_callable_gets_whole_batches_and_its_result_is_delivered(folder: Path) -> None:
    wanted = batches(folder, collate="ragged", shuffle=True)
    with DataLoader(
        folder, batch_size=4, seed=1, shuffle=True, collate=lambda batch: (batch["boxes"], batch["image"])
    ) as loader:
        found = list(loader)
        assert loader.stats()["data_wait"]["count"] == 3
    assert len(found) == len(wanted) == 3
    for (boxes, images), batch in zip(found, wanted, strict=True):
        assert torch.equal(boxes.values, batch["boxes"].values)
        assert all(map(torch.equal, images, batch["image"]))


def test_a_callable_gets_padded_pictures_if_it_asks_for_them(folder: Path) -> None:
    for pad in (Pad(), Pad(96, 80)):
        wanted = batches(folder, collate=pad)
        found = batches(folder, collate=replace(pad, then=lambda batch: (batch["image"], batch["valid"])))
        assert len(found) == len(wanted) == 3
        for (images, valid), batch in zip(found, wanted, strict=True):
            assert torch.equal(images, batch["image"])
            assert torch.equal(valid, batch["valid"])


def test_a_callable_behind_python_callables(folder: Path) -> None:
    def marked(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "mark": sample["weight"] + 1}

    fields = ["weight"]
    with pytest.warns(UserWarning, match="marked"):
        found = batches(folder, fields=fields, transform=marked, collate=lambda batch: batch["mark"])
    wanted = batches(folder, fields=fields)
    assert all(torch.equal(one, two["weight"] + 1) for one, two in zip(found, wanted, strict=True))


def test_an_error_of_a_callable_is_that_batchs_and_the_next_one_follows(folder: Path) -> None:
    def fails_once(batch: dict[str, Any]) -> int:
        if len(seen) == 1:
            seen.append(0)
            raise KeyError("no such field")
        seen.append(0)
        return len(batch["valid"])

    seen: list[int] = []
    with DataLoader(folder, batch_size=4, fields=["weight"], collate=fails_once) as loader:
        iterator = iter(loader)
        assert next(iterator) == 4
        with pytest.raises(KeyError, match="no such field"):
            next(iterator)
        assert next(iterator) == 3


def test_the_steps_name_it(folder: Path) -> None:
    def counted(batch: dict[str, Any]) -> int:
        return len(batch["valid"])

    with DataLoader(folder, fields=["weight"], collate=counted) as loader:
        assert "counted" in str(loader.explain())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": Fields(["weight"], masks="dense")}, r"masks='dense'\) draws outlines"),
        ({"fields": Fields(rows_of={"boxes": ["lengths"]})}, "no field 'lengths'"),
    ],
)
def test_what_names_fields_that_are_not_there_is_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(folder, **{"collate": "ragged", **options})


def test_a_set_of_pairs_has_no_rows(packed: fastload.PackedDataset) -> None:
    with pytest.raises(ValueError, match="is for sets of other fields"):
        DataLoader(packed, fields=Fields(masks="dense"), transform=T.CenterCrop(8))


def test_a_torch_dataset_has_samples_of_its_own() -> None:
    with pytest.raises(ValueError, match="collate is for packed datasets"):
        DataLoader([1, 2, 3], collate="pad")
