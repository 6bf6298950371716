"""torchvision's reference training over our loader: the same as over torch's, on one rank and on two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job, torchrun
from foreign_runs import COUNT, SCENARIOS

PRESETS = ["v2", "opaque", "policy", "eval"]
MIX = {"loader": "ours", "preset": "policy", "mix": True}
MORE = {
    **{name: {"loader": "ours", "preset": name} for name in PRESETS},
    **{f"torch-{name}": {"loader": "torch", "preset": name} for name in PRESETS},
    "mix": MIX,
    "mix-again": MIX,
    "mix-first": {**MIX, "stop": 3},
    "mix-second": {**MIX, "resume": "mix-first"},
    "repeat": {"loader": "ours", "repeat": True},
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job, world = Path(__file__).with_name("job.py"), request.param
    folder = tmp_path_factory.mktemp("torchvision")
    return run_job(job, folder, world, {**SCENARIOS, **MORE}, torchrun(world) if world > 1 else None)


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])
    check_equal(runs["v2"], runs["ours"])


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(runs: Runs, preset: str) -> None:
    """Chains that run in the core, partly or not at all."""
    check_epochs(runs[preset])
    check_equal(runs[preset], runs[f"torch-{preset}"])


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    check_resumed(runs["ours"], runs["first"], runs["second"])


def test_mixup_and_cutmix_in_collate_fn(runs: Runs) -> None:
    """Random numbers of the collate function repeat, and go on where they were."""
    for found in runs["mix"]:
        assert found["engine"] == found["steps"] == 2 * COUNT // 4 // runs.world
    check_equal(runs["mix"], runs["mix-again"])
    check_resumed(runs["mix"], runs["mix-first"], runs["mix-second"])


def test_repeated_augmentation(runs: Runs) -> None:
    """Three pictures of each sample, all cropped differently, also on different ranks."""
    batches = [batch for found in runs["repeat"] for batch in found["sums"][: len(found["sums"]) // 2]]
    pictures = [tuple(picture) for batch in batches for picture in batch]
    assert Counter(label for label, _ in pictures) == dict.fromkeys(range(COUNT), 3)
    assert len(set(pictures)) == 3 * COUNT
