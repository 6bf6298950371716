"""What a comparison of ranks finds, by facts made by hand and by their neighbours; and how facts are made."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, Subset

from fastload.diagnose.across_ranks import (
    against_mesh,
    divided_twice,
    findings_of,
    uneven_ranks,
    with_findings,
)
from fastload.diagnose.facts import Sentence, Verdict
from fastload.diagnose.peers import FirstRank, OtherRank, address
from fastload.diagnose.rank_facts import Mesh, RankFacts, _divisions, fingerprint


def facts(rank: int, **changed: Any) -> RankFacts:
    """A rank of four, of a healthy run: 100 batches of 50 ms, of which it waits for 1 ms."""
    usual = RankFacts(
        rank=rank,
        world_size=4,
        batches=100,
        samples=800,
        seconds=5.0,
        wait_share=0.02,
        wait=0.001,
        step=0.049,
        rate=160.0,
        batch_bytes=1_000_000,
        length=4000,
        fingerprint="same",
        epoch_batches=125,
        sampler="DistributedSampler",
        dividers=("DistributedSampler",),
        replicas=4,
        replica=rank,
        workers=4,
    )
    return replace(usual, **changed)


def four(**of: dict[str, Any]) -> list[RankFacts]:
    """Four healthy ranks with changes: ``r2={...}``."""
    return [facts(rank, **of.get(f"r{rank}", {})) for rank in range(4)]


def meshed(shape: Sequence[int], names: Sequence[str], part: Any) -> list[RankFacts]:
    """Four ranks in a mesh; ``part(rank)`` is number of parts and own part."""
    found = []
    for rank in range(4):
        place = tuple(map(int, np.unravel_index(rank, tuple(shape))))
        replicas, replica = part(rank)
        mesh = Mesh(tuple(names), tuple(shape), place)
        found.append(facts(rank, meshes=(mesh,), replicas=replicas, replica=replica))
    return found


def test_healthy_ranks_have_no_findings() -> None:
    assert findings_of(four()) == []
    assert findings_of([facts(0)]) == []
    assert findings_of([]) == []


# ---- Uneven ranks -----------------------------------------------------------------------------------


def test_a_rank_that_waits_while_the_others_wait_for_it() -> None:
    found = uneven_ranks(four(r2={"wait_share": 0.8, "workers": 1}))
    assert found is not None
    assert found.key == "uneven-ranks"
    assert found.sentence.startswith(
        "Rank 2 waits 40.0 ms for each batch (80% of the time), the other ranks 1.0"
    )
    assert "rank 2: 40.0 ms of waiting and 50.0 ms in all" in found.evidence
    assert "What differs: 1 instead of 4 workers." in found.remedy


@pytest.mark.parametrize(
    "changed",
    [
        {"wait_share": 0.04},  # it does not matter
        {"wait_share": 0.8, "seconds": 20.0},  # nobody waits for it: the others are faster
        {"wait_share": 0.8, "batches": 0},
    ],
)
def test_neighbours_of_a_slow_rank(changed: dict[str, Any]) -> None:
    assert uneven_ranks(four(r2=changed)) is None


def test_all_wait_alike() -> None:
    assert uneven_ranks([facts(rank, wait_share=0.8) for rank in range(4)]) is None


def test_epochs_of_different_length() -> None:
    found = uneven_ranks(four(r3={"epoch_batches": 120}))
    assert found is not None
    assert "rank 3 has 120 batches, others up to 125" in found.sentence
    assert uneven_ranks(four(r3={"epoch_batches": None})) is None


# ---- Divided twice ----------------------------------------------------------------------------------


def test_datasets_that_differ_and_are_divided() -> None:
    ranks = [facts(rank, fingerprint=f"of {rank}", length=1000) for rank in range(4)]
    found = divided_twice(ranks)
    assert found is not None
    assert found.key == "divided-twice"
    assert "1/4 of its own dataset" in found.sentence
    assert "rank 3: 1000 samples, part 3 of 4, fingerprint of 3" in found.evidence


def test_datasets_that_differ_and_are_not_divided() -> None:
    alone: dict[str, Any] = {"dividers": (), "replicas": None, "replica": None}
    assert divided_twice([facts(rank, fingerprint=f"of {rank}", **alone) for rank in range(4)]) is None
    one: dict[str, Any] = {"replicas": 1, "replica": 0}
    assert divided_twice([facts(rank, fingerprint=f"of {rank}", **one) for rank in range(4)]) is None


def test_datasets_of_which_nothing_is_known() -> None:
    assert divided_twice(four(r1={"fingerprint": None}, r2={"fingerprint": None})) is None


def test_two_samplers_that_divide() -> None:
    names = ("BatchSamplerShard", "DistributedSampler")
    found = divided_twice([facts(rank, dividers=names, replicas=16) for rank in range(4)])
    assert found is not None
    assert "twice, by BatchSamplerShard and DistributedSampler" in found.sentence
    assert "no DistributedSampler" in found.remedy


# ---- Meshes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tp", "sp", "cp", "pp", "model", "tensor", "context_parallel", "pipeline"])
def test_model_parallel_ranks_with_different_batches(name: str) -> None:
    found = against_mesh(meshed((2, 2), ("dp", name), lambda rank: (4, rank)))
    assert found is not None
    assert found.key == "mesh"
    assert "2 data-parallel ranks, but the sampler makes 4 parts" in found.sentence
    assert f"Mesh dp 2 x {name} 2; rank 0 has part 0 of 4" in found.evidence
    assert 'num_replicas=2 and rank= the rank along mesh["dp"]' in found.remedy
    assert "here 0 on rank 0, 0 on rank 1, 1 on rank 2, 1 on rank 3." in found.remedy


def test_a_mesh_with_the_right_parts() -> None:
    assert against_mesh(meshed((2, 2), ("dp", "tp"), lambda rank: (2, rank // 2))) is None
    assert against_mesh(meshed((2, 2), ("pp", "dp"), lambda rank: (2, rank % 2))) is None


def test_the_right_number_of_parts_but_wrong_ones() -> None:
    found = against_mesh(meshed((2, 2), ("dp", "tp"), lambda rank: (2, rank % 2)))
    assert found is not None


def test_meshes_without_a_model_dimension() -> None:
    assert against_mesh(meshed((2, 2), ("replicate", "shard"), lambda rank: (4, rank))) is None
    assert against_mesh(meshed((4, 1), ("dp", "tp"), lambda rank: (4, rank))) is None
    assert against_mesh(meshed((2, 2), ("dp", "tp"), lambda rank: (None, None))) is None
    part_of_the_world = [
        replace(each, world_size=8) for each in meshed((2, 2), ("dp", "tp"), lambda r: (8, r))
    ]
    assert against_mesh(part_of_the_world) is None


def test_findings_come_first_in_a_verdict() -> None:
    verdict = Verdict("python", 1.0, 1.0, 1.0, (Sentence("As it was."),), (), ())
    assert with_findings(verdict, []) is verdict
    ranks = meshed((2, 2), ("dp", "tp"), lambda rank: (4, rank))
    ranks[1] = replace(ranks[1], epoch_batches=3)
    found = with_findings(verdict, findings_of(ranks))
    assert found.limit == "mesh"
    assert (
        with_findings(replace(verdict, limit="ranks"), findings_of(ranks)).sentences == found.sentences[::2]
    )
    assert [sentence.text[:9] for sentence in found.sentences] == ["The mesh ", "The ranks", "As it was"]


# ---- Facts ------------------------------------------------------------------------------------------


class Paths(Dataset[int]):
    """Samples by their names."""

    def __init__(self, names: Any) -> None:
        self.samples = names
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> int:
        raise AssertionError("a sample was read")


def test_fingerprints_tell_datasets_apart() -> None:
    names = [(f"{number}.jpg", number % 7) for number in range(1000)]
    whole = fingerprint(Paths(names))
    assert whole is not None
    assert whole == fingerprint(Paths(list(names)))
    noted = Paths(names)
    noted.seen = [1, 2, 3]  # not as long as the dataset: no samples
    assert fingerprint(noted) == whole
    others = [names[::2], names[1::2], names[:-1], [(Path(name), label) for name, label in names]]
    assert len({whole, *(fingerprint(Paths(other)) for other in others[:3])}) == 4
    for make in (np.array, torch.tensor):
        rows = [fingerprint(Paths(make(part))) for part in ([1, 2, 3], [1, 2, 3], [1, 2, 4])]
        assert rows[0] == rows[1] != rows[2]
    halves = [Subset(Paths(names), range(start, 1000, 2)) for start in (0, 1)]
    assert fingerprint(halves[0]) != fingerprint(halves[1])
    joined: list[Any] = [ConcatDataset([Paths(names), Paths(other)]) for other in others]
    assert len({fingerprint(each) for each in joined}) == 4
    assert fingerprint(object()) is None
    assert fingerprint(None) is None


def test_fingerprints_of_hugging_faces_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"text": f"line {number}", "label": number} for number in range(100)]
    whole, again = (datasets.Dataset.from_list(rows) for _ in range(2))
    again._fingerprint = "random"  # as of a function that cannot be hashed
    assert fingerprint(whole) == fingerprint(again) is not None
    shards = [whole.shard(2, part, contiguous=same) for part in (0, 1) for same in (False, True)]
    assert len({fingerprint(whole), *map(fingerprint, shards)}) == 5


def test_samplers_that_divide_are_found() -> None:
    data = Paths(list(range(100)))
    sampler: Any = DistributedSampler(data, 4, 3)
    assert _divisions(DataLoader(data, 2, sampler=sampler)) == (("DistributedSampler",), 4, 3)
    batches: Any = BatchSampler(sampler, 2, drop_last=False)
    assert _divisions(DataLoader(data, batch_sampler=batches)) == (("DistributedSampler",), 4, 3)
    assert _divisions(DataLoader(data, 2)) == ((), None, None)

    class Shard(BatchSampler):
        num_processes, process_index = 2, 1

    shard: Any = Shard(sampler, 2, False)
    names, parts, _ = _divisions(DataLoader(data, batch_sampler=shard))
    assert (names, parts) == (("Shard", "DistributedSampler"), 8)


# ---- The exchange -----------------------------------------------------------------------------------


def test_facts_reach_the_first_rank_and_all_hear_the_end() -> None:
    name = address({"TORCHELASTIC_RUN_ID": str(uuid.uuid4())}, 1)
    mesh = Mesh(("dp", "tp"), (2, 2), (1, 0))
    with OtherRank(name) as early, OtherRank(name) as late, OtherRank(name) as silent:
        assert not early.is_over()  # nobody listens yet
        first = FirstRank(name, 3)
        early.tell(facts(2, meshes=(mesh,)))
        assert not first.has_all()
        assert first.facts == [facts(2, meshes=(mesh,))]
        assert not silent.is_over()
        late.tell(facts(1))
        assert not first.has_all()
        first.close()
        assert first.facts == [facts(2, meshes=(mesh,)), facts(1)]
        assert all(other.is_over() for other in (early, late, silent))


def test_a_rank_that_goes_without_a_word_is_not_waited_for() -> None:
    name = address({"TORCHELASTIC_RUN_ID": str(uuid.uuid4())}, 1)
    first = FirstRank(name, 1)
    with OtherRank(name) as other:
        assert not other.is_over()
    assert first.has_all()
    assert first.facts == []
    first.close()


def test_runs_have_addresses_of_their_own() -> None:
    places = [address({"MASTER_PORT": port}, parent) for port in ("1", "2") for parent in (1, 2)]
    assert len(set(places)) == 4
    assert address({"MASTER_PORT": "1"}, 1) == places[0]
    assert all(place.startswith("\0") and len(place) < 108 for place in places)
