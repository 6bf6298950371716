"""Ray Train over our loader: the same training as over torch's, on one worker and on two."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import ray.train.torch
import torch
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job
from foreign_runs import SCENARIOS, make_set, our_loader

from fastload.integrations.ray import prepare_data_loader

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


@pytest.mark.filterwarnings("ignore:.*CUDA")  # batches come on the CPU, where there is none
def test_a_device_of_rays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader is made anew for it, and goes on where it was."""
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cuda"))
    loader = our_loader(make_set(tmp_path / "set"))
    for _ in itertools.islice(loader, 3):
        pass
    prepared = prepare_data_loader(loader)
    assert prepared is not loader
    assert prepared.device == torch.device("cuda")
    assert prepared.state_dict() == loader.state_dict()
    assert prepare_data_loader(prepared) is prepared
    with pytest.raises(TypeError, match=r"prepare_data_loader takes a fastload.DataLoader\. Found: list\."):
        prepare_data_loader([])
