"""timm's Mixup in its modes ``elem`` and ``pair``, ``cutmix_minmax`` and labels of several classes: each
sample by a loop over the draws, and the draws' distribution. tests/foreign/timm has timm's own object."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.sampler import BatchIds
from fastload.transfer.draws import BatchKeyed
from fastload.transfer.mixing import mixed
from fastload.transforms.batch import TimmMixup

Make = Callable[..., DataLoader]
FLOAT = T.ToDtype("float32", scale=True)
CLASSES = 100


def keyed(number: int = 0) -> BatchKeyed:
    return BatchKeyed(3, 0, BatchIds(np.array([number], np.int64), None))


def generator(number: int = 0) -> np.random.RandomState:
    seed = keyed(number).seed()
    return np.random.RandomState([seed % 2**32, seed // 2**32])


def shares_of(spec: TimmMixup, count: int, random: np.random.RandomState) -> tuple[Any, Any]:
    """Each one's share of itself, and whether it is cut, in the order in which timm draws them."""
    cut = np.full(count, spec.cutmix_alpha > 0)
    if spec.mixup_alpha > 0 and spec.cutmix_alpha > 0:
        cut = random.rand(count) < spec.switch_prob
        of_cuts = random.beta(spec.cutmix_alpha, spec.cutmix_alpha, count)
        share = np.array([a if c else b for c, a, b in zip(
            cut, of_cuts, random.beta(spec.mixup_alpha, spec.mixup_alpha, count), strict=True)])  # fmt: skip
    else:
        alpha = spec.cutmix_alpha or spec.mixup_alpha
        share = random.beta(alpha, alpha, count)
    share = share.astype(np.float32)
    share[random.rand(count) >= spec.prob] = 1
    return share, cut


