"""Transforms of whole batches that are dicts: what pairs get, by the fields' names; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set
from simulated_gpu import SimulatedGpu

import fastload
from fastload import DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload.transforms.batch import (
    ColorJitter,
    CutMix,
    LabelSmoothing,
    MixUp,
    OfFields,
    RandomChoice,
    RandomErasing,
    TimmMixup,
)

Make = Callable[..., DataLoader]
FLOAT = T.ToDtype("float32", scale=True)
NORMALIZE = T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
CROP = T.Compose([T.RandomResizedCrop((20, 24)), T.RandomHorizontalFlip()])
MIX = MixUp(100, 0.4, 0.1)
JITTER = ColorJitter(0.4, (0.6, 1.4), 0.4, 0.2)
PARTS: list[Any] = [
    MIX,
    CutMix(100),
    TimmMixup(0.8, 1.0, num_classes=100),
    RandomChoice([MIX, CutMix(100)]),
    RandomErasing(0.7, value=(0.25, -1.0, 7.5)),
    RandomErasing(0.7, value="random"),
    LabelSmoothing(100),
    JITTER,
    [JITTER, RandomErasing(0.5), RandomChoice([MIX, CutMix(100)]), LabelSmoothing(100, 0.3)],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("fields") / "rich", RICH, rich_samples(23))


def batches(dataset: Any, size: int = 8, **options: Any) -> list[Any]:
    common = {"num_workers": 2, "seed": 3, "shuffle": True, "transform": FLOAT}
    with DataLoader(dataset, size, **{**common, **options}) as loader:
        found = list(loader)
    assert len(found) > 1
    return found


def as_dicts(dataset: PackedDataset, **options: Any) -> list[Any]:
    found = batches(dataset, fields=["image", "label"], **options)
    assert all(list(batch) == ["image", "label", "valid"] for batch in found)
    return found


@pytest.mark.parametrize("transform", [FLOAT, NORMALIZE])
@pytest.mark.parametrize("parts", PARTS)
def test_dicts_get_what_pairs_get(tiny: PackedDataset, parts: Any, transform: Any) -> None:
    options = {"batch_transform": parts, "transform": transform}
    plain = batches(tiny, transform=transform)
    changed = False
    for batch, (images, labels), base in zip(
        as_dicts(tiny, **options), batches(tiny, **options), plain, strict=True
    ):
        assert torch.equal(batch["image"], images)
        assert torch.equal(batch["label"], labels)
        assert batch["valid"].all()
        changed |= not torch.equal(images, base[0]) or not torch.equal(labels, base[1])
    assert changed


@pytest.mark.parametrize("parts", PARTS)
def test_on_a_device_it_is_the_same(tiny: PackedDataset, on: Make, parts: Any) -> None:
    options: dict[str, Any] = {"batch_transform": parts, "transform": NORMALIZE, "shuffle": True, "seed": 3}
    gpu, wanted = SimulatedGpu(2, 0.2), as_dicts(tiny, **options)
    with on(gpu, tiny, fields=["image", "label"], **options) as loader:
        for found, batch in zip(loader, wanted, strict=True):
            gpu.finish(gpu.current)
            assert (found["image"] - batch["image"]).abs().max() < 2e-6
            assert torch.equal(found["label"], batch["label"])


def test_erasing_in_the_transform_beside_a_jitter(tiny: PackedDataset, on: Make) -> None:
    """The core's pixels are not the final ones, so whole batches are erased of."""
    options: dict[str, Any] = {
        "transform": T.Compose([NORMALIZE, T.RandomErasing(0.7)]),
        "batch_transform": JITTER,
        "shuffle": True,
        "seed": 3,
    }
    wanted = batches(tiny, **options)
    for batch, (images, _) in zip(as_dicts(tiny, **options), wanted, strict=True):
        assert torch.equal(batch["image"], images)
    gpu = SimulatedGpu(2, 0.2)
    with on(gpu, tiny, fields=["image", "label"], **options) as loader:
        for found, (images, _) in zip(loader, wanted, strict=True):
            gpu.finish(gpu.current)
            assert (found["image"] - images).abs().max() < 2e-6


