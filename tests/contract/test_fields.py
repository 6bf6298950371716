"""Batches of any fields by the DataLoader, against the slow loader of tests/reference/field_reference.py."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_reference import Reference, Sizes
from field_sets import RICH, rich_samples, write_field_set
from simulated_gpu import SimulatedGpu

import fastload
from fastload import DataLoader, Device, PackedDataset, Pad, Ragged, Ranks
from fastload import transforms as T
from fastload.errors import SlowPathWarning

COUNT = 23
SAMPLES = rich_samples(COUNT)
FLOATS = T.Compose([T.Resize(30), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])
CROP = T.Compose([T.RandomResizedCrop((20, 24)), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("fields") / "rich", RICH, SAMPLES)


def equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor) and wanted.dtype == torch.float32 and wanted.dim() == 4:
        # Pictures in [0, 1]: the core rounds once more (csrc/core/transform/store.h).
        return found.shape == wanted.shape and bool((found - wanted).abs().max() <= 2.0**-23)
    if isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, np.ndarray):
        return bool(np.array_equal(found, wanted))
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(equal, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(equal(found[name], wanted[name]) for name in wanted)
    return bool(found == wanted)


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name in wanted:
        assert equal(found[name], wanted[name]), (name, found[name], wanted[name])


@pytest.mark.parametrize(
    ("transform", "collate", "reference"),
    [
        (CROP, "stack", Sizes()),
        (None, "pad", Sizes("pad")),
        (T.RandomHorizontalFlip(), "ragged", Sizes("ragged")),
        (T.Resize(24), Pad(64, 70), Sizes("most", most=(64, 70))),
        (FLOATS, "pad", Sizes("pad")),
    ],
)
def test_every_field_is_what_the_reference_has(
    folder: Path, transform: Any, collate: Any, reference: Sizes
) -> None:
    slow = Reference(RICH, SAMPLES, transform, seed=3, sizes=reference)
    options = {"shuffle": True, "transform": transform, "collate": collate}
    with DataLoader(folder, 5, seed=3, num_workers=2, **options) as loader:
        for epoch in range(2):
            ids = list(loader.sampler)
            for number, batch in enumerate(loader):
                wanted = slow.batch(ids[number * 5 : (number + 1) * 5], epoch)
                assert_same(batch, wanted)
            assert number == 4


def test_fields_in_the_order_of_their_names(folder: Path) -> None:
    slow = Reference(RICH, SAMPLES, CROP)
    names = ["boxes", "caption", "image"]
    with DataLoader(folder, 4, transform=CROP, seed=0, fields=names) as loader:
        batch = next(iter(loader))
    assert_same(batch, slow.batch(range(4), names=names))


def test_without_pictures_nothing_is_decoded(folder: Path) -> None:
    with DataLoader(folder, 4, seed=0, fields=["caption", "weight"]) as loader:
        batches = list(loader)
        decoded = [thread["decoded"] for thread in loader._epochs.lanes.counts().threads]
    assert [text for batch in batches for text in batch["caption"]] == [s["caption"] for s in SAMPLES]
    assert sum(sum(paths.values()) for paths in decoded) == 0


def damaged(folder: Path, tmp_path: Path, numbers: tuple[int, ...] = (6,)) -> Path:
    """The set with pictures that cannot be decoded."""
    samples = [
        {**sample, "image": b"\xff\xd8 no picture"} if number in numbers else sample
        for number, sample in enumerate(SAMPLES)
    ]
    return write_field_set(tmp_path / "damaged", RICH, samples)


def blanks_at(batch: dict[str, Any], position: int) -> None:
    """What a position without a sample has, by kind."""
    assert not batch["valid"][position]
    assert not batch["image"][position].any()
    assert not batch["second"][position].any()
    assert (batch["mask"][position] == 255).all()
    assert batch["label"][position] == batch["attribute"][position] == -100
    assert batch["weight"][position] == 0
    assert not batch["pose"][position].any()
    for name in ("track", "boxes", "points"):
        assert len(batch[name][position]) == 0
    assert batch["caption"][position] == ""
    assert batch["blob"][position] == b""
    assert batch["notes"][position] is None
    assert batch["outlines"][position] == batch["areas"][position] == []


def without(batch: dict[str, Any], position: int) -> dict[str, Any]:
    keep = torch.arange(len(batch["valid"])) != position
    batch = {**batch, "valid": keep}
    return fastload.valid(batch)


@pytest.mark.parametrize("workers", [1, 0, 2])
def test_a_skipped_sample_has_nothing(folder: Path, tmp_path: Path, workers: int) -> None:
    """With ``num_workers`` also through a collate function: in the consumer's thread, and in processes."""
    own = {} if workers == 1 else {"collate_fn": joined}
    slow = Reference(RICH, SAMPLES, CROP)
    with DataLoader(
        damaged(folder, tmp_path), 4, transform=CROP, seed=0, on_error="skip", num_workers=workers, **own
    ) as loader:
        batch = list(loader)[1]
        assert [(report.sample, report.error) for report in loader.errors] == [(6, "DecodeError")]
    blanks_at(batch, 2)
    assert_same(without(batch, 2), without(slow.batch([4, 5, 7, 7]), 3))


