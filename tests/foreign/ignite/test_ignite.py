"""ignite's engines over our loader: the same training as over torch's, on one rank and on two."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job
from foreign_runs import SCENARIOS

MORE = {
    "auto": {"loader": "auto"},
    "exact": {"loader": "ours", "deterministic": True},
    "exact-first": {"loader": "ours", "deterministic": True, "stop": 3},
    "exact-second": {"loader": "ours", "deterministic": True, "resume": "exact-first"},
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job = Path(__file__).with_name("job.py")
    return run_job(job, tmp_path_factory.mktemp("ignite"), request.param, {**SCENARIOS, **MORE})


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    """The loader's state is kept by ignite's Checkpoint, and the loop calls set_epoch before it goes on."""
    check_resumed(runs["ours"], runs["first"], runs["second"])


def test_deterministic_engine(runs: Runs) -> None:
    """It rebuilds the loader around a batch sampler of its own; batches still come from the engine."""
    check_epochs(runs["exact"])
    check_equal(runs["exact"], runs["torch"])
    check_resumed(runs["exact"], runs["exact-first"], runs["exact-second"])


def test_auto_dataloader(runs: Runs) -> None:
    """Ours gives ignite's division of the batch among ranks, and a loader of ours."""
    check_epochs(runs["auto"])
    check_equal(runs["auto"], runs["ours"])
    assert {rank["kind"] for rank in runs["auto"]} == {"fastload.loader.data_loader"}
