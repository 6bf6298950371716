"""Meshes: ranks that differ in tensor, context or pipeline dimensions get the same batches, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from launch import finish, forked, results, started

from fastload.errors import WorldError
from fastload.ranks import mesh as meshes

COUNT = 53


def test_peers_of_a_mesh_get_the_same_batches(numbered: Path, tmp_path: Path) -> None:
    with started(forked("meshes", 8, numbered, tmp_path)) as process:
        finish(process)
    ranks = results(tmp_path, 8)
    for one, other in combinations(ranks, 2):
        same_data = one["place"][1] == other["place"][1]
        for way in one["found"]:
            assert (one["found"][way] == other["found"][way]) == same_data, way
            assert (one["labels"][way] == other["labels"][way]) == same_data, way
        assert (one["begun"] == other["begun"]) == same_data
        assert (one["wider"] == other["wider"]) == (one["wide place"][0] == other["wide place"][0])
    for way in ranks[0]["labels"]:
        shares = {rank["place"][1]: rank["labels"][way] for rank in ranks}
        rows = [row for share in shares.values() for batch in share for row in batch]
        assert set(rows) == set(range(COUNT)), way
    # Resumed at another degree of data parallelism: the same rows are left, in the same global batches.
    rest = {rank["place"][1]: rank["rest"] for rank in ranks}
    wider = {rank["wide place"][0]: rank["wider"] for rank in ranks}
    for step in range(len(rest[0]) - 1):
        assert [row for share in sorted(rest) for row in rest[share][step]] == [
            row for share in sorted(wider) for row in wider[share][step]
        ]
    assert sum(map(len, rest[0])) * 2 >= COUNT - 16


def test_a_mesh_that_says_nothing_is_an_error_with_the_line_to_write(numbered: Path, tmp_path: Path) -> None:
    with started(forked("odd_meshes", 4, numbered, tmp_path)) as process:
        finish(process)
    for rank in results(tmp_path, 4):
        for way in ("nothing said", "mesh"):
            assert "a DeviceMesh of 2 x 2 ranks with the dimensions ('a', 'b')" in rank[way]
            assert "DataLoader(..., ranks=mesh.get_group('a'))" in rank[way]
        assert len(rank["told"]) == 7
        assert [row for batch in rank["a Dataset"] for row in batch] == list(range(COUNT))


def test_validation_on_one_rank(numbered: Path, tmp_path: Path) -> None:
    """A Dataset is read whole, at once. A path is divided, and the words say what gives all of it."""
    with started(forked("validates_alone", 2, numbered, tmp_path)) as process:
        finish(process)
    found = results(tmp_path, 2)[0]
    everything = list(range(COUNT))
    rows, told = found["a Dataset"]
    assert rows == everything
    assert len(told) == 1
    assert "reads all 53 samples of its PackedDataset on each of 2 ranks" in told[0]
    rows, told = found["a path"]
    assert len([row for row in rows if row >= 0]) in (26, 27)
    assert any("one of 2" in one and "ranks=fastload.Ranks(0, 1): it gets all samples" in one for one in told)
    assert found["a path, no handshake"][1] == []
    assert "ranks=fastload.Ranks(0, 1): it gets all samples then" in found["a path, drawn"][0]
    rows, told = found["a world of its own"]
    assert sorted(rows) == everything
    assert told == []


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of 8 ranks that nobody else is in."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # which makes the backend known

    dist.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
    yield
    dist.destroy_process_group()
    meshes.forget()


def of_mesh(shape: tuple[int, ...], names: tuple[str, ...] | None) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    meshes.forget()
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


@pytest.mark.parametrize(
    ("shape", "names", "place"),
    [
        ((8,), ("dp",), None),
        ((8,), None, None),
        ((8,), ("tp",), (0, 1)),
        ((4, 2), ("dp", "tp"), (2, 4)),
        ((2, 4), ("data_parallel", "tensor_parallel"), (1, 2)),
        ((2, 4), ("replicate", "shard"), (5, 8)),
        ((2, 2, 2), ("dp_replicate", "dp_shard", "tp"), (2, 4)),
        ((2, 2, 2), ("pp", "dp_shard", "cp"), (0, 2)),
        ((2, 2, 2), ("dp_shard_mod_ep", "dp_shard_in_ep", "tp"), (2, 4)),
        ((2, 2, 2), ("pp", "batch", "cp"), (0, 2)),
        ((8, 1), ("dp", "anything"), (5, 8)),
    ],
)
def test_names_of_dimensions(
    group: None, shape: tuple[int, ...], names: tuple[str, ...] | None, place: tuple[int, int] | None
) -> None:
    mesh = of_mesh(shape, names)
    assert meshes.find_place(8) == (place if (len(shape) > 1 and 1 not in shape) or place == (0, 1) else None)
    assert meshes.place_in(mesh) == ((5, 8) if len(shape) == 1 else place)


@pytest.mark.parametrize(
    ("shape", "names"),
    [((2, 4), None), ((2, 4), ("dp", "x")), ((2, 4), ("dp_cp", "tp")), ((2, 2, 2), ("a", "b", "c"))],
)
def test_unknown_names(group: None, shape: tuple[int, ...], names: tuple[str, ...] | None) -> None:
    mesh = of_mesh(shape, names)
    for ask in (lambda: meshes.find_place(8), lambda: meshes.place_in(mesh)):
        with pytest.raises(WorldError, match="it is not known which ranks have different data"):
            ask()


def test_of_several_meshes_the_one_for_data_counts(group: None) -> None:
    """torchtitan's: a dense mesh, a sparse one for experts, and one for loading data."""
    sparse = of_mesh((2, 2, 2), ("pp", "efsdp", "ep"))
    assert meshes.find_place(8) == (0, 2)
    dense = of_mesh((2, 4), ("pp", "fsdp"))
    assert meshes.find_place(8) == (1, 4)
    loading = of_mesh((2, 2, 2), ("pp", "batch", "cp"))
    assert meshes.find_place(8) == (0, 2)
    assert None not in (sparse, dense, loading)
