"""Loaders over sets that grow: dropped samples are left out, a state's generation is gone on with."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from growing_sets import Grown
from long_forms import SEED, as_drawn, how_many
from torch.utils.data import ConcatDataset, RandomSampler, Subset, random_split

import fastload
from fastload import Cache, DataLoader, Image, Label, PackedDataset, Ranks, WeightedSampler
from fastload.cli import main
from fastload.errors import FormatError, StateError
from fastload.packing.drop import drop
from fastload.sampler.order import shuffled

FIELDS = ["number"]


def numbers(loader: Any, count: int | None = None) -> list[int]:
    """The rows that a loader delivers, of some batches or of all."""
    found: list[int] = []
    for at, batch in enumerate(loader):
        found += batch["number"][batch["valid"]].tolist() if "valid" in batch else batch["number"].tolist()
        if at + 1 == count:
            break
    return found


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 4, "seed": 5, "fields": FIELDS, "num_workers": 1, **options})


def wanted(grown: Grown, generation: int, shuffle: Any, epoch: int, n: int) -> list[int]:
    """What the epoch of a generation is, by the slow way: the whole order, without what was dropped."""
    ids = np.arange(n)
    order = shuffled(ids, n, 5, epoch) if shuffle else ids
    left = set(grown.generations[generation - 1])
    return [grown.numbers[sample] for sample in order.tolist() if sample in left]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("case", range(how_many(2, 40)))
def test_an_epoch_is_the_shuffle_of_all_ids_without_the_dropped_ones(
    tmp_path: Path, shuffle: bool, case: int
) -> None:
    draw = random.Random(f"{SEED} {case}")
    grown = Grown.begun(tmp_path / "set", 9)
    for _ in range(3):
        grown.change(draw)
    for generation in range(1, 5):
        dataset = PackedDataset(grown.folder, generation=generation)
        with loader_of(dataset, shuffle=shuffle) as loader:
            assert len(loader) == -(-len(dataset) // 4)
            for epoch in range(2):
                found = numbers(loader)
                expected = wanted(grown, generation, shuffle, epoch, dataset.num_ids)
                assert found == expected, as_drawn(f"case {case}, generation {generation}")


@pytest.mark.parametrize("way", ["encoded", "decoded", "disk", "blocks"])
def test_caches_are_of_the_files_whatever_the_generation(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier generation and the newest share one; neither sees the other's samples."""
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", tempfile.mkdtemp(prefix="fastload-test-", dir="/dev/shm"))
    grown = Grown.begun(tmp_path / "set", 30)
    grown.drop([0, 3, 29])
    grown.append(10)
    (tmp_path / "disk").mkdir()
    options: dict[str, Any] = {
        "encoded": {"cache": "8MB"},
        "decoded": {"cache": Cache(size="8MB", decoded=8)},
        "disk": {"cache": Cache(disk=f"{tmp_path / 'disk'}:8MB"), "shuffle": True},
        "blocks": {"shuffle": "block"},
    }[way]
    for generation in (1, 3, 2, 1):
        dataset = PackedDataset(grown.folder, generation=generation)
        with loader_of(dataset, **options, fields=["image", "number"]) as loader:
            for _ in range(2):
                found = []
                for batch in loader:
                    valid = batch["valid"] if "valid" in batch else slice(None)
                    seen = batch["number"][valid]
                    assert (batch["image"][valid] == (seen % 251)[:, None, None, None]).all()
                    found += seen.tolist()
                assert sorted(found) == grown.generations[generation - 1]
            assert loader.stats()["generation"] == generation
    shutil.rmtree(os.environ["FASTLOAD_CACHE_DIR"])


