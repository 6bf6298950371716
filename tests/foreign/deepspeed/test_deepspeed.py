"""DeepSpeed's engine over our loader: the same training as over torch's, on one rank and on two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job
from foreign_runs import BATCH, COUNT, EPOCHS, SCENARIOS
from ports import free_port

# A checkpoint of DeepSpeed's has no half accumulated gradient: stopped after an even number of batches.
STOPPED = {**SCENARIOS, "first": {"loader": "ours", "stop": 2}}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    world = request.param
    start = "from deepspeed.launcher.runner import main; main()"
    launcher = [sys.executable, "-c", start, "--num_gpus", str(world), "--master_port", str(free_port())]
    folder = tmp_path_factory.mktemp("deepspeed")
    return run_job(Path(__file__).with_name("job.py"), folder, world, STOPPED, launcher)


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])
    updates = EPOCHS * COUNT // BATCH // runs.world // 2
    assert [found["updates"] for found in runs["ours"] + runs["torch"]] == [updates] * 2 * runs.world


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    """The loader's state is in the checkpoint's client_state."""
    check_resumed(runs["ours"], runs["first"], runs["second"])