def joined(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """As the loader itself collates."""
    assert all(isinstance(sample["label"], int) and sample["boxes"].shape[1] == 4 for sample in samples)
    batch: dict[str, Any] = {name: [sample[name] for sample in samples] for name in samples[0]}
    for name in ("image", "mask", "second", "pose"):
        batch[name] = torch.stack(batch[name])
    for name in ("track", "boxes", "points"):
        batch[name] = Ragged.from_list(batch[name])
    for name, dtype in (("label", torch.int64), ("attribute", torch.int64), ("weight", torch.float64)):
        batch[name] = torch.tensor(batch[name], dtype=dtype)
    for name in ("kept", "valid"):
        batch[name] = torch.tensor(batch[name])
    return batch


@pytest.mark.parametrize("collate", ["pad", "ragged"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_replaced_sample_brings_all_its_fields(
    folder: Path, tmp_path: Path, collate: Any, workers: int
) -> None:
    """The substitute's pictures, rows and texts have other sizes than there was room for."""
    own: dict[str, Any] = {} if workers == 1 else {"transform": same_sample}
    slow = Reference(RICH, SAMPLES, None, sizes=Sizes(collate))
    with pytest.warns(SlowPathWarning) if workers == 2 else nullcontext():
        own |= {"collate": collate, "num_workers": workers}
        loader = DataLoader(damaged(folder, tmp_path), 4, seed=0, on_error="replace", **own)
    with loader:
        batch = list(loader)[1]
        (report,) = loader.errors
    assert report.substitute is not None
    assert batch["valid"].all()
    if workers == 1:
        assert_same(batch, slow.batch([4, 5, report.substitute, 7]))
    else:
        wanted = slow.batch([4, 5, report.substitute, 7])
        assert all(equal(batch[name], wanted[name]) for name in ("boxes", "caption", "label", "notes"))


def same_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def test_a_bad_sample_is_an_error_with_its_key(folder: Path, tmp_path: Path) -> None:
    with (
        DataLoader(damaged(folder, tmp_path), 4, transform=CROP, seed=0) as loader,
        pytest.raises(fastload.errors.SampleError, match="Sample 6 .*0006"),
    ):
        list(loader)


def test_padding_of_ranks_is_marked_and_left_out(folder: Path) -> None:
    """Of 23 samples four ranks have six each; valid() drops what only fills up."""
    texts: list[str] = []
    for rank in range(4):
        with DataLoader(folder, 2, transform=CROP, seed=0, ranks=Ranks(rank, 4)) as loader:
            batches = list(loader)
        last = batches[-1]
        if not last["valid"].all():
            blanks_at(last, int(last["valid"].logical_not().nonzero()[0]))
        for batch in map(fastload.valid, batches):
            assert {len(batch[name]) for name in RICH.names} == {int(batch["valid"].sum())}
            texts += batch["caption"]
    assert sorted(texts) == sorted(sample["caption"] for sample in SAMPLES)


def test_resuming_goes_on_with_the_same_batches(folder: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "transform": CROP, "seed": 4, "collate": "pad"}
    with DataLoader(folder, 5, **options) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = list(iterator)
    with DataLoader(folder, 5, **options) as loader:
        loader.load_state_dict(state)
        found = list(loader)
    assert len(found) == len(rest) == 4
    for batch, wanted in zip(found, rest, strict=True):
        assert_same(batch, wanted)


def test_subsets_and_mixtures_have_their_fields(folder: Path) -> None:
    slow = Reference(RICH, SAMPLES, CROP)
    dataset = PackedDataset(folder)
    with DataLoader(torch.utils.data.Subset(dataset, [5, 3, 1]), 3, transform=CROP, seed=0) as loader:
        assert_same(next(iter(loader)), slow.batch([5, 3, 1]))
    with DataLoader(fastload.mix([dataset, folder]), 2 * COUNT, transform=CROP, seed=0) as loader:
        batch = next(iter(loader))
    assert batch["caption"] == [sample["caption"] for sample in SAMPLES] * 2
    assert len(batch["boxes"]) == 2 * COUNT


def test_sets_of_different_fields_are_refused(folder: Path, tmp_path: Path) -> None:
    other = write_field_set(tmp_path / "other", {"image": fastload.Image(), "text": fastload.Text()}, [
        {"image": sample["image"], "text": ""} for sample in SAMPLES
    ])  # fmt: skip
    with pytest.raises(ValueError, match="must have the same fields"):
        fastload.mix([folder, other])
    both = torch.utils.data.ConcatDataset([PackedDataset(folder), PackedDataset(other)])
    with pytest.raises(ValueError, match="must have the same fields"):
        DataLoader(both, 2, transform=CROP)


def test_one_sample_at_a_time(folder: Path) -> None:
    slow = Reference(RICH, SAMPLES, CROP)
    with DataLoader(folder, None, transform=CROP, seed=0) as loader:
        sample = next(iter(loader))
    wanted = slow.sample(0)
    assert sample["label"] == int(wanted["label"])
    assert sample["caption"] == wanted["caption"]
    assert torch.equal(sample["image"], wanted["image"])
    assert torch.equal(sample["boxes"], wanted["boxes"])


def negative(label: int) -> int:
    return -label


def test_a_target_transform_changes_the_first_label(folder: Path) -> None:
    dataset = PackedDataset(folder, target_transform=negative)
    with DataLoader(dataset, COUNT, transform=CROP, seed=0, num_workers=0) as loader:
        batch = next(iter(loader))
    assert batch["label"].tolist() == [-sample["label"] for sample in SAMPLES]
    assert batch["attribute"].tolist() == [sample["attribute"] for sample in SAMPLES]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": ["image", "boxs"]}, "no field 'boxs'. It has: image, label"),
        ({"batch_transform": T.RandomErasing()}, "needs one image field. Found: image, second"),
        ({"device": Device(memory="reuse")}, "one size. Found: track .any number of rows., boxes"),
        ({"transform": T.Compose([CROP, T.Normalize((0.5, 0.4, 0.3), (0.5, 0.5, 0.5))])}, "1 channels"),
        ({"transform": T.Resize(24)}, "cannot be stacked.*collate='pad'"),
    ],
)  # fmt: skip
def test_what_dicts_cannot_have_is_said(folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next(iter(DataLoader(folder, 4, **{"transform": CROP, "seed": 0, **arguments})))


def test_torch_datasets_have_no_fields() -> None:
    with pytest.raises(ValueError, match="fields is for packed datasets"):
        DataLoader([1, 2, 3], fields=["image"])


def test_explain_lists_the_fields(folder: Path) -> None:
    text = str(DataLoader(folder, 4, transform=CROP, fields=["image", "boxes", "notes"]).explain())
    assert "field: boxes=boxes(xywh): moved by the sample's view" in text
    assert "caption" not in text


@pytest.mark.parametrize("transform", [CROP, T.Compose([CROP, T.ToDtype("float32", scale=True)])])
def test_on_a_device_it_is_the_same(folder: Path, transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimulatedGpu(0, 0.3)
    monkeypatch.setattr("fastload.backends.choice.find_gpu", lambda _: gpu)
    fields = [name for name in RICH.names if name != "second"]
    options: dict[str, Any] = {"transform": transform, "seed": 0, "shuffle": True, "fields": fields}
    with DataLoader(folder, 5, **options) as loader, DataLoader(folder, 5, **options, device="cuda") as moved:
        for found, wanted in zip(moved, loader, strict=True):
            gpu.synchronize()
            assert_same(found, wanted)
        assert moved.stats()["stages"]["transfer"]["count"] >= 5  # and the next epoch's first ones


def test_indexing_gives_the_sample(folder: Path) -> None:
    """What a batch of one has, without its first dimension."""
    slow, dataset = Reference(RICH, SAMPLES, sizes=Sizes("ragged")), PackedDataset(folder)
    for number in (0, 4, COUNT - 1):
        wanted, sample = slow.sample(number), dataset[number]
        assert list(sample) == list(RICH.names)
        for name in ("image", "mask", "boxes", "points", "track", "pose"):
            assert equal(sample[name], wanted[name]), name
        for name in ("label", "weight", "kept", "attribute", "caption", "blob", "notes"):
            assert sample[name] == SAMPLES[number][name], name
            assert type(sample[name]) is type(SAMPLES[number][name]), name
        assert sample["second"].shape == (1, 20, 24)
    dataset.transform = str.upper
    assert equal(dataset.sample(1), PackedDataset(folder)[1])
    dataset.transform = lambda sample: sample["caption"]
    assert dataset[1] == SAMPLES[1]["caption"]
    dataset.transform = CROP
    with pytest.raises(ValueError, match="to all fields of a sample at once"):
        dataset[1]


@pytest.mark.filterwarnings("ignore::fastload.errors.SlowPathWarning")
def test_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/guide/fields.md: its examples, one after the other, and what they leave behind."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "guide" / "fields.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, Any] = {"__name__": "manual"}
    exec(compile("\n".join(blocks), "docs/guide/fields.md", "exec"), names)
    assert names["first"].shape[1:] == (names["height"], names["width"])
    assert names["batch"]["score"].max() < 0.5
