"""Several views of a sample: each is what a slow loader of that view alone makes."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_reference import Reference, Sizes
from field_sets import RICH, rich_samples, write_field_set
from odd_images import odd_images
from pictures import encoded, picture
from simulated_gpu import SimulatedGpu

import fastload
from fastload import Cache, DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload._native import _C
from fastload.cli import main
from fastload.errors import SlowPathWarning

COUNT = 19
SAMPLES = rich_samples(COUNT)
SEEN = ("image", "mask", "second", "boxes", "outlines", "areas", "points")
GLOBAL = T.Compose([T.RandomResizedCrop((20, 24)), T.RandomHorizontalFlip()])
LOCAL = T.Compose([T.RandomResizedCrop(9, scale=(0.05, 0.4)), T.ToDtype("float32", scale=True)])
VIEWS = T.Views({"global_0": GLOBAL, "global_1": GLOBAL, "local": (3, LOCAL)})
PLAIN = {"image": fastload.Image(), "label": fastload.Label(("cat", "dog"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("views") / "rich", RICH, SAMPLES)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [{"image": sample["image"], "label": number % 2} for number, sample in enumerate(SAMPLES)]
    return write_field_set(tmp_path_factory.mktemp("views") / "plain", PLAIN, samples)


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor) and wanted.dtype == torch.float32 and wanted.dim() == 4:
        # Pictures in [0, 1]: the core rounds once more (csrc/core/transform/store.h).
        return found.shape == wanted.shape and bool((found - wanted).abs().max() <= 2.0**-23)
    if isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, np.ndarray):
        return bool(np.array_equal(found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def wanted_batch(ids: list[int], views: T.Views, sizes: Sizes, seed: int, epoch: int) -> dict[str, Any]:
    """By slow loaders of one view each."""
    found: dict[str, Any] = {}
    for number, (name, transform) in enumerate(zip(views.names, views.transforms, strict=True)):
        slow = Reference(RICH, SAMPLES, transform, seed=seed, sizes=sizes, view=number)
        for key, value in slow.batch(ids, epoch).items():
            if key == "image":
                found[name] = value
            elif key == "image_sizes":
                found[f"{name}_sizes"] = value
            elif key.removesuffix("_sizes") in SEEN:
                found[f"{name}_{key}"] = value
            else:
                found[key] = value
    return found


@pytest.mark.parametrize(
    ("views", "collate", "reference"),
    [
        (VIEWS, "stack", Sizes()),
        (T.Views(whole=None, crop=GLOBAL), "pad", Sizes("pad")),
        (T.Views(whole=T.RandomHorizontalFlip(), small=(2, T.Resize(16))), "ragged", Sizes("ragged")),
    ],
)
def test_each_view_is_what_a_loader_of_it_alone_makes(
    folder: Path, views: T.Views, collate: Any, reference: Sizes
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "num_workers": 2, "collate": collate}
    with DataLoader(folder, 5, transform=views, **options) as loader:
        for epoch in range(2):
            ids = list(loader.sampler)
            for number, batch in enumerate(loader):
                wanted = wanted_batch(ids[number * 5 : number * 5 + 5], views, reference, 3, epoch)
                assert set(batch) == set(wanted)
                wrong = [name for name in wanted if not same(batch[name], wanted[name])]
                assert not wrong
            assert number == 3


def test_a_set_of_images_and_labels(plain: Path) -> None:
    """The first view draws as a loader without views does; the second one something else."""
    options: dict[str, Any] = {"batch_size": COUNT, "shuffle": True, "seed": 1}
    with DataLoader(plain, transform=GLOBAL, **options) as loader:
        images, labels = next(iter(loader))
    with DataLoader(plain, transform={"first": GLOBAL, "second": GLOBAL}, **options) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["first", "second", "label", "valid"]
    assert torch.equal(batch["first"], images)
    assert torch.equal(batch["label"], labels)
    differ = (batch["first"] != batch["second"]).flatten(1).any(1)
    assert differ.sum() >= COUNT - 2


def test_the_list_of_crops(plain: Path) -> None:
    with DataLoader(plain, 4, transform=VIEWS, seed=0) as loader:
        batch = next(iter(loader))
        planned = loader.memory_plan()["slot_bytes"]
    assert VIEWS.names == ("global_0", "global_1", "local_0", "local_1", "local_2")
    crops = VIEWS.of(batch)
    assert [tuple(crop.shape) for crop in crops] == [(4, 3, 20, 24)] * 2 + [(4, 3, 9, 9)] * 3
    assert {crop.dtype for crop in crops} == {torch.uint8, torch.float32}
    assert not torch.equal(batch["local_0"], batch["local_1"])
    assert planned >= sum(crop.nbytes for crop in crops)


def test_only_the_fields_that_are_named(folder: Path) -> None:
    with DataLoader(folder, 4, transform=VIEWS, seed=0, fields=["mask", "caption"]) as loader:
        batch = next(iter(loader))
    assert list(batch) == [*(f"{name}_mask" for name in VIEWS.names), "caption", "valid"]
    assert batch["local_1_mask"].shape == (4, 9, 9)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_skipped_sample_has_nothing_in_any_view(tmp_path: Path, workers: int) -> None:
    """With two worker processes behind a callable."""
    samples = [
        {"image": b"\xff\xd8 no picture" if number == 2 else sample["image"], "label": 1}
        for number, sample in enumerate(SAMPLES)
    ]
    path = write_field_set(tmp_path / "damaged", PLAIN, samples)
    transform = T.Compose([VIEWS, unchanged]) if workers else VIEWS
    with pytest.warns(SlowPathWarning, match="unchanged") if workers else nullcontext():
        loader = DataLoader(path, 5, transform=transform, seed=0, on_error="skip", num_workers=workers)
    with loader:
        batch = next(iter(loader))
        assert [report.sample for report in loader.errors] == [2]
    assert batch["valid"].tolist() == [True, True, False, True, True]
    assert batch["label"].tolist() == [1, 1, -100, 1, 1]
    for name in VIEWS.names:
        assert batch[name].flatten(1).any(1).tolist() == batch["valid"].tolist()


def unchanged(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def test_a_substitute_brings_all_its_views(tmp_path: Path, plain: Path) -> None:
    samples = [
        {"image": b"\xff\xd8 no picture" if number == 2 else sample["image"], "label": number % 2}
        for number, sample in enumerate(SAMPLES)
    ]
    path = write_field_set(tmp_path / "damaged", PLAIN, samples)
    with DataLoader(path, 5, transform=VIEWS, seed=0, on_error="replace") as loader:
        batch = next(iter(loader))
        (report,) = loader.errors
    with DataLoader(plain, COUNT, transform=VIEWS, seed=0) as loader:
        good = next(iter(loader))
    wanted = {name: good[name][[0, 1, report.substitute, 3, 4]] for name in good}
    assert same(batch, wanted)


def test_resuming_and_ranks_change_nothing(folder: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "transform": VIEWS, "seed": 4, "fields": ["image", "weight"]}
    with DataLoader(folder, 4, **options) as loader:
        iterator = iter(loader)
        batches = [next(iterator)]
        state = loader.state_dict()
        batches += iterator
    with DataLoader(folder, 4, **options) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert len(rest) == 4
    assert all(same(found, wanted) for found, wanted in zip(rest, batches[1:], strict=True))
    shown = {float(w): batch["local_2"][i] for batch in batches for i, w in enumerate(batch["weight"])}
    met = 0
    for rank in range(2):
        with DataLoader(folder, 2, **options, ranks=Ranks(rank, 2)) as loader:
            for batch in map(fastload.valid, loader):
                met += len(batch["weight"])
                weights = batch["weight"].tolist()
                assert all(torch.equal(batch["local_2"][i], shown[w]) for i, w in enumerate(weights))
    assert met >= COUNT


def inverted(picture: Any) -> Any:
    """Of a PIL picture; a tensor has no such method."""
    return torch.from_numpy(255 - np.asarray(picture.convert("RGB"))).permute(2, 0, 1)


def noisy(picture: Any, generator: torch.Generator) -> Any:
    return picture + torch.rand((), generator=generator) + torch.rand(())


def summed(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "sum": float(sample["clean"].sum())}


@pytest.mark.parametrize("workers", [0, 2])
def test_callables_get_their_view_and_then_the_whole_sample(plain: Path, workers: int) -> None:
    floats = T.Compose([GLOBAL, T.ToDtype("float32", scale=True)])
    views = {"clean": floats, "dark": GLOBAL, "first": floats, "second": floats}
    with DataLoader(plain, 6, transform=views, seed=0) as loader:
        wanted = next(iter(loader))
    torchvision_like = T.Compose([GLOBAL, inverted])
    noise = T.Compose([floats, noisy])
    views = {"clean": floats, "dark": torchvision_like, "first": noise, "second": noise}
    with pytest.warns(SlowPathWarning, match=r"dark: inverted .*second: noisy.*summed"):
        loader = DataLoader(plain, 6, transform=T.Compose([T.Views(views), summed]), seed=0,
                            num_workers=workers)  # fmt: skip
    with loader:
        text = str(loader.explain())
        batch = next(iter(loader))
    assert torch.equal(batch["clean"], wanted["clean"])
    assert torch.equal(batch["dark"], 255 - wanted["dark"])
    assert torch.allclose(batch["sum"].float(), wanted["clean"].flatten(1).sum(1))
    added = [(batch[name] - wanted[name]).flatten(1) for name in ("first", "second")]
    assert all(torch.allclose(noise, noise[:, :1], atol=1e-5) for noise in added)
    assert len({round(float(value), 4) for noise in added for value in noise[:, 0]}) == 12
    assert "transform: second: noisy" in text
    assert "decode: what the crop needs for each view, all of them at once if that is cheaper" in text
    assert "under each of the sample's views: clean, dark, first, second" in text


class TwoCropsTransform:
    """As MoCo and SimSiam have it."""

    def __init__(self, base_transform: Any) -> None:
        self.base_transform = base_transform

    def __call__(self, picture: Any) -> list[Any]:
        return [self.base_transform(picture), self.base_transform(picture)]


def test_code_that_makes_two_crops_is_told_of_views() -> None:
    (step,) = T.compile_plan(TwoCropsTransform(inverted)).steps
    assert not step.native
    assert "transform=fastload.transforms.Views(first=..., second=...)" in step.keep


def test_a_dataset_with_views_of_its_own(plain: Path) -> None:
    dataset = PackedDataset(plain, transform=VIEWS, target_transform=str)
    with pytest.raises(ValueError, match="Views are made by fastload.DataLoader"):
        dataset[0]
    with DataLoader(dataset, 3, num_workers=0, seed=0) as loader:
        batch = next(iter(loader))
    assert batch["label"] == ["0", "1", "0"]
    assert batch["global_1"].shape == (3, 3, 20, 24)


def test_views_of_bounded_pictures(folder: Path, plain: Path) -> None:
    """Each view is cut from the kept picture, as a loader of one view cuts it."""
    options: dict[str, Any] = {"batch_size": COUNT, "seed": 0, "cache": Cache("off", decoded=32)}
    with DataLoader(plain, transform=GLOBAL, **options) as loader:
        images, _ = next(iter(loader))
    with DataLoader(plain, transform=T.Views(a=GLOBAL, b=GLOBAL), **options) as loader:
        batch = next(iter(loader))
    assert torch.equal(batch["a"], images)
    assert not torch.equal(batch["b"], images)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Views(), "must have 1 to 256 views.* Found: 0 views"),
        (lambda: T.Views(a=(257, GLOBAL)), "Found: 257 views"),
        (lambda: T.Views({"a_0": GLOBAL, "a": (2, GLOBAL)}), "Found: 'a_0' twice"),
        (lambda: T.Views(a=(0, GLOBAL)), "count of at least 1. Found: 0 for 'a'"),
        (lambda: T.Views(valid=GLOBAL), "must not be 'valid'"),
        (lambda: T.Views({"a/b": GLOBAL}), "without '/'"),
    ],
)  # fmt: skip
def test_wrong_views_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_transform_is_refused() -> None:
    with pytest.raises(TypeError, match="Found: 3 for 'a'"):
        T.Views(a=3)
    with pytest.raises(TypeError, match="and no Views in it"):
        T.Views(a=VIEWS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transform": T.Compose([T.Resize(30), VIEWS])}, "Views must come first"),
        ({"transform": T.Compose([VIEWS, T.ToDtype("float32")])}, "comes after Views"),
        ({"transform": T.Compose([VIEWS, VIEWS])}, "comes after Views"),
        ({"transform": T.Views(label=GLOBAL)}, "two fields 'label': of views label and of fields"),
        ({"transform": T.Views(a=GLOBAL, a_sizes=GLOBAL)}, "two fields 'a_sizes'"),
        ({"batch_transform": T.RandomErasing()}, "needs one image field. Found: global_0, global_1"),
        ({"transform": T.Views(a=GLOBAL, b=T.Resize(8))}, "cannot be stacked"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_views_is_said(plain: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next(iter(DataLoader(plain, 4, **{"transform": VIEWS, "seed": 0, **arguments})))


def decoded(
    monkeypatch: pytest.MonkeyPatch, how: str, path: Path, transform: Any, **options: Any
) -> tuple[list[Any], float, list[Any]]:
    """Three epochs, with several views of a picture decoded so; decodes a sample, and what failed."""
    with monkeypatch.context() as patch:
        patch.setattr(_C, "Engine", partial(_C.Engine, decode_once=how))
        with DataLoader(path, 8, transform=transform, seed=5, on_error="skip", **options) as loader:
            batches = [batch for _ in range(3) for batch in loader]
            failed = [(report.epoch, report.sample, report.error) for report in loader.errors]
            lanes = loader._epochs.lanes
    threads = lanes.counts().threads  # closed: before, the threads were at the fourth epoch
    paths = ("jpeg", "jpeg_turbo", "png", "webp", "raw", "pil")
    decodes = sum(thread["decoded"][name] for thread in threads for name in paths)
    return batches, decodes / sum(thread["samples"] for thread in threads), failed


SMALL = T.Compose(
    [T.RandomResizedCrop(20, scale=(0.02, 0.5)), T.RandomHorizontalFlip(), T.RandomGrayscale(0.5)]
)
CROPS = T.Views(one=T.RandomResizedCrop(32), small=(3, SMALL), float=T.Compose([SMALL, T.ToDtype("float32")]))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all kinds, also such as cannot be decoded; and JPEGs that were damaged after their entry
    points were made, so that only who decodes the damaged part sees it."""
    files = [*odd_images().values(), *(encoded(picture(i, 190, 150), quality=90) for i in range(8))]
    holed = files[:-4] + [
        data[: len(data) // 2] + bytes(40) + data[len(data) // 2 + 40 :] for data in files[-4:]
    ]
    root = tmp_path_factory.mktemp("odd")
    sound, damaged = (
        write_field_set(root / name, PLAIN, [{"image": data, "label": 0} for data in found])
        for name, found in (("sound", files), ("damaged", holed))
    )
    reader, build = PackedDataset(sound).sources[0][0], _C.build_entries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_C, "build_entries", lambda _, *more: build(reader, *more))
        assert main(["index", str(damaged), "--entries", "16"]) == 0
    return damaged


