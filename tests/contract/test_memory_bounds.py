"""memory_plan() where batches differ in size: an upper bound, reached by a batch of the largest samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from field_sets import RICH, rich_samples, write_field_set

import fastload
import fastload.transforms as T
from fastload import Cache, DataLoader, PackedDataset, Pad
from fastload._native import _C
from fastload.prefetch.slots import in_steps
from fastload.sample.schema import Schema

COUNT = 24
UNCUT = [name for name in RICH.names if name not in ("outlines", "areas")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("bounds") / "set", RICH, rich_samples(COUNT))


CASES: dict[str, dict[str, Any]] = {
    "whole": {"collate": "ragged"},
    "padded": {"collate": "pad"},
    "to a size": {"collate": Pad(64, 64)},
    "resized": {"collate": "pad", "transform": T.Compose([T.Resize(20)]), "fields": UNCUT},
    "cut": {"transform": T.Compose([T.RandomResizedCrop(16)]), "fields": UNCUT},
    "decoded": {"collate": "ragged", "cache": Cache("off", decoded=30), "fields": ["image", "mask"]},
    "views": {
        "collate": "ragged",
        "fields": ["image", "mask", "boxes", "caption"],
        "transform": T.Views(a=T.Resize(12), b=None),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_no_batch_needs_more(folder: Path, leased: list[int], case: str) -> None:
    with DataLoader(folder, 4, shuffle=True, seed=1, **{"cache": "off", **CASES[case]}) as loader:
        planned = loader.memory_plan()
        assert leased == []
        for _ in range(3):
            for batch in loader:
                assert len(batch["valid"]) == 4
    assert len(leased) >= 3 * COUNT // 4
    assert in_steps(max(leased)) <= planned["slot_bytes"]
    assert planned["total"] == planned["slots"] * planned["slot_bytes"] + planned["read_ahead_bytes"]


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_the_largest_samples_reaches_it(tmp_path: Path, leased: list[int], case: str) -> None:
    one = next(sample for sample in rich_samples(COUNT) if len(sample["caption"]) > 0)
    folder = write_field_set(tmp_path / "set", RICH, [one] * 4)
    with DataLoader(folder, 4, seed=1, **{"cache": "off", **CASES[case]}) as loader:
        planned = loader.memory_plan()["slot_bytes"]
        assert len(list(loader)) == 1
    assert in_steps(max(leased)) == planned


def test_several_sets_have_the_larger_ones_bound(folder: Path, tmp_path: Path) -> None:
    long = [{**sample, "caption": "long " * 500} for sample in rich_samples(3)]
    other = write_field_set(tmp_path / "long", RICH, long)

    def planned(dataset: Any) -> int:
        with DataLoader(dataset, 4, collate="ragged", fields=["caption", "label"], cache="off") as loader:
            return loader.memory_plan()["slot_bytes"]

    assert planned(fastload.mix([folder, other])) == planned(other) > planned(folder)


def test_what_has_no_bound_says_so(folder: Path, tmp_path: Path) -> None:
    resized = T.Compose([T.Resize((16, 16))])
    with (
        DataLoader(folder, 4, transform=resized, cache="off") as loader,
        pytest.raises(
            ValueError, match=r"what samples have in outlines: outlines are cut to the view.*fields="
        ),
    ):
        loader.memory_plan()
    schema = Schema.of({"image": RICH["image"].kind})
    sample = rich_samples(1)[0]["image"]
    unknown = write_field_set(tmp_path / "unknown", schema, [{"image": sample}, {"image": b"not a picture"}])
    assert PackedDataset(unknown).records[1]["width"] == 0
    with (
        DataLoader(unknown, 2, collate="pad", cache="off") as loader,
        pytest.raises(ValueError, match="the index has no sizes of some pictures"),
    ):
        loader.memory_plan()


def test_whole_pictures_before_the_crop_are_counted(folder: Path) -> None:
    """Two copies of the largest in each thread; a third where several views share it."""
    records = PackedDataset(folder).records
    largest = int((records["width"].astype(int) * records["height"]).max())
    crop = T.RandomResizedCrop(16)

    def planned(transform: Any, **options: Any) -> dict[str, int]:
        options = {"cache": "off", "fields": ["image", "label"], "num_workers": 3, **options}
        with DataLoader(folder, 4, transform=transform, **options) as loader:
            return loader.memory_plan()

    before, behind = (
        planned(T.Compose([T.RandomInvert(), crop])),
        planned(T.Compose([crop, T.RandomInvert()])),
    )
    assert behind["source_bytes"] == 0
    assert before["source_bytes"] == 3 * 2 * 3 * largest
    assert before["total"] == behind["total"] + before["source_bytes"]
    views = T.Views(a=crop, b=T.Compose([T.RandomInvert(), crop]))
    assert planned(views)["source_bytes"] == 3 * 3 * 3 * largest
    late = T.ByEpoch({0: crop, 2: T.Compose([T.RandomInvert(), crop])})
    assert planned(late)["source_bytes"] > 0
    small = planned(T.Compose([T.RandomInvert(), crop]), cache=Cache("off", decoded=20))["source_bytes"]
    assert 0 < small <= 3 * 2 * 3 * 20 * 20 < before["source_bytes"]
    assert planned(T.Compose([T.TimmAugment("augmix-m5-w3"), crop]))["source_bytes"] == 3 * 7 * 3 * largest
    turned = planned(T.Compose([T.RandomRotation(9), crop]), fields=["image", "mask"])
    assert turned["source_bytes"] == 3 * (2 * 3 + 2) * largest  # the mask follows


def test_of_free_memory_the_largest_is_kept() -> None:
    """What was written into is no fresh memory, which is zeros."""
    pool = _C.SlotPool(2)
    sizes = [100, 3000, 200_000, 1_000_000]
    leased = [pool.lease(size) for size in sizes]
    for memory, size in zip(leased, sizes, strict=True):
        memory[:] = size % 251
    while leased:
        del memory
        memory = leased.pop(0)  # given back the small ones first
    del memory
    middle, large = pool.lease(5000), pool.lease(1_000_000)  # the least that does
    assert (large[-1], middle[-1]) == (1_000_000 % 251, 200_000 % 251)
    assert not pool.lease(3000).any()
