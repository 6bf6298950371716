"""``Block(nodes=...)`` on nodes that cache a part of a set in a store each: which samples are read there."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_folder import OpenFolder
from disk_sets import opened
from node_stores import RECORD, Cluster, numbered_set

from fastload import Block, PackedDataset
from fastload._native import _C

COUNT = 96


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return numbered_set(tmp_path_factory.mktemp("numbered") / "set", COUNT)


def held(cluster: Cluster, node: int) -> set[int]:
    """The samples in a node's tier."""
    with opened(cluster.dataset, cluster.folder(node), cluster.limit) as tier:
        return {sample for sample in range(COUNT) if tier.find(sample, RECORD) is not None}


@pytest.mark.parametrize(("nodes", "own"), [(2, 1), (4, 1), (2, 2)])
def test_a_second_epoch_reads_nothing_if_all_has_room(
    numbered: PackedDataset, tmp_path: Path, nodes: int, own: int
) -> None:
    cluster = Cluster(numbered, tmp_path, nodes, Block(4, 32, nodes=nodes), COUNT // nodes, own)
    first = cluster.run([0])
    assert sorted(one for ids, _, _ in first for one in ids) == list(range(COUNT))
    if own == 1:
        assert sorted(one for _, asked, _ in first for one in asked) == list(range(COUNT))
        assert [sorted(ids) for ids, _, _ in first] == [asked for _, asked, _ in first]
    second, third = cluster.run([1]), cluster.run([2])
    for later in (second, third):
        assert sorted(one for ids, _, _ in later for one in ids) == list(range(COUNT))
        assert [asked for _, asked, _ in later] == [[]] * nodes * own
    assert [ids for ids, _, _ in second] != [ids for ids, _, _ in third]


def test_later_epochs_read_what_has_no_room_and_no_more(numbered: PackedDataset, tmp_path: Path) -> None:
    nodes, share = 4, COUNT // 4
    cluster = Cluster(numbered, tmp_path, nodes, Block(4, 32, nodes=nodes), share // 2)
    own = [set(ids) for ids, _, _ in cluster.run([0])]
    for epoch in (1, 2):
        before = [held(cluster, node) for node in range(nodes)]
        assert [len(each) for each in before] == [share // 2] * nodes
        for node, (ids, asked, _) in enumerate(cluster.run([epoch])):
            assert set(ids) == own[node]
            assert set(asked) == own[node] - before[node]


@pytest.mark.parametrize("shuffle", [True, Block(4, 32)])
def test_other_orders_read_again_what_the_node_had_room_for(
    numbered: PackedDataset, tmp_path: Path, shuffle: object
) -> None:
    """So that the tests above could fail: the same caches, and each node needs other samples each time."""
    cluster = Cluster(numbered, tmp_path, 4, shuffle, COUNT // 4)
    cluster.run([0])
    asked = [set(asked) & set(ids) for ids, asked, _ in cluster.run([1])]
    assert sum(map(len, asked)) > COUNT / 4


def test_a_job_goes_on_with_half_the_nodes(numbered: PackedDataset, tmp_path: Path) -> None:
    """Node 0 of two has the parts of nodes 0 and 1 of four: it reads those of node 1, and then no more."""
    four = Cluster(numbered, tmp_path, 4, Block(4, 32, nodes=4), COUNT)
    parts = [set(ids) for ids, _, _ in four.run([0])]
    two = Cluster(numbered, tmp_path, 2, Block(4, 32, nodes=4), COUNT)
    first = two.run([1])
    assert [set(ids) for ids, _, _ in first] == [parts[0] | parts[1], parts[2] | parts[3]]
    assert set(first[0][1]) == parts[1]
    assert [asked for _, asked, _ in two.run([2])] == [[], []]


def test_a_cache_in_memory_has_room_for_the_nodes_own_part(
    numbered: PackedDataset, tmp_path: Path, memory: OpenFolder
) -> None:
    """Not for a fourth of the set wherever it lies, of which a node would need a fourth."""
    if not _C.file_system(str(memory.path))["in_memory"]:
        pytest.skip("no file system in memory has room")
    for shuffle, most in ((Block(4, 32, nodes=4), 0), (Block(4, 32), COUNT)):
        root = memory.path / str(most)
        root.mkdir()
        cluster = Cluster(numbered, tmp_path / str(most), 4, shuffle, COUNT // 4, memory=root)
        cluster.run([0])
        asked = [set(asked) & set(ids) for ids, asked, _ in cluster.run([1])]
        assert sum(map(len, asked)) <= most
    assert sum(map(len, asked)) > COUNT / 4
