"""The protocol of the handshake, over a store in memory: any order of arrival, leftovers, silence."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import torch.distributed as dist

from fastload.ranks import handshake as exchange
from fastload.ranks.handshake import Exchange, difference, in_words

MEMBERS = [4, 5, 7]  # global ranks


def begin(store: Any, own: int, **description: Any) -> Exchange:
    one = Exchange(store, MEMBERS, own, "key", description)
    threading.Thread(target=one.run, daemon=True).start()
    return one


def verdicts(store: Any, order: tuple[int, ...], values: list[int]) -> list[str | None]:
    """Each comes when the one before it has had time to look around."""
    exchanges = {}
    for own in order:
        exchanges[own] = begin(store, own, seed=values[own])
        exchanges[own].done.wait(0.05)
    for one in exchanges.values():
        assert one.done.wait(60)
        assert one.failure is None
    return [exchanges[own].verdict for own in range(3)]


def test_differences_in_words() -> None:
    known = {rank: {"seed": 0, "shuffle": True} for rank in (0, 1, 2, 5, 6)}
    assert difference(known) == ""
    known[5] = known[6] = {"seed": 1, "shuffle": True}
    assert difference(known) == "seed is 0 on ranks 0-2 and 1 on ranks 5-6"
    known[1] = {"seed": 0, "shuffle": False}
    assert difference(known).endswith("; shuffle is True on ranks 0, 2, 5-6 and False on rank 1")
    assert difference({0: {"seed": 0}, 1: {}}) == "seed is 0 on rank 0 and None on rank 1"
    assert in_words([3]) == "rank 3"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_arrival_and_a_store_that_is_kept_for_all_starts(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier start left there (other values, and another verdict) changes nothing."""
    monkeypatch.setattr(exchange, "_GATHER_SECONDS", 60)  # all will come, on a busy machine late
    store = dist.HashStore()
    for seed in (1, 2):
        assert verdicts(store, order, [seed] * 3) == [""] * 3
    text = "seed is 3 on ranks 4, 7 and 4 on rank 5"
    assert set(verdicts(store, order, [3, 4, 3])) == {text}
    assert verdicts(store, order, [5, 5, 5]) == [""] * 3


def test_a_difference_is_told_without_waiting_for_all() -> None:
    store = dist.HashStore()
    first, last = begin(store, 0, seed=1), begin(store, 2, seed=2)
    for one in (first, last):
        assert one.done.wait(60)
        assert one.verdict == "seed is 1 on rank 4 and 2 on rank 7"


@pytest.mark.parametrize("own", [0, 1])
def test_the_silent_are_known_and_nobody_waits_when_it_is_given_up(own: int) -> None:
    store = dist.HashStore()
    here = [begin(store, number, seed=1) for number in {0, own}]
    end = threading.Event()
    while not all(one.missing == ([7] if own else [5, 7]) for one in here):
        assert not any(one.done.is_set() for one in here)
        end.wait(0.01)
    for one in here:
        one.given_up.set()
        assert one.done.wait(60)
        assert one.verdict is None
        assert one.failure is None