@pytest.mark.parametrize("device", [False, True])
def test_other_fields_are_left_alone(folder: Path, on: Make, device: bool) -> None:
    fields = ["image", "label", "caption", "track", "weight"]
    options: dict[str, Any] = {"fields": fields, "transform": T.Compose([CROP, NORMALIZE]), "batch_size": 5}
    plain = list(DataLoader(folder, seed=0, **options))
    mixing = {"seed": 0, "batch_transform": [MixUp(4), RandomErasing(1.0)], **options}
    gpu = SimulatedGpu(2, 0.2)
    loader = on(gpu, folder, **mixing) if device else DataLoader(folder, **mixing)
    count = 0
    for found, base in zip(loader, plain, strict=True):
        gpu.finish(gpu.current)
        assert found.keys() == base.keys()
        assert found["caption"] == base["caption"]
        assert torch.equal(found["weight"], base["weight"])
        assert torch.equal(found["track"].values, base["track"].values)
        assert found["label"].shape == (len(base["label"]), 4)
        assert not torch.equal(found["image"], base["image"])
        count += 1
    assert count == 5


def test_of_several_images_one_is_named(folder: Path) -> None:
    fields = ["image", "second", "label", "attribute"]
    gray = T.Normalize((0.4,) * 3, (0.2,) * 3)
    options: dict[str, Any] = {"fields": fields, "transform": T.Compose([CROP, gray])}
    plain = batches(folder, 5, **options)
    parts = [MixUp(7), LabelSmoothing(7)]
    found = batches(folder, 5, batch_transform=OfFields(parts, "second", "attribute"), **options)
    other = batches(folder, 5, batch_transform=OfFields(parts, image="image", label="label"), **options)
    for batch, base, mixed in zip(found, plain, other, strict=True):
        assert torch.equal(batch["image"], base["image"])
        assert torch.equal(batch["label"], base["label"])
        assert not torch.equal(batch["second"], base["second"])
        assert batch["attribute"].shape == (len(base["label"]), 7)
        assert torch.equal(mixed["second"], base["second"])
        assert not torch.equal(mixed["image"], base["image"])


def test_one_of_several_views(tiny: PackedDataset) -> None:
    transform = T.Views(a=FLOAT, b=T.Compose([T.RandomHorizontalFlip(), FLOAT]))
    plain = batches(tiny, transform=transform)
    found = batches(tiny, transform=transform, batch_transform=OfFields(MIX, image="b"))
    for batch, base in zip(found, plain, strict=True):
        assert torch.equal(batch["a"], base["a"])
        assert not torch.equal(batch["b"], base["b"])


def test_where_there_is_no_sample_a_jitter_leaves_zeros(tiny: PackedDataset, on: Make) -> None:
    options: dict[str, Any] = {"ranks": Ranks(0, 3), "transform": NORMALIZE, "batch_transform": JITTER}
    gpu = SimulatedGpu(2, 0.2)
    for device in (False, True):
        fields: dict[str, Any] = {"fields": ["image", "label"], "seed": 0, **options}
        loader = on(gpu, tiny, 8, **fields) if device else DataLoader(tiny, 8, **fields)
        *_, last = loader
        gpu.finish(gpu.current)
        assert last["valid"].tolist()[-2:] == [True, False]
        assert not last["image"][-1].any()
        assert last["image"][-2].any()


def test_per_sample_draws_are_the_same_for_any_number_of_ranks(tiny: PackedDataset) -> None:
    parts = [JITTER, RandomErasing(0.7)]
    whole = {}
    for batch in as_dicts(tiny, batch_transform=parts):
        whole.update(zip(batch["label"].tolist(), batch["image"], strict=True))
    seen = set()
    for rank in range(3):
        for batch in as_dicts(tiny, batch_transform=parts, ranks=Ranks(rank, 3)):
            for label, image in zip(batch["label"].tolist(), batch["image"], strict=True):
                assert torch.equal(image, whole[label])
                seen.add(label)
    assert len(seen) == 100


