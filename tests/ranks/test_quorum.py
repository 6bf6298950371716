"""integrations.torchft: replica groups that fail, join and recover train each sample once.

What the model was trained on is part of the model here, so that it is lost, taken over and repeated with it:
a model at any step was trained on the first samples of the order that an uninterrupted loader has, all of
them and nothing else.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import setitem
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from long_forms import SEED, as_drawn, how_many
from numbered_set import make_numbered_set
from page_blocks import python_of
from quorums import Lighthouse, StandIn

import fastload
from fastload import transforms as T
from fastload.errors import StateError
from fastload.integrations.torchft import QuorumLoader

ROWS = 23


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample i has label i."""
    return make_numbered_set(tmp_path_factory.mktemp("quorum") / "set", ROWS)


def make_loader(data: Path, rank: int = 0, size: int = 1, **options: Any) -> fastload.DataLoader:
    given: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 3, "padding": "mark", **options}
    ranks = fastload.Ranks(rank, size)
    return fastload.DataLoader(data, ranks=ranks, num_workers=1, transform=T.Resize((8, 8)), **given)


def order_of(data: Path, epochs: int, **options: Any) -> list[int]:
    """The labels of an uninterrupted run, in order."""
    with make_loader(data, batch_size=1, **{**options, "drop_last": False}) as loader:
        return [int(labels[0]) for _ in range(epochs) for _, labels in loader]


@dataclass
class Rank:
    """One rank of a replica group: its manager, its loader, and what its model was trained on."""

    manager: StandIn
    batches: QuorumLoader
    model: list[int]
    quorum_first: bool  # zero_grad() before next(), as torchtitan; else behind it, as torchft's examples
    got: list[int]

    def take(self, micro_batches: int) -> None:
        """The step up to its gradients."""
        self.got = []
        if self.quorum_first:
            self.manager.start_quorum()
        for number in range(micro_batches):
            batch = next(self.batches, None)
            batch = next(self.batches) if batch is None else batch  # the next epoch's first
            self.got += [label for label in batch[1].tolist() if label >= 0]
            if not self.quorum_first and number == 0:
                self.manager.start_quorum()

    def commit(self, gradients: list[int]) -> None:
        """The optimizer's step."""
        if self.manager.should_commit():
            self.model += gradients


class Training:
    """Replica groups of ``shard`` ranks under one lighthouse."""

    def __init__(self, data: Path, house: Lighthouse, chance: random.Random, **options: Any) -> None:
        self.data, self.house, self.chance, self.options = data, house, chance, options
        self.shard = chance.choice([1, 1, 2])
        self.micro_batches = chance.choice([1, 1, 2])
        self.groups: dict[int, list[Rank]] = {}
        self.started = 0

    def join(self) -> None:
        self.groups[self.started] = [self._rank(rank) for rank in range(self.shard)]
        self.started += 1

    def _rank(self, rank: int) -> Rank:
        manager, model = StandIn(self.house, self.started, rank), list[int]()
        batches = QuorumLoader(make_loader(self.data, rank, self.shard, **self.options), manager)
        manager.register_state_dict_fn("model", partial(setitem, model, slice(None)), lambda: model)
        return Rank(manager, batches, model, self.chance.random() < 0.5, [])

    def leave(self, number: int) -> None:
        for rank in self.groups.pop(number):
            rank.batches.loader.close()

    def restart(self) -> None:
        """All are gone; other groups begin from a checkpoint of the newest."""
        newest = max(self.groups.values(), key=lambda group: group[0].manager.step)
        kept = [(r.manager.state_dict(), r.batches.state_dict(), list(r.model)) for r in newest]
        size = self.chance.randrange(1, 4)
        self.close()
        for _ in range(size):
            self.join()
        for group in self.groups.values():
            for rank, (manager, batches, model) in zip(group, kept, strict=True):
                rank.manager.load_state_dict(manager)
                rank.batches.load_state_dict(batches)
                rank.model[:] = model

    def close(self) -> None:
        for number in list(self.groups):
            self.leave(number)

    def step(self) -> None:
        """One step of all groups, in which some may fail."""
        self.house.form({number: [rank.manager for rank in group] for number, group in self.groups.items()})
        for group in self.groups.values():
            for rank in group:
                rank.take(self.micro_batches)
        parts = [rank for group in self.groups.values() for rank in group if rank.manager.is_participating()]
        gradients = [label for rank in parts for label in rank.got]
        event = self.chance.choice(["", "", "dies", "dies behind the sum", "fails", "all fail"])
        chosen = self.chance.choice(list(self.groups))
        if event.startswith("dies") and len(self.groups) > 1:
            self.leave(chosen)
        failing = [chosen] if event == "fails" else list(self.groups) if event in ("dies", "all fail") else []
        for number, group in self.groups.items():
            for rank in group:
                if number in failing:
                    rank.manager.report_error(RuntimeError("allreduce"))
                rank.commit(gradients)


