"""Samples put together of several: pixels against Pillow's, and the same in every run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damaged_set import damaged
from mosaic_reference import Spec, picture
from PIL import Image as PilImage

import fastload
from fastload import Cache, DataLoader, Image, Label, Mask, Ranks, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.sampler import BatchIds
from fastload.sampler.partners import Partnering, partners

COUNT = 18
SIZE = 48
SEED = 4
SIDES = [(20 + 17 * i % 71, 30 + 29 * i % 83) for i in range(COUNT)]  # width, height


def drawn(number: int, channels: int) -> np.ndarray:
    """A picture of waves, which no two pixels of have the same neighbours."""
    width, height = SIDES[number]
    y, x, c = np.mgrid[:height, :width, :channels]
    return (127 + 120 * np.sin(0.2 * x + 0.13 * y * (c + 1) + number)).astype(np.uint8)


def mask_of(number: int) -> np.ndarray:
    return drawn(number, 1)[:, :, 0] // 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [
        {
            "image": PilImage.fromarray(drawn(i, 3)),
            "label": i % 3,
            "mask": PilImage.fromarray(mask_of(i)),
        }
        for i in range(COUNT)
    ]
    out = tmp_path_factory.mktemp("mosaics") / "packed"
    schema = {"image": Image(), "label": Label(("a", "b", "c")), "mask": Mask()}
    fastload.pack(samples, out, schema=schema)
    return out


def load(folder: Path, transform: Any, **options: Any) -> DataLoader:
    settings = {"batch_size": 6, "shuffle": True, "seed": SEED, "num_workers": 2, **options}
    return DataLoader(folder, transform=transform, **settings)


def chain(spec: Spec, p: float = 1.0, *behind: Any) -> Any:
    first = T.Mosaic(
        spec.size,
        p,
        spec.tiles,
        spec.degrees,
        spec.translate,
        spec.scale,
        spec.shear,
        spec.perspective,
        spec.fill,
    )
    return T.Compose([first, *behind])


def made_of(
    spec: Spec, ids: list[int], epoch: int, sample: int, view: int, get: Callable[[int], Any], **how: Any
) -> np.ndarray:
    sizes = [SIDES[i] for i in ids]
    made = _C.compose(spec.core(), sizes, SEED, epoch, sample, view=view)
    return np.asarray(picture(spec, made, [PilImage.fromarray(get(i)) for i in ids], **how))


def expected(
    spec: Spec, of: Partnering, ids: list[int], sampler: Any, epoch: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Images and masks of the samples, picture by picture."""
    found = partners(sampler, SEED, epoch, BatchIds(np.array(ids), None), of)
    images, masks = [], []
    for sample, mates in zip(ids, found.tolist(), strict=True):
        groups = [[sample, *(i for i in mates[: of.tiles - 1] if i >= 0)]]
        if of.mixup and mates[of.tiles - 1] >= 0:
            groups.append([i for i in mates[of.tiles - 1 :] if i >= 0])
        colours = [
            made_of(
                spec,
                group,
                epoch,
                sample,
                128 * k,
                lambda i: drawn(i, 3),
                resample=PilImage.Resampling.BILINEAR,
                fill=spec.fill,
            )
            for k, group in enumerate(groups)
        ]
        areas = [
            made_of(
                spec, group, epoch, sample, 128 * k, mask_of, resample=PilImage.Resampling.NEAREST, fill=255
            )
            for k, group in enumerate(groups)
        ]
        weight = 1.0 if len(groups) == 1 else _C.mixup_weight(32.0, SEED, epoch, sample)
        if len(groups) == 2:
            mixed = colours[0].astype(np.float64) * weight + colours[1].astype(np.float64) * (1 - weight)
            colours[0] = mixed.astype(np.uint8)
        images.append(colours[0])
        masks.append(areas[0] if weight >= 0.5 else areas[1])
    return images, masks


SPECS = [
    Spec(SIZE),
    Spec(SIZE, 9),
    Spec(SIZE, 4, degrees=40, shear=8, translate=0.4),
    Spec(SIZE, 9, degrees=170, scale=0.9, fill=(1, 200, 30)),
    Spec(SIZE, 4, perspective=0.001, translate=0.0),
    Spec(SIZE, 4, scale=0.0, translate=0.0),
    Spec(SIZE, 4, translate=1.0, scale=0.9),
]


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
@pytest.mark.parametrize(("p", "mixup"), [(1.0, 0.0), (0.5, 0.6)])
def test_pixels_are_pillows(folder: Path, spec: Spec, p: float, mixup: float) -> None:
    """Images bilinear, bit for bit; masks by the nearest pixel, too."""
    behind = [T.MixUp(mixup)] if mixup else []
    of = Partnering(spec.tiles, p, mixup)
    seen = 0
    with load(folder, chain(spec, p, *behind)) as loader:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                ids = loader.sampler.batch(epoch, 0, step).ids.tolist()
                images, masks = expected(spec, of, ids, loader.sampler, epoch)
                for i in range(len(ids)):
                    found = batch["image"][i].permute(1, 2, 0).numpy()
                    assert np.array_equal(found, images[i]), (epoch, step, i)
                    assert np.array_equal(batch["mask"][i].numpy().squeeze(), masks[i]), (epoch, step, i)
                    assert int(batch["label"][i]) == ids[i] % 3
                seen += len(ids)
    assert seen == 2 * COUNT


