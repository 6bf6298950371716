"""timm's training over what our create_loader makes: the same as over torch's, on one rank and on two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from foreign_jobs import Runs, check_epochs, check_equal, check_resumed, run_job, torchrun
from foreign_runs import COUNT, SCENARIOS

AUGMENTED = {"auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "random", "re_prob": 0.25}
MORE = {
    "plain": {"loader": "plain"},
    "prefetcher": {"loader": "ours", "prefetcher": True},
    "augmented": {"loader": "ours", "arguments": AUGMENTED},
    "augmented-again": {"loader": "ours", "arguments": AUGMENTED},
    "augmented-first": {"loader": "ours", "arguments": AUGMENTED, "stop": 3},
    "augmented-second": {"loader": "ours", "arguments": AUGMENTED, "resume": "augmented-first"},
    "mixup": {"loader": "ours", "prefetcher": True, "mixup": True, "mixup_off": 1},
    "mixup-again": {"loader": "ours", "prefetcher": True, "mixup": True, "mixup_off": 1},
    "evaluation": {"loader": "ours", "prefetcher": True, "arguments": {"is_training": False}},
    "several": {"loader": "ours", "arguments": {"use_multi_epochs_loader": True}},
    "timm's": {"loader": "timm's"},
    "repeat": {"loader": "ours", "arguments": {"num_aug_repeats": 3}},
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    job, world = Path(__file__).with_name("job.py"), request.param
    more = MORE if world > 1 else {name: given for name, given in MORE.items() if name != "repeat"}
    folder = tmp_path_factory.mktemp("timm")
    return run_job(job, folder, world, {**SCENARIOS, **more}, torchrun(world) if world > 1 else None)


def test_training_equals_torch(runs: Runs) -> None:
    check_epochs(runs["ours"])
    check_equal(runs["ours"], runs["torch"])
    check_equal(runs["ours"], runs["plain"])
    assert {found["kind"] for found in runs["ours"]} == {"DataLoader"}


def test_timms_own_create_loader(runs: Runs) -> None:
    """It works on a packed dataset, in torch's worker processes; its other loader is not needed."""
    check_equal(runs["several"], runs["ours"])
    for found in runs["timm's"]:
        assert found["engine"] == 0
    half = runs["timm's"][0]["steps"] // 2
    batches = [batch for found in runs["timm's"] for batch in found["labels"][:half]]
    assert sorted(label for batch in batches for label in batch) == list(range(COUNT))


def test_prefetcher(runs: Runs) -> None:
    """timm's PrefetchLoader around ours: uint8 batches, normalised by it."""
    check_epochs(runs["prefetcher"])
    assert {found["kind"] for found in runs["prefetcher"]} == {"PrefetchLoader"}
    for ours, found in zip(runs["ours"], runs["prefetcher"], strict=True):
        assert ours["labels"] == found["labels"]
        for exact, near in zip(ours["sums"], found["sums"], strict=True):
            assert exact == pytest.approx(near, rel=1e-3, abs=1e-1)


def test_resumed_in_mid_epoch(runs: Runs) -> None:
    check_resumed(runs["ours"], runs["first"], runs["second"])


def test_augmentation_repeats(runs: Runs) -> None:
    """timm's policies draw from Python's and NumPy's generators, and run in Python behind the decoder."""
    check_epochs(runs["augmented"])
    check_equal(runs["augmented"], runs["augmented-again"])
    check_resumed(runs["augmented"], runs["augmented-first"], runs["augmented-second"])


def test_mixup_in_the_collate_function(runs: Runs) -> None:
    """It is switched off through the loader, as train.py does at an epoch."""
    check_equal(runs["mixup"], runs["mixup-again"])
    for found in runs["mixup"]:
        assert found["engine"] == found["steps"]
        assert {step[0] for step in found["sums"]} == {2}
    half = runs["mixup"][0]["steps"] // 2
    batches = [batch for found in runs["mixup"] for batch in found["labels"][half:]]
    assert sorted(label for batch in batches for label in batch) == list(range(COUNT))


def test_evaluation(runs: Runs) -> None:
    """Every sample in its order, over all ranks."""
    check = [label for found in runs["evaluation"] for batch in found["labels"] for label in batch]
    assert Counter(check) == dict.fromkeys(range(COUNT), 2)  # two epochs
    for found in runs["evaluation"]:
        assert found["engine"] == found["steps"]


def test_repeated_augmentation(runs: Runs) -> None:
    """timm's RepeatAugSampler: pictures of one sample on two ranks are cropped differently."""
    if runs.world == 1:
        with pytest.raises(FileNotFoundError):
            runs["repeat"]
        return
    half = len(runs["repeat"][0]["labels"]) // 2
    pictures = [
        (label, total)
        for found in runs["repeat"]
        for batch, sums in zip(found["labels"][:half], found["sums"][:half], strict=True)
        for label, total in zip(batch, sums[1:], strict=True)
    ]
    assert len(pictures) == COUNT
    assert max(Counter(label for label, _ in pictures).values()) > 1
    assert len(set(pictures)) == COUNT
