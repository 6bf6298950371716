"""Accelerate over fastload.DataLoader: as over torch's, and every batch from our engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from numbered_set import ROWS, make_numbered_set, once_each

SCENARIOS = ("accumulation", "gather", "skip", "checkpoint", "epoch_end", "splitting", "uneven", "others")

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw in all scenarios."""
    folder = tmp_path_factory.mktemp("accelerate")
    packed = make_numbered_set(folder / "packed")
    program = Path(__file__).with_name("programs.py")
    return run_program(program, folder / "out", ",".join(SCENARIOS), packed, ranks=request.param)


def of(ranks: list[Any], scenario: str) -> list[Any]:
    """Each rank's results of one scenario."""
    assert ranks
    for rank in ranks:
        assert "error" not in rank[scenario], rank[scenario]["error"]
    return [rank[scenario] for rank in ranks]


def by_epoch(ranks: list[Any], name: str) -> list[list[list[list[int]]]]:
    """For each epoch the ranks' batches."""
    return [list(batches) for batches in zip(*(rank[name]["epochs"] for rank in ranks), strict=True)]


def check_engine(run: Any) -> None:
    """Every batch that was seen is one that the loader's own engine gave."""
    seen = [batch for epoch in run["epochs"] for batch in epoch]
    assert run["batches"] == len(seen)
    assert run["decoded"] >= len([label for batch in seen for label in batch if label >= 0])


def test_the_last_batch_of_an_epoch_makes_an_optimizer_step(ranks: list[Any]) -> None:
    found = of(ranks, "accumulation")
    for rank in found:
        for kind in ("dataset", "packed"):
            assert rank[kind]["syncs"] == rank["torch"]["syncs"]
            assert rank[kind]["ends"] == rank["torch"]["ends"]
            assert rank[kind]["syncs"][0][-1] == "T"
            assert not rank[kind]["in_dataloader"]
        check_engine(rank["packed"])
    for kind in ("dataset", "packed"):
        assert all(once_each(epoch) for epoch in by_epoch(found, kind))


def test_full_batches_are_those_of_torch(ranks: list[Any]) -> None:
    for rank in of(ranks, "accumulation"):
        for kind in ("dataset", "packed"):
            expected = [batches[:-1] for batches in rank["torch"]["epochs"]]
            assert [batches[:-1] for batches in rank[kind]["epochs"]] == expected


def test_gathered_for_metrics_are_the_rows_of_the_set(ranks: list[Any]) -> None:
    for rank in of(ranks, "gather"):
        for name in ("torch", "dataset", "packed", "mark", "repeat", "whole", "large"):
            assert rank[name]["rows"] == list(range(ROWS)), name
        assert rank["packed"]["batches"] == rank["packed"]["length"] == rank["torch"]["length"]
        assert rank["objects"] == [f"row {n}" for n in range(ROWS)]


def test_skipping_gives_the_rest_of_the_epoch_from_the_engine(ranks: list[Any]) -> None:
    for rank in of(ranks, "skip"):
        whole = rank["whole"]
        for name in ("method", "function", "twice", "set_epoch"):
            found, first = rank[name], 1 if name == "set_epoch" else 0
            assert found["epochs"] == [whole["epochs"][first][3:], whole["epochs"][first + 1]]
            assert found["syncs"] == rank["torch"]["syncs"]
            assert found["ends"] == rank["torch"]["ends"]
            assert found["length"] == len(whole["epochs"][0]) - 3
            check_engine(found)


@pytest.mark.parametrize("mode", ["plain", "stateful"])
def test_a_resumed_run_equals_one_that_was_not_interrupted(ranks: list[Any], mode: str) -> None:
    for rank in of(ranks, "checkpoint"):
        whole, resumed = rank[f"{mode} whole"], rank[f"{mode} resumed"]
        assert resumed["before"] == [whole["epochs"][0], whole["epochs"][1][:4]]
        assert resumed["epochs"] == [whole["epochs"][1][4:], whole["epochs"][2]]
        assert resumed["weights"] == whole["weights"]
        assert resumed["ends"] == [whole["ends"][1][4:], whole["ends"][2]]
        check_engine(whole)
        check_engine(resumed)


@pytest.mark.parametrize("mode", ["plain", "stateful"])
def test_a_checkpoint_in_the_last_batch_goes_on_with_the_next_epoch(ranks: list[Any], mode: str) -> None:
    for rank in of(ranks, "epoch_end"):
        whole, resumed = rank[mode]["whole"], rank[mode]["resumed"]
        assert resumed["epochs"] == [whole["epochs"][1]]
        assert resumed["weights"] == whole["weights"]


def test_split_batches_divides_the_batch_size(ranks: list[Any]) -> None:
    found = of(ranks, "splitting")
    for rank in found:
        for kind in ("dataset", "packed"):
            assert rank[kind]["rows"] == rank["torch"]["rows"] == list(range(ROWS))
            expected = [batches[:-1] for batches in rank["torch"]["epochs"]]
            assert [batches[:-1] for batches in rank[kind]["epochs"]] == expected
        if len(found) > 1:
            assert "batch_size must be a multiple of the number of ranks" in rank["odd"]


def test_uneven_batches_have_every_row_once(ranks: list[Any]) -> None:
    found = of(ranks, "uneven")
    for name in ("packed", "packed joined"):
        first = by_epoch(found, name)[0]
        rows = sorted(label for batches in first for batch in batches for label in batch)
        assert rows == list(range(ROWS)), name
    for rank in found:
        lengths = [len(batch) for batch in rank["packed joined"]["epochs"][1]]
        assert len(lengths) == len(rank["torch joined"]["epochs"][1])
        check_engine(rank["packed"])


def test_what_cannot_be_honoured_says_so_and_the_rest_is_honoured(ranks: list[Any]) -> None:
    found = of(ranks, "others")
    for rank in found:
        assert "dispatch_batches" in rank["dispatch"]
        assert rank["placed"] == ["meta"]
        assert rank["unplaced"] == ["cpu"]
        assert rank["prepared"] == [1, True]
        assert rank["ends"] == ["F"] * (len(rank["ends"]) - 1) + ["T"]
    rows = sorted(row for rank in found for batch in rank["stream"] for row in batch)
    assert rows == list(range(20))


def test_ranks_of_a_mesh_that_share_their_batches(tmp_path: Path) -> None:
    pytest.importorskip("accelerate.parallelism_config")
    packed = make_numbered_set(tmp_path / "packed")
    program = Path(__file__).with_name("programs.py")
    found = of(run_program(program, tmp_path / "out", "meshes", packed, ranks=4), "meshes")
    shares = {rank["place"]: rank["batches"] for rank in found}
    assert sorted(shares) == [0, 1]
    assert all(rank["batches"] == shares[rank["place"]] for rank in found)
    rows = [int(label) for share in shares.values() for batch in share for label in batch[:-1]]
    assert set(rows) == set(range(ROWS))
