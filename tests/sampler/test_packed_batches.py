"""Batches of packs from a DataLoader: what they hold, on several ranks, after a resume; what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set
from numbered_set import make_numbered_set
from pictures import jpegs
from plain_pack import plain_pack
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import fastload
from fastload import DataLoader, PackingSampler, Ranks
from fastload import transforms as T
from fastload.errors import StateError

COUNT, TOKENS = 51, 100
LENGTHS = np.random.default_rng(3).integers(5, 60, COUNT)
SMALL = T.Resize((16, 16))
CUT = T.ResizeToPatches(8, 36)
Packs = list[tuple[int, ...]]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose labels are their numbers."""
    return make_numbered_set(tmp_path_factory.mktemp("packs") / "numbered", COUNT)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = rich_samples(COUNT)
    for number, sample in enumerate(samples):
        sample.update(caption=str(number), attribute=number)
    return write_field_set(tmp_path_factory.mktemp("packs") / "rich", RICH, samples)


def load(dataset: Any, batch_size: int = 4, **more: Any) -> DataLoader:
    options: dict[str, Any] = {"sampler": PackingSampler(LENGTHS, TOKENS), "seed": 5, "transform": SMALL}
    return DataLoader(dataset, batch_size, num_workers=1, **{**options, **more})


def packs_of(batch: Any, name: str = "label") -> Packs:
    """The samples of each pack, without padding."""
    offsets = batch["pack_offsets"]
    assert offsets.dtype == torch.int64
    assert int(offsets[-1]) == len(batch["valid"])
    numbers, valid = batch[name].tolist(), batch["valid"].tolist()
    return [
        tuple(number for number, is_sample in zip(numbers[a:b], valid[a:b], strict=True) if is_sample)
        for a, b in pairwise(offsets.tolist())
    ]


def run(loader: DataLoader, name: str = "label") -> list[Packs]:
    with loader:
        return [packs_of(batch, name) for batch in loader]


def flat(packs: Iterable[Iterable[Any]]) -> list[Any]:
    return [one for pack in packs for one in pack]


def joined(runs: list[list[Packs]]) -> list[Packs]:
    """The packs of each step over all ranks, whoever has them."""
    assert len({len(of_rank) for of_rank in runs}) == 1
    return [sorted(pack for part in step for pack in part if pack) for step in zip(*runs, strict=True)]


def test_each_sample_comes_once_with_its_own_pixels(numbered: Path) -> None:
    with DataLoader(numbered, COUNT, transform=SMALL) as plain:
        images, labels = next(iter(plain))
    assert labels.tolist() == list(range(COUNT))
    with load(numbered) as loader:
        epochs = [list(loader), list(loader)]
        assert loader.stats()["samples"] == 2 * COUNT
        assert len(loader.sampler) == COUNT
        assert loader.memory_plan()["slot_bytes"] >= max(len(batch["valid"]) for batch in epochs[0]) * 3 * 256
        assert str(loader.sampler.order_given.sampler).endswith("(epoch 1 of seed 5)")
        assert len(loader) in (len(epochs[0]), len(epochs[1]))
    for batches in epochs:
        assert {tuple(batch) for batch in batches} == {("image", "label", "valid", "pack_offsets")}
        packs = [pack for batch in batches for pack in packs_of(batch)]
        assert sorted(number for pack in packs for number in pack) == list(range(COUNT))
        assert max(LENGTHS[list(pack)].sum() for pack in packs) <= TOKENS
        assert {len(packs_of(batch)) for batch in batches[:-1]} == {4}
        for batch in batches:
            assert torch.equal(batch["image"], images[batch["label"]])
    first, second = ([packs_of(batch) for batch in batches] for batches in epochs)
    assert first != second
    assert run(load(numbered)) == first


