"""Callables on samples with boxes, masks and points: who gets all of a sample, who a picture alone, and what
is refused because it would leave a field behind. Of torchvision there are only objects that look like its;
tests/foreign/torchvision has itself."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marked_chains import FORMATS, World, make_world
from PIL import Image
from torchvision_likes import from_torchvision

import fastload
from fastload import DataLoader, Fields, PackedDataset, Pad, errors
from fastload import transforms as T
from fastload.transforms import compile_plan
from fastload.transforms.callables import look, state_behind

PLACED = ["image", "mask", "boxes", "labels", "area", "points"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("marked"))


@pytest.fixture(scope="module")
def folder(world: World) -> Path:
    return world.rich[FORMATS[0]]


def still(sample: Any) -> Any:
    return sample


def v1(name: str, **attributes: Any) -> Any:
    return from_torchvision(name, "torchvision.transforms.transforms", **attributes)


def v2(name: str, **attributes: Any) -> Any:
    return from_torchvision(name, "torchvision.transforms.v2._geometry", **attributes)


def of_library(module: str) -> Any:
    def call(self: Any, image: Any) -> Any:
        return image

    return type("Foreign", (), {"__module__": module, "__call__": call})()


def test_what_a_callable_is_is_told_by_its_module() -> None:
    found = {
        "own": look(still),
        "v2": look(v2("ElasticTransform")),
        "own of v2": look(type("Mine", (type(v2("Transform")),), {})()),
        "v1": look(v1("RandomRotation")),
        "v1 colours": look(v1("ColorJitter")),
        "function": look(functools.partial(Image.Image.rotate, angle=3)),
        "albumentations": look(of_library("albumentations.augmentations.x")),
        "kornia": look(of_library("kornia.augmentation")),
        "only": look(T.ImageOnly(still, "left")),
        "container": look(v2("RandomApply", transforms=[v2("RandomHorizontalFlip"), still])),
        "of v1": look(v1("RandomApply", transforms=[v1("ColorJitter"), v1("RandomRotation")])),
        "still container": look(v1("RandomOrder", transforms=[v1("ColorJitter")])),
    }
    assert {name: (one.takes, one.moves) for name, one in found.items()} == {
        "own": ("sample", False),
        "v2": ("v2", True),
        "own of v2": ("v2", True),
        "v1": ("image", True),
        "v1 colours": ("image", False),
        "function": ("image", True),
        "albumentations": ("image", True),
        "kornia": ("image", True),
        "only": ("image", False),
        "container": ("v2", True),
        "of v1": ("image", True),
        "still container": ("image", False),
    }
    assert found["only"].field == "left"
    assert [look(v2(name)).refuses for name in ("MixUp", "RandAugment", "Resize")] == [
        "samples",
        "objects",
        "",
    ]


def test_what_pictures_are_behind_a_transform() -> None:
    assert state_behind(v2("ToImage"), "pil") == "image"
    assert state_behind(v2("PILToTensor"), "pil") == "tensor"
    assert state_behind(v2("PILToTensor"), "image") == "image"
    assert state_behind(v2("ToDtype"), "image") == "image"
    assert state_behind(v1("ToTensor"), "pil") == "tensor"
    assert state_behind(v2("ToPureTensor"), "image") == "tensor"
    assert state_behind(v2("ToPILImage"), "tensor") == "pil"
    assert state_behind(still, "pil") == "pil"
    plan = compile_plan(T.Compose([v2("ToImage"), v2("ElasticTransform"), v2("ToPureTensor"), still]))
    assert [(one.state, one.pure) for one in plan.called] == [
        ("image", False),
        ("image", False),
        ("tensor", True),
    ]
    assert (plan.is_v2, plan.state) == (True, "image")


ALONE = {
    "v1": v1("RandomRotation"),
    "functional": functools.partial(Image.Image.rotate, angle=3),
    "albumentations": of_library("albumentations.augmentations.x"),
    "kornia": of_library("kornia.augmentation"),
}


@pytest.mark.parametrize("name", list(ALONE))
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"collate": "pad"}, {"collate": "list"}, {"batch_size": None}], ids=str
)
def test_what_sees_a_picture_alone_is_refused(folder: Path, name: str, views: bool, options: Any) -> None:
    given: dict[str, Any] = {"fields": PLACED, "batch_size": 2, "num_workers": 0, **options}
    if options.get("collate"):
        given["collate"] = fastload.Detection("list", image="image")
        del given["fields"]
        if views:
            pytest.skip("targets are of one view")
    chain: Any = T.Compose([still, ALONE[name]]) if not views else T.Views(a=ALONE[name])
    with pytest.raises(
        ValueError, match=r"alone, so '\w+' \(\w+\) would be left behind .*ImageOnly.*fields=\[...\]"
    ):
        DataLoader(folder, transform=chain, **given)
    chain = T.Compose([still, T.ImageOnly(ALONE[name])]) if not views else T.Views(a=T.ImageOnly(ALONE[name]))
    DataLoader(folder, transform=chain, **given).close()
    if "fields" in given:
        given["fields"] = ["image", "labels"]
        DataLoader(folder, transform=T.Views(a=ALONE[name]) if views else ALONE[name], **given).close()


def test_in_mixtures_too(folder: Path) -> None:
    mixture = fastload.mix([folder, folder], [0.5, 0.5])
    with pytest.raises(ValueError, match="would be left behind"):
        DataLoader(mixture, 2, transform=v1("RandomRotation"), fields=PLACED)


def test_a_function_of_a_view_gets_its_picture_alone(folder: Path) -> None:
    views = T.Views(a=still, b=T.RandomHorizontalFlip())
    with pytest.raises(
        ValueError, match=r"still gets the picture of the view 'a' alone, so 'mask'.*behind the views"
    ):
        DataLoader(folder, 2, transform=views, fields=PLACED)
    with DataLoader(
        folder, 4, transform=T.Compose([T.Views(a=None, b=None), still]), fields=PLACED
    ) as loader:
        assert loader.explain().slow[0].what == "still"


def test_several_pictures_need_a_name(folder: Path) -> None:
    got: list[Any] = []

    def seen(image: Any) -> Any:
        got.append(image)
        return image

    fields = ["image", "right", "labels"]
    with pytest.raises(ValueError, match=r"takes one picture, and samples have several. Found: image, right"):
        DataLoader(folder, 2, transform=T.ImageOnly(seen), fields=fields)
    chain = T.ImageOnly(seen, "right")
    with DataLoader(folder, 4, transform=chain, fields=fields, collate="ragged", num_workers=0) as loader:
        batch = next(iter(loader))
    assert isinstance(got[0], Image.Image)
    assert np.array_equal(np.asarray(got[0]), batch["right"][0].permute(1, 2, 0).numpy())
    with pytest.raises(ValueError, match=r"needs a field of that name. Fields of pictures .*: image, right"):
        DataLoader(folder, 2, transform=T.ImageOnly(seen, "left"), fields=fields)


def test_only_callables_see_pictures_alone() -> None:
    with pytest.raises(TypeError, match="handle all fields without it"):
        T.ImageOnly(T.RandomInvert())
    with pytest.raises(TypeError, match="ImageOnly takes a callable"):
        T.ImageOnly(3)
    with pytest.raises(TypeError, match="must be a field's name"):
        T.ImageOnly(still, 3)  # type: ignore[arg-type]
    assert T.ImageOnly(str)(3) == "3"


def test_chains_of_pictures_get_what_they_got(folder: Path) -> None:
    """One function's result is what the next one gets, as of pairs."""
    got: list[Any] = []

    def to_array(image: Any) -> Any:
        got.append(type(image))
        return np.asarray(image)

    def to_tensor(array: Any) -> Any:
        got.append(type(array))
        return torch.from_numpy(array.copy()).permute(2, 0, 1)

    for chain in (
        T.Compose([T.ImageOnly(to_array), T.ImageOnly(to_tensor)]),
        T.Views(a=T.Compose([T.ImageOnly(to_array), T.ImageOnly(to_tensor)])),
    ):
        got.clear()
        with DataLoader(folder, 1, transform=chain, fields=PLACED, num_workers=0) as loader:
            next(iter(loader))
        assert got == [Image.Image, np.ndarray]


