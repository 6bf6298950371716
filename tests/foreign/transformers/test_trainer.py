"""Hugging Face's Trainer over packed sets: by the mixin, and by overridden methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from numbered_set import ROWS, make_numbered_set, once_each

PROGRAM = Path(__file__).with_name("trainer_program.py")
WAYS = ["mixin", "override"]

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw."""
    folder = tmp_path_factory.mktemp("trainer")
    packed = make_numbered_set(folder / "packed")
    save_steps = 10 if request.param == 1 else 6  # in the middle of the second epoch
    return run_program(PROGRAM, folder / "out", packed, save_steps, ranks=request.param)


def epochs_of(rank: Any, name: str, batches: int) -> list[list[list[int]]]:
    """One rank's batches by epochs of as many."""
    trained = rank[name]["trained"]
    return [trained[first : first + batches] for first in range(0, len(trained), batches)]


@pytest.mark.parametrize("way", WAYS)
def test_training_has_each_sample_once_an_epoch_from_the_engine(ranks: list[Any], way: str) -> None:
    batches = -(-ROWS // (4 * len(ranks)))
    by_epoch = list(zip(*(epochs_of(rank, way, batches) for rank in ranks), strict=True))
    assert len(by_epoch) == 3
    assert all(once_each(epoch) for epoch in by_epoch)
    assert len({str(epoch) for epoch in by_epoch}) == 3
    for rank in ranks:
        assert rank[way]["steps"] == rank["torch"]["steps"]
        assert len(rank[way]["trained"]) == len(rank["torch"]["trained"])
        assert rank[way]["engine"]["kind"] == "fastload.loader.data_loader"
        assert rank[way]["engine"]["batches"] == len(rank[way]["trained"])


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_training_equals_one_that_was_not_interrupted(ranks: list[Any], way: str) -> None:
    assert ranks
    for rank in ranks:
        whole, resumed = rank[way], rank[f"{way} resumed"]
        assert resumed["steps"] == whole["steps"]
        assert 0 < len(resumed["trained"]) < len(whole["trained"])
        assert resumed["trained"] == whole["trained"][-len(resumed["trained"]) :]
        assert resumed["weights"] == whole["weights"]
        assert resumed["engine"]["batches"] == len(resumed["trained"])


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_has_the_rows_of_the_set(ranks: list[Any], way: str) -> None:
    assert ranks
    for rank in ranks:
        torchs, ours = rank["torch evaluated"], rank[f"{way} evaluated"]
        assert ours["rows"] == torchs["rows"] == list(range(ROWS))
        assert ours["predicted"] == list(range(ROWS))
        assert ours["sum"] == pytest.approx(torchs["sum"], rel=0.02)
        assert ours["loss"] == pytest.approx(torchs["loss"], rel=0.05)
        assert ours["engine"]["kind"] == "fastload.loader.data_loader"


def test_a_loader_that_accelerate_does_not_know_is_told_of(ranks: list[Any]) -> None:
    assert ranks
    for rank in ranks:
        if len(ranks) == 1:
            assert rank["unprepared"]["rows"] == list(range(ROWS))
        else:
            assert "iterated over without Accelerator.prepare" in rank["unprepared"]["words"][0]
