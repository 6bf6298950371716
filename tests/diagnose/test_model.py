"""What a loop reaches, by arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastload.diagnose.examination import together
from fastload.diagnose.facts import Loop


@pytest.mark.parametrize(
    ("loader", "step", "loader_cpu", "step_cpu", "expected"),
    [
        (233, 412, 0, 0, 233),  # the loader limits
        (900, 412, 0.002, 0.0001, 412),  # the step does, on a device
        (1000, 1000, 0.002, 0.002, 500),  # both on the same two CPUs
        (math.inf, 10, 0, 0.2, 10),
    ],
)
def test_the_slower_sets_the_pace(
    loader: float, step: float, loader_cpu: float, step_cpu: float, expected: float
) -> None:
    assert together(loader, step, loader_cpu, step_cpu, cpus=2) == pytest.approx(expected)


def test_a_loop_says_its_rate_and_its_wait() -> None:
    loop = Loop(
        "a loader",
        8,
        np.array([0.3, 0.1]),
        np.array([0.1, 0.5]),
        threads=2,
        cpus=2.0,
        loop_cpu=0.2,
        loader_cpu=1.5,
    )
    assert loop.seconds == pytest.approx(1.0)
    assert loop.rate == pytest.approx(16)
    assert loop.wait_share == pytest.approx(0.4)
