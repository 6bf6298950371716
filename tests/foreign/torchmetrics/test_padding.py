"""torchmetrics on two ranks: what fills the last batch must not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from numbered_set import ROWS, make_numbered_set

PROGRAM = Path(__file__).with_name("padding_program.py")

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank measured."""
    folder = tmp_path_factory.mktemp("torchmetrics")
    packed = make_numbered_set(folder / "packed")
    return run_program(PROGRAM, folder / "out", packed, ranks=request.param)


@pytest.mark.parametrize("way", ["ignore_index", "padding", "valid"])
def test_a_perfect_model_is_perfect(ranks: list[Any], way: str) -> None:
    assert ranks
    for rank in ranks:
        found = rank[way]
        assert found["accuracy"] == 1.0
        assert found["mean"] == pytest.approx(sum(range(ROWS)) / ROWS)
        assert found["trace"] == found["counted"] == ROWS
        assert found["batches"] == found["seen"]


def test_all_ranks_have_as_many_batches(ranks: list[Any]) -> None:
    for way in ("ignore_index", "padding", "valid"):
        assert len({rank[way]["seen"] for rank in ranks}) == 1