def test_it_resumes(tiny: PackedDataset) -> None:
    options: dict[str, Any] = {
        "fields": ["image", "label"],
        "transform": FLOAT,
        "seed": 3,
        "shuffle": True,
        "batch_transform": [JITTER, RandomErasing(0.5), RandomChoice([MIX, CutMix(100)])],
    }
    with DataLoader(tiny, 8, **options) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        wanted = list(batches)
    assert len(wanted) == 8
    with DataLoader(tiny, 8, **options) as loader:
        loader.load_state_dict(state)
        for found, batch in zip(loader, wanted, strict=True):
            assert torch.equal(found["image"], batch["image"])
            assert torch.equal(found["label"], batch["label"])


def drops_weight(batch: dict[str, Any]) -> dict[str, Any]:
    noise = torch.rand(1)
    return {"image": batch["image"] + noise, "label": batch["label"], "noise": noise}


def test_callables_get_the_dict(tiny: PackedDataset, on: Make) -> None:
    plain, found = as_dicts(tiny), batches(tiny, fields=["image", "label"], batch_transform=drops_weight)
    for batch, base in zip(found, plain, strict=True):
        assert list(batch) == ["image", "label", "noise"]
        assert torch.equal(batch["image"], base["image"] + batch["noise"])
    again = batches(tiny, fields=["image", "label"], batch_transform=[MIX, drops_weight])
    mixed = as_dicts(tiny, batch_transform=MIX)
    for batch, base in zip(again, mixed, strict=True):
        assert torch.equal(batch["image"], base["image"] + batch["noise"])
    gpu = SimulatedGpu(2, 0.2)
    fields: dict[str, Any] = {"fields": ["image", "label"], "shuffle": True, "seed": 3, "transform": FLOAT}
    with on(gpu, tiny, batch_transform=drops_weight, **fields) as loader:
        for moved, batch in zip(loader, found, strict=True):
            gpu.finish(gpu.current)
            assert torch.equal(moved["image"], batch["image"])


def test_a_callable_that_takes_the_image_away_is_named(tiny: PackedDataset) -> None:
    def without(batch: dict[str, Any]) -> dict[str, Any]:
        return {"label": batch["label"]}

    with pytest.raises(TypeError, match=r"returned no 'image': dict of 'label'"):
        batches(tiny, fields=["image", "label"], batch_transform=[without, MIX])


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "image": sample["image"] * 2}


@pytest.mark.filterwarnings("ignore::fastload.errors.SlowPathWarning")
@pytest.mark.parametrize("device", [False, True])
def test_behind_python_callables(tiny: PackedDataset, on: Make, device: bool) -> None:
    options: dict[str, Any] = {"fields": ["image", "label"], "seed": 0, "num_workers": 0}
    chain = T.Compose([FLOAT, doubled])
    gpu, parts = SimulatedGpu(2, 0.2), [RandomErasing(0.7, value=0.0), MIX]
    wanted = list(DataLoader(tiny, 8, transform=FLOAT, batch_transform=parts, **options))
    mixing = {"transform": chain, "batch_transform": parts, **options}
    loader = on(gpu, tiny, 8, **mixing) if device else DataLoader(tiny, 8, **mixing)
    count = 0
    for found, batch in zip(loader, wanted, strict=True):
        gpu.finish(gpu.current)
        assert (found["image"] - 2 * batch["image"]).abs().max() < 1e-6
        assert torch.equal(found["label"], batch["label"])
        count += 1
    assert count == 13