@pytest.fixture
def chance() -> Iterator[random.Random]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error")
        warnings.filterwarnings("ignore", "The epoch's last batch has")
        yield random.Random(SEED)


def check(training: Training, order: list[int], case: object) -> None:
    """All models were trained on the order's beginning, and those at one step are the same."""
    models: dict[int, list[int]] = {}
    for group in training.groups.values():
        for rank in group:
            model = models.setdefault(rank.manager.step, rank.model)
            assert rank.model == model, as_drawn(case)
            assert Counter(model) == Counter(order[: len(model)]), as_drawn(case)


def test_each_committed_sample_once(data: Path, chance: random.Random) -> None:
    steps = committed = changes = recoveries = 0
    order = order_of(data, 40)
    for number in range(how_many(12, 400)):
        house = Lighthouse(chance.random() < 0.5, spares_above=chance.choice([None, None, 2]))
        training = Training(data, house, chance)
        training.join()
        for _ in range(how_many(25, 60)):
            training.step()
            check(training, order, (number, house.is_async, house.spares_above))
            event = chance.random()
            if event < 0.2 and len(training.groups) < 4:
                training.join()
            elif event < 0.25:
                training.restart()
        newest = max((group[0] for group in training.groups.values()), key=lambda rank: rank.manager.step)
        steps, committed = steps + how_many(25, 60), committed + newest.manager.step
        changes += newest.batches.loader.stats().get("world", {}).get("changes", 0)
        recoveries += sum(group[0].manager.recoveries for group in training.groups.values())
        training.close()
    assert steps > committed > steps // 4
    assert changes > 0
    assert recoveries > 0


def alone(data: Path, house: Lighthouse, number: int = 0, **options: Any) -> tuple[StandIn, QuorumLoader]:
    """A replica group of one rank, with an order that nobody shuffles."""
    manager = StandIn(house, number, 0)
    return manager, QuorumLoader(make_loader(data, shuffle=False, **options), manager)


def labels_of(batches: QuorumLoader) -> list[int]:
    return [int(label) for label in next(batches)[1]]


def test_a_step_by_hand(data: Path) -> None:
    """Two replica groups of which one goes; and what a checkpoint has in the middle of a step."""
    house = Lighthouse()
    (first, batches), (second, others) = alone(data, house), alone(data, house, 1)
    house.form({0: [first], 1: [second]})
    assert [labels_of(batches), labels_of(others)] == [[0, 1], [2, 3]]
    assert batches.state_dict()["position"] == 0  # the step may fail
    assert [first.should_commit(), second.should_commit()] == [True, True]
    assert batches.state_dict() == others.state_dict()
    assert batches.state_dict()["position"] == 4
    house.form({0: [first], 1: [second]})
    assert [labels_of(batches), labels_of(others)] == [[4, 5], [6, 7]]
    first.report_error(RuntimeError("the other one is gone"))
    assert not first.should_commit()
    house.form({0: [first]})
    assert labels_of(batches) == [4, 5]
    assert first.should_commit()
    house.form({0: [first]})
    assert labels_of(batches) == [6, 7]
    assert batches.loader.stats()["world"] == {"rank": 0, "size": 1, "changes": 2}


def test_the_end_of_an_epoch_that_was_left_out_does_not_come_back(data: Path) -> None:
    """A step behind an epoch's end fails, and the world is so small now that the rest would make a batch."""
    house = Lighthouse()
    groups = {number: alone(data, house, number, batch_size=7, drop_last=True) for number in range(2)}
    for wanted in ([0, 7], None):
        house.form({number: [manager] for number, (manager, _) in groups.items()})
        for number, (manager, batches) in groups.items():
            if wanted is None:
                assert next(batches, None) is None  # 14 of 23 are over, and 14 more are not there
                assert batches.state_dict()["epoch"] == 1
                assert labels_of(batches)[0] == [0, 7][number]
                manager.report_error(RuntimeError("allreduce"))
            else:
                assert labels_of(batches)[0] == wanted[number]
        assert [manager.should_commit() for manager, _ in groups.values()] == [wanted is not None] * 2
    manager, batches = groups[0]
    house.form({0: [manager]})
    assert labels_of(batches) == list(range(7))