def rectangle(spec: TimmMixup, share: float, h: int, w: int, random: Any) -> tuple[int, int, int, int]:
    if spec.cutmix_minmax is not None:
        low, high = spec.cutmix_minmax
        tall, wide = random.randint(int(h * low), int(h * high)), random.randint(int(w * low), int(w * high))
        top, left = random.randint(0, h - tall + 1), random.randint(0, w - wide + 1)
        return top, top + tall, left, left + wide
    tall, wide = int(h * math.sqrt(1 - share)), int(w * math.sqrt(1 - share))
    y, x = random.randint(0, h), random.randint(0, w)
    rows = [row for row in range(y - tall // 2, y - tall // 2 + tall) if 0 <= row < h]
    columns = [column for column in range(x - wide // 2, x - wide // 2 + wide) if 0 <= column < w]
    if not rows or not columns:
        return 0, 0, 0, 0
    return rows[0], rows[-1] + 1, columns[0], columns[-1] + 1


def wanted_of(spec: TimmMixup, x: np.ndarray, y: np.ndarray, number: int = 0) -> tuple[Any, Any]:
    """Pictures and labels of a batch, one sample after the other."""
    n, _, h, w = x.shape
    random, found = generator(number), x.copy()
    share, cut = shares_of(spec, n if spec.mode == "elem" else n // 2, random)
    of_label = np.ones(n)
    for i in range(len(share)):
        part = float(share[i])
        box = None
        if cut[i] and share[i] != 1:
            box = top, bottom, left, right = rectangle(spec, part, h, w, random)
            if spec.correct_lam or spec.cutmix_minmax is not None:
                part = 1 - (bottom - top) * (right - left) / (h * w)
        for own in (i,) if spec.mode == "elem" else (i, n - 1 - i):
            of_label[own] = part
            if box is not None:
                top, bottom, left, right = box
                found[own, :, top:bottom, left:right] = x[n - 1 - own, :, top:bottom, left:right]
            else:
                found[own] = x[own] * part + x[n - 1 - own] * (1 - part)
    if spec.multi_label:
        soft = y * (1 - spec.label_smoothing) + spec.label_smoothing / 2
    else:
        soft = np.full((n, spec.num_classes), spec.label_smoothing / spec.num_classes)
        soft[np.arange(n), y] += 1 - spec.label_smoothing
    return found, soft * of_label[:, None] + soft[::-1] * (1 - of_label[:, None])


SPECS = [
    TimmMixup(0.8, 1.0, mode="elem", num_classes=CLASSES),
    TimmMixup(0.8, 1.0, mode="pair", num_classes=CLASSES),
    TimmMixup(0.2, 0.0, mode="elem", prob=0.6, num_classes=CLASSES, label_smoothing=0.0),
    TimmMixup(0.0, 1.0, mode="pair", prob=0.7, num_classes=CLASSES),
    TimmMixup(0.8, 1.0, mode="elem", correct_lam=False, switch_prob=0.9, num_classes=CLASSES),
    TimmMixup(0.8, cutmix_minmax=(0.2, 0.8), mode="elem", num_classes=CLASSES),
    TimmMixup(0.0, cutmix_minmax=(0.1, 1.0), mode="pair", num_classes=CLASSES),
]


@pytest.mark.parametrize("count", [8, 7, 1])
@pytest.mark.parametrize("spec", SPECS)
def test_every_sample_by_its_own_draw(spec: TimmMixup, count: int) -> None:
    rng = np.random.default_rng(0)
    changed = 0
    for number in range(20):
        x, y = rng.random((count, 3, 23, 18), np.float32), rng.integers(0, CLASSES, count)
        images, labels = mixed(spec, torch.from_numpy(x), torch.from_numpy(y), keyed(number))
        wanted, soft = wanted_of(spec, x, y, number)
        assert np.abs(images.numpy() - wanted).max() < 1e-6
        assert np.abs(labels.numpy() - soft).max() < 1e-6
        changed += (np.abs(images.numpy() - x).max((1, 2, 3)) > 0).sum()
    assert changed > 20 * count * 0.3 or count == 1


def test_a_pairs_two_samples_change_the_same() -> None:
    spec = TimmMixup(0.0, 1.0, mode="pair", num_classes=8)
    images = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 32, 32).contiguous()
    found, labels = mixed(spec, images, torch.arange(8), keyed())
    assert torch.equal(found + found.flip(0), torch.full_like(found, 7.0))  # each place has both, once
    assert (labels - labels.flip((0, 1))).abs().max() < 1e-6


@pytest.mark.parametrize("mode", ["elem", "pair"])
def test_shares_are_distributed_as_they_shall_be(mode: str) -> None:
    """Blends show their share in the pixels: 70% of half of the draws blend, by Beta(0.4, 0.4)."""
    spec = TimmMixup(0.4, 1.0, prob=0.7, mode=mode, num_classes=2, label_smoothing=0.0)
    n, shares, whole, cut = 200, [], 0, 0
    images = torch.zeros(n, 3, 16, 16)
    images[: n // 2] = 1.0
    for number in range(40):
        found, _ = mixed(spec, images, torch.zeros(n, dtype=torch.int64), keyed(number))
        for picture in found[: n // 2].numpy():
            if picture.min() != picture.max():
                cut += 1
            elif picture.min() == 1.0:
                whole += 1
            else:
                shares.append(float(picture.min()))
    total = 40 * n // 2
    # A rectangle of less than a pixel, and a share that rounds to 1, leave the picture as it was.
    assert 0.28 * total < whole < 0.36 * total
    assert abs(cut / total - 0.35) < 0.03
    assert abs(len(shares) / total - 0.35) < 0.02
    assert abs(np.mean(shares) - 0.5) < 0.03
    assert abs(np.var(shares) - 1 / (4 * 1.8)) < 0.01


def test_labels_of_several_classes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 3, 8, 8), np.float32), (rng.random((6, 5)) < 0.4).astype(np.float32)
    for mode in ("elem", "pair"):
        spec = TimmMixup(0.8, 1.0, mode=mode, num_classes=5, multi_label=True)
        images, labels = mixed(spec, torch.from_numpy(x), torch.from_numpy(y), keyed())
        wanted, soft = wanted_of(spec, x, y)
        assert np.abs(images.numpy() - wanted).max() < 1e-6
        assert np.abs(labels.numpy() - soft).max() < 1e-6
    with pytest.raises(ValueError, match=r"needs labels of shape \(n, 5\). Found: \(6,\)"):
        mixed(spec, torch.from_numpy(x), torch.zeros(6, dtype=torch.int64), keyed())


@pytest.mark.parametrize("mode", ["batch", "elem", "pair"])
def test_in_a_loader_the_same_on_a_device_and_in_every_run(tiny: PackedDataset, on: Make, mode: str) -> None:
    spec = TimmMixup(0.8, 1.0, mode=mode, num_classes=CLASSES)
    options: dict[str, Any] = {"batch_transform": spec, "transform": FLOAT, "seed": 3, "shuffle": True}
    gpu = SimulatedGpu(2, 0.2)
    with DataLoader(tiny, 8, **options) as loader, DataLoader(tiny, 8, **options) as again:
        batches = [(list(loader), list(again)) for _ in range(2)]
    assert not torch.equal(batches[0][0][0][1], batches[1][0][0][1])
    for one, same in batches:
        for (images, labels), (x, y) in zip(one, same, strict=True):
            assert torch.equal(images, x)
            assert torch.equal(labels, y)
    with on(gpu, tiny, **options) as moved:
        for (images, labels), (x, y) in zip(moved, batches[0][0], strict=True):
            gpu.finish(gpu.current)
            assert (images - x).abs().max() < 1e-6
            assert torch.equal(labels, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "half"}, "mode must be 'batch', 'pair' or 'elem'. Found: 'half'"),
        ({"cutmix_minmax": (0.8, 0.2)}, r"cutmix_minmax must be \(least, greatest\) within \[0, 1\]"),
        ({"cutmix_minmax": (0.2, 1.5)}, "cutmix_minmax must be"),
    ],
)
def test_arguments_are_checked(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimmMixup(**arguments)


def test_what_cannot_be_mixed_is_said() -> None:
    spec = TimmMixup(0.0, cutmix_minmax=(0.2, 0.3), mode="elem")
    with pytest.raises(ValueError, match="leaves no length for a side of 6 pixels: from 1 to below 1"):
        mixed(spec, torch.zeros(4, 3, 6, 6), torch.zeros(4, dtype=torch.int64), keyed())
    with pytest.raises(ValueError, match="needs float images"):
        mixed(TimmMixup(mode="pair"), torch.zeros(4, 3, 6, 6, dtype=torch.uint8), torch.arange(4), keyed())
