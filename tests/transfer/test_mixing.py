"""timm's Mixup and smoothed labels against their formulas written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload.sampler import BatchIds
from fastload.transfer.draws import BatchKeyed
from fastload.transfer.mixing import known
from fastload.transforms.batch import CutMix, LabelSmoothing, MixUp, TimmMixup

Make = Callable[..., DataLoader]
FLOAT = T.ToDtype("float32", scale=True)


def batches(dataset: PackedDataset, **options: Any) -> list[Any]:
    with DataLoader(dataset, 8, **{"num_workers": 2, "seed": 3, "transform": FLOAT, **options}) as loader:
        found = [(images.clone(), labels.clone()) for images, labels in loader]
    assert len(found) > 1
    return found


def timms(kind: str = "Mixup", **changes: Any) -> Any:
    """An object that looks like timm's."""

    def call(self: Any, images: torch.Tensor, labels: torch.Tensor) -> Any:
        return images + 100, labels

    item = type(kind, (), {"__module__": "timm.data.mixup", "__call__": call})()
    item.__dict__.update(
        mixup_alpha=0.8,
        cutmix_alpha=1.0,
        cutmix_minmax=None,
        mix_prob=1.0,
        switch_prob=0.5,
        label_smoothing=0.1,
        num_classes=100,
        mode="batch",
        correct_lam=True,
        mixup_enabled=True,
    )
    item.__dict__.update(changes)
    return item


def mixup_target(target: torch.Tensor, num_classes: int, lam: float, smoothing: float) -> torch.Tensor:
    """timm's function of that name."""
    off = smoothing / num_classes
    on = 1.0 - smoothing + off

    def one_hot(x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), num_classes), off).scatter_(1, x.long().view(-1, 1), on)

    return one_hot(target) * lam + one_hot(target.flip(0)) * (1.0 - lam)