def test_a_picture_function_says_what_would_help(folder: Path) -> None:
    def bright(image: Any) -> Any:
        return image.float()

    with (
        DataLoader(folder, 2, transform=bright, fields=PLACED, num_workers=0) as loader,
        pytest.raises(errors.SampleError, match="Samples of this loader are dicts by field.*ImageOnly"),
    ):
        next(iter(loader))


def test_batches_are_padded_behind_callables(folder: Path) -> None:
    options: dict[str, Any] = {"fields": Fields([*PLACED, "outlines"], masks="dense"), "num_workers": 0}
    for collate in ("pad", Pad(200, 220)):
        with DataLoader(folder, 4, collate=collate, **options) as loader:
            wanted = next(iter(loader))
        with DataLoader(folder, 4, collate=collate, transform=still, **options) as loader:
            found = next(iter(loader))
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            assert (
                torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
            )

    def larger(sample: Any) -> Any:
        return {**sample, "image": torch.zeros(3, 300, 300, dtype=torch.uint8)}

    with (
        DataLoader(folder, 4, collate=Pad(200, 220), transform=larger, **options) as loader,
        pytest.raises(errors.SampleError, match="has room for less"),
    ):
        next(iter(loader))


def test_a_detection_dataset_gives_collate_fn_what_torch_gives(folder: Path) -> None:
    dataset = PackedDataset(folder).as_detection(image="image")

    def collated(batch: list[Any]) -> Any:
        return tuple(zip(*batch, strict=True))

    images, targets = next(iter(torch.utils.data.DataLoader(dataset, 4, collate_fn=collated)))
    for chain in (None, still):
        loader = DataLoader(dataset, 4, collate_fn=collated, transform=chain, num_workers=0)
        ours, ours_targets = next(iter(loader))
        assert all(map(torch.equal, ours, images))
        for target, other in zip(ours_targets, targets, strict=True):
            assert target.keys() == other.keys()
            assert all(
                torch.equal(torch.as_tensor(target[name]), torch.as_tensor(other[name])) for name in other
            )