def test_ranks_share_each_step_and_padding_is_a_row_that_valid_drops(numbered: Path) -> None:
    few = PackingSampler(LENGTHS, TOKENS + 20)

    def of_rank(rank: int = 0, world: int = 1) -> DataLoader:
        return load(numbered, 8 // world, sampler=few, ranks=Ranks(rank, world))

    whole = joined([run(of_rank())])
    assert len(whole[-1]) % 4
    for world in (2, 4):
        assert joined([run(of_rank(rank, world)) for rank in range(world)]) == whole
    padded = 0
    for rank in range(4):
        with of_rank(rank, 4) as loader:
            last = list(loader)[-1]
        real = fastload.valid(last)
        assert len(last["pack_offsets"]) == len(real["pack_offsets"])
        assert packs_of(real) == packs_of(last)
        assert real["valid"].all()
        assert -100 not in real["label"]
        padded += int((~last["valid"]).sum())
    assert padded == -len(whole[-1]) % 4


@pytest.mark.parametrize("world", [1, 2, 4])
def test_going_on_at_any_step_on_other_ranks(numbered: Path, world: int) -> None:
    whole = joined([run(load(numbered, 4))])
    for done in (1, len(whole) - 1):
        with load(numbered, 2, ranks=Ranks(1, 2)) as loader:
            iterator = iter(loader)
            for _ in range(done):
                next(iterator)
            state = json.loads(json.dumps(loader.state_dict()))
        assert len(json.dumps(state)) < 1000
        assert state["position"] == 4 * done
        runs = []
        for rank in range(world):
            loader = load(numbered, 4 // world, ranks=Ranks(rank, world), seed=None)
            loader.load_state_dict(state)
            runs.append(run(loader))
        assert joined(runs) == whole[done:]


@pytest.mark.parametrize(("batch_size", "world"), [(3, 1), (2, 3), (1, 1)])
def test_going_on_with_more_or_fewer_packs_a_step(numbered: Path, batch_size: int, world: int) -> None:
    """Positions are numbers of packs: none is lost, or comes twice."""
    whole = [pack for step in joined([run(load(numbered, 1))]) for pack in step]
    with load(numbered, 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    runs = []
    for rank in range(world):
        loader = load(numbered, batch_size, ranks=Ranks(rank, world))
        loader.load_state_dict(state)
        runs.append(run(loader))
    assert sorted(pack for step in joined(runs) for pack in step) == sorted(whole[4:])


def test_states_of_other_packs_are_refused(numbered: Path) -> None:
    with load(numbered, 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    others: list[tuple[DataLoader, str]] = [
        (load(numbered, sampler=PackingSampler(LENGTHS[::-1], TOKENS)), "lengths or limits .* have changed"),
        (load(numbered, sampler=PackingSampler(LENGTHS, TOKENS + 1)), "packs had 100 tokens, now 101"),
        (load(numbered, sampler=None, shuffle=True), "shuffle was 'packs:100:4:True:"),
    ]  # fmt: skip
    for loader, message in others:
        with loader, pytest.raises(StateError, match=message):
            loader.load_state_dict(state)
    with (
        load(numbered, 4) as loader,
        pytest.raises(StateError, match="position of a loader"),
    ):
        loader.load_state_dict({**state, "position": 1000})


def test_fields_texts_and_rows_are_those_of_the_samples(rich: Path) -> None:
    names = ["image", "caption", "track", "boxes", "attribute"]
    with DataLoader(rich, COUNT, fields=names, transform=SMALL) as plain:
        whole = next(iter(plain))
    texts = {"caption": lambda texts: torch.tensor([int(text) for text in texts])}
    for more in ({}, {"text": texts}, {"collate": "pad", "transform": T.Resize(20)}):
        with load(rich, fields=names, **more) as loader:
            batches = list(loader)
        assert sorted(int(one) for batch in batches for one in batch["attribute"]) == list(range(COUNT))
        for batch in batches:
            numbers = batch["attribute"].tolist()
            assert [int(one) for one in batch["caption"]] == numbers
            for place, number in enumerate(numbers):
                assert torch.equal(batch["track"][place], whole["track"][number])
                assert len(batch["boxes"][place]) == len(whole["boxes"][number])


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "weight": 2 * sample["weight"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_python_in_the_transform(rich: Path, workers: int) -> None:
    chain = T.Compose([SMALL, double])
    options: dict[str, Any] = {"fields": ["image", "weight", "attribute"], "seed": 5}
    with load(rich, **options) as loader:
        wanted = list(loader)
    with DataLoader(
        rich, 4, sampler=PackingSampler(LENGTHS, TOKENS), transform=chain, num_workers=workers, **options
    ) as loader:
        found = list(loader)
    assert len(found) == len(wanted) > 1
    for one, other in zip(found, wanted, strict=True):
        assert packs_of(one, "attribute") == packs_of(other, "attribute")
        assert torch.equal(one["weight"], 2 * other["weight"])
        assert torch.equal(one["image"], other["image"])


def test_collate_gets_where_packs_begin(numbered: Path, rich: Path) -> None:
    def lengths(batch: dict[str, Any]) -> list[int]:
        return batch["pack_offsets"].diff().tolist()  # type: ignore[no-any-return]

    with load(numbered) as loader, load(numbered, collate=lengths) as collated:
        assert list(collated) == [[len(pack) for pack in packs_of(batch)] for batch in loader]
    patches = fastload.Patches("naflex", 8, 36)
    with load(
        rich, fields=["image", "attribute"], collate=patches, transform=T.ResizeToPatches(8, 36)
    ) as loader:
        batches = list(loader)
    packs = [pack for batch in batches for pack in packs_of(batch, "attribute")]
    assert sorted(flat(packs)) == list(range(COUNT))
    assert {batch["patches"].shape[0] - len(batch["valid"]) for batch in batches} == {0}


def test_subsets_concatenations_and_mixes(numbered: Path) -> None:
    packed = fastload.PackedDataset(numbered)
    places = [40, 3, 17, 22, 8, 50, 1]
    few = PackingSampler(LENGTHS[places], TOKENS)
    packs: Packs = flat(run(load(Subset(packed, places), 2, sampler=few)))
    assert sorted(flat(packs)) == sorted(places)
    assert max(LENGTHS[list(pack)].sum() for pack in packs) <= TOKENS
    twice = PackingSampler(np.concatenate([LENGTHS, LENGTHS]), TOKENS)
    joined_sets: list[Any] = [ConcatDataset([packed, packed]), fastload.mix([numbered, numbered])]
    for dataset in joined_sets:
        packs = flat(run(load(dataset, 2, sampler=twice)))
        assert sorted(flat(packs)) == sorted([*range(COUNT), *range(COUNT)])
        assert max(LENGTHS[list(pack)].sum() for pack in packs) <= TOKENS
    weighted = fastload.mix([numbered, numbered], weights=[3, 1])
    with pytest.raises(ValueError, match="PackingSampler and the weights of a mix exclude each other"):
        load(weighted, sampler=twice)


def test_a_bad_sample_is_a_row_that_is_none(tmp_path: Path) -> None:
    blobs = jpegs(COUNT)
    blobs[7] = b"not a picture"
    bad = plain_pack(tmp_path, blobs, range(COUNT), probe=False)
    with load(bad, on_error="skip", fields=["image", "label"]) as loader:
        batches = list(loader)
        assert [report.sample for report in loader.errors] == [7]
    assert sum(len(batch["valid"]) for batch in batches) == COUNT
    real = [packs_of(fastload.valid(batch)) for batch in batches]
    assert sorted(flat(flat(real))) == [number for number in range(COUNT) if number != 7]
    assert real == [packs_of(batch) for batch in batches]


def test_ranks_with_other_costs_do_not_agree(numbered: Path) -> None:
    from fastload.loader.compared import compared

    def said(**more: Any) -> dict[str, Any]:
        loader = load(numbered, sampler=PackingSampler(LENGTHS, TOKENS, **more))
        plan, core = loader._loader_plan, loader._sampler.core
        return compared(plan.dataset, COUNT, core, plan.plan, plan.options, plan.order, plan.known()[0], 0)

    one, other = said(), said(costs=LENGTHS // 2)
    assert {name for name in one if one[name] != other[name]} == {"packs (a hash)"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"device": fastload.Device(memory="reuse")}, "needs batches of one size. Found: PackingSampler"),
        ({"sampler": PackingSampler([3, 4], 9)}, "the lengths of 51 samples, those of the dataset. Found: 2"),
        ({"transform": T.Mosaic(16)}, "PackingSampler and Mosaic exclude each other"),
    ],
)
def test_what_does_not_go_with_packs(rich: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(rich, fields=["image", "label", "boxes"], **more)


def test_a_field_of_the_name_is_refused(tmp_path: Path) -> None:
    schema = fastload.Schema.of({"image": fastload.Image(), "pack_offsets": fastload.Scalar("int64")})
    samples = [{"image": one, "pack_offsets": 3} for one in jpegs(COUNT)]
    with pytest.raises(ValueError, match="Under 'pack_offsets' a batch .* Found: a field of that name"):
        load(write_field_set(tmp_path / "set", schema, samples))


def test_torch_datasets_are_refused() -> None:
    with pytest.raises(ValueError, match="PackingSampler is for packed datasets.* Found: TensorDataset"):
        DataLoader(TensorDataset(torch.zeros(COUNT)), 4, sampler=PackingSampler(LENGTHS, TOKENS))
