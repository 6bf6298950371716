"""Batch transforms against loops over samples and pixels; what they depend on, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import augment_reference as slow
import numpy as np
import pytest
import torch
from simulated_gpu import SimulatedGpu
from torch.utils.data import Subset

from fastload import DataLoader, Device, PackedDataset, Ranks
from fastload import transforms as T
from fastload.sampler import BatchIds
from fastload.transfer import draws
from fastload.transforms.batch import ColorJitter, CutMix, MixUp, RandomChoice, RandomErasing

Make = Callable[..., DataLoader]
FLOAT = T.ToDtype("float32", scale=True)
NORMALIZE = T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
EVERYWHERE = RandomErasing(p=0.7, scale=(0.02, 0.6), value=(0.25, -1.0, 7.5))
JITTER = ColorJitter(0.4, (0.6, 1.4), 0.4, 0.2)


def batches(dataset: PackedDataset, **options: Any) -> list[Any]:
    with DataLoader(dataset, 8, **{"num_workers": 2, "seed": 3, "transform": FLOAT, **options}) as loader:
        found = [(images.clone(), labels.clone()) for images, labels in loader]
    assert len(found) > 1
    return found


def ids_of(*samples: int, draws: list[int] | None = None) -> BatchIds:
    return BatchIds(np.array(samples, np.int64), None if draws is None else np.array(draws, np.uint32))


@pytest.mark.parametrize("size", [(6, 6), (40, 17), (2, 3)])
@pytest.mark.parametrize(
    "spec",
    [
        RandomErasing(),
        EVERYWHERE,
        RandomErasing(1.0, (1.0, 1.0), (0.9, 1.1)),
        RandomErasing(0.0),
        RandomErasing(0.8, count=3),
        RandomErasing(0.9, count=(1, 4)),
    ],
)
def test_boxes_are_torchvisions(spec: RandomErasing, size: tuple[int, int]) -> None:
    batch = ids_of(*range(300), draws=[i % 3 for i in range(300)])
    found = draws.erasing_boxes(spec.planned, 9, 4, batch, *size)
    wanted = [[side for box in slow.boxes(spec, 9, 4, i, i % 3, *size) for side in box] for i in range(300)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.8, 1.0, 3.0, 40.0])
def test_beta_has_its_mean_variance_and_range(alpha: float) -> None:
    n = 4000
    values = np.array([draws.BatchKeyed(1, 0, ids_of(i)).beta(alpha) for i in range(n)])
    variance = 1 / (4 * (2 * alpha + 1))
    assert ((values >= 0) & (values <= 1)).all()
    assert abs(values.mean() - 0.5) < 5 * np.sqrt(variance / n)
    assert abs(values.var() - variance) < 5 * np.sqrt(1 / (8 * n)) * max(variance, 0.02) ** 0.5
    assert abs(np.mean(values < 0.5) - 0.5) < 5 * np.sqrt(0.25 / n)


def test_erasing(tiny: PackedDataset) -> None:
    plain, found = batches(tiny), batches(tiny, batch_transform=EVERYWHERE)
    sample = changed = 0
    for (images, labels), (wanted, same) in zip(found, plain, strict=True):
        assert torch.equal(labels, same)
        assert images.stride() == wanted.stride()
        for image, base in zip(images.numpy(), wanted.numpy(), strict=True):
            (where,) = slow.boxes(EVERYWHERE, 3, 0, sample, 0, 6, 6)
            assert np.array_equal(image, slow.erased(base, where, EVERYWHERE.value))
            changed += not np.array_equal(image, base)
            sample += 1
    assert 40 < changed < 90


def test_color_jitter(tiny: PackedDataset) -> None:
    raw = batches(tiny, transform=None)
    for transform, scale in ((FLOAT, None), (NORMALIZE, NORMALIZE)):
        found = batches(tiny, transform=transform, batch_transform=[JITTER])
        sample = 0
        for (images, _), (pixels, _) in zip(found, raw, strict=True):
            assert images.dtype == torch.float32
            assert images.is_contiguous(memory_format=torch.channels_last)
            for image, base in zip(images.numpy(), pixels.numpy(), strict=True):
                wanted = slow.jittered(base, JITTER, 3, 0, sample)
                if scale is not None:
                    mean, std = (np.reshape(v, (3, 1, 1)) for v in (scale.mean, scale.std))
                    wanted = (wanted - mean) / std
                assert np.abs(image - wanted).max() < 2e-5
                sample += 1


def test_color_jitter_of_nothing_is_the_identity(tiny: PackedDataset) -> None:
    for (found, _), (wanted, _) in zip(
        batches(tiny, batch_transform=ColorJitter()), batches(tiny), strict=True
    ):
        assert (found - wanted).abs().max() <= 2.0**-23


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_mixup(tiny: PackedDataset, dtype: str) -> None:
    transform = T.ToDtype(dtype, scale=True)
    plain = batches(tiny, transform=transform)
    unit = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for number, ((images, labels), (base, hard)) in enumerate(
        zip(batches(tiny, transform=transform, batch_transform=MixUp(60, 0.4)), plain, strict=True)
    ):
        lam = draws.BatchKeyed(3, 0, ids_of(8 * number)).beta(0.4)
        assert images.dtype == base.dtype
        assert np.abs(images.double().numpy() - slow.mixed(base.double().numpy(), lam)).max() <= unit
        assert np.abs(labels.numpy() - slow.soft(hard.numpy(), 60, lam)).max() < 1e-6
        assert labels.dtype == torch.float32


@pytest.mark.parametrize("transform", [None, FLOAT])
def test_cutmix(tiny: PackedDataset, transform: Any) -> None:
    plain = batches(tiny, transform=transform)
    cut = 0
    for (images, labels), (base, hard) in zip(
        batches(tiny, transform=transform, batch_transform=CutMix(100)), plain, strict=True
    ):
        own, other = images == base, images == base.roll(1, 0)
        assert (own | other).all()
        pasted = (~own).any(1).any(0)  # places that differ in any sample
        rows, columns = pasted.any(1), pasted.any(0)
        assert torch.equal(pasted, rows[:, None] & columns[None, :])
        lam = 1 - pasted.double().mean().item()
        assert np.abs(labels.numpy() - slow.soft(hard.numpy(), 100, lam)).max() < 1e-6
        cut += bool(pasted.any())
    assert cut >= 6


def test_mixing_gives_padding_no_weight(tiny: PackedDataset) -> None:
    with DataLoader(
        tiny, 8, ranks=Ranks(0, 3), transform=FLOAT, batch_transform=MixUp(100), seed=0
    ) as loader:
        *_, (_, labels) = loader
    hard = batches_of_rank(tiny, 0)[-1][1]
    assert (hard == -100).sum() == 1
    assert labels.sum().item() == pytest.approx(len(hard) - 1)


def batches_of_rank(dataset: PackedDataset, rank: int) -> list[Any]:
    with DataLoader(dataset, 8, ranks=Ranks(rank, 3), transform=FLOAT, seed=0) as loader:
        return [(i.clone(), y.clone()) for i, y in loader]


def test_one_of_several(tiny: PackedDataset) -> None:
    choice = RandomChoice([MixUp(100), CutMix(100)])
    values = [draws.BatchKeyed(3, 0, ids_of(i)).below(2) for i in range(0, 100, 8)]
    assert {0, 1} == set(values)
    for number, ((images, _), (base, _)) in enumerate(
        zip(batches(tiny, batch_transform=choice), batches(tiny), strict=True)
    ):
        untouched_or_neighbours = ((images == base) | (images == base.roll(1, 0))).all()
        assert bool(untouched_or_neighbours) == (values[number] == 1)


def test_per_sample_draws_do_not_depend_on_ranks_batches_or_restarts(tiny: PackedDataset) -> None:
    options = {"transform": NORMALIZE, "batch_transform": [JITTER, EVERYWHERE], "shuffle": True, "seed": 5}

    def by_label(loader: DataLoader) -> dict[int, Any]:
        return {int(y): x.clone() for images, labels in loader for x, y in zip(images, labels, strict=True)}

    whole = by_label(DataLoader(tiny, 10, **options))
    assert len(whole) == 100
    for rank in range(2):
        part = by_label(DataLoader(tiny, 5, ranks=Ranks(rank, 2), num_workers=3, **options))
        assert all(torch.equal(whole[label], image) for label, image in part.items())
    part = by_label(DataLoader(Subset(tiny, range(90, 20, -3)), 7, **options))
    assert len(part) == 24
    assert all(torch.equal(whole[label], image) for label, image in part.items())
    resumed = DataLoader(tiny, 4, **options)
    resumed.load_state_dict(state_after_one(tiny, options))
    rest = by_label(resumed)
    assert len(rest) == 90
    assert all(torch.equal(whole[label], image) for label, image in rest.items())


def state_after_one(dataset: PackedDataset, options: dict[str, Any]) -> dict[str, Any]:
    loader = DataLoader(dataset, 10, **options)
    next(iter(loader))
    return loader.state_dict()


def test_batch_draws_are_the_same_in_every_run_and_change_with_the_epoch(tiny: PackedDataset) -> None:
    loaders = [
        DataLoader(
            tiny,
            8,
            shuffle=True,
            transform=FLOAT,
            num_workers=n,
            batch_transform=[MixUp(100), CutMix(100)],
            seed=0,
        )
        for n in (1, 3)
    ]
    runs = [[(i.clone(), y.clone()) for _ in range(2) for i, y in loader] for loader in loaders]
    for (images, labels), (again, soft) in zip(*runs, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, soft)
    assert len({tuple(labels.amax(1).tolist()) for _, labels in runs[0]}) > 20


def test_on_the_device_as_on_the_host(tiny: PackedDataset, on: Make) -> None:
    for transform, batch_transform in (
        (NORMALIZE, [JITTER, EVERYWHERE, MixUp(100)]),
        (None, [EVERYWHERE, CutMix(100)]),
        (FLOAT, RandomChoice([MixUp(100), CutMix(100)])),
    ):
        options = {"transform": transform, "shuffle": True, "seed": 3}
        if transform is None:
            batch_transform = [RandomErasing(value=3), CutMix(100)]
        wanted = batches(tiny, batch_transform=batch_transform, **options)
        gpu = SimulatedGpu(2, 0.2)
        for (images, labels), (pixels, soft) in zip(
            on(gpu, tiny, batch_transform=batch_transform, **options), wanted, strict=True
        ):
            gpu.finish(gpu.current)
            assert (images.double() - pixels.double()).abs().max() <= 2.0**-20
            assert torch.equal(labels, soft)


class Noise:
    """As a torchvision transform: draws torch's global numbers."""

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Any:
        return images + torch.rand(len(images), 1, 1, 1), labels


