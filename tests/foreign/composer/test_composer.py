"""composer's Trainer over our loader: the same training as over torch's, on one rank and on two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job
from foreign_runs import SCENARIOS

MORE = {
    "exact-first": {"loader": "ours", "stop": 3, "exact": True},
    "exact-second": {"loader": "ours", "resume": "exact-first", "exact": True},
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job, world = Path(__file__).with_name("job.py"), request.param
    start = "import bare_torchvision; from composer.cli.launcher import main; main()"
    launcher = [sys.executable, "-c", start, "-n", str(world)]
    folder = tmp_path_factory.mktemp("composer")
    return run_job(job, folder, world, {**SCENARIOS, **MORE}, launcher if world > 1 else None)


def test_training_equals_torch(runs: Runs) -> None:
    """With several ranks composer wants a DistributedSampler, which loader.sampler is."""
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    """composer spins the loader to where it was: the batches are made again, and thrown away."""
    check_resumed(runs["ours"], runs["first"], runs["second"])


def test_resumed_by_the_loaders_state(runs: Runs) -> None:
    """With the callback that keeps the loader's state nothing is made twice."""
    check_resumed(runs["ours"], runs["exact-first"], runs["exact-second"])
    for found in runs["exact-second"]:
        assert found["engine"] == len(found["labels"])
