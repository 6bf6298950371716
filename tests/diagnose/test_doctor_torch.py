"""The doctor on torch's own loaders: the cause, and what fastload would give."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import encoded, picture
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fastload
from fastload.diagnose.causes import Evidence
from fastload.diagnose.doctor import examine
from fastload.diagnose.facts import Loop, Stage
from fastload.diagnose.fixes import torch as fixes
from fastload.diagnose.torch_loader import TorchLoaderUnderTest
from fastload.diagnose.trial import Budget, Trial


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1).contiguous()


def slow_to_tensor(image: Image.Image) -> torch.Tensor:
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        sum(range(100))
    return to_tensor(image)


def opened(path: str) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


class Pictures(Dataset[Any]):
    """As torchvision's ImageFolder."""

    def __init__(self, root: Path, transform: Any = to_tensor, side: int = 320) -> None:
        self.root, self.transform, self.loader = str(root), transform, opened
        self.samples = []
        root.mkdir(exist_ok=True)
        for number, data in enumerate(encoded(picture(seed, side, side)) for seed in range(24)):
            path = root / f"{number}.jpg"
            path.write_bytes(data)
            self.samples.append((str(path), number % 3))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return self.transform(self.loader(path)), label


class Numbers(Dataset[Any]):
    """Samples that are there already."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(4), index


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(0.004 * len(samples))
    return torch.utils.data.default_collate(samples)


def test_fastload_is_tried_on_the_files(tmp_path: Path, quick: float) -> None:
    loader = DataLoader(Pictures(tmp_path / "images"), 4, shuffle=True)
    state = torch.get_rng_state()
    verdict = examine(loader, step=Stage("step", 1e6), seconds=quick)
    assert torch.equal(torch.get_rng_state(), state)
    names = {stage.name for stage in verdict.stages}
    assert {"loader", "step"} <= names
    assert {"decode", "transform"} & names
    assert verdict.loader_rate > 0
    tried = "24 of its files, packed into a temporary folder"
    found = [fix for fix in verdict.fixes if fix.name == "fastload"]  # where it gains something
    assert all(tried in fix.evidence for fix in found)
    assert all(f"`fastload pack {tmp_path / 'images'} SET`" in fix.words for fix in found)


@pytest.mark.flaky(reruns=2)  # measures: others' work may fall on what is quick
def test_a_slow_python_transform_is_named(tmp_path: Path, quick: float) -> None:
    loader = DataLoader(Pictures(tmp_path / "images", slow_to_tensor, side=40), 4, num_workers=2)
    verdict = examine(loader, seconds=quick)
    assert verdict.limit == "augmentation"
    assert verdict.place is not None
    assert verdict.place.spot.function == "slow_to_tensor"
    assert "test_doctor_torch.py line" in str(verdict)


@pytest.mark.flaky(reruns=2)  # as above
def test_a_slow_collate_function_is_found(quick: float) -> None:
    verdict = examine(DataLoader(Numbers(), 8, collate_fn=slow_collate), seconds=quick)
    assert verdict.limit == "collate"
    assert next(fix for fix in verdict.fixes if fix.name == "collate_fn").gain > 0


@pytest.mark.parametrize(
    ("loader", "own"),
    [
        (fastload.DataLoader(Numbers(), 8), False),
        (fastload.DataLoader(Numbers(), 8, collate_fn=slow_collate), True),
        (DataLoader(Numbers(), 8), False),
        (DataLoader(Numbers(), 8, collate_fn=torch.utils.data.default_collate), False),
        (DataLoader(Numbers(), 8, collate_fn=slow_collate), True),
    ],
)
def test_only_a_collate_function_of_the_users_own_is_left_out(
    loader: Any, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much time collating takes, as it may seem to on a crowded machine."""
    base = Trial(200.0, 0.01, 1.0, 0, {}, (0.04,) * 8)
    case = fixes.TorchExamination(
        *(Budget(60), Path(), 2.0, 2, 2.0, base, None, None),
        TorchLoaderUnderTest(loader),
        Evidence(wait=0.8, makers={"collate": 0.9}),
        None,  # type: ignore[arg-type]
    )
    monkeypatch.setattr(fixes, "in_turns", lambda makers, *_: dict.fromkeys(makers, base))
    assert [fix.words for fix in fixes.without_collate(case)] == ["Without the collate_fn slow_collate"] * own


def test_fastloads_loader_over_a_torch_dataset_is_examined_like_torchs(quick: float) -> None:
    verdict = examine(fastload.DataLoader(Numbers(), 8, True), seconds=quick)
    assert verdict.loader_rate > 0
    assert not any(fix.name == "collate_fn" for fix in verdict.fixes)


@pytest.mark.parametrize("sampler", [True, False])
def test_a_step_that_limits_is_said(sampler: bool, quick: float) -> None:
    batches = torch.utils.data.BatchSampler(range(256), 8, False)
    loader = DataLoader(Numbers(), batch_sampler=batches) if sampler else DataLoader(Numbers(), 8)
    loop = Loop("a loader", 8, np.full(9, 1e-5), np.full(9, 0.5), 0, 2.0, 0.1, 0.1)
    verdict = examine(loader, loop, seconds=quick)
    assert verdict.limit == "step"
    assert verdict.step_rate == pytest.approx(16)
    assert verdict.loop is loop
