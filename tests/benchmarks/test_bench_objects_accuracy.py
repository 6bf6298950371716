"""bench_objects_accuracy in its smallest form: both networks learn from either loader, in a few steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench_objects_accuracy import SIDES, Detector, make, precision, score
from made_detection import CATEGORY_IDS, CLASSES, MadeSet
from torch import nn

# A fraction of the benchmark's steps; where these networks stand then.
STEPS = {"detector": 48, "segmenter": 24}
LEAST = {"detector": 0.3, "segmenter": 0.2}
CHANCE = {"detector": 0.02, "segmenter": 0.15}

Sets = tuple[Path, tuple[MadeSet, MadeSet]]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("accuracy")
    return folder, (make(folder / "train", 120, 1), make(folder / "test", 24, 2))


@pytest.mark.parametrize("task", STEPS)
@pytest.mark.parametrize("side", SIDES)
def test_a_network_learns(sets: Sets, task: str, side: str) -> None:
    assert score(task, side, *sets, STEPS[task], seed=0)[0] > LEAST[task]


@pytest.mark.parametrize("task", STEPS)
def test_one_that_has_not_been_trained_knows_nothing(sets: Sets, task: str) -> None:
    assert score(task, "fastload", *sets, 1, seed=0)[0] < CHANCE[task]


class Oracle(nn.Module):
    """Says what is in a set's pictures, one after the other, in the detector's way."""

    def __init__(self, made: MadeSet) -> None:
        super().__init__()
        self.made, self.position = made, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = torch.full((1, len(CLASSES) + 4, 32, 32), -20.0)
        for one in self.made.objects_of(self.position):
            x, y, w, h = one["bbox"]
            column, row = int((x + w / 2) // 4), int((y + h / 2) // 4)
            found[0, CATEGORY_IDS.index(one["category_id"]), row, column] = 9.0
            left, top = column + 0.5 - x / 4, row + 0.5 - y / 4
            found[0, len(CLASSES) :, row, column] = torch.tensor([left, top, w / 4 - left, h / 4 - top])
        self.position += 1
        return found


def test_the_judge_gives_everything_for_the_truth(sets: Sets) -> None:
    made = sets[1][1]
    assert min(precision(Oracle(made), made)) > 0.999
    assert max(precision(Detector().eval(), made)) < 0.02