@pytest.mark.parametrize("level", ["scalar", "sse4", "avx2", "avx512", "neon"])
def test_large_pictures_at_each_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Larger and smaller than on the canvas, which shows them at any scale, to parts of a pixel."""
    before = _C.simd_level()
    sides = [(700, 410), (301, 222), (64, 20), (9, 640), (400, 400)]
    monkeypatch.setattr(sys.modules[__name__], "SIDES", sides)
    samples = [{"image": PilImage.fromarray(drawn(i, 3))} for i in range(len(sides))]
    fastload.pack(samples, tmp_path / "packed", schema={"image": Image()})
    try:
        _C.set_simd_level(level)
        if _C.simd_level() != level:
            pytest.skip(f"this machine has no {level}")
        for spec in (Spec(400), Spec(320, 9, scale=0.8)):
            with load(tmp_path / "packed", chain(spec), batch_size=len(sides)) as loader:
                (batch,) = loader
                ids = loader.sampler.batch(0, 0, 0).ids
                mates = partners(loader.sampler, SEED, 0, BatchIds(ids, None), Partnering(spec.tiles))
            for i, group in enumerate(np.column_stack([ids, mates]).tolist()):
                wanted = made_of(
                    spec,
                    group,
                    0,
                    group[0],
                    0,
                    lambda i: drawn(i, 3),
                    resample=PilImage.Resampling.BILINEAR,
                    fill=spec.fill,
                )
                assert np.array_equal(batch["image"][i].permute(1, 2, 0).numpy(), wanted), group
    finally:
        _C.set_simd_level(before)


def test_what_follows_sees_the_mosaic(folder: Path) -> None:
    spec = Spec(SIZE, degrees=15)
    with (
        load(folder, chain(spec)) as plain,
        load(folder, chain(spec, 1.0, T.RandomHorizontalFlip(1.0))) as flipped,
    ):
        for one, other in zip(plain, flipped, strict=True):
            assert torch.equal(one["image"].flip(-1), other["image"])
            assert torch.equal(one["mask"].flip(-1), other["mask"])
    with load(folder, chain(spec, 1.0, T.Resize((24, 24)))) as loader:
        assert next(iter(loader))["image"].shape == (6, 3, 24, 24)


def batches(loader: DataLoader) -> list[dict[str, torch.Tensor]]:
    with loader:
        return [{name: batch[name].clone() for name in ("image", "mask", "label")} for batch in loader]


def same(one: list[dict[str, torch.Tensor]], other: list[dict[str, torch.Tensor]]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a
    )


MIXED = T.Compose([T.Mosaic(SIZE, 0.8), T.MixUp(0.5), T.RandomHorizontalFlip()])


@pytest.mark.parametrize("threads", [1, 4])
def test_any_number_of_threads(folder: Path, threads: int) -> None:
    assert same(batches(load(folder, MIXED)), batches(load(folder, MIXED, num_workers=threads)))


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_ranks(folder: Path, world: int) -> None:
    whole = batches(load(folder, MIXED))
    ranks = [batches(load(folder, MIXED, batch_size=6 // world, ranks=Ranks(r, world))) for r in range(world)]
    together = [
        {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        for parts in zip(*ranks, strict=True)
    ]
    assert same(whole, together)


def test_resuming_in_the_middle_of_an_epoch(folder: Path) -> None:
    with load(folder, MIXED) as loader:
        batches_of = iter(loader)
        next(batches_of)
        state = loader.state_dict()
        wanted = [{name: batch[name].clone() for name in ("image", "mask")} for batch in batches_of]
    with load(folder, MIXED) as again:
        again.load_state_dict(state)
        found = [{name: batch[name].clone() for name in ("image", "mask")} for batch in again]
    assert len(wanted) == 2
    assert same(wanted, found)


def test_resuming_with_another_batch_size_makes_the_same_samples(folder: Path) -> None:
    """Of an epoch long enough that partners come from the global batches before."""
    long: dict[str, Any] = {"shuffle": None, "sampler": fastload.SubsetSampler(list(range(COUNT)) * 8)}
    with load(folder, MIXED, batch_size=8, **long) as loader:
        whole = torch.cat([batch["image"].clone() for batch in loader])
    with load(folder, MIXED, batch_size=8, **long) as loader:
        begun = iter(loader)
        for _ in range(4):
            next(begun)
        state = loader.state_dict()
    with load(folder, MIXED, batch_size=16, **long) as again:
        again.load_state_dict(state)
        next(iter(again))
        middle = again.state_dict()
        again.load_state_dict(middle)
        rest = torch.cat([batch["image"].clone() for batch in again])
        assert torch.equal(rest, whole[48:])
        assert again.state_dict()["global_batch"] == 16  # of the next epoch
        again.load_state_dict({name: value for name, value in middle.items() if name != "global_batch"})
        other = torch.cat([batch["image"].clone() for batch in again])
        assert not torch.equal(rest, other)
        with pytest.raises(errors.StateError, match="global_batch"):
            again.load_state_dict({**middle, "global_batch": 0})


def test_epochs_differ_and_a_schedule_ends_it(folder: Path) -> None:
    plan = T.ByEpoch({0: T.Mosaic(SIZE), 1: T.Resize((SIZE, SIZE))})
    with load(folder, plan) as loader, load(folder, T.Resize((SIZE, SIZE))) as plain:
        first, second = batches_once(loader), batches_once(loader)
        batches_once(plain)
        assert same(second, batches_once(plain))
        assert not same(first, second)


def batches_once(loader: DataLoader) -> list[dict[str, torch.Tensor]]:
    return [{name: batch[name].clone() for name in ("image", "mask", "label")} for batch in loader]


def test_a_subset_is_put_together_of_its_own(folder: Path) -> None:
    """One sample alone: all tiles are its own picture."""
    from torch.utils.data import Subset

    dataset = fastload.PackedDataset(folder)
    spec = Spec(SIZE)
    with load(Subset(dataset, [5]), chain(spec), batch_size=1) as loader:  # type: ignore[arg-type]
        (batch,) = loader
    found = batch["image"][0].permute(1, 2, 0).numpy()
    how = {"resample": PilImage.Resampling.BILINEAR, "fill": spec.fill}
    assert np.array_equal(found, made_of(spec, [5] * 4, 0, 5, 0, lambda i: drawn(i, 3), **how))


def test_a_bad_partner_is_its_samples_fault(folder: Path, tmp_path: Path) -> None:
    copy = damaged(folder, tmp_path / "damaged", [7])
    spec = Spec(SIZE, scale=0.0, translate=0.0)
    with load(copy, chain(spec)) as loader, pytest.raises(errors.SampleError, match="put together with it"):
        for _ in loader:
            pass
    with load(copy, chain(spec), on_error="skip") as loader, load(folder, chain(spec)) as whole:
        for bad, good in zip(loader, whole, strict=True):
            for i, valid in enumerate(bad["valid"].tolist()):
                assert not valid or torch.equal(bad["image"][i], good["image"][i])
        assert 1 < len(loader.errors) < COUNT
    with load(copy, chain(spec), on_error="replace") as loader:
        one = batches_once(loader)
        assert {report.substitute for report in loader.errors} - {None}
    with load(copy, chain(spec), on_error="replace", num_workers=1) as loader:
        assert same(one, batches_once(loader))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": Cache(decoded="full")}, "Mosaic and Cache.decoded.* exclude each other"),
        ({"backend": "dali"}, "backend='dali' .*; Mosaic"),
    ],
)
def test_what_it_does_not_go_with(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(folder, T.Mosaic(SIZE), **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_callables_behind_it_where_pairs_differ_in_size(tmp_path: Path, workers: int) -> None:
    samples = [{"image": PilImage.fromarray(drawn(i, 3)), "label": i} for i in range(6)]
    fastload.pack(samples, tmp_path / "pairs")
    chain = [T.Mosaic(SIZE), T.Resize(24), T.ToDtype("uint8")]
    options = {"collate": "ragged", "num_workers": workers}
    wanted = [
        image for batch in load(tmp_path / "pairs", T.Compose(chain), **options) for image in batch["image"]
    ]
    options = {"collate_fn": list, "num_workers": workers}
    found = load(tmp_path / "pairs", T.Compose([*chain, lambda image: image + 1]), **options)
    for (image, _), one in zip((sample for batch in found for sample in batch), wanted, strict=True):
        assert torch.equal(image, one + 1)


def test_callables_behind_it(folder: Path) -> None:
    def darker(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "image": sample["image"] // 2}

    plain = batches(load(folder, T.Mosaic(SIZE)))
    for workers in (0, 2):
        found = batches(load(folder, T.Compose([T.Mosaic(SIZE), darker]), num_workers=workers))
        assert all(torch.equal(a["image"] // 2, b["image"]) for a, b in zip(plain, found, strict=True))