@pytest.mark.parametrize("side", [None, 64])
def test_one_decode_gives_the_same_pixels(
    odd: Path, monkeypatch: pytest.MonkeyPatch, side: int | None
) -> None:
    options: dict[str, Any] = {"cache": Cache("off", decoded=side)}
    apart, decodes_apart, failed = decoded(monkeypatch, "never", odd, CROPS, **options)
    together, decodes_together, failed_together = decoded(monkeypatch, "always", odd, CROPS, **options)
    cheaper, decodes, _ = decoded(monkeypatch, "cheaper", odd, CROPS, **options)
    assert len(apart) > 9
    assert all(same(found, wanted) for found, wanted in zip(together, apart, strict=True))
    assert all(same(found, wanted) for found, wanted in zip(cheaper, apart, strict=True))
    assert failed == failed_together
    assert len(failed) > 20
    assert decodes_together < decodes_apart / 2
    assert decodes_together <= decodes <= decodes_apart


def test_masks_of_several_views_are_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"fields": ["mask", "second"], "shuffle": True}
    apart, decodes_apart, _ = decoded(monkeypatch, "never", folder, VIEWS, **options)
    together, decodes_together, _ = decoded(monkeypatch, "always", folder, VIEWS, **options)
    assert len(apart) == 9
    assert all(same(found, wanted) for found, wanted in zip(together, apart, strict=True))
    assert (decodes_apart, decodes_together) == (10, 2)


@pytest.mark.parametrize("fields", [["image", "label", "caption"], ["image", "mask", "boxes"]])
def test_on_a_device_it_is_the_same(folder: Path, fields: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of uint8 and of float32, which cross as uint8."""
    gpu = SimulatedGpu(0, 0.3)
    monkeypatch.setattr("fastload.backends.choice.find_gpu", lambda _: gpu)
    options: dict[str, Any] = {"transform": VIEWS, "seed": 0, "shuffle": True, "fields": fields}
    met = 0
    with DataLoader(folder, 5, **options) as loader, DataLoader(folder, 5, **options, device="cuda") as moved:
        for found, wanted in zip(moved, loader, strict=True):
            gpu.synchronize()
            assert list(found) == list(wanted)
            assert all(same(found[name], wanted[name]) for name in wanted)
            met += 1
    assert met == 4
