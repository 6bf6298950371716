"""Ray Train over our loader: the same training as over torch's, on one worker and on two."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job
from foreign_runs import SCENARIOS

MORE = {"ray's": {"loader": "ray's"}}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job = Path(__file__).with_name("job.py")
    return run_job(job, tmp_path_factory.mktemp("ray"), request.param, {**SCENARIOS, **MORE})


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])
    assert {found["kind"] for found in runs["ours"]} == {"DataLoader"}


def test_rays_own_preparing(runs: Runs) -> None:
    """It leaves the loader's sampler alone, which is a DistributedSampler, and wraps the loader."""
    check_epochs(runs["ray's"])
    check_equal(runs["ray's"], runs["torch"])
    assert {found["kind"] for found in runs["ray's"]} == {"_WrappedDataLoader"}


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    check_resumed(runs["ours"], runs["first"], runs["second"])
