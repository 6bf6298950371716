"""Lightning's Trainer over fastload.DataLoader: as over torch's, and every batch from our engine."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from numbered_set import ROWS, make_numbered_set, once_each

PROGRAM = Path(__file__).with_name("trainer_program.py")
OLD = version("lightning").split(".")[:2] < ["2", "6"]
LAUNCHES = {
    "one process": {"strategy": "auto", "ranks": 1, "world": 1},
    "torchrun": {"strategy": "ddp", "ranks": 2, "world": 2},
    "ddp": {"strategy": "ddp", "ranks": 1, "world": 2},
}

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=LAUNCHES.values(), ids=LAUNCHES)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw in all fits."""
    folder = tmp_path_factory.mktemp("lightning")
    packed = make_numbered_set(folder / "packed")
    how = request.param
    given = how["strategy"], how["world"], packed
    return run_program(PROGRAM, folder / "out", *given, ranks=how["ranks"], world=how["world"])


def by_epoch(ranks: list[Any], name: str, part: str = "train") -> list[list[list[list[int]]]]:
    """For each epoch the ranks' batches."""
    return [list(batches) for batches in zip(*(rank[name][part] for rank in ranks), strict=True)]


def check_engine(run: Any) -> None:
    """Every batch that was seen is one that our loader's engine gave."""
    for part, engine in zip(("train", "val"), run["engine"], strict=False):
        assert engine["kind"] == "fastload"
        seen = [batch for epoch in run[part] for batch in epoch]
        assert engine["batches"] == len(seen)
        assert engine["decoded"] >= len([label for batch in seen for label in batch if label >= 0])


def test_every_sample_comes_once_an_epoch_from_the_engine(ranks: list[Any]) -> None:
    for part in ("train", "val"):
        epochs = by_epoch(ranks, "packed", part)
        assert len(epochs) == 3
        assert all(once_each(epoch) for epoch in epochs)
    orders = [str(epoch) for epoch in by_epoch(ranks, "packed")]
    assert len(set(orders)) == 3  # another one each epoch
    for rank in ranks:
        check_engine(rank["packed"])


def test_validation_has_each_sample_once(ranks: list[Any]) -> None:
    assert ranks
    for epoch in by_epoch(ranks, "packed", "val"):
        rows = sorted(row for batches in epoch for batch in batches for row in batch if row >= 0)
        assert rows == list(range(ROWS))


def test_optimizer_steps_are_torchs(ranks: list[Any]) -> None:
    assert ranks
    for rank in ranks:
        assert rank["packed"]["steps"] == rank["torch"]["steps"]
        assert [len(epoch) for epoch in rank["packed"]["train"]] == [
            len(epoch) for epoch in rank["torch"]["train"]
        ]


def test_a_resumed_fit_equals_one_that_was_not_interrupted(ranks: list[Any]) -> None:
    assert ranks
    for rank in ranks:
        whole, stopped, resumed = rank["packed"], rank["stopped"], rank["resumed"]
        assert stopped["train"] == [whole["train"][0], whole["train"][1][:4]]
        assert resumed["train"] == [whole["train"][1][4:], whole["train"][2]]
        check_engine(resumed)
        if OLD:
            continue  # it counts the batch whose hook saves as not done: accumulation shifts by a batch
        assert resumed["weights"] == whole["weights"]
        assert resumed["steps"] == whole["steps"]


def test_seed_everything_decides_the_order(ranks: list[Any]) -> None:
    assert ranks
    for rank in ranks:
        assert rank["other seed"]["train"][0] != rank["packed"]["train"][0]


@pytest.mark.parametrize("made", ["overfit", "overfit in a hook"])
def test_overfit_batches_repeats_the_first_rows(ranks: list[Any], made: str) -> None:
    assert ranks
    for epoch in by_epoch(ranks, made):
        rows = sorted(row for batches in epoch for batch in batches for row in batch)
        assert rows == list(range(8 * len(ranks)))
    for rank in ranks:
        assert rank[made]["train"][0] == rank[made]["train"][1]
        check_engine(rank[made])


def test_predict_has_each_sample(ranks: list[Any]) -> None:
    rows = [row for rank in ranks for batch in rank["predict"] for row in batch if row >= 0]
    assert sorted(rows) == list(range(ROWS))


def test_ddp_spawn(tmp_path: Path) -> None:
    packed = make_numbered_set(tmp_path / "packed")
    ranks = [
        {"fit": rank} for rank in run_program(PROGRAM, tmp_path / "out", "ddp_spawn", 2, packed, world=2)
    ]
    for part in ("train", "val"):
        epochs = by_epoch(ranks, "fit", part)
        assert len(epochs) == 2
        assert all(once_each(epoch) for epoch in epochs)
    for rank in ranks:
        check_engine(rank["fit"])
