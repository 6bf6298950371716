"""Lightning Fabric over fastload.DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from numbered_set import make_numbered_set, once_each

PROGRAM = Path(__file__).with_name("fabric_program.py")
LAUNCHES = {"one process": ("auto", 1), "ddp": ("ddp", 2)}  # ddp_spawn: test_trainer.py

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=LAUNCHES.values(), ids=LAUNCHES)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw."""
    folder = tmp_path_factory.mktemp("fabric")
    packed = make_numbered_set(folder / "packed")
    strategy, world = request.param
    return run_program(PROGRAM, folder / "out", strategy, world, packed, world=world)


def test_every_sample_comes_once_an_epoch_from_the_engine(ranks: list[Any]) -> None:
    epochs = list(zip(*(rank["packed"]["epochs"] for rank in ranks), strict=True))
    assert len(epochs) == 4
    assert all(once_each(epoch) for epoch in epochs)
    assert len({str(epoch) for epoch in epochs}) == 4  # another order each
    for rank in ranks:
        seen = [batch for epoch in rank["packed"]["epochs"] for batch in epoch]
        assert rank["packed"]["batches"] == len(seen) == rank["torch"]["steps"]
        assert rank["packed"]["decoded"] >= sum(len(batch) for batch in seen)


def test_a_resumed_run_equals_one_that_was_not_interrupted(ranks: list[Any]) -> None:
    assert ranks
    for rank in ranks:
        whole, stopped, resumed = rank["packed"], rank["stopped"], rank["resumed"]
        assert stopped["epochs"] == [*whole["epochs"][:2], whole["epochs"][2][:4]]
        assert resumed["epochs"] == [whole["epochs"][2][4:], whole["epochs"][3]]
        assert resumed["weights"] == whole["weights"]
        assert resumed["batches"] == sum(len(epoch) for epoch in resumed["epochs"])
