"""The block shuffle of several nodes: each sample once an epoch, and on the same node in all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_forms import SEED, as_drawn, how_many

from fastload import Block, DataLoader, PackedDataset, Ranks, transforms
from fastload.errors import StateError
from fastload.sampler import (
    BlockSampler,
    Partition,
    Sampler,
    StickyOrder,
    block_sampler,
    default_blocks,
    make_sampler,
)
from fastload.sampler.order import keyed_bits
from fastload.sampler.quality import measure
from fastload.sampler.upcoming import NOT_NEEDED, needs_all, use_levels

ARRANGED = 3


def whole(order: StickyOrder, epoch: int = 0) -> np.ndarray:
    return order.ids(np.arange(order.n), epoch)


def reference(order: StickyOrder, epoch: int, start: int, step: int, part: Partition) -> list[list[int]]:
    """Each rank's batch: the global batch's positions, sorted one by one, and cut as those of others are."""
    ids = whole(order, epoch).tolist()
    first = start + step * part.global_batch
    end = min(first + part.global_batch, order.n)

    def key(position: int) -> tuple[int, int, int]:
        block = np.array([ids[position] // order.block], np.uint64)
        return position % order.nodes, int(keyed_bits(block, order.seed, epoch, ARRANGED, 0)[0]), position

    sorted_ones = [ids[position] for position in sorted(range(first, end), key=key)]
    batches = []
    for rank in range(part.world_size):
        places = replace(part, rank=rank).positions(order.n, start, step).tolist()
        batches.append([-1 if p < 0 else ids[p] if p < first else sorted_ones[p - first] for p in places])
    return batches


def ranks_of(order: StickyOrder, part: Partition) -> list[Sampler]:
    shape = (order.block, order.window)
    return [
        block_sampler(order.n, order.seed, shape, order.nodes, replace(part, rank=rank))
        for rank in range(part.world_size)
    ]


def epoch_of(samplers: list[Sampler], epoch: int, start: int = 0) -> list[list[int]]:
    """What each rank gets, without padding."""
    steps = range(samplers[0].num_batches(epoch, start))
    return [
        [one for step in steps for one in sampler.batch(epoch, start, step).ids.tolist() if one >= 0]
        for sampler in samplers
    ]


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 4000), st.integers(1, 90), st.integers(1, 20), st.integers(1, 12),
    st.integers(0, 2**64 - 1), st.integers(0, 9),
)  # fmt: skip
def test_is_a_permutation(n: int, block: int, blocks: int, nodes: int, seed: int, epoch: int) -> None:
    order = StickyOrder(n, seed, block, block * blocks, nodes=nodes)
    assert np.array_equal(np.sort(whole(order, epoch)), np.arange(n))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(1, 40), st.integers(1, 9), st.data())
def test_any_part_is_the_same_as_in_the_whole(n: int, block: int, nodes: int, data: st.DataObject) -> None:
    order = StickyOrder(n, 5, block, 4 * block, nodes=nodes)
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    assert np.array_equal(order.ids(positions, 3), whole(order, 3)[positions])


@pytest.mark.parametrize(("n", "block", "nodes"), [(1000, 8, 4), (1003, 7, 3), (50, 8, 6)])
def test_a_sample_is_of_the_same_part_in_all_epochs(n: int, block: int, nodes: int) -> None:
    order = StickyOrder(n, 1, block, 8 * block, nodes=nodes)
    part_of = np.empty(n, np.int64)
    part_of[whole(order)] = np.arange(n) % nodes
    for epoch in range(1, 5):
        assert np.array_equal(part_of[whole(order, epoch)], np.arange(n) % nodes)
        assert not np.array_equal(whole(order, epoch), whole(order))
    blocks = [set(part_of[begin : begin + block].tolist()) for begin in range(0, n, block)]
    assert (
        sum(len(parts) - 1 for parts in blocks) <= nodes - 1
    )  # only where one part ends and the next begins
    other = np.empty(n, np.int64)
    other[whole(replace(order, seed=2))] = np.arange(n) % nodes
    assert not np.array_equal(part_of, other)


def test_blocks_stay_together_in_a_window() -> None:
    """In a window of a part: all its records but those of blocks cut by a border are of whole blocks."""
    order = StickyOrder(4000, 3, 10, 400, nodes=4)
    for part in range(4):
        ids = whole(order, 2)[part::4]
        assert len(ids) == 1000
        cut = 0
        for window in ids.reshape(10, 100):
            _, counts = np.unique(window // 10, return_counts=True)
            cut += int((counts < 10).sum())
            assert not np.array_equal(window, np.sort(window))
        assert cut <= 4


def drawn_case(rng: np.random.Generator) -> tuple[StickyOrder, Partition]:
    n, block, nodes = int(rng.integers(1, 400)), int(rng.integers(1, 12)), int(rng.integers(2, 9))
    order = StickyOrder(n, int(rng.integers(0, 2**40)), block, block * int(rng.integers(1, 12)), nodes=nodes)
    padding = str(rng.choice(["mark", "repeat", "end", "drop"]))
    world, batch = int(rng.integers(1, 9)), int(rng.integers(1, 20))
    return order, Partition(batch, 0, world, bool(rng.integers(0, 2)), padding)


def test_batches_are_those_of_the_reference() -> None:
    rng, compared = np.random.default_rng(SEED), 0
    for case in range(how_many(60, 3000)):
        order, part = drawn_case(rng)
        epoch, start = int(rng.integers(0, 5)), int(rng.integers(0, order.n))
        samplers = ranks_of(order, part)
        for step in range(samplers[0].num_batches(epoch, start)):
            found = [sampler.batch(epoch, start, step).ids.tolist() for sampler in samplers]
            assert found == reference(order, epoch, start, step, part), as_drawn((case, order, part))
            compared += 1
            for sampler in samplers:
                batch = sampler.batch(epoch, start, step)
                there = batch.ids >= 0
                assert batch.positions is not None
                assert np.array_equal(order.ids(batch.positions[there], epoch), batch.ids[there])
                assert (batch.positions[~there] == -1).all()
    assert compared > 100


def test_any_stop_goes_on_with_any_number_of_ranks() -> None:
    """Each stop of each world, continued by each other: every sample once."""
    order = StickyOrder(203, 11, 4, 32, nodes=4)
    for world, batch in ((4, 6), (8, 2), (3, 5), (1, 16)):
        first = ranks_of(order, Partition(batch, 0, world))
        before: list[int] = []
        for step in range(first[0].num_batches(2)):
            for other, size in ((4, 6), (2, 7), (6, 4), (1, 30), (5, 3)):
                rest = epoch_of(ranks_of(order, Partition(size, 0, other)), 2, step * world * batch)
                assert sorted([*before, *(one for ids in rest for one in ids)]) == list(range(203))
            before += [one for sampler in first for one in sampler.batch(2, 0, step).ids.tolist() if one >= 0]
        assert sorted(before) == list(range(203))


def test_a_sampler_goes_on_when_its_partition_is_replaced() -> None:
    order = StickyOrder(400, 11, 4, 32, nodes=4)
    part = Partition(5, 1, 4)
    [_, sampler, *_] = ranks_of(order, part)
    sampler.batch(0, 0, 3)
    sampler.partition = Partition(10, 1, 2)
    fresh = ranks_of(order, Partition(10, 0, 2))[1]
    for step in range(fresh.num_batches(0, 80)):
        assert sampler.batch(0, 80, step).ids.tolist() == fresh.batch(0, 80, step).ids.tolist()


def read_by_nodes(
    order: StickyOrder, part: Partition, nodes: int, epoch: int, start: int = 0
) -> list[set[int]]:
    own = part.world_size // nodes
    by_rank = epoch_of(ranks_of(order, part), epoch, start)
    return [{one for ids in by_rank[k * own : (k + 1) * own] for one in ids} for k in range(nodes)]


@pytest.mark.parametrize("padding", ["mark", "repeat", "end", "drop"])
@pytest.mark.parametrize(("parts", "nodes", "world"), [(4, 4, 8), (4, 2, 4), (4, 1, 4), (6, 3, 3), (2, 2, 2)])
def test_a_node_reads_the_same_samples_in_every_epoch(
    parts: int, nodes: int, world: int, padding: str
) -> None:
    """Exactly, in whole batches; of the last one at most a sample for each node and each rank moves."""
    n = 1207
    order = StickyOrder(n, 3, 5, 60, nodes=parts)
    part = Partition(6, 0, world, padding=padding)
    dropped = replace(part, drop_last=True)
    owner = np.empty(n, np.int64)
    owner[whole(order)] = np.arange(n) % parts * nodes // parts
    for epoch in range(3):
        exact = read_by_nodes(order, dropped, nodes, epoch)
        assert sum(map(len, exact)) == n // part.global_batch * part.global_batch
        assert all((owner[sorted(ids)] == node).all() for node, ids in enumerate(exact))
        every = read_by_nodes(order, part, nodes, epoch)
        moved = sum(int((owner[sorted(ids)] != node).sum()) for node, ids in enumerate(every))
        assert moved <= nodes + (world if padding == "repeat" else 0)
        assert set().union(*every) == set(range(n))
    even = StickyOrder(960, 3, 5, 60, nodes=parts)
    first = read_by_nodes(even, Partition(960 // world // 10, 0, world), nodes, 0)
    assert first == read_by_nodes(even, Partition(960 // world // 10, 0, world), nodes, 1)


def test_a_resumed_epoch_and_another_global_batch_keep_the_parts() -> None:
    order = StickyOrder(1200, 3, 5, 60, nodes=4)
    wanted = read_by_nodes(order, Partition(10, 0, 8), 4, 0)
    assert [len(ids) for ids in wanted] == [300] * 4
    late = read_by_nodes(order, Partition(15, 0, 4), 4, 7, start=80)
    assert all(some < all_of_it for some, all_of_it in zip(late, wanted, strict=True))
    two = read_by_nodes(order, Partition(10, 0, 2), 2, 5)
    assert two == [wanted[0] | wanted[1], wanted[2] | wanted[3]]


def test_fewer_nodes_than_parts_lose_some_of_what_they_keep() -> None:
    """Seven nodes of eight: what a node needs and did not read before; uniform: six sevenths."""
    order = StickyOrder(5600, 3, 5, 400, nodes=8)
    before, after = (read_by_nodes(order, Partition(20, 0, 7), 7, epoch) for epoch in (0, 1))
    new = sum(len(now - then) for now, then in zip(after, before, strict=True)) / 5600
    assert 0 < new < 0.4
    uniform = [make_sampler(5600, Partition(20, rank, 7), shuffle=True, seed=3) for rank in range(7)]
    sets = [[set(ids) for ids in epoch_of(uniform, epoch)] for epoch in (0, 1)]
    assert sum(len(now - then) for then, now in zip(*sets, strict=True)) / 5600 > 0.8


def test_ranks_of_positions_are_those_that_get_them() -> None:
    rng, seen = np.random.default_rng(SEED), 0
    for case in range(how_many(60, 1000)):
        order, part = drawn_case(rng)
        part = replace(part, drop_last=False)
        samplers = ranks_of(order, part)
        positions = rng.permutation(order.n)
        owners = samplers[0].ranks_at(positions, 2)
        for rank, sampler in enumerate(samplers):
            batches = [sampler.batch(2, 0, step) for step in range(sampler.num_batches(2))]
            got: Any = np.concatenate([each.positions for each in batches])
            own = positions[owners == rank]
            missing = set(own.tolist()) - set(got.tolist())
            assert not missing, as_drawn((case, order, part))
            if part.padding != "repeat":
                assert sorted(own) == sorted(got[got >= 0]), as_drawn((case, order, part))
        seen += len(set(owners.tolist()))
    assert seen > 60


def test_levels_are_of_the_nodes_own_samples() -> None:
    order = StickyOrder(1200, 3, 5, 60, nodes=4)
    samplers = ranks_of(order, Partition(10, 0, 8))
    wanted = read_by_nodes(order, Partition(10, 0, 8), 4, 0)
    for node in range(4):
        ranks = range(2 * node, 2 * node + 2)
        assert not needs_all(samplers[0], ranks, 1200)
        levels = use_levels(samplers[0], 6, ranks, 1200, lambda: False)
        assert levels is not None
        assert set(np.flatnonzero(levels != NOT_NEEDED).tolist()) == wanted[node]
    assert needs_all(samplers[0], range(8), 1200)


def test_one_node_has_the_plain_block_shuffle() -> None:
    assert type(block_sampler(100, 1, (4, 16), 1, Partition(4))) is BlockSampler
    sampler = block_sampler(100, 1, (4, 16), 3, Partition(4))
    assert sampler.order.in_state == "block:4:16:3"


def test_default_windows_are_those_of_a_node() -> None:
    assert default_blocks(1_281_167, 1_281_167 * 110_000, None, None, 4) == (10, 9770)
    assert default_blocks(1_281_167, 1_281_167 * 110_000, 5, 100, 4) == (5, 100)


def test_mixes_as_the_block_shuffle_of_the_same_window_does() -> None:
    labels = np.repeat(np.arange(100), 200)
    partition = Partition(128)
    uniform, block, sticky = (
        measure(sampler, labels)
        for sampler in (
            make_sampler(20_000, partition, shuffle=True, seed=1),
            block_sampler(20_000, 1, (4, 4000), 1, partition),
            block_sampler(20_000, 1, (4, 4000), 4, partition),
        )
    )
    assert sticky.classes == pytest.approx(block.classes, rel=0.03)
    assert sticky.together == pytest.approx(block.together, rel=0.15)
    assert sticky.distance == pytest.approx(uniform.distance, abs=0.03)


def loader_of(folder: Path, world: int, batch: int, rank: int, nodes: int = 4) -> Any:
    return DataLoader(
        folder, batch, shuffle=Block(4, 16, nodes=nodes), seed=3, cache="off", num_workers=1,
        transform=transforms.Resize((16, 16)), ranks=Ranks(rank, world), padding="mark",
    )  # fmt: skip


def keys_of(loader: Any, batches: int | None = None) -> list[int]:
    """The sample ids of some batches, by the loader's own sampler, after the batches came."""
    core, (epoch, start) = loader.sampler.core, loader.sampler.place
    found: list[int] = []
    for step, (images, _) in enumerate(loader):
        ids = core.batch(epoch, start, step).ids
        assert len(images) == len(ids)
        found += ids[ids >= 0].tolist()
        if step + 1 == batches:
            break
    return found