def test_a_drop_keeps_a_cache_and_an_append_begins_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", tempfile.mkdtemp(prefix="fastload-test-", dir="/dev/shm"))
    grown = Grown.begun(tmp_path / "set", 30)
    listed = []
    for change in (lambda: None, lambda: grown.drop([3]), lambda: grown.append(2)):
        change()
        if len(listed) < 2:
            with loader_of(grown.folder, cache="8MB", fields=["image", "number"]) as loader:
                numbers(loader)
        assert main(["cache", "ls", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["sets"]
        listed.append([(one["seal"], one["stale"]) for one in found])
    seal = PackedDataset(grown.folder, generation=1).manifest.all_ids[-1]
    assert listed[0] == listed[1] == [(seal, None)]
    assert listed[2] == [(seal, f"{grown.folder} has grown since, or holds another dataset now")]
    shutil.rmtree(os.environ["FASTLOAD_CACHE_DIR"])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [True, "block", False])
def test_a_state_goes_on_with_its_generation(tmp_path: Path, world: int, shuffle: Any) -> None:
    grown = Grown.begun(tmp_path / "set", 26)
    grown.drop([7])
    options = {"shuffle": shuffle, "batch_size": 12 // 2 // world}
    ranks = [loader_of(grown.folder, **options, ranks=Ranks(rank, world)) for rank in range(world)]
    whole = [[numbers(one) for _ in range(2)] for one in ranks]  # as an uninterrupted run has it
    for one in ranks:
        one.close()
    first = loader_of(grown.folder, **options, ranks=Ranks(0, world))
    begun = numbers(first, 2)
    state = json.loads(json.dumps(first.state_dict()))
    assert begun == whole[0][0][: len(begun)]
    grown.append(9)
    grown.drop([1, 28])
    assert numbers(first) == whole[0][1]  # which has it open
    first.close()
    for rank in range(world):
        with loader_of(grown.folder, **options, ranks=Ranks(rank, world)) as resumed:
            with pytest.warns(
                UserWarning, match="goes on with generation 2 of .* The newest generation is 4:"
            ):
                resumed.load_state_dict(state)
            assert numbers(resumed) == whole[rank][0][len(begun) :]
            assert resumed.stats()["generation"] == 2
            assert numbers(resumed) == whole[rank][1]
            after = resumed.state_dict()
            assert (after["dataset"], after["length"]) == (state["dataset"], 25)
    with loader_of(PackedDataset(grown.folder, generation=2), **options, ranks=Ranks(0, world)) as opened:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            opened.load_state_dict(state)
        numbers(opened)
        assert numbers(opened) == whole[0][1]


def test_without_a_state_the_newest_is_read(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 8)
    grown.append(3)
    with loader_of(grown.folder) as loader:
        assert numbers(loader) == list(range(11))
        assert "then" not in loader.state_dict()


@pytest.mark.parametrize("shuffle", [True, "block", False])
def test_a_migrated_job_takes_the_newest_in_with_its_next_epoch(tmp_path: Path, shuffle: Any) -> None:
    grown = Grown.begun(tmp_path / "set", 26)
    with loader_of(grown.folder, shuffle=shuffle) as loader:
        begun, state = numbers(loader, 3), loader.state_dict()
    with loader_of(grown.folder, shuffle=shuffle) as loader:
        old = numbers(loader)
    grown.append(9)
    grown.drop([1, 28])
    with loader_of(grown.folder, shuffle=shuffle) as loader:
        numbers(loader)
        new = [numbers(loader) for _ in range(2)]
    moves = fastload.migrate(state, PackedDataset(grown.folder))
    moved, words = moves.state, str(moves)
    assert "epoch 0 is finished on generation 1, with 14 of 26 samples left. From epoch 1 on it" in words
    assert "has generation 3: 33 samples, 9 new and 2 dropped since. Sample ids are the same." in words
    assert len(json.dumps(moved)) < 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with loader_of(grown.folder, shuffle=shuffle) as loader:
            loader.load_state_dict(moved)
            assert loader.state_dict() == moved
            assert begun + numbers(loader) == old
            later = loader.state_dict()
            assert (later["dataset"], later["epoch"]) == (PackedDataset(grown.folder).id, 1)
            assert numbers(loader, 2) == new[0][:8]
            middle = loader.state_dict()
        for state_now in (later, middle):
            assert "then" not in state_now
            with loader_of(grown.folder, shuffle=shuffle) as loader:
                loader.load_state_dict(state_now)
                assert numbers(loader) == new[0][state_now["position"] :]
                assert numbers(loader) == new[1]
    # The newest has grown meanwhile: the job goes on with the one that it was migrated to.
    grown.append(2)
    with loader_of(grown.folder, shuffle=shuffle) as loader:
        with pytest.warns(UserWarning, match="goes on with generation 3 of .* The newest generation is 4:"):
            loader.load_state_dict(moved)
        assert begun + numbers(loader) == old
        assert [numbers(loader) for _ in range(2)] == new


def test_a_refused_state_changes_nothing(tmp_path: Path) -> None:
    """A program may catch the error, and begin anew."""
    grown = Grown.begun(tmp_path / "set", 26)
    with loader_of(grown.folder, shuffle=True) as loader:
        numbers(loader, 2)
        state = loader.state_dict()
    grown.append(9)
    with loader_of(grown.folder, shuffle=True) as loader:
        new = numbers(loader)
    for change in ({"seed": 12345}, {"shuffle": False}, {"position": 27}):
        with loader_of(grown.folder, shuffle=True) as loader:
            before = loader.state_dict()
            with pytest.warns(UserWarning, match="goes on with generation 1"), pytest.raises(StateError):
                loader.load_state_dict({**state, **change})
            assert loader.state_dict() == before
            assert loader.stats()["generation"] == 2
            assert numbers(loader) == new


def test_a_migration_at_an_epochs_beginning_has_the_newest_at_once(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 26)
    for shuffle in (True, "block", fastload.Block(4, 8, nodes=2)):
        with loader_of(grown.folder, shuffle=shuffle) as loader:
            numbers(loader)
            state = loader.state_dict()
        grown.append(3)
        found = fastload.migrate(state, PackedDataset(grown.folder))
        assert "epoch 1 has not begun; it and all later ones" in str(found)
        with loader_of(grown.folder, shuffle=shuffle) as loader:
            loader.load_state_dict(found.state)
            assert sorted(numbers(loader)) == grown.generations[-1]
    again = fastload.migrate(found.state, PackedDataset(grown.folder))
    assert again.state == found.state
    assert "the state is of the newest generation, 4." in str(again)


def test_blocks_of_nodes_go_on_with_the_generation_of_the_state(tmp_path: Path) -> None:
    """The set grew in the middle of an epoch: blocks, their sizes and what comes are those from before."""
    grown = Grown.begun(tmp_path / "set", 26)
    for blocks in (fastload.Block(nodes=2), fastload.Block(4, 8, nodes=2)):
        with loader_of(grown.folder, shuffle=blocks) as loader:
            whole = [numbers(loader) for _ in range(2)]
        with loader_of(grown.folder, shuffle=blocks) as loader:
            numbers(loader, 2)
            state = loader.state_dict()
        now, rows = len(grown.generations), grown.generations[-1]
        grown.append(9)
        assert [sorted(epoch) for epoch in whole] == [rows] * 2
        options: dict[str, Any] = {"shuffle": blocks, "batch_size": 2, "padding": "mark"}
        ranks = [loader_of(grown.folder, **options, ranks=Ranks(rank, 2)) for rank in range(2)]
        for opened in (grown.folder, PackedDataset(grown.folder, generation=now)):
            with loader_of(opened, shuffle=blocks) as loader, warnings.catch_warnings():
                warnings.filterwarnings("ignore", "This job goes on with generation")
                loader.load_state_dict(state)
                assert [numbers(loader) for _ in range(2)] == [whole[0][8:], whole[1]]
        found = []
        for rank in ranks:
            with pytest.warns(UserWarning, match=f"goes on with generation {now}"):
                rank.load_state_dict(state)
            found += numbers(rank)
            rank.close()
        assert sorted(found) == sorted(whole[0][8:])


def test_migrate_takes_a_path_or_a_generation(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 12)
    loader = loader_of(grown.folder, shuffle=True)
    numbers(loader, 1)
    state = loader.state_dict()
    grown.append(3)
    grown.append(4)
    wanted = fastload.migrate(state, PackedDataset(grown.folder))
    for path in (grown.folder, str(grown.folder)):
        for given in (state, loader):
            assert fastload.migrate(given, path) == wanted
    with pytest.raises(FormatError):
        fastload.migrate(state, str(tmp_path / "nowhere"))
    for place, epochs in ((state, [0, 1]), ({**state, "epoch": 1, "position": 0}, [1])):
        moved = fastload.migrate(place, PackedDataset(grown.folder, generation=2))
        assert "has generation 2: 15 samples, 3 new and 0 dropped since" in str(moved)
        with loader_of(grown.folder, shuffle=True) as fresh:
            with pytest.warns(UserWarning, match="goes on with generation 2 of .* newest generation is 3"):
                fresh.load_state_dict(moved.state)
            found = [sorted(numbers(fresh)) for _ in (*epochs, 2)]
        assert [len(epoch) for epoch in found] == [8, 15, 15][-len(found) :]
        assert found[-1] == grown.generations[1]
    again = fastload.migrate(moved.state, PackedDataset(grown.folder, generation=2))
    assert again.state == moved.state
    assert "the state is of generation 2." in str(again)
    with pytest.raises(StateError, match="a state of generation 2 of .*, and a dataset with generation 1"):
        fastload.migrate(moved.state, PackedDataset(grown.folder, generation=1))


def test_migrations_that_cannot_be(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 8)
    other = Grown.begun(tmp_path / "other", 9)
    with loader_of(other.folder) as loader:
        state = loader.state_dict()
    with pytest.raises(StateError, match="The state is of another set than"):
        fastload.migrate(state, PackedDataset(grown.folder))
    with loader_of(other.folder) as loader:
        with pytest.raises(StateError, match="then of a loader state must be a dataset id. Found: 7"):
            loader.load_state_dict({**state, "then": 7})
        with pytest.raises(
            StateError, match="goes on, after its epoch, with a generation that .* does not have"
        ):
            loader.load_state_dict({**state, "then": "a" * 32})


def test_states_of_samplers_are_not_migrated(tmp_path: Path) -> None:
    """They are of the samples of one generation. Where the state does not say so, the words do."""
    grown = Grown.begun(tmp_path / "set", 8)
    dataset = PackedDataset(grown.folder)
    with loader_of(dataset, sampler=WeightedSampler(np.ones(8), 40)) as loader:
        numbers(loader, 3)
        weights = loader.state_dict()
    buckets = {**weights, "shuffle": "buckets:2:4:True"}
    grown.append(3)
    newest = PackedDataset(grown.folder)
    few = fastload.migrate({**weights, "position": 4}, newest)
    assert "If a sampler gave the order, no loader takes this: open PackedDataset(folder, gener" in str(few)
    for state in (weights, buckets, {**buckets, "position": 0}):
        with pytest.raises(StateError, match="order is that of a sampler, which was made for generation 1: "):
            fastload.migrate(state, newest)
    with loader_of(dataset, sampler=WeightedSampler(np.ones(8), 40)) as loader:
        loader.load_state_dict(weights)  # as the words say
        assert len(numbers(loader)) == 28


def test_ranks_with_different_generations_are_told_apart(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 8)
    grown.append(3)
    with loader_of(PackedDataset(grown.folder, generation=1)) as loader:
        state = loader.state_dict()
    first, newest, pinned = (loader_of(PackedDataset(grown.folder, generation=g)) for g in (1, 2, 2))
    with pytest.warns(UserWarning, match="goes on with generation 1"):
        pinned.load_state_dict(state)
    one, two, three = (
        loader._loader_plan._described(loader._sampler)(0) for loader in (first, newest, pinned)
    )
    assert {name for name in one if one[name] != two[name]} == {"dataset", "samples", "order (a hash)"}
    assert one == three


def test_a_state_of_a_later_generation_does_not_fit_an_earlier_one(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 8)
    grown.append(3)
    with loader_of(grown.folder) as loader:
        state = loader.state_dict()
    loader = loader_of(PackedDataset(grown.folder, generation=1))
    with pytest.raises(StateError, match="dataset was .*; length was 11, is 8"):
        loader.load_state_dict(state)


def test_a_pickled_loader_goes_on_with_its_generation(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 8)
    with loader_of(PackedDataset(grown.folder)) as loader:
        made = pickle.dumps(loader)
    grown.append(3)
    with pickle.loads(made) as again:
        assert numbers(again) == list(range(8))


# ---- Samplers, views and mixes over a set with dropped samples: right, or an error in words ------------


@pytest.fixture
def dropped(tmp_path: Path) -> PackedDataset[Any]:
    grown = Grown.begun(tmp_path / "set", 12)
    grown.drop([0, 5])
    return PackedDataset(grown.folder)


LEFT = [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_users_sampler_draws_sample_ids(dropped: PackedDataset[Any]) -> None:
    with loader_of(dropped, sampler=[11, 1, 3]) as loader:
        assert numbers(loader) == [11, 1, 3]
    with loader_of(dropped, batch_sampler=[[11, 1], [3]], batch_size=1) as loader:
        assert numbers(loader) == [11, 1, 3]
    for options in ({"sampler": [1, 5]}, {"batch_sampler": [[1, 5]], "batch_size": 1}):
        with (
            loader_of(dropped, **options) as loader,
            pytest.raises(ValueError, match="Sample 5 of .* was dropped. Sample ids are those of 0 to 11"),
        ):
            numbers(loader)
    with pytest.raises(ValueError, match="was dropped"):
        numbers(loader_of(dropped, sampler=RandomSampler(dropped)))


def test_our_samplers_take_a_subset(dropped: PackedDataset[Any]) -> None:
    with pytest.raises(ValueError, match=r"has 2 dropped samples, which WeightedSampler would draw, too"):
        loader_of(dropped, sampler=WeightedSampler(np.ones(12), 5))
    assert dropped.sample_ids is not None
    left = Subset(dropped, dropped.sample_ids.tolist())
    with loader_of(left, sampler=WeightedSampler(np.ones(10), 10, replacement=False)) as loader:
        assert sorted(numbers(loader)) == LEFT


def test_subsets_and_concatenations(dropped: PackedDataset[Any]) -> None:
    assert dropped.sample_ids is not None
    left = Subset(dropped, dropped.sample_ids.tolist())
    with loader_of(left, shuffle=True) as loader:
        assert sorted(numbers(loader)) == LEFT
    with loader_of(ConcatDataset([left, dropped.at(1)])) as loader:
        assert numbers(loader) == LEFT + list(range(12))
    for wrong in (
        Subset(dropped, [1, 5]),
        random_split(dropped, [0.5, 0.5])[0],
        ConcatDataset([dropped, left]),
    ):
        try:
            with loader_of(wrong) as loader:
                assert set(numbers(loader)) <= set(LEFT)
        except ValueError as error:
            assert "was dropped" in str(error)  # noqa: PT017
        else:
            assert 0 not in wrong.indices  # a draw without dropped ones
    with pytest.raises(ValueError, match="Sample 0 of .* was dropped"):
        loader_of(ConcatDataset([dropped, left]))


def test_mixes_refuse_dropped_samples(dropped: PackedDataset[Any]) -> None:
    with pytest.raises(ValueError, match="has 2 dropped samples, which a mix would count"):
        fastload.mix([dropped, dropped.at(1)])
    with loader_of(fastload.mix([dropped.at(1), dropped.at(1)])) as loader:
        assert numbers(loader) == list(range(12)) * 2


def test_the_dataset_by_itself(dropped: PackedDataset[Any]) -> None:
    assert len(dropped) == 10
    assert [dropped[int(sample)]["number"] for sample in dropped.ids_at(np.arange(10))] == LEFT
    assert dropped[-1]["number"] == 11
    for read in (
        dropped.__getitem__,
        dropped.sample,
        dropped.key,
        dropped.label,
        dropped.read,
        dropped.record,
    ):
        with pytest.raises(ValueError, match="Sample 5 of .* was dropped"):
            read(5)
    with pytest.raises(ValueError, match="was dropped"):
        list(torch.utils.data.DataLoader(dropped, batch_size=None, sampler=range(12)))


def test_bad_samples_are_replaced_by_others_that_are_left(dropped: PackedDataset[Any]) -> None:
    """Substitutes come from the order, so never from the dropped ones."""
    with loader_of(dropped, shuffle=True) as loader:
        core = loader._sampler.core
        found = {core.substitute(0, place * 2**64 // 500) for place in range(500)}
    assert found == set(LEFT)


def as_bytes(image: Any) -> torch.Tensor:
    """A callable of a PIL picture, which worker processes run."""
    return torch.from_numpy(np.array(image))


@pytest.mark.parametrize("way", ["pairs", "callable", "mosaic", "samples"])
def test_pairs_of_pictures_and_labels(tmp_path: Path, way: str) -> None:
    """Pictures of one colour, whose label says which; none of the dropped ones is ever delivered."""
    made = [{"image": np.full((8, 8, 3), n, np.uint8), "label": n} for n in range(40)]
    fastload.pack(made, tmp_path / "set", {"image": Image(), "label": Label()}, raw=True)
    gone = [0, 7, 8, 39]
    drop(tmp_path / "set", gone)
    options: dict[str, Any] = {
        "pairs": {},
        "callable": {"transform": as_bytes},
        "mosaic": {"transform": fastload.transforms.Mosaic(16)},
        "samples": {"batch_size": None},
    }[way]
    dataset = PackedDataset(tmp_path / "set")
    with DataLoader(
        dataset, **{"batch_size": 5, "shuffle": True, "seed": 3, "num_workers": 1, **options}
    ) as loader:
        seen: list[int] = []
        for images, labels in loader:
            seen += torch.atleast_1d(torch.as_tensor(labels)).tolist()
            if way != "mosaic":
                colours = images.reshape(-1, 8 * 8 * 3)[:, 0] if way != "callable" else images[:, 0, 0, 0]
                assert colours.tolist() == torch.atleast_1d(torch.as_tensor(labels)).tolist()
            else:
                assert not set(images.flatten().tolist()) & {7, 8, 39}
    assert sorted(seen) == [n for n in range(40) if n not in gone]
