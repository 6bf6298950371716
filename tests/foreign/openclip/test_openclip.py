"""open_clip_train's loop over our loader: the same training as over torch's, on one rank and on two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job, torchrun
from foreign_runs import COUNT

from fastload.integrations.open_clip import CaptionTokens

SCENARIOS = {
    "ours": {"loader": "ours"},
    "torch": {"loader": "torch"},
    "first": {"loader": "ours", "stop": 1},  # an epoch: the loop resumes at epochs only
    "second": {"loader": "ours", "resume": "first"},
    "evaluated": {"loader": "ours", "stop": 0, "evaluate": True},
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job, world = Path(__file__).with_name("job.py"), request.param
    folder = tmp_path_factory.mktemp("openclip")
    return run_job(job, folder, world, SCENARIOS, torchrun(world) if world > 1 else None)


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])


def test_resumed_at_an_epoch(runs: Runs) -> None:
    """A new loader gives the second epoch's order and crops, because the loop sets the epoch."""
    check_resumed(runs["ours"], runs["first"], runs["second"])


def test_evaluation_sees_every_sample_once(runs: Runs) -> None:
    """It runs on the first rank alone."""
    assert [found["val"] for found in runs["evaluated"]] == [COUNT, None][: runs.world]


def test_pictures_without_caption_are_left_out() -> None:
    images, tokens = torch.arange(3).view(3, 1, 1, 1), torch.tensor([[7], [8]])
    found = CaptionTokens(tokens)(images, torch.tensor([1, -100, 0]))
    assert found[0].flatten().tolist() == [0, 2]
    assert found[1].tolist() == [[8], [7]]
    with pytest.raises(IndexError, match=r"A picture has the label 2; there are 2 captions\."):
        CaptionTokens(tokens)(images, torch.tensor([0, 1, 2]))