def test_a_step_begins_once(data: Path) -> None:
    house = Lighthouse()
    manager, batches = alone(data, house)
    house.form({0: [manager]})
    manager.start_quorum()
    manager.start_quorum()  # nothing was taken
    labels_of(batches)
    with pytest.raises(StateError, match=r"zero_grad\(\)\) was called again in a step whose batch was taken"):
        manager.start_quorum()
    manager.report_error(RuntimeError("left out"))
    assert not manager.should_commit()
    manager.start_quorum()
    assert labels_of(batches) == [0, 1]


def test_a_commit_that_the_loader_does_not_see_is_an_error(data: Path) -> None:
    house = Lighthouse()
    manager = StandIn(house, 0, 0)
    commit = manager.should_commit
    batches = QuorumLoader(make_loader(data, shuffle=False), manager)
    house.form({0: [manager]})
    assert [labels_of(batches), labels_of(batches)] == [[0, 1], [2, 3]]  # two of one step
    assert commit()
    with pytest.raises(StateError, match=r"is at step 1, the loader's batch was for step 0\. Call manager"):
        labels_of(batches)


def test_torchft_leaves_out_gradients_of_samples_that_count(data: Path) -> None:
    house = Lighthouse(is_async=True, init_sync=True)
    (first, batches), (second, others) = alone(data, house), alone(data, house, 1)
    house.form({0: [first], 1: [second]})
    labels_of(batches)
    with pytest.warns(
        UserWarning, match=r"by zero, .* Make the Manager with use_async_quorum=False or init_sync"
    ):
        labels_of(others)
    assert [first.should_commit(), second.should_commit()] == [True, True]
    assert batches.state_dict() == others.state_dict()


def test_what_cannot_be_divided_among_replica_groups(data: Path) -> None:
    manager = StandIn(Lighthouse(), 0, 0)
    with pytest.raises(TypeError, match=r"QuorumLoader takes a fastload.DataLoader\. Found: list\."):
        QuorumLoader([], manager)
    with (
        make_loader(data, seed=None) as loader,
        pytest.raises(ValueError, match=r"a seed, .* Found: seed=None"),
    ):
        QuorumLoader(loader, manager)
    whole = fastload.DataLoader(fastload.PackedDataset(data), batch_size=2, seed=0)
    with whole, pytest.raises(ValueError, match="this one reads all of its dataset on each rank"):
        QuorumLoader(whole, manager)
    assert manager.states == {}


def test_the_guides_loop(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/guide/elastic.md, with one replica group."""
    house = Lighthouse()

    class Alone(StandIn):
        def __init__(self, _: object, use_async_quorum: bool) -> None:
            assert not use_async_quorum
            super().__init__(house, 0, 0)

        def start_quorum(self) -> None:
            house.form({0: [self]})
            super().start_quorum()

    class Optimizer:
        def __init__(self, manager: StandIn, inner: object) -> None:
            self.manager = manager

        def zero_grad(self) -> None:
            self.manager.start_quorum()

        def step(self) -> None:
            assert self.manager.should_commit()

    seen: list[int] = []

    def cross_entropy(_: object, labels: torch.Tensor) -> torch.Tensor:
        seen.extend(label for label in labels.tolist() if label >= 0)
        return torch.zeros((), requires_grad=True)

    with make_loader(data, batch_size=8) as loader:
        given: dict[str, Any] = {"loader": loader, "torch": torch, "model": torch.nn.Flatten()}
        given |= {
            "torchft": SimpleNamespace(Manager=Alone, Optimizer=Optimizer),
            "cross_entropy": cross_entropy,
        }
        monkeypatch.setattr(torch.optim, "AdamW", lambda parameters: None)
        exec(compile(python_of("elastic.md", "torchft"), "elastic.md", "exec"), given)
    assert seen == order_of(data, 90)
