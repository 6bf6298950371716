"""loaders/sweep.py: each candidate at the count of workers that it is fastest with."""

from __future__ import annotations

import os
import sys

import bench_loader
import pytest
from harness.measure import Candidate
from loaders import sweep


def prints(name: str, rate: float | None) -> Candidate:
    """A candidate with this rate; None: it fails."""
    code = "raise SystemExit(3)" if rate is None else f"print('{{\"rate\": {rate}}}')"
    return Candidate(name, [sys.executable, "-S", "-c", code])


def test_the_best_count_is_taken_and_failures_are_left_out() -> None:
    rates: dict[str, dict[int, float | None]] = {
        "threads": {1: 10.0, 2: 20.0, 4: 15.0},
        "no more than cores": {1: 10.0, 2: 12.0, 4: None},
        "never": {1: None, 2: None, 4: None},
    }
    found = sweep.sweep(list(rates), [1, 2, 4], lambda name, count: prints(name, rates[name][count]))
    assert found.chosen == {"threads": 2, "no more than cores": 2, "never": 1}
    assert found.rates == rates
    assert "| no more than cores | 10 | 12 | - | 2 |" in found.table()


def test_counts_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert sweep.counts("") == [1, 8, 12, 16]
    assert sweep.counts("3,5") == [3, 5]


def test_more_cpus_than_there_are_is_an_error() -> None:
    with pytest.raises(SystemExit, match="--cpus 4096: there are"):
        sweep.use_cpus(4096)


def test_what_the_user_names_is_kept(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_loader, "sweep", lambda *_: sweep.Workers({"a": 3, "b": 4}, {"a": {}, "b": {}}))
    arguments = bench_loader.parse([str(tmp_path), "--sweep", "--workers", "b=7", "not_here=2"])
    found = bench_loader.workers_of(arguments, {"a": "python", "b": "python"}, arguments.folder)
    assert found.chosen == {"a": 3, "b": 7}
