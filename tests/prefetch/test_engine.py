"""The engine by itself: order of completion, cancelling, errors of use, and small samples in groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_engine import PlainSlot, plain_engine
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload._native import _C
from fastload.errors import StateError

SIZE = 4 * 4 * 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """4x4 pixels whose value is the sample id: claiming them costs as much as filling."""
    blobs = [np.full(SIZE, i % 256, np.uint8).tobytes() for i in range(1000)]
    return plain_pack(tmp_path_factory.mktemp("tiny"), blobs, range(1000), raw_size=(4, 4))


def engine_of(dataset: PackedDataset, threads: int = 2, **options: Any) -> Any:
    return plain_engine(dataset.sources, 4, 4, threads=threads, max_pixels=100, **options)


class Order:
    """One batch's memory and ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = np.array(ids, np.int64)
        self.slot = PlainSlot(len(ids), SIZE)
        self.images, self.labels = self.slot.images, self.slot.labels

    def submit(self, engine: Any) -> int:
        return self.slot.submit(engine, self.ids)

    def check(self) -> None:
        assert self.labels.tolist() == self.ids.tolist()
        expected = np.repeat(self.ids % 256, SIZE).astype(np.uint8)
        assert np.array_equal(self.images, expected)


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_many_batches_in_flight_are_all_filled(tiny: PackedDataset, threads: int) -> None:
    engine = engine_of(tiny, threads)
    rng = np.random.default_rng(0)
    orders = [Order(rng.integers(0, 1000, int(n)).tolist()) for n in rng.integers(1, 200, 60)]
    tickets = [order.submit(engine) for order in orders]
    assert tickets == sorted(set(tickets))
    for order, ticket in zip(orders, tickets, strict=True):
        assert engine.wait(ticket, 60.0)
        assert engine.collect(ticket) == []
        order.check()
    engine.close()


def test_padding_is_blank(tiny: PackedDataset) -> None:
    engine, order = engine_of(tiny), Order([5, -1, 7])
    ticket = order.submit(engine)
    assert engine.wait(ticket, 60.0)
    assert engine.collect(ticket) == []
    assert order.labels.tolist() == [5, _C.IGNORE_LABEL, 7]
    assert not order.images[SIZE : 2 * SIZE].any()


def test_faults_come_sorted_with_their_position(tiny: PackedDataset) -> None:
    engine, order = engine_of(tiny), Order([1000, 3, 5000])
    ticket = order.submit(engine)
    assert engine.wait(ticket, 60.0)
    faults = engine.collect(ticket)
    assert [(position, sample) for position, sample, _, _ in faults] == [(0, 1000), (2, 5000)]
    assert "Sample id must be below 1000. Found: 1000" in faults[0][3]
    assert order.labels.tolist() == [_C.IGNORE_LABEL, 3, _C.IGNORE_LABEL]


def test_cancelled_memory_is_not_written_afterwards(tiny: PackedDataset) -> None:
    engine = engine_of(tiny, 3)
    for _ in range(50):
        orders = [Order(list(range(300))) for _ in range(6)]
        tickets = [order.submit(engine) for order in orders]
        for ticket in tickets[1:]:
            engine.cancel(ticket)
        for order in orders[1:]:
            order.images[:] = 99
        assert engine.wait(tickets[0], 60.0)
        engine.collect(tickets[0])
        orders[0].check()
        assert all((order.images == 99).all() for order in orders[1:])


def test_errors_of_use(tiny: PackedDataset) -> None:
    engine, order = engine_of(tiny), Order([1, 2])
    with pytest.raises(ValueError, match="does not fit field 0 of 2 samples of 48 bytes. Found: 48 bytes"):
        engine.submit(order.slot.memory[:-SIZE], [(16, SIZE), (0, 8)], order.ids, None, 0)
    with pytest.raises(ValueError, match="2 samples has places of 2 fields and 2 draws. Found: 1 places"):
        engine.submit(order.slot.memory, [(16, SIZE)], order.ids, None, 0)
    empty = PlainSlot(0, SIZE).submit(engine, [])
    assert engine.wait(empty, 0.0)  # a rank's share of a short last batch
    assert engine.collect(empty) == []
    with pytest.raises(StateError, match="No batch has ticket 999"):
        engine.wait(999, 0.0)
    ticket = order.submit(engine)
    engine.wait(ticket, 60.0)
    engine.collect(ticket)
    with pytest.raises(StateError, match="collected or cancelled"):
        engine.collect(ticket)
    engine.close()
    with pytest.raises(StateError, match="closed"):
        order.submit(engine)
    with pytest.raises(ValueError, match="threads must be 1 to 4096. Found: 0"):
        engine_of(tiny, 0)


def test_closing_with_batches_in_flight(tiny: PackedDataset) -> None:
    for _ in range(30):
        engine = engine_of(tiny, 4)
        orders = [Order(list(range(500))) for _ in range(8)]
        tickets = [order.submit(engine) for order in orders]
        engine.wait(tickets[0], 0.001)
        engine.close()
        with pytest.raises(StateError, match="closed"):
            orders[0].submit(engine)
        del engine


def test_arrays_stay_alive_while_they_are_filled(tiny: PackedDataset) -> None:
    engine = engine_of(tiny, 2)
    tickets = [Order(list(range(400))).submit(engine) for _ in range(20)]  # nobody else holds the memory
    for ticket in tickets:
        assert engine.wait(ticket, 60.0)
        engine.collect(ticket)


def test_stats_add_up(tiny: PackedDataset, tmp_path: Path) -> None:
    engine, order = engine_of(tiny, 3), Order(list(range(700)))
    ticket = order.submit(engine)
    assert engine.wait(ticket, 60.0)
    engine.collect(ticket)
    stats = engine.stats()
    assert len(stats) == engine.threads == 3
    assert sum(thread["samples"] for thread in stats) == 700
    assert sum(thread["decoded"]["raw"] for thread in stats) == 700
    assert sum(thread["bytes"] for thread in stats) == 700 * SIZE
    assert engine.sample_bytes == SIZE


def test_positions_of_somebody_else_are_left_alone(tiny: PackedDataset) -> None:
    engine, order = engine_of(tiny), Order([3, 4, 5])
    order.images[:], order.labels[:] = 77, 88
    ticket = order.slot.submit(engine, [3, _C.ELSEWHERE, 5])
    assert engine.wait(ticket, 60.0)
    assert engine.collect(ticket) == []
    assert (order.images[SIZE : 2 * SIZE] == 77).all()
    assert order.labels[1] == 88
    wanted = Order([3, 5])
    assert engine.wait(wanted.submit(engine), 60.0)
    assert np.array_equal(np.delete(order.images.reshape(3, SIZE), 1, 0).ravel(), wanted.images)