class Photos(torch.utils.data.Dataset[dict[str, Any]]):
    """A torch Dataset whose samples are dicts."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"photo": torch.full((3, 4, 4), float(number)), "kind": number, "number": number}


def test_torch_datasets_name_their_fields() -> None:
    named = OfFields(MixUp(20), image="photo", label="kind")
    for batch in DataLoader(Photos(), 5, seed=0, batch_transform=named):
        lam = batch["kind"][0, batch["number"][0]].item()
        wanted = lam * batch["number"] + (1 - lam) * batch["number"].roll(1)
        assert (batch["photo"][:, 0, 0, 0] - wanted).abs().max() < 1e-4
    message = (
        r"needs to know the images of a batch.*dict of 'photo', 'kind', 'number'.*OfFields\(..., image=NAME"
    )
    with pytest.raises(TypeError, match=message):
        next(iter(DataLoader(Photos(), 5, seed=0, batch_transform=MixUp(20))))
    found = next(iter(DataLoader(Photos(), 5, seed=0, batch_transform=drops_photo)))
    assert list(found) == ["kind", "number"]


def drops_photo(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: batch[name] for name in ("kind", "number")}


BOTH = ["image", "second", "label"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": ["image", "label", "mask", "boxes"], "batch_transform": MixUp(4)},
         r"MixUp mixes images and labels, not what is said of their places. Found: mask, boxes. Leave"),
        ({"fields": ["image", "label", "points"], "batch_transform": OfFields(CutMix(4), "image", "label")},
         "CutMix mixes.*Found: points"),
        ({"fields": ["image", "label", "outlines"], "batch_transform": TimmMixup()}, "Found: outlines"),
        ({"fields": ["image", "label", "mask"], "batch_transform": RandomChoice([CutMix(4)])},
         "RandomChoice mixes"),
        ({"fields": BOTH, "batch_transform": MixUp(4)},
         r"needs one image field. Found: image, second. Name it: batch_transform=OfFields\(..., image=NAME"),
        ({"fields": ["image", "label", "attribute"], "batch_transform": LabelSmoothing(4)},
         "needs one label field. Found: label, attribute"),
        ({"fields": ["image", "weight"], "batch_transform": MixUp(4)}, "needs one label field. Found: none"),
        ({"fields": ["label", "weight"], "batch_transform": RandomErasing()}, "needs one image.*Found: none"),
        ({"fields": ["image", "label"], "batch_transform": OfFields(MixUp(4), image="photo")},
         "OfFields.image: batches have no field 'photo'. Fields of that kind: image"),
        ({"fields": ["image", "label"], "collate": "pad", "batch_transform": RandomErasing()},
         "needs pictures of one size. Found: collate='pad'"),
        ({"fields": ["second"], "batch_transform": RandomErasing()}, "RGB pictures of 8 bits. Found: second"),
        ({"fields": BOTH, "batch_transform": OfFields(ColorJitter(0.1), image="image")},
         "can be one image field then. Found: image, second"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_fields_is_said(folder: Path, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(folder, 4, transform=T.Compose([CROP, FLOAT]), seed=0, **arguments)


def test_a_view_has_a_dtype_of_its_own(tiny: PackedDataset) -> None:
    transform = T.Views(a=FLOAT, b=T.RandomHorizontalFlip())
    with pytest.raises(ValueError, match="MixUp needs float images"):
        DataLoader(tiny, 8, transform=transform, seed=0, batch_transform=OfFields(MIX, image="b"))


def test_of_fields_is_for_dicts_and_for_all(tiny: PackedDataset) -> None:
    with pytest.raises(
        ValueError, match=r"OfFields is for batches that are dicts; these are \(images, labels"
    ):
        DataLoader(tiny, 8, transform=FLOAT, batch_transform=OfFields(MIX))
    with pytest.raises(TypeError, match="none can stand beside or in it"):
        DataLoader(tiny, 8, transform=FLOAT, batch_transform=[OfFields(MIX), MIX])
    with pytest.raises(TypeError, match="OfFields.label must be the name of a field. Found: 3"):
        OfFields(MIX, label=3)  # type: ignore[arg-type]


def test_explain_lists_them(folder: Path) -> None:
    loader = fastload.DataLoader(
        folder,
        4,
        transform=T.Compose([CROP, FLOAT]),
        fields=["image", "label"],
        batch_transform=OfFields([MIX, drops_weight]),
    )
    text = str(loader.explain())
    assert "batch_transform: MixUp(num_classes=100" in text
    assert "batch_transform: drops_weight" in text