def test_a_loaders_state_goes_on_with_other_ranks_and_the_same_nodes_alone(packed: PackedDataset) -> None:
    folder, states, before = packed.folder, [], []
    for rank in range(4):
        with loader_of(folder, 4, 2, rank) as loader:
            before += keys_of(loader, 3)
            states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    assert (states[0]["position"], states[0]["shuffle"]) == (24, "block:4:16:4")
    for world, batch in ((2, 5), (3, 4), (1, 9)):
        after = []
        for rank in range(world):
            with loader_of(folder, world, batch, rank) as loader:
                loader.load_state_dict(states[0])
                after += keys_of(loader)
        assert sorted([*before, *after]) == list(range(len(packed)))
    with (
        loader_of(folder, 4, 2, 0, nodes=2) as other,
        pytest.raises(StateError, match="shuffle was 'block:4:16:4', is 'block:4:16:2'"),
    ):
        other.load_state_dict(states[0])


def test_reshard_in_the_middle_of_an_epoch(packed: PackedDataset) -> None:
    """Two of four nodes leave between two batches; the others go on in the same iteration."""
    before, after = [], []
    for rank in range(4):
        with loader_of(packed.folder, 4, 2, rank) as loader:
            core, iterator = loader.sampler.core, iter(loader)
            for step in range(3):
                assert len(next(iterator)[0]) == 2
                before += core.batch(0, 0, step).ids.tolist()
            if rank >= 2:
                continue
            loader.reshard(rank, 2)
            core = loader.sampler.core
            assert (core.partition.rank, core.partition.world_size) == (rank, 2)
            for step, (images, labels) in enumerate(iterator):
                ids = core.batch(0, 24, step).ids
                assert len(images) == len(ids)
                assert labels[ids >= 0].tolist() == [packed.label(one) for one in ids[ids >= 0].tolist()]
                after += ids[ids >= 0].tolist()
    assert len(before) == 24
    assert sorted([*before, *after]) == list(range(len(packed)))