def test_callables_draw_the_same_in_every_run_and_disturb_nobody(tiny: PackedDataset) -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    runs = [batches(tiny, batch_transform=Noise()) for _ in range(2)]
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(*runs, strict=True))
    noise = {round((a[0] - b[0])[0, 0, 0, 0].item(), 5) for a, b in zip(runs[0], batches(tiny), strict=True)}
    assert len(noise) == 13


def test_behind_python_callables_on_the_device(tiny: PackedDataset, on: Make) -> None:
    options = {"transform": T.Compose([FLOAT, torch.sqrt]), "batch_transform": [EVERYWHERE, MixUp(100)]}
    wanted = batches(tiny, **options)
    for (images, labels), (pixels, soft) in zip(
        on(SimulatedGpu(1, 0.1), tiny, seed=3, **options), wanted, strict=True
    ):
        assert torch.equal(images, pixels)
        assert torch.equal(labels, soft)


def test_for_torch_datasets_too() -> None:
    data = [(torch.full((3, 16, 16), float(i)), i) for i in range(12)]
    found = list(DataLoader(data, 4, batch_transform=[RandomErasing(1.0, value=-1e6), MixUp(12)]))
    assert [labels.shape for _, labels in found] == [(4, 12)] * 3
    assert all((images < 0).any() for images, _ in found)
    with pytest.raises(TypeError, match=r"needs batches of \(images, labels\), or dicts. Found: Tensor"):
        next(iter(DataLoader([1] * 4, 2, batch_transform=Noise())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_transform": 5}, "batch_transform takes .*Found: 5"),
        ({"batch_transform": [MixUp(3), JITTER], "transform": FLOAT}, "ColorJitter .* must come first"),
        ({"batch_transform": MixUp(3)}, "MixUp needs float images"),
        ({"batch_transform": JITTER}, "ColorJitter needs float images"),
        ({"batch_transform": [EVERYWHERE, EVERYWHERE]}, "RandomErasing can occur only once"),
        (
            {"batch_transform": JITTER, "transform": torch.abs},
            "neither callables in transform nor a collate_fn",
        ),
        ({"batch_transform": CutMix(3), "device": Device(memory="reuse")}, "exclude each other"),
        ({"device": Device(memory="reuse"), "collate_fn": list}, "is for batches that the core alone makes"),
        ({"device": "mps"}, 'device must be None, "cpu" or "cuda\\[:index\\]". Found: \'mps\''),
        ({"device": "graphics"}, "device must be .*Found: 'graphics'"),
    ],
)
def test_options_are_checked_at_once(tiny: PackedDataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        DataLoader(tiny, 4, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixUp(0), r"MixUp.num_classes must be an int of at least 1. Found: 0"),
        (lambda: CutMix(5, 0.0), r"CutMix.alpha must be above 0. Found: 0.0"),
        (lambda: CutMix(5, -1.0), r"CutMix.alpha must be in \[0, 1e\+06\]. Found: -1.0"),
        (lambda: RandomErasing(1.5), r"RandomErasing.p must be in \[0, 1\]. Found: 1.5"),
        (lambda: RandomErasing(scale=(0.5, 0.1)), r"RandomErasing.scale must be 0 <= least"),
        (lambda: RandomErasing(ratio=(0, 1)), r"RandomErasing.ratio must be 0 < least"),
        (lambda: RandomErasing(value="noise"), r"value must be one or three numbers, 'random' or 'color'"),
        (lambda: RandomErasing(count=0), r"count must be 1 <= least <= greatest <= 255. Found: 0"),
        (
            lambda: RandomErasing(count=(3, 2)),
            r"count must be 1 <= least <= greatest <= 255. Found: \(3, 2\)",
        ),
        (lambda: RandomErasing(value=(1, 2)), r"RandomErasing.value must be 3 finite numbers"),
        (lambda: ColorJitter(brightness=-1), r"ColorJitter.brightness must be at least 0. Found: -1"),
        (lambda: ColorJitter(contrast=(2, 1)), r"ColorJitter.contrast must be in \[0, inf\]"),
        (lambda: ColorJitter(hue=0.6), r"ColorJitter.hue must be in \[-0.5, 0.5\]"),
        (lambda: RandomChoice([]), "at least one"),
        (lambda: RandomChoice([JITTER]), "takes MixUp and CutMix"),
    ],
)
def test_specs_out_of_range(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_an_iterable_dataset_has_no_samples_to_key_by() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([(torch.zeros(3, 4, 4), 1)] * 8)

    with pytest.raises(ValueError, match="needs to know the samples of a batch"):
        DataLoader(Stream(), 4, batch_transform=Noise())
