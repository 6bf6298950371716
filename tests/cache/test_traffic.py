"""What an epoch moves by arithmetic, against nodes that read, keep and drop, sample by sample."""

from __future__ import annotations

import random

import pytest

from fastload.cache.traffic import (
    CachePlace,
    Link,
    TrafficJob,
    epoch_traffic,
    first_batch_seconds,
    job_traffic,
)

LINK = Link(latency=0.02, bandwidth=100e6, in_flight=64, connecting=1)
RECORDS = 2000


def job(nodes: int, request_records: int = 1) -> TrafficJob:
    return TrafficJob(RECORDS, RECORDS * 1000, 10_000, nodes, 32, request_records)


def shares(nodes: int, epochs: int, seed: int) -> list[list[int]]:
    """The node that reads each sample, epoch by epoch: equal parts of a random order."""
    drawn, found = random.Random(seed), []
    for _ in range(epochs):
        order = list(range(RECORDS))
        drawn.shuffle(order)
        node = [0] * RECORDS
        for position, sample in enumerate(order):
            node[sample] = position * nodes // RECORDS
        found.append(node)
    return found


def simulated_hits(nodes: int, room: int, epochs: int, *, known: int = 60) -> list[float]:
    """Hits of each epoch where a node keeps, at an epoch's end, those samples that it needs soonest again."""
    plan = shares(nodes, epochs + known, seed=1)
    kept: list[set[int]] = [set() for _ in range(nodes)]
    hits = []
    for epoch in range(epochs):
        hits.append(sum(sample in kept[plan[epoch][sample]] for sample in range(RECORDS)) / RECORDS)
        for node in range(nodes):
            there = kept[node] | {sample for sample in range(RECORDS) if plan[epoch][sample] == node}
            after = range(epoch + 1, epoch + known)
            needed = {s: next((e for e in after if plan[e][s] == node), epoch + known) for s in there}
            kept[node] = set(sorted(there, key=needed.__getitem__)[:room])
    return hits


@pytest.mark.parametrize(
    ("nodes", "share"), [(1, 0.3), (1, 1.0), (2, 0.25), (2, 0.5), (2, 1.0), (4, 0.25), (4, 1.0)]
)
def test_hits_of_a_cache_on_each_node(nodes: int, share: float) -> None:
    found = simulated_hits(nodes, int(share * RECORDS), 9)
    room = share * RECORDS * 1000
    late = epoch_traffic(job(nodes), LINK, room, "node", 40).hits
    assert epoch_traffic(job(nodes), LINK, room, "node", 1).hits == found[0] == 0
    # Within 0.04 of an epoch: so far do shares of 2000 samples lie from their mean.
    second = epoch_traffic(job(nodes), LINK, room, "node", 2).hits
    assert abs(second - found[1]) < 0.04
    if share < 1:
        assert abs(late - found[-1]) < 0.04
    else:
        assert late > 0.999


@pytest.mark.parametrize(("place", "hits"), [("none", 0.0), ("shared", 0.25)])
def test_hits_without_a_cache_and_with_a_shared_one(place: CachePlace, hits: float) -> None:
    for epoch in (2, 50):
        assert epoch_traffic(job(4), LINK, 500_000, place, epoch).hits == hits
    assert epoch_traffic(job(4), LINK, 500_000, place, 1).hits == 0


def test_bytes_requests_and_seconds() -> None:
    whole = epoch_traffic(job(2), LINK, 0, "none", 1)
    assert (whole.bytes, whole.requests) == (2_000_000, 2000)
    assert whole.seconds == pytest.approx(2000 * 0.02 / 64 / 2)  # small records wait for answers
    joined = epoch_traffic(job(2, request_records=100), LINK, 0, "none", 1)
    assert joined.requests == 20
    assert joined.seconds == pytest.approx(2_000_000 / 100e6 / 2)  # large ones for bytes
    half = epoch_traffic(job(1), LINK, 1_000_000, "node", 2)
    assert (half.bytes, half.requests) == (1_000_000, 1000)


def test_the_first_batch_waits_for_round_trips_and_bytes() -> None:
    assert first_batch_seconds(job(1), LINK) == pytest.approx(4 * 0.02 + (10_000 + 32_000) / 100e6)


@pytest.mark.parametrize("together", [1, 4])
def test_a_request_is_saved_only_where_all_that_it_would_bring_is_there(together: int) -> None:
    found = epoch_traffic(job(1, together), LINK, 0.8 * RECORDS * 1000, "node", 30)
    drawn = random.Random(together)
    there = [drawn.random() < found.hits for _ in range(100_000)]
    blocks = [there[first : first + together] for first in range(0, len(there), together)]
    made = sum(not all(block) for block in blocks) / len(blocks) * RECORDS / together
    assert found.requests == pytest.approx(made, rel=0.03)
    assert found.bytes == pytest.approx((1 - found.hits) * RECORDS * 1000)


def test_a_job_is_the_sum_of_its_epochs() -> None:
    room = 0.5 * RECORDS * 1000
    each = [epoch_traffic(job(2), LINK, room, "node", epoch) for epoch in range(1, 1201)]
    found = job_traffic(job(2), LINK, room, "node", 1200)
    assert list(found) == ["epoch 1", "epoch 2", "epoch 1200", "all 1200"]
    assert found["epoch 2"] == each[1]
    for part in ("bytes", "requests", "seconds"):
        assert getattr(found["all 1200"], part) == pytest.approx(sum(getattr(one, part) for one in each))
    assert found["all 1200"].hits == pytest.approx(sum(one.hits for one in each) / 1200)
