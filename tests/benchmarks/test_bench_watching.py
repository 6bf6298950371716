"""bench_watching in its smallest form."""

from __future__ import annotations

from typing import Any

import pytest
from bench_watching import overhead, own_cost
from torch.utils.data import DataLoader


def test_a_loop_is_run_in_turns_and_its_steps_happen() -> None:
    loader: Any = DataLoader(range(40), batch_size=4)  # type: ignore[arg-type]
    steps: list[int] = []
    row = overhead(loader, rounds=3, step=lambda batch: steps.append(len(batch)))
    assert steps == [4] * 10 * 2 * 4
    assert row["share"] < 1
    assert min(row["plain"], row["watched"]) > 0


@pytest.mark.flaky(reruns=2)  # measures CPU time, which others' use of the caches changes
def test_watching_has_a_cost() -> None:
    cost = own_cost(batches=2000)
    assert cost["look"] > 0
    assert cost["batch"] > 0