def mix_batch(spec: TimmMixup, x: torch.Tensor, target: torch.Tensor, keyed: BatchKeyed) -> Any:
    """timm's ``Mixup.__call__`` in mode batch, with our numbers in place of NumPy's."""
    x, lam, cuts = x.clone(), 1.0, False
    if keyed.uniform() < spec.prob:
        if spec.mixup_alpha > 0 and spec.cutmix_alpha > 0:
            cuts = keyed.uniform() < spec.switch_prob
        elif spec.cutmix_alpha > 0:
            cuts = True
        lam = keyed.beta(spec.cutmix_alpha if cuts else spec.mixup_alpha)
    if cuts:
        height, width = x.shape[-2:]
        ratio = math.sqrt(1 - lam)
        cut_h, cut_w = int(height * ratio), int(width * ratio)
        cy, cx = keyed.below(height), keyed.below(width)
        yl, yh = np.clip([cy - cut_h // 2, cy + (cut_h + 1) // 2], 0, height)
        xl, xh = np.clip([cx - cut_w // 2, cx + (cut_w + 1) // 2], 0, width)
        x[:, :, yl:yh, xl:xh] = x.flip(0)[:, :, yl:yh, xl:xh].clone()
        lam = 1.0 - (yh - yl) * (xh - xl) / (height * width) if spec.correct_lam else lam
    else:
        x = x * lam + x.flip(0) * (1.0 - lam)
    return x, mixup_target(target, spec.num_classes, lam, spec.label_smoothing)


SPECS = [
    TimmMixup(0.8, 1.0, num_classes=100),
    TimmMixup(0.2, 0.0, num_classes=100, label_smoothing=0.0),
    TimmMixup(0.0, 1.0, prob=0.6, num_classes=100),
    TimmMixup(0.8, 1.0, switch_prob=0.9, correct_lam=False, num_classes=100),
]


@pytest.mark.parametrize("spec", SPECS)
def test_timms_mixup(tiny: PackedDataset, spec: TimmMixup) -> None:
    found, plain = batches(tiny, batch_transform=spec), batches(tiny)
    changed = 0
    for number, ((images, labels), (base, hard)) in enumerate(zip(found, plain, strict=True)):
        keyed = BatchKeyed(3, 0, BatchIds(np.array([8 * number], np.int64), None))
        wanted, soft = mix_batch(spec, base, hard, keyed)
        assert (images - wanted).abs().max() < 1e-6
        assert (labels - soft).abs().max() < 1e-6
        assert (labels.sum(1) - 1).abs().max() < 1e-5
        changed += not torch.equal(images, base)
    assert changed > 4


def test_timms_object_is_that_spec(tiny: PackedDataset) -> None:
    wanted = batches(tiny, batch_transform=TimmMixup(0.8, 1.0, num_classes=100))
    for (images, labels), (same, soft) in zip(batches(tiny, batch_transform=timms()), wanted, strict=True):
        assert torch.equal(images, same)
        assert torch.equal(labels, soft)


def test_timms_object_can_be_switched_off(tiny: PackedDataset) -> None:
    """As timm's training script does from an epoch on: labels stay smoothed."""
    mixup, plain = timms(), batches(tiny)
    with DataLoader(tiny, 8, transform=FLOAT, seed=3, batch_transform=mixup) as loader:
        assert any(not torch.equal(x, base) for (x, _), (base, _) in zip(loader, plain, strict=True))
        mixup.mixup_enabled = False
        for (images, labels), (base, hard) in zip(loader, plain, strict=True):
            assert torch.equal(images, base)
            assert (labels - mixup_target(hard, 100, 1.0, 0.1)).abs().max() < 1e-6


@pytest.mark.parametrize(
    "changes", [{"mode": "elem"}, {"mode": "pair"}, {"cutmix_minmax": (0.2, 0.8)}, {"multi_label": True}]
)
def test_timms_other_modes_are_that_spec(changes: dict[str, Any]) -> None:
    assert known(timms(**changes)) == TimmMixup(0.8, 1.0, num_classes=100, **changes)


@pytest.mark.parametrize("spec", [MixUp(100, 0.4, 0.2), CutMix(100, label_smoothing=0.2)])
def test_mixed_labels_are_smoothed(tiny: PackedDataset, spec: Any) -> None:
    sharp = type(spec)(100, spec.alpha)
    for (images, labels), (same, soft) in zip(
        batches(tiny, batch_transform=spec), batches(tiny, batch_transform=sharp), strict=True
    ):
        assert torch.equal(images, same)
        assert (labels - (0.8 * soft + 0.002)).abs().max() < 1e-6


def test_labels_alone_are_smoothed(tiny: PackedDataset) -> None:
    logits = torch.randn(8, 100, generator=torch.Generator().manual_seed(0))
    for (images, labels), (base, hard) in zip(
        batches(tiny, batch_transform=LabelSmoothing(100, 0.1)), batches(tiny), strict=True
    ):
        assert torch.equal(images, base)
        wanted = torch.nn.functional.cross_entropy(logits[: len(hard)], hard, label_smoothing=0.1)
        found = torch.nn.functional.cross_entropy(logits[: len(hard)], labels)
        assert abs(wanted - found) < 1e-5
    both = batches(tiny, batch_transform=[MixUp(100, 0.4), LabelSmoothing(100, 0.2)])
    one = batches(tiny, batch_transform=MixUp(100, 0.4, 0.2))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(both, one, strict=True))


def test_padding_has_no_weight(tiny: PackedDataset) -> None:
    for spec in (LabelSmoothing(100), TimmMixup(num_classes=100), CutMix(100, label_smoothing=0.3)):
        with DataLoader(tiny, 8, ranks=Ranks(0, 3), transform=FLOAT, batch_transform=spec, seed=0) as loader:
            *_, (_, labels) = loader
        assert labels.sum().item() == pytest.approx(len(labels) - 1)


def test_the_same_on_a_device(tiny: PackedDataset, on: Make) -> None:
    spec = TimmMixup(0.8, 1.0, num_classes=100)
    gpu, wanted = SimulatedGpu(2, 0.2), batches(tiny, batch_transform=spec)
    for (images, labels), (same, soft) in zip(
        on(gpu, tiny, batch_transform=spec, transform=FLOAT, seed=3), wanted, strict=True
    ):
        gpu.finish(gpu.current)
        assert (images - same).abs().max() < 1e-6
        assert torch.equal(labels, soft)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimmMixup(0.0, 0.0), "needs mixup_alpha or cutmix_alpha above 0. Found: both 0"),
        (lambda: TimmMixup(prob=2), r"TimmMixup.prob must be in \[0, 1\]. Found: 2"),
        (lambda: MixUp(10, 1.0, 1.0), "MixUp.label_smoothing must be below 1. Found: 1.0"),
        (lambda: LabelSmoothing(0), "LabelSmoothing.num_classes must be an int of at least 1. Found: 0"),
        (lambda: LabelSmoothing(10, -0.1), r"label_smoothing must be in \[0, 1\]. Found: -0.1"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_mixup_needs_floats(tiny: PackedDataset) -> None:
    with pytest.raises(ValueError, match="TimmMixup needs float images"):
        DataLoader(tiny, 8, batch_transform=timms())
    assert batches(tiny, transform=None, batch_transform=timms(mixup_alpha=0.0))
