"""What `fastload bench` writes out where torchvision is not installed: torchvision's draws and values."""

from __future__ import annotations

import bare_torchvision  # noqa: F401
import numpy as np
import torch
from pictures import picture
from torchvision import transforms as t

from fastload.diagnose.comparison_child import MEAN, SIDE, STD, Steps, random_crop


def test_steps_are_torchvisions() -> None:
    chain = t.Compose(
        [t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]
    )
    steps = Steps()
    for seed, (width, height) in enumerate([(500, 375), (60, 400), (900, 30), (224, 224), (3, 5)] * 4):
        image = picture(seed, width, height)
        torch.manual_seed(seed)
        expected = chain(image)
        torch.manual_seed(seed)
        assert torch.equal(steps(image), expected), (seed, width, height)


def test_crops_are_drawn_as_torchvision_draws_them() -> None:
    image_sizes = np.random.default_rng(0).integers(1, 2000, (500, 2)).tolist()
    assert image_sizes
    for seed, (width, height) in enumerate(image_sizes):
        torch.manual_seed(seed)
        top, left, h, w = t.RandomResizedCrop.get_params(
            torch.empty(3, height, width), (0.08, 1.0), (3 / 4, 4 / 3)
        )
        torch.manual_seed(seed)
        assert random_crop(width, height) == (left, top, w, h), (seed, width, height)