def test_each_step_says_which_fields_it_moves(folder: Path, world: World) -> None:
    chain = T.Compose([
        T.ColorJitter(0.1), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes(), T.RandomRotation(9),
        T.ToDtype("float32"), T.ImageOnly(still), still,
    ])  # fmt: skip
    with DataLoader(folder, 2, transform=chain, fields=PLACED) as loader:
        steps = [step for step in loader.explain().steps if step.stage == "transform"]
        text = str(loader.explain())
    placed = ("image", "mask", "boxes", "points")
    assert [step.moves for step in steps] == [(), placed, (), placed, (), (), ()]
    assert [step.does for step in steps] == [
        "It moves nothing, and changes image",
        "It moves image, mask, boxes and points",
        "It moves nothing, and changes boxes, labels, area and points",
        "It moves image, mask, boxes and points",
        "It moves nothing, and changes image",
        "It gets image alone, and moves nothing",
        "It gets image, mask, boxes, labels, area and points",
    ]
    assert all(f" {step.does}." in text for step in steps)
    views = T.Compose([T.Views(a=T.RandomVerticalFlip(), b=T.RandomInvert()), still])
    with DataLoader(folder, 2, transform=views, fields=PLACED) as loader:
        steps = [step for step in loader.explain().steps if step.stage == "transform"]
    assert [step.moves for step in steps] == [("a", "a_mask", "a_boxes", "a_points"), (), ()]
    with DataLoader(world.pairs, 2, transform=T.RandomResizedCrop(9)) as loader:
        (step,) = [step for step in loader.explain().steps if step.stage == "transform"]
    assert step.moves == ("image",)


def test_a_border_of_its_own_pixels_moves_no_boxes(folder: Path) -> None:
    pad = T.Pad(3, padding_mode="reflect")
    with pytest.raises(ValueError, match=r"padding_mode .*'boxes' \(boxes\).*Pad by fill"):
        DataLoader(folder, 2, transform=pad, fields=PLACED, collate="ragged")
    with DataLoader(
        folder, 2, transform=pad, fields=["image", "mask"], collate="ragged", num_workers=0
    ) as loader:
        batch = next(iter(loader))
    with DataLoader(folder, 2, fields=["image", "mask"], collate="ragged", num_workers=0) as loader:
        plain = next(iter(loader))
    for name in ("image", "mask"):
        sides = [(0, 0)] * (plain[name][0].dim() - 2) + [(3, 3)] * 2
        assert np.array_equal(batch[name][0].numpy(), np.pad(plain[name][0].numpy(), sides, mode="reflect"))


def test_formats_and_dtypes_that_the_chain_asks_for(folder: Path) -> None:
    chain = T.Compose([T.ConvertBoundingBoxFormat("CXCYWH"), T.ToDtype(None, masks="int64")])
    options: dict[str, Any] = {"fields": PLACED, "collate": "ragged", "num_workers": 0}
    with DataLoader(folder, 2, **options) as loader:
        plain = next(iter(loader))
    with DataLoader(folder, 2, transform=chain, **options) as loader:
        found = next(iter(loader))
    left, top, right, bottom = plain["boxes"].values.unbind(1)
    wanted = torch.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], 1)
    assert torch.equal(found["boxes"].values, wanted)
    assert [mask.dtype for mask in found["mask"]] == [torch.int64] * 2
    assert all(torch.equal(a, b.long()) for a, b in zip(found["mask"], plain["mask"], strict=True))
    with pytest.raises(ValueError, match=r"must be one of xyxy, xywh, cxcywh. Found: 'XYWHR'"):
        T.ConvertBoundingBoxFormat("XYWHR")
    with pytest.raises(ValueError, match=r"ToDtype.masks must be 'int64', or None"):
        T.ToDtype("float32", masks="float32")
