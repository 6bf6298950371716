"""Orders of users' samplers: drawn only as far as they are asked for, under random states of their own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from fastload.sampler import Partition, Sampler, drawn, make_sampler


def made(sampler: Any = None, batch_sampler: Any = None, n: int | None = 20, **options: Any) -> Sampler:
    partition = Partition(4, options.pop("rank", 0), options.pop("world", 1), **options)
    return make_sampler(
        n,
        partition,
        shuffle=False,
        seed=3,
        sampler=sampler,
        batch_sampler=batch_sampler,
        length=None if n is not None else lambda: 20,
    )


class Counting:
    """0, 1, 2, ... for ever, and how many were asked for."""

    def __init__(self, most: int = 20) -> None:
        self.asked = 0
        self.most = most

    def __iter__(self) -> Iterator[int]:
        for number in itertools.count():
            self.asked += 1
            yield number % self.most


def test_an_infinite_sampler_is_asked_as_far_as_batches_are_taken() -> None:
    own = Counting()
    sampler = made(own)
    assert sampler.batch(0, 0, 2).ids.tolist() == [8, 9, 10, 11]
    assert own.asked == 12
    assert sampler.has_batch(0, 0, 10_000)
    assert sampler.consumed(0, 0, 7) == 28
    with pytest.raises(TypeError, match="has no len"):
        sampler.num_batches(0)


def test_infinite_batches_too() -> None:
    class Batches:
        def __iter__(self) -> Iterator[list[int]]:
            return ([turn % 20] * (1 + turn % 3) for turn in itertools.count())

    sampler = made(batch_sampler=Batches())
    assert [sampler.batch(0, 0, step).ids.tolist() for step in range(3)] == [[0], [1, 1], [2, 2, 2]]
    assert sampler.batch(0, 5, 1).ids.tolist() == [6]
    draws = sampler.batch(0, 0, 2).draws
    assert draws is not None
    assert draws.tolist() == [3, 4, 5]


def test_draws_far_behind_are_forgotten_and_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "_WINDOW", 8)
    monkeypatch.setattr(drawn, "POOL", 4)
    order = drawn.DrawnOrder(Counting(1000), 1000, 1)
    order.draws.pool = 4
    wanted = [np.arange(first, first + 4) for first in range(0, 200, 4)]
    assert [order.ids(positions, 0).tolist() for positions in wanted] == [list(one) for one in wanted]
    kept = order.draws._passes[0]
    assert len(kept._head) == 4
    assert len(kept._rest) <= 16
    assert order.ids(np.array([2, 199]), 0).tolist() == [2, 199]
    assert order.ids(np.array([20, 21]), 0).tolist() == [20, 21]


class Drawing:
    """Draws from every generator there is, one id at a time."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        while True:
            numbers = [int(torch.randint(100, ())), random.randrange(100), int(np.random.randint(100))]
            if self.generator is not None:
                numbers.append(int(torch.randint(100, (), generator=self.generator)))
            yield sum(numbers) % 20


@pytest.mark.parametrize("own", [False, True])
def test_what_is_drawn_does_not_depend_on_when(own: bool) -> None:
    """Asked at once, or batch by batch with the program's and another epoch's draws in between."""
    generator = torch.Generator() if own else None
    whole = made(Drawing(torch.Generator() if own else None))
    expected = [[whole.batch(epoch, 0, step).ids.tolist() for step in range(20)] for epoch in range(2)]
    sampler = made(Drawing(generator))
    found: list[list[list[int]]] = [[], []]
    for step in range(20):
        for epoch in range(2):
            torch.rand(step + 1), random.random(), np.random.rand(2)
            found[epoch].append(sampler.batch(epoch, 0, step).ids.tolist())
    assert found == expected
    assert expected[0] != expected[1]


def test_the_programs_random_numbers_go_on_as_if_nobody_had_drawn() -> None:
    def numbers() -> list[float]:
        return [float(torch.rand(())), random.random(), float(np.random.rand())]

    for ask in (False, True):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        before = numbers()
        sampler = made(Drawing())
        if ask:
            sampler.batch(0, 0, 3)
        after = numbers()
        if not ask:
            expected = before, after
    assert (before, after) == expected


def test_an_error_of_the_sampler_comes_with_its_batch() -> None:
    class Failing:
        def __iter__(self) -> Iterator[int]:
            yield from range(10)
            raise RuntimeError("no more")

    sampler = made(Failing())
    assert sampler.is_ready(0, 0, 1)
    assert sampler.batch(0, 0, 1).ids.tolist() == [4, 5, 6, 7]
    assert not sampler.is_ready(0, 0, 2)  # nobody looks at it early
    assert sampler.has_batch(0, 0, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no more"):
            sampler.batch(0, 0, 2)


def test_the_last_batch_of_several_ranks_is_known_when_the_draw_ends() -> None:
    """Nine ids, two ranks of four: as if the length had been known before."""

    class Nine:
        def __iter__(self) -> Iterator[int]:
            return iter(range(9))

    for padding in ("mark", "repeat", "end", "drop"):
        for rank in range(2):
            lazy, listed = (
                made(own, rank=rank, world=2, padding=padding) for own in (Nine(), list(range(9)))
            )
            steps = [step for step in range(4) if lazy.has_batch(0, 0, step)]
            assert steps == list(range(listed.num_batches(0))) == [0, 1]
            for step in steps:
                assert lazy.batch(0, 0, step).ids.tolist() == listed.batch(0, 0, step).ids.tolist()


def test_an_epoch_that_cannot_be_seen_is_the_users() -> None:
    class Hidden:
        turn = 0

        def set_epoch(self, epoch: int) -> None:
            self.turn = epoch

        def __iter__(self) -> Iterator[int]:
            return iter([self.turn] * 4)

    own = Hidden()
    own.set_epoch(10)
    sampler = made(own)
    assert sampler.batch(0, 0, 0).ids.tolist() == [10] * 4
    own.set_epoch(11)
    assert sampler.batch(1, 0, 0).ids.tolist() == [11] * 4


@pytest.mark.parametrize("batches", [False, True])
def test_the_epoch_that_has_begun_may_be_set_again(batches: bool) -> None:
    """After a look at one batch, a program sets the same epoch, which the loader has left behind."""
    own: Any = DistributedSampler(range(20), 1, 0)
    sampler = made(batch_sampler=BatchSampler(own, 4, False)) if batches else made(own)
    first = sampler.batch(0, 0, 0).ids.tolist()
    set_by_user: Any = sampler.order.set_by_user  # type: ignore[attr-defined]
    assert set_by_user() is None
    own.set_epoch(0)
    assert (set_by_user(), set_by_user()) == (0, None)
    assert sampler.batch(0, 0, 0).ids.tolist() == first
    sampler.batch(1, 0, 0)
    assert set_by_user() is None


def test_an_epoch_may_be_longer_than_any_list() -> None:
    sampler = made(RandomSampler(range(20), replacement=True, num_samples=10**12))
    assert sampler.num_batches(0) == 25 * 10**10
    assert {len(sampler.batch(0, 0, step).ids) for step in range(200)} == {4}
    assert sampler.has_batch(0, 0, 201)
