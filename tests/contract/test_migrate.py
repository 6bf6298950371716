"""Mixes with schedules, bounds and temperature in real loaders; and fastload.migrate: another mix for a run,
on any number of ranks, where every source goes on exactly where it was."""

from __future__ import annotations

import hashlib
import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, joined, same
from growing_sets import Grown
from long_forms import SEED, as_drawn, how_many
from pictures import jpegs
from plain_pack import plain_pack

import fastload
from fastload import DataLoader, PackedDataset, Ranks, Schedule, errors
from fastload import transforms as T
from fastload.loader.padding import valid
from fastload.sampler.order import derived_seed, shuffled

CROP = T.RandomResizedCrop(8)
SIZES = (12, 20, 8, 5)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[PackedDataset]:
    """Four datasets. Labels say which sample it is: 100 times the dataset's number, plus the sample's id."""
    root = tmp_path_factory.mktemp("parts")
    blobs = jpegs(max(SIZES))
    return [
        plain_pack(root / f"p{number}", blobs[:size], [100 * number + sample for sample in range(size)])
        for number, size in enumerate(SIZES)
    ]


def load(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(
        dataset,
        **{
            "batch_size": 8,
            "shuffle": True,
            "seed": 7,
            "num_workers": 1,
            "transform": CROP,
            "padding": "mark",
            **options,
        },
    )


def labels_of(batches: list[Any]) -> list[int]:
    return [label for _, labels in batches for label in labels.tolist() if label != -100]


def on_ranks(mixed: Any, state: Any, world: int, epochs: int = 1) -> list[Any]:
    """The batches of all ranks, from a state on."""
    ranks = [load(mixed, batch_size=24 // world, ranks=Ranks(rank, world)) for rank in range(world)]
    for rank in ranks:
        rank.load_state_dict(state)
    return [batch for _ in range(epochs) for batch in joined([all_batches(rank) for rank in ranks])]


def walk(number: int, own: int, steps: int, seed: int = 7) -> list[int]:
    """The labels of a dataset's first ``steps`` samples: shuffle after shuffle."""
    size = SIZES[number]
    turns = range(-(-steps // size))
    found = [shuffled(np.arange(size), size, derived_seed(seed, own), turn) for turn in turns]
    return [100 * number + int(sample) for turn in found for sample in turn][:steps]


def check_walks(labels: list[int], walks: dict[int, int]) -> None:
    """Each dataset of ``walks`` has come pass after pass in its own order: no sample lost, none twice."""
    for number, own_walk in walks.items():
        own = [label for label in labels if label // 100 == number]
        assert own == walk(number, own_walk, len(own))
    assert {label // 100 for label in labels} <= {*walks}


GROWING_TWO = Schedule({0: [3, 1], 60: [1, 1]}, ramp=20)
GROWING = Schedule({0: [3, 1, 0], 60: [1, 1, 1], 150: [0, 1, 3]}, ramp=20)

# ---- Schedules, bounds and temperature -----------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_resume_from_every_step_on_any_number_of_ranks(parts: list[PackedDataset], world: int) -> None:
    mixed = fastload.mix(parts[:3], GROWING, num_samples=72)
    loader = load(mixed, batch_size=24)
    states, batches = [loader.state_dict()], []
    for _ in range(3):
        for batch in all_batches(loader):
            batches.append(batch)
            states.append(loader.state_dict())
    states = [{**state, "epoch": at // 3, "position": at % 3 * 24} for at, state in enumerate(states)]
    check_walks(labels_of(batches), {0: 0, 1: 1, 2: 2})
    assert not [label for label in labels_of(batches[:2]) if label >= 200]
    for at, state in enumerate(states[:-1]):
        assert same(on_ranks(mixed, state, world, epochs=3 - at // 3), batches[at:])


def test_a_run_that_ends_has_a_short_epoch_and_then_none(parts: list[PackedDataset]) -> None:
    mixed = fastload.mix(parts[:2], max_epochs=[2, 1.5], num_samples=40)
    loader = load(mixed)
    with pytest.warns(UserWarning, match="max_epochs") as caught:
        epochs = [all_batches(loader) for _ in range(4)]
    assert [sum(len(labels) for _, labels in epoch) for epoch in epochs] == [40, 14, 0, 0]
    ends = [str(one.message).partition("has given ")[2] for one in caught]
    assert [end.split()[0] for end in ends] == ["30", "24"]
    assert ends[0].endswith("its share goes to the others from there on.")
    assert ends[1].endswith(
        "sample 54 of the run (epoch 1, position 14): the mix ends there, and later epochs have none."
    )
    labels = labels_of([batch for epoch in epochs for batch in epoch])
    check_walks(labels, {0: 0, 1: 1})
    assert np.bincount(labels, minlength=120)[:12].tolist() == [2] * 12


def test_the_run_stops_with_the_first_that_is_exhausted(parts: list[PackedDataset]) -> None:
    mixed = fastload.mix(parts[:2], [1, 1], num_samples=16, max_epochs=[1, None], exhausted="stop")
    loader = load(mixed)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match=r"p0 has given 12 .* sample 24 .*: the mix ends there"):
        epochs = [len(labels_of(all_batches(loader))) for _ in range(3)]
    assert epochs == [16, 8, 0]


def test_temperature_flattens_shares(parts: list[PackedDataset]) -> None:
    assert fastload.mix(parts[:2], temperature=1, num_samples=320).counts.tolist() == [120, 200]
    flat = fastload.mix(parts[:2], temperature=2, num_samples=1000).counts
    assert flat.tolist() == [round(1000 * 12**0.5 / (12**0.5 + 20**0.5)), round(1000 / (1 + 0.6**0.5))]
    assert fastload.mix(parts[:2], temperature=1e9, num_samples=100).counts.tolist() == [50, 50]
    assert fastload.mix(parts[:2], temperature=1).id == fastload.mix(parts[:2]).id


def test_ids_of_mixes(parts: list[PackedDataset]) -> None:
    """That of a constant mix is as it ever was; a schedule, its points, bounds and their end make others."""
    plain = fastload.mix(parts[:2], [2, 2], 40)
    facts = json.dumps([[part.id for part in parts[:2]], [20, 20]])
    assert plain.id == hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
    exact = hashlib.blake2b(json.dumps([40, {"0": [2**39, 2**39]}, 0, None, False]).encode(), digest_size=8)
    assert plain.exact == int.from_bytes(exact.digest(), "little")
    others = [
        fastload.mix(parts[:2], Schedule({0: [1, 1]}), 40),
        fastload.mix(parts[:2], Schedule({0: [1, 1]}), 41),
        fastload.mix(parts[:2], Schedule({0: [1, 1], 9: [1, 2]}), 40),
        fastload.mix(parts[:2], Schedule({0: [1, 1], 9: [1, 2]}, 3), 40),
        fastload.mix(parts[:2], [1, 1], 40, max_epochs=3),
        fastload.mix(parts[:2], [1, 1], 40, max_epochs=3, exhausted="stop"),
    ]
    assert len({plain.id, *(other.id for other in others)}) == 7
    assert fastload.mix(parts[:2], Schedule({0: [3, 3]}), 40).id == others[0].id
    with pytest.raises(errors.StateError, match="dataset was"):
        load(plain).load_state_dict(load(others[0]).state_dict())


def test_stats_say_what_each_dataset_has_given(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts[:3], GROWING, num_samples=80))
    assert [row["samples"] for row in loader.stats()["mixture"]] == [0, 0, 0]
    seen = labels_of(all_batches(loader))
    iterator = iter(loader)
    for _ in range(4):
        seen += next(iterator)[1].tolist()
    rows = loader.stats()["mixture"]
    counts = [sum(label // 100 == number for label in seen) for number in range(3)]
    assert [row["samples"] for row in rows] == counts
    assert [row["where"] for row in rows] == [part.where for part in parts[:3]]
    assert [row["pass"] for row in rows] == [
        count // size for count, size in zip(counts, SIZES, strict=False)
    ]
    assert [row["share"] for row in rows] == [count / 112 for count in counts]
    assert np.allclose([row["wish"] for row in rows], 1 / 3)
    plain = load(fastload.mix(parts[:2]))
    assert [row["wish"] for row in plain.stats()["mixture"]] == [12 / 32, 20 / 32]
    assert "mixture" not in load(parts[0]).stats()
    assert "mixture" not in load(fastload.mix(parts[:2]), shuffle=False, sampler=[3, 1]).stats()


def test_it_pickles(parts: list[PackedDataset]) -> None:
    mixed = pickle.loads(pickle.dumps(fastload.mix(parts[:3], GROWING, 72, max_epochs=90)))
    loader = load(mixed)
    next(iter(loader))
    assert same(all_batches(pickle.loads(pickle.dumps(loader))), all_batches(loader))


def test_it_says_what_it_is(parts: list[PackedDataset]) -> None:
    assert "the first epoch of 40: 20 of" in repr(fastload.mix(parts[:2], Schedule({0: [1, 1]}), 40))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": Schedule({0: [1, 1, 1]})}, "A Schedule for 2 datasets .* Found: 3"),
        ({"weights": Schedule({0: [1, 0], 9: [2, 0]})}, "p1 has weight 0 at all points of the Schedule"),
        ({"temperature": 0}, "temperature must be a finite number > 0. Found: 0"),
        ({"temperature": float("inf")}, "temperature must be a finite number > 0. Found: inf"),
        ({"temperature": "2"}, "temperature must be a finite number > 0. Found: '2'"),
        ({"temperature": 2, "weights": [1, 1]}, "temperature and weights exclude each other"),
        ({"max_epochs": 0}, "max_epochs must be a finite number > 0, or 2 of these.* Found: 0"),
        ({"max_epochs": [1, 2, 3]}, "or 2 of these"),
        ({"max_epochs": [1, "2"]}, "or 2 of these"),
        ({"max_epochs": float("nan")}, "Found: nan"),
        ({"max_epochs": 0.01}, "max_epochs=0.01 leaves no sample of .*p0, which has 12"),
        ({"num_samples": 2.5}, r"num_samples must be an integer from 1 to 2\*\*48.* Found: 2.5"),
        ({"num_samples": True}, "num_samples must be an integer .* Found: True"),
        ({"num_samples": "40"}, "num_samples must be an integer .* Found: '40'"),
        ({"num_samples": 0}, "num_samples must be an integer .* Found: 0"),
        ({"num_samples": 10**20}, "num_samples must be an integer .* Found: 100000000000000000000"),
        ({"weights": [1, -1]}, r"weights must be 2 finite numbers > 0.* Found: \[1.0, -1.0\]"),
        ({"weights": 3}, "weights must be 2 finite numbers > 0.* Found: 3.0"),
        ({"exhausted": "never"}, 'exhausted must be "share" or "stop". Found: \'never\''),
        ({"exhausted": "stop"}, 'exhausted="stop" goes with max_epochs'),
    ],
)
def test_illegal_arguments(parts: list[PackedDataset], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fastload.mix(parts[:2], **arguments)


def test_what_does_not_go_with_them(parts: list[PackedDataset]) -> None:
    for mixed in (fastload.mix(parts[:2], Schedule({0: [1, 1]})), fastload.mix(parts[:2], max_epochs=2)):
        with pytest.raises(
            ValueError, match="a Schedule or max_epochs needs shuffle=True.*Found: shuffle=False"
        ):
            load(mixed, shuffle=False)
        with pytest.raises(ValueError, match="PackingSampler and the weights of a mix exclude each other"):
            load(mixed, shuffle=False, sampler=fastload.PackingSampler([1] * 32, 4))
    assert fastload.mix(parts[:2], max_epochs=np.array([2, 3])).limits.tolist() == [24, 60]
    for weights in ({"p0": 1, "p1": 2}, {1, 2}, [1, [2]], ["a", "b"]):
        with pytest.raises(TypeError, match="a list of 2 numbers, in the order of the datasets, or a Sched"):
            fastload.mix(parts[:2], weights)
    assert fastload.mix(parts[:2], num_samples=np.int32(40)).id == fastload.mix(parts[:2], num_samples=40).id


# ---- Migrations ----------------------------------------------------------------------------------------


def test_a_source_added_one_removed_and_one_with_another_weight(parts: list[PackedDataset]) -> None:
    old = fastload.mix(parts[:3], [2, 1, 1], num_samples=72)
    loader = load(old, batch_size=24)
    seen = labels_of(all_batches(loader))
    iterator = iter(loader)
    seen += next(iterator)[1].tolist()
    new = fastload.mix([parts[3], parts[1], parts[0]], [1, 1, 2], num_samples=96)
    migration = fastload.migrate(loader, new)
    words = str(migration)
    for world in (1, 2, 3, 8):
        labels = labels_of(on_ranks(new, migration.state, world, epochs=2))
        assert len(labels) == 72 + 96
        check_walks([label for label in seen + labels if label // 100 != 2], {0: 0, 1: 1, 3: 3})
        assert {label // 100 for label in labels} == {0, 1, 3}
    given = np.bincount(np.array(seen) // 100)
    assert (
        f"After sample 96 of the run; it goes on in epoch 1, at position 24 of 96:\n  {parts[3].where}: "
        in words
    )
    assert f"{parts[3].where}: begins, with 5 samples and a share of 0.25." in words
    at = f"{given[0]} samples given, {given[0] % 12} of 12 in pass {given[0] // 12 + 1}; a share of 0.5."
    assert f"{parts[0].where}: goes on where it was: {at}" in words
    assert f"20 in pass {given[1] // 20 + 1}; a share of 0.25." in words
    assert f"{parts[2].where}: ends, with {given[2]} samples given" in words
    re_weighted = fastload.migrate(loader, fastload.mix(parts[:3], [1, 2, 1], num_samples=72))
    assert "a share of 0.25, before 0.5." in str(re_weighted)
    assert [source.samples for source in re_weighted.sources] == given.tolist()


def test_random_migrations_lose_nothing(parts: list[PackedDataset]) -> None:
    """Several in one run, of random mixes at random places, each part of the run on other ranks."""
    draw, changes = np.random.default_rng([SEED, 5]), 0
    for case in range(how_many(6, 200)):
        seen: list[int] = []
        walks: dict[int, int] = {}
        free, mixed, state = 0, None, None
        for _ in range(4):
            old, chosen = mixed, sorted(draw.permutation(4)[: draw.integers(1, 5)].tolist())
            weights: Any = (draw.random(len(chosen)) + 0.2).tolist()
            if draw.random() < 0.5:
                weights = Schedule({0: weights, int(draw.integers(1, 300)): weights[::-1]}, "whole")
            mixed = fastload.mix([parts[i] for i in chosen], weights, 3 * int(draw.integers(10, 70)))
            if state is not None:
                migration = fastload.migrate(state, mixed, old=old)
                state = migration.state
                assert json.loads(json.dumps(state)) == state
                changes += 1
            for gone in {*walks} - {*chosen}:  # whose walk begins anew if it comes back
                del walks[gone]
                seen = [label for label in seen if label // 100 != gone]
            for number in chosen:
                if number not in walks:
                    walks[number], free = free, free + 1
            world = int(draw.choice([1, 2, 3]))
            ranks = [load(mixed, batch_size=6 // world, ranks=Ranks(rank, world)) for rank in range(world)]
            for rank in ranks:
                if state is not None:
                    rank.load_state_dict(state)
            for _ in range(int(draw.integers(1, 3))):  # an epoch, and a part of one
                seen += labels_of(joined([all_batches(rank) for rank in ranks]))
            for _, *step in zip(range(int(draw.integers(1, 5))), *map(iter, ranks), strict=False):
                seen += labels_of(step)
            states = [rank.state_dict() for rank in ranks]
            assert all(one == states[0] for one in states), as_drawn(case)
            state = states[0]
            check_walks(seen, walks)
            rows = ranks[0].stats()["mixture"]
            counts = [sum(label // 100 == number for label in seen) for number in chosen]
            assert [row["samples"] for row in rows] == counts, as_drawn(case)
    assert changes == 3 * how_many(6, 200)


def test_a_state_may_be_migrated_before_the_first_batch(parts: list[PackedDataset]) -> None:
    loader = DataLoader(fastload.mix(parts[:2]), 8, shuffle=True, transform=CROP)
    state = loader.state_dict()
    assert state["seed"] is None
    new = fastload.mix(parts[:3])
    migration = fastload.migrate(state, new, old=fastload.mix(parts[:2]))
    fresh = DataLoader(new, 8, shuffle=True, transform=CROP)
    fresh.load_state_dict(migration.state)
    assert len(labels_of(all_batches(fresh))) == 40


def test_num_samples_may_differ(parts: list[PackedDataset]) -> None:
    """The epoch goes on at its position and ends at the new number; if it has that many, the next begins."""
    loader = load(fastload.mix(parts[:2], num_samples=64))
    all_batches(loader)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = loader.state_dict()
    found = {}
    for samples in (24, 32, 40, 100):
        new = fastload.mix(parts[:2], num_samples=samples)
        migration = fastload.migrate(loader, new)
        again = load(new)
        again.load_state_dict(migration.state)
        lengths = [sum(len(labels) for _, labels in again) for _ in range(2)]
        found[samples] = migration.state["epoch"], migration.state["position"], lengths
    assert (state["epoch"], state["position"]) == (1, 32)
    assert found == {
        24: (2, 0, [24, 24]),
        32: (2, 0, [32, 32]),
        40: (1, 32, [8, 40]),
        100: (1, 32, [68, 100]),
    }


def test_bounds_count_what_came_before(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts[:2], [1, 1], num_samples=32))
    all_batches(loader)  # 16 of 12 and 16 of 20
    new = fastload.mix(parts[:2], [1, 1], 32, max_epochs=[1, 2])
    fresh = load(new)
    with pytest.warns(UserWarning, match="max_epochs") as caught:
        fresh.load_state_dict(fastload.migrate(loader, new).state)
    ends = [str(one.message).partition("has given ")[2] for one in caught]
    assert ends[0].startswith("16 samples, all that max_epochs allows, at sample 32 of the run (epoch 1, pos")
    assert ends[1].startswith("40 samples, all that max_epochs allows, at sample 56 of the run")
    epochs = [labels_of(all_batches(fresh)) for _ in range(2)]
    assert epochs == [walk(1, 1, 40)[16:], []]


def test_a_run_that_has_ended_goes_on_after_what_it_gave(parts: list[PackedDataset]) -> None:
    """12 + 20 samples in two epochs of 20; the Schedule of the next mix counts from there."""
    old = fastload.mix(parts[:2], max_epochs=1, num_samples=20)
    loader = load(old)
    with pytest.warns(UserWarning, match="max_epochs"):
        seen = [label for _ in range(5) for label in labels_of(all_batches(loader))]
    assert len(seen) == 32
    new = fastload.mix(parts[:2], Schedule({0: [1, 0], 50: [0, 1]}), num_samples=20)
    with pytest.warns(UserWarning, match="max_epochs"):
        migration = fastload.migrate(loader, new)
    assert migration.place.startswith("After sample 32 of the run; it goes on in epoch ")
    fresh = load(new)
    fresh.load_state_dict(migration.state)
    rest = [label for _ in range(2) for label in labels_of(all_batches(fresh))]
    assert [label // 100 for label in rest[:36]] == [0] * 18 + [1] * 18
    check_walks(seen + rest, {0: 0, 1: 1})


def test_a_migrated_state_knows_the_exact_weights(parts: list[PackedDataset]) -> None:
    """Also where the counts of an epoch, and so the ids of the mixes, are the same."""
    old, limits = fastload.mix(parts[:2], num_samples=40), {"max_epochs": 50}
    loader = load(old)
    next(iter(loader))
    for weights, others, bounds in (
        ([3, 1], [[3.001, 1], [3, 1 + 1e-9]], {}),
        ([3, 1], [[3.001, 1]], limits),
        (GROWING_TWO, [Schedule({0: [3, 1], 60: [1, 1.0001]}, ramp=20)], {}),
    ):
        new = fastload.mix(parts[:2], weights, 40, **bounds)
        state = fastload.migrate(loader, new).state
        again = load(fastload.mix(parts[:2], weights, 40, **bounds))
        again.load_state_dict(state)
        assert again.state_dict() == state
        for other in (fastload.mix(parts[:2], one, 40, **bounds) for one in others):
            assert (other.id == new.id) == (weights is not GROWING_TWO and not bounds)
            with pytest.raises(errors.StateError, match="with other weights, another Sch|dataset was"):
                load(other).load_state_dict(state)
            with pytest.raises(errors.StateError, match="with other weights, another Sch|the same weights"):
                fastload.migrate(state, new, old=other)
            fastload.migrate(state, other, old=new)  # which is how to go over
    same_shares = fastload.mix(parts[:2], [6, 2], 40)
    load(same_shares).load_state_dict(fastload.migrate(loader, fastload.mix(parts[:2], [3, 1], 40)).state)


def test_the_epoch_of_a_migration_cannot_begin_before_it(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts[:2], num_samples=40))
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    new = fastload.mix(parts[:2], [3, 1], num_samples=40)
    state = fastload.migrate(loader, new).state
    fresh = load(new)
    fresh.load_state_dict(state)
    fresh.set_epoch(0)  # as loops do with the epoch that a state says: it goes on there
    rest = all_batches(fresh)
    assert len(labels_of(rest)) == 24
    fresh.set_epoch(0)
    early = "This mix began in epoch 0, by fastload.migrate, at position 16. Found: epoch 0, position 0"
    for begin in (lambda: next(iter(fresh)), lambda: list(fresh.batch_sampler)):
        with pytest.raises(errors.StateError, match=early):
            begin()
    for position in range(16):
        with pytest.raises(errors.StateError, match=f"at position 16. Found: epoch 0, position {position},"):
            load(new).load_state_dict({**state, "position": position})
    fresh.load_state_dict(state)
    with pytest.raises(errors.StateError, match="Found: epoch 0, position 8"):
        next(fresh._iterate(skip=1))
    fresh.load_state_dict(state)
    assert same(all_batches(fresh), rest)
    assert len(labels_of(all_batches(fresh))) == 40


def test_a_set_whose_contents_have_changed_begins_anew(parts: list[PackedDataset], tmp_path: Path) -> None:
    blobs = jpegs(6)
    grown = plain_pack(tmp_path / "set", blobs[:4], [300 + sample for sample in range(4)])
    old = fastload.mix([parts[0], grown], num_samples=16)
    loader = load(old)
    seen = labels_of(all_batches(loader))
    new_set = plain_pack(tmp_path / "set", blobs, [200 + sample for sample in range(6)])
    new = fastload.mix([parts[0], new_set], num_samples=9)
    migration = fastload.migrate(loader.state_dict(), new, old=old)
    words = str(migration)
    assert "set: begins (its contents have changed, so its order is another), with 6 samples" in words
    assert "set: ends, with 4 samples given, 0 of 4 in pass 2." in words
    fresh = load(new)
    fresh.load_state_dict(migration.state)
    labels = labels_of(all_batches(fresh))
    check_walks([label for label in seen + labels if label < 100], {0: 0})
    own = [label - 200 for label in labels if label >= 200]
    assert own == shuffled(np.arange(6), 6, derived_seed(7, 2), 0).tolist()[: len(own)]


def test_a_set_that_has_grown(tmp_path: Path) -> None:
    """The old mix is over the generation that it had; the new one over all rows, which begin a pass."""
    one, other = Grown.begun(tmp_path / "one", 8), Grown.begun(tmp_path / "other", 6)
    given: dict[str, Any] = {"fields": ["label"], "transform": None}
    loader = load(fastload.mix([one.folder, other.folder], num_samples=16), **given)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    one.append(3)
    new = fastload.mix([one.folder, other.folder], num_samples=17)
    with pytest.raises(errors.StateError, match="dataset was"):
        load(new, **given).load_state_dict(state)
    old = fastload.mix([PackedDataset(one.folder, generation=1), other.folder], num_samples=16)
    load(old, **given).load_state_dict(state)
    migration = fastload.migrate(state, new, old=old)
    begun, kept, ended = migration.sources
    assert (begun.samples, begun.size, begun.before) == (0, 11, None)
    assert "one: begins (its contents have changed, so its order is another), with 11 samples" in str(
        migration
    )
    assert (ended.samples, ended.size, ended.after) == (8 - kept.samples, 8, None)
    fresh = load(new, **given)
    fresh.load_state_dict(migration.state)
    assert sum(len(batch["label"]) for batch in fresh) == 9


def test_a_set_may_be_there_twice(parts: list[PackedDataset]) -> None:
    old = fastload.mix([parts[0], parts[0]], [1, 3], num_samples=40)
    loader = load(old)
    all_batches(loader)
    migration = fastload.migrate(loader, fastload.mix([parts[0]] * 3, num_samples=40))
    assert [source.samples for source in migration.sources] == [10, 30, 0]
    assert [source.before for source in migration.sources] == [0.25, 0.75, None]
    assert [source.why for source in migration.sources] == ["", "", ""]


def test_the_state_of_100_sources_is_below_1_kb() -> None:
    from fastload.backends.state import LoaderState
    from fastload.sampler.schedule import MixtureStart

    counts = tuple(10**10 + 987_654_321 * place for place in range(100))
    walks = tuple(range(50, 150))
    start = MixtureStart(sum(counts), 10**4, 10**8, counts, walks, 150, 2**64 - 1)
    state = LoaderState(
        dataset="f" * 32, length=10**11, seed=2**64 - 1, shuffle=True, epoch=10**4, position=10**8,
        global_batch=65536, mixture=start.to_text(),
    )  # fmt: skip
    text = json.dumps(state.to_dict())
    assert 600 < len(text) < 1000
    assert MixtureStart.from_text(LoaderState.from_dict(json.loads(text)).mixture) == start


def test_a_migrated_loader_pickles_and_goes_back(parts: list[PackedDataset]) -> None:
    loader = load(fastload.mix(parts[:2], num_samples=32))
    first = loader.state_dict()
    next(iter(loader))
    new = fastload.mix(parts[:2], num_samples=32)  # the same mix: its blocks begin anew, its walks go on
    migration = fastload.migrate(loader, new)
    plain = all_batches(load(new))
    fresh = load(new)
    fresh.load_state_dict(migration.state)
    assert fresh.state_dict() == migration.state
    copy = pickle.loads(pickle.dumps(fresh))
    rest = all_batches(fresh)
    assert same(all_batches(copy), rest)
    assert not same(rest, plain[1:])
    fresh.load_state_dict(first)  # in the middle of what it does: back to the run's beginning
    assert same(all_batches(fresh), plain)
    assert new.start is None


def test_a_loader_that_runs_takes_a_migrated_state(parts: list[PackedDataset]) -> None:
    new = fastload.mix(parts[:2], [1, 3], num_samples=32)
    loader = load(fastload.mix(parts[:2], num_samples=32))
    next(iter(loader))
    migration = fastload.migrate(loader, new)
    fresh = load(new)
    fresh.load_state_dict(migration.state)
    wanted = all_batches(fresh)
    running = load(new)
    iterator = iter(running)
    next(iterator)
    running.load_state_dict(migration.state)
    with pytest.raises(errors.StateError, match="another seed, global batch or mix was loaded"):
        next(iterator)
    assert same(all_batches(running), wanted)
    running.set_epoch(0)
    assert len(running) == 4
    with pytest.raises(errors.StateError, match=r"a state from before"):
        fresh.sampler.core.order.total(-1)


def test_partners_in_a_migrated_epoch(parts: list[PackedDataset]) -> None:
    """Mosaics take pictures from places before the mix began: the same ones on any number of ranks."""
    loader = load(fastload.mix(parts[:2], num_samples=144), batch_size=24)
    next(iter(loader))
    new = fastload.mix(parts[:3], num_samples=144)
    state = {**fastload.migrate(loader, new).state, "global_batch": 24}
    mosaic = T.Compose([T.Mosaic(16), T.RandomHorizontalFlip()])

    def batches(world: int) -> list[Any]:
        given = {"batch_size": 24 // world, "transform": mosaic}
        ranks = [load(new, **given, ranks=Ranks(rank, world)) for rank in range(world)]
        for rank in ranks:
            rank.load_state_dict(state)
        return joined([all_batches(rank) for rank in ranks])

    assert len(batches(1)) == 5
    assert same(batches(1), batches(3))


def test_the_world_of_a_migrated_run_may_change(parts: list[PackedDataset]) -> None:
    """Three ranks, of which one goes on alone: the rest of the epoch is that of one rank."""
    loader = load(fastload.mix(parts[:2], num_samples=144), batch_size=24)
    next(iter(loader))
    new = fastload.mix(parts[:3], GROWING, num_samples=144)
    state = fastload.migrate(loader, new).state
    whole = on_ranks(new, state, 1, epochs=2)
    ranks = [load(new, batch_size=24, ranks=Ranks(rank, 3)) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(state)
    iterators = [iter(rank) for rank in ranks]
    seen = labels_of([next(iterator) for iterator in iterators])
    ranks[2].reshard(0, 1)
    rest = [(images.clone(), labels.clone()) for images, labels in iterators[2]]
    assert seen == labels_of(whole[:3])
    assert same(rest, whole[3:5])
    assert same(all_batches(ranks[2]), whole[5:])


def test_what_is_refused(parts: list[PackedDataset]) -> None:
    old, new = fastload.mix(parts[:2]), fastload.mix(parts[:3])
    loader = load(old)
    state = loader.state_dict()
    with pytest.raises(TypeError, match=r"migrate\(state, new_mix, old=old_mix\). Found: no old mix"):
        fastload.migrate(state, new)
    with pytest.raises(TypeError, match="from one fastload.mix to another. Found: PackedDataset"):
        fastload.migrate(state, new, old=parts[0])
    with pytest.raises(errors.StateError, match="The state is of another set than .*p0"):
        fastload.migrate(state, parts[0], old=old)
    with pytest.raises(
        errors.StateError, match="The state is of dataset .* Pass the mix with which it was saved"
    ):
        fastload.migrate(state, new, old=new)
    with pytest.raises(
        errors.StateError, match="needs a state of a loader with shuffle=True.* shuffle=False"
    ):
        fastload.migrate(load(old, shuffle=False), new)
    with pytest.raises(errors.StateError, match="at most 32, the end of epoch 0. Found: 33"):
        fastload.migrate({**state, "position": 33}, new, old=old)
    with pytest.raises(errors.StateError, match="Not a loader state"):
        fastload.migrate({}, new, old=old)
    migrated = fastload.migrate(loader, new).state
    with pytest.raises(errors.StateError, match="dataset was"):
        load(old).load_state_dict(migrated)
    with pytest.raises(
        errors.StateError, match="mixture of a loader state must be as fastload.migrate wrote"
    ):
        load(new).load_state_dict({**migrated, "mixture": migrated["mixture"][:-2]})
    with pytest.raises(
        errors.StateError, match="The state is of a mix that was migrated. Found: a loader of no"
    ):
        load(parts[0]).load_state_dict({**load(parts[0]).state_dict(), "mixture": migrated["mixture"]})
    with pytest.raises(errors.StateError, match="migrated to a mix of 3 datasets. Found: 2"):
        load(old).load_state_dict({**state, "mixture": migrated["mixture"]})


def test_ranks_compare_where_a_mix_began(parts: list[PackedDataset]) -> None:
    """Two ranks of which only one was given the migrated state."""
    from fastload.loader.compared import compared

    def described(loader: DataLoader) -> dict[str, Any]:
        plan, core = loader._loader_plan, loader._sampler.core
        world = plan.beginning.world
        return compared(plan.dataset, 1, core, plan.plan, plan.options, plan.order, world, 1)

    old = load(fastload.mix(parts[:2], num_samples=32))
    all_batches(old)
    new = fastload.mix(parts[:2], num_samples=32)
    migrated, other = load(new), load(new)
    migrated.load_state_dict(fastload.migrate(old, new).state)
    other.load_state_dict(old.state_dict())
    one, two = described(migrated), described(other)
    differs = {name for name in one if one[name] != two[name]}
    assert "the mix's beginning in the run" in differs
    assert one["the mix's beginning in the run"] == "sample 32, counts [12, 20], walks [0, 1]"
    assert described(migrated) == described(migrated)


def test_torch_sees_the_padding_of_a_short_last_epoch(parts: list[PackedDataset]) -> None:
    """On three ranks, the last epoch of 14 samples: four, five and five, and one that is padding."""
    mixed = fastload.mix(parts[:2], max_epochs=[2, 1.5], num_samples=40)
    ranks = [load(mixed, batch_size=8, ranks=Ranks(rank, 3), padding="mark") for rank in range(3)]
    with pytest.warns(UserWarning, match="max_epochs"):
        epochs = [[all_batches(rank) for rank in ranks] for _ in range(2)]
    assert [len(batches) for batches in epochs[1]] == [1, 1, 1]
    last = [valid(batch) for batches in epochs[1] for batch in batches]
    assert [len(labels) for _, labels in last] == [4, 5, 5]
    labels = torch.cat([labels for _, labels in last]).tolist()
    first = [label for a in epochs[0] for label in labels_of(a)]
    assert len(first) == 40
    assert sorted(first + labels) == sorted(walk(0, 0, 24) + walk(1, 1, 30))


def test_consecutive_blocks_have_their_shares(parts: list[PackedDataset]) -> None:
    order = fastload.mix(parts[:3], [1, 1, 2], 20000, max_epochs=10_000).order(7, True)
    ids = order.ids(np.arange(20000), 0)
    counts = [np.searchsorted(np.cumsum(SIZES[:3]), part, side="right") for part in np.split(ids[:16384], 4)]
    shares = [np.bincount(part, minlength=3) for part in counts]
    assert all(np.abs(share - np.array([1024, 1024, 2048])).max() <= 1 for share in shares)
    assert not any(np.array_equal(a, b) for a, b in pairwise(counts))
