"""timm's own Mixup object, given the same numbers, against what its batches become in the loader."""

from __future__ import annotations

import inspect
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from timm.data import mixup

from fastload.sampler import BatchIds
from fastload.transfer.draws import BatchKeyed
from fastload.transfer.mixing import known, mixed

ARGUMENTS: list[dict[str, Any]] = [
    {"mixup_alpha": 0.8},
    {"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "prob": 0.6},
    {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "switch_prob": 0.3},
    {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "correct_lam": False},
    {"mixup_alpha": 0.2, "cutmix_minmax": (0.2, 0.8), "label_smoothing": 0.0},
]
ROUNDED_UP = "(cut_h + 1) // 2" in inspect.getsource(
    mixup.rand_bbox
)  # older ones lose a row of odd rectangles


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("mode", ["elem", "pair"])
def test_timms_object(mode: str, arguments: dict[str, Any]) -> None:
    if not ROUNDED_UP and arguments.get("cutmix_alpha"):
        pytest.skip("this timm's rectangles are smaller by a row where their height is odd")
    theirs = mixup.Mixup(mode=mode, num_classes=10, **arguments)
    changed = 0
    for number in range(50):
        x, y = torch.randn(8, 3, 24, 17), torch.randint(0, 10, (8,))
        keyed = [BatchKeyed(1, 2, BatchIds(np.array([number], np.int64), None)) for _ in range(2)]
        images, labels = mixed(known(theirs), x, y, keyed[0])
        seed = keyed[1].seed()
        np.random.seed([seed % 2**32, seed // 2**32])
        wanted, soft = theirs(x.clone(), y)
        assert (images - wanted).abs().max() < 2e-6
        assert (labels - soft).abs().max() < 1e-6
        changed += not torch.equal(images, x)
    assert changed > 25
