"""Compilation: what becomes native, what becomes the tail, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from geometry_uses import center, crop, exact, flip, shorter, spec_of, window
from torchvision_likes import MEAN, STD, from_torchvision, tv_crop, tv_normalize, tv_to_dtype

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import Plan, compile_plan

CROP = Plan(geometry=(crop(224, 224),))
FLIP = T.RandomHorizontalFlip(0.25)
FLIPPED = flip(0.25)
NORMALIZED: dict[str, Any] = {"dtype": "float32", "scale": True, "normalize": True, "mean": MEAN, "std": STD}


def foreign(image: torch.Tensor) -> torch.Tensor:
    return image


@pytest.mark.parametrize(
    ("transform", "plan"),
    [
        (None, Plan()),
        (T.Compose([]), Plan()),
        (T.RandomResizedCrop(224), CROP),
        (
            T.Compose(
                [T.RandomResizedCrop((7, 9), (0.1, 0.2), (1, 2), "bicubic"), T.RandomHorizontalFlip(0.3)]
            ),
            Plan(geometry=(crop(7, 9, (0.1, 0.2), (1.0, 2.0)), flip(0.3)), filter="bicubic"),
        ),
        (
            T.Compose([T.Compose([T.Resize(256), T.CenterCrop((224, 200))]), T.Normalize(MEAN, STD)]),
            Plan(geometry=(shorter(256), center(224, 200)), **NORMALIZED),
        ),
        (T.Resize(256, max_size=300), Plan(geometry=(shorter(256, 300),))),
        (T.Resize((7, 9)), Plan(geometry=(exact(7, 9),))),
        (T.Normalize(MEAN, STD), Plan(**NORMALIZED)),
        (T.ToDtype("uint8"), Plan()),
        (T.ToDtype("uint8", scale=True), Plan()),
        (T.ToDtype("float32"), Plan(dtype="float32")),
        (T.ToDtype(torch.float16, scale=True), Plan(dtype="float16", scale=True)),
        (T.Compose([T.ToDtype("float32", True), T.Normalize(MEAN, STD)]), Plan(**NORMALIZED)),
        (
            T.Compose([T.Normalize(MEAN, STD), T.ToDtype("float16")]),
            replace(Plan(**NORMALIZED), dtype="float16"),
        ),
        (
            T.Compose([T.ToDtype("bfloat16", True), T.Normalize(MEAN, STD)]),
            replace(Plan(**NORMALIZED), dtype="bfloat16"),
        ),
        (T.Compose([T.ToDtype("float32", True), T.ToDtype("float32")]), Plan(dtype="float32", scale=True)),
        (
            T.Compose([T.ToDtype("float32"), T.Normalize((255.0, 0, 51), (255.0, 510, 51))]),
            replace(Plan(**NORMALIZED), mean=(1.0, 0.0, 0.2), std=(1.0, 2.0, 0.2)),
        ),
        (foreign, Plan(tail=(foreign,), picture=True)),
        (
            T.Compose([T.RandomResizedCrop(224), foreign, foreign]),
            replace(CROP, tail=(foreign, foreign), picture=True),
        ),
        (
            T.Compose([T.RandomResizedCrop(224), T.ToDtype("uint8"), foreign]),
            replace(CROP, tail=(foreign,)),
        ),
        (
            T.Compose([T.Resize(256), T.RandomCrop((224, 200))]),
            Plan(geometry=(shorter(256), window(224, 200))),
        ),
        (T.Compose([FLIP, T.RandomResizedCrop(224)]), Plan(geometry=(FLIPPED, crop(224, 224)))),
        (
            T.Compose([T.RandomResizedCrop(224), T.ToDtype("uint8"), FLIP]),
            Plan(geometry=(crop(224, 224), FLIPPED)),
        ),
        (T.Compose([T.Normalize(MEAN, STD), FLIP]), Plan(geometry=(FLIPPED,), **NORMALIZED)),
        (
            T.Compose([FLIP, T.Resize((9, 9))]),
            Plan(geometry=(FLIPPED, exact(9, 9))),
        ),
        (
            T.Compose([FLIP, T.Resize((9, 9)), T.CenterCrop(8)]),
            Plan(geometry=(FLIPPED, exact(9, 9), center(8, 8))),
        ),
        (
            T.Compose([T.RandomResizedCrop(224), FLIP, T.CenterCrop(9)]),
            Plan(geometry=(crop(224, 224), FLIPPED, center(9, 9))),
        ),
        (T.Compose([T.Normalize(MEAN, STD), foreign]), Plan(**NORMALIZED, tail=(foreign,))),
    ],
)
def test_plans(transform: Any, plan: Plan) -> None:
    assert compile_plan(transform) == plan


@pytest.mark.parametrize(
    ("transform", "size"),
    [
        (None, None),
        (T.Resize(9), None),
        (T.Resize((7, 9)), (7, 9)),
        (T.RandomResizedCrop((7, 9)), (7, 9)),
        (T.CenterCrop((5, 6)), (5, 6)),
        (T.RandomCrop((5, 6)), (5, 6)),
        (T.Compose([T.RandomResizedCrop(9), T.CenterCrop((5, 6))]), (5, 6)),
    ],
)
def test_output_sizes(transform: Any, size: tuple[int, int] | None) -> None:
    assert compile_plan(transform).output_size == size


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            [T.Resize(9), T.RandomResizedCrop(9)],
            r"RandomResizedCrop.* is out of order or there twice. The",
        ),
        ([T.RandomQuarterTurn(), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.FixedSizeCrop(9), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.Resize(9), T.CenterCrop(9), T.Resize(9)], r"Resize.* is out of order"),
        ([T.Normalize(MEAN, STD), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.Normalize(MEAN, STD), T.Normalize(MEAN, STD)], r"Normalize.* there twice"),
        ([T.ToDtype("float32"), T.ToDtype("uint8")], r"ToDtype.* cannot follow float32"),
        ([T.ToDtype("float16"), T.ToDtype("float32")], r"ToDtype.* cannot follow float16"),
        (
            [foreign, T.CenterCrop(9)],
            r"CenterCrop\(size=\(9, 9\)\) comes after foreign, which runs in Python",
        ),
        ([T.Resize(9), foreign, T.Normalize(MEAN, STD)], r"Normalize.* comes after foreign"),
    ],
)
def test_refuses_wrong_orders(transforms: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_plan(T.Compose(transforms))


def test_refuses_what_is_not_callable() -> None:
    with pytest.raises(TypeError, match=r"must be one of fastload.transforms or callable. Found: 5"):
        compile_plan(5)


@pytest.mark.parametrize("several", [[T.CenterCrop(8)], (T.CenterCrop(8), T.RandomGrayscale())])
def test_a_list_of_transforms_is_told_of_compose(several: Any) -> None:
    with pytest.raises(TypeError, match=r"Put a list into Compose\(\[\.\.\.\]\)\."):
        compile_plan(several)


@pytest.mark.parametrize("name", ["ToTensor", "PILToTensor", "ToImage"])
def test_torchvisions_conversions_are_told_what_is_in_their_place(name: str) -> None:
    with pytest.raises(
        AttributeError, match=r'batches are tensors without it. ToDtype\("float32", scale=True\)'
    ):
        getattr(T, name)
    with pytest.raises(AttributeError, match=r"no attribute 'Nothing'$"):
        getattr(T, "Nothing")  # noqa: B009 # mypy knows that it is not there


IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OF_255 = tuple(tuple(255 * value for value in values) for values in IMAGENET)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([T.Normalize(*OF_255)], r"pixels are in \[0, 1\] here.* Divide mean and std by 255"),
        ([T.ToDtype("float32", scale=True), T.Normalize(*OF_255)], r"Divide mean and std by 255"),
        (
            [T.ToDtype("float32"), T.Normalize(*IMAGENET)],
            r"pixels are in \[0, 255\] after ToDtype.* scale=True",
        ),
        (
            [T.ToDtype("float32"), T.Normalize((300, 300, 300), (60, 60, 60))],
            r"pixels are in \[0, 255\] here",
        ),
    ],
)
def test_means_in_another_unit_than_the_pixels_are_warned_of(transforms: list[Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        compile_plan(T.Compose(transforms))


@pytest.mark.parametrize(
    "transforms",
    [
        [T.Normalize(*IMAGENET)],
        [T.Normalize((0, 0, 0), (1 / 255,) * 3)],
        [T.Normalize((1, 1, 1), (1, 1, 1))],
        [T.ToDtype("float32", scale=True), T.Normalize(*IMAGENET)],
        [T.ToDtype("float32"), T.Normalize(*OF_255)],
        [T.ToDtype("float32"), T.Normalize((104, 117, 124), (1, 1, 1))],
    ],
)
@pytest.mark.filterwarnings("error")
def test_means_in_the_pixels_unit_are_not(transforms: list[Any]) -> None:
    assert compile_plan(T.Compose(transforms)).normalize


class Own:
    def __call__(self, image: Any) -> Any:
        return image


@pytest.mark.parametrize("given", [T.ToDtype, Own, torch.nn.Identity, T.Compose])
def test_refuses_a_class_in_the_place_of_a_transform(given: Any) -> None:
    words = f"Found: the class {given.__qualname__}. Call it with its arguments: {given.__qualname__}"
    chain = from_torchvision(
        "Compose", "torchvision.transforms.transforms", transforms=[T.CenterCrop(3), given]
    )
    for transform in (given, chain):
        with pytest.raises(TypeError, match=words):
            compile_plan(transform)


def test_takes_a_class_that_converts() -> None:
    assert compile_plan(np.float32).tail == (np.float32,)


@pytest.mark.parametrize(
    "module", ["torchvision.transforms.transforms", "torchvision.transforms.v2._geometry"]
)
def test_a_torchvision_training_pipeline_is_native(module: str) -> None:
    pipeline = from_torchvision(
        "Compose",
        module,
        transforms=[
            tv_crop(antialias=None),
            from_torchvision("RandomHorizontalFlip", p=0.5),
            from_torchvision("ToTensor", module),
            tv_normalize(),
        ],
    )
    assert compile_plan(pipeline) == Plan(geometry=(crop(224, 224), flip(0.5)), **NORMALIZED)


def test_a_torchvision_v2_validation_pipeline_is_native() -> None:
    bilinear = SimpleNamespace(value="bilinear")
    parts = [
        from_torchvision("ToImage"),
        from_torchvision("Resize", size=[256], interpolation=bilinear, max_size=None, antialias=True),
        from_torchvision("CenterCrop", size=(224, 224)),
        tv_to_dtype(torch.float32, True),
        tv_normalize(),
        tv_to_dtype(torch.float16, False),
    ]
    wanted = Plan(geometry=(shorter(256), center(224, 224)), **NORMALIZED)
    assert compile_plan(T.Compose(parts)) == replace(wanted, dtype="float16")


@pytest.mark.parametrize(
    "item",
    [
        tv_crop(antialias=False),
        tv_crop(interpolation=SimpleNamespace(value="nearest")),
        tv_crop(scale=(1.0, 0.5)),
        from_torchvision(
            "Resize", size=None, interpolation=SimpleNamespace(value="bilinear"), max_size=9, antialias=True
        ),
        from_torchvision("ColorJitter"),
        from_torchvision("RandomHorizontalFlip"),
        tv_to_dtype({torch.Tensor: torch.float32}, True),
        tv_to_dtype(torch.float64, True),
        tv_normalize(),
        from_torchvision("CenterCrop", "torchvision_like.transforms", size=9),
        from_torchvision("CenterCrop", "torchvision.transformsx", size=9),
    ],
)
def test_what_means_something_else_stays_a_callable(item: Any) -> None:
    plan = compile_plan(T.Compose([T.RandomResizedCrop(224), item]))
    assert plan == replace(CROP, tail=(item,), picture=True)
    assert [(step.native, bool(step.why)) for step in plan.steps] == [(True, True), (False, True)]


def test_torchvision_behind_a_callable_runs_in_the_tail() -> None:
    cropped, flipped = tv_crop(), from_torchvision("RandomHorizontalFlip", p=0.5)
    behind = (foreign, flipped, from_torchvision("ToTensor"), tv_normalize())
    assert compile_plan(T.Compose([cropped, *behind])) == replace(CROP, tail=behind, picture=True)


def test_converters_behind_a_tensor_take_it_as_it_is() -> None:
    """torchvision's converters from PIL refuse tensors, so they are replaced by what they mean."""
    cropped, flipped = tv_crop(), from_torchvision("RandomHorizontalFlip", p=0.5)
    to_tensor, as_is = from_torchvision("ToTensor"), from_torchvision("PILToTensor")
    plan = compile_plan(
        T.Compose([cropped, as_is, foreign, flipped, as_is, to_tensor, to_tensor, tv_normalize()])
    )
    assert replace(plan, tail=()) == CROP
    assert plan.tail[:2] == (foreign, flipped)
    pixels = torch.arange(0, 252, 21, dtype=torch.uint8).reshape(3, 2, 2)
    image = pixels
    for step in plan.tail:
        image = step(image)
    assert torch.equal(image, pixels.float() / 255)


def test_torchvision_out_of_order_runs_in_the_tail() -> None:
    """A crop of floats is torchvision's to do; a Normalize in another dtype, too."""
    middle = from_torchvision("CenterCrop", size=(9, 9))
    plan = compile_plan(T.Compose([from_torchvision("ToTensor"), middle]))
    assert plan == Plan(dtype="float32", scale=True, tail=(middle,))
    norm = tv_normalize()
    assert compile_plan(T.Compose([tv_to_dtype(torch.float16, True), norm])).tail == (norm,)


def test_the_cores_specs_carry_the_plan() -> None:
    given = T.RandomResizedCrop((7, 9), (0.1, 0.2), (1, 2), "bicubic")
    plan = compile_plan(
        T.Compose([given, T.CenterCrop((5, 6)), T.RandomHorizontalFlip(0.3), T.Normalize(MEAN, STD)])
    )
    geometry, store = plan.geometry_spec(), plan.store_spec(channels_last=False)
    assert plan.geometry == (crop(7, 9, (0.1, 0.2), (1.0, 2.0)), center(5, 6), flip(0.3))
    assert geometry.filter == "bicubic"
    drawn = _C.draw_view(geometry, 70, 50, 3, 2, 1)
    assert drawn == _C.draw_view(spec_of(*plan.geometry, filter="bicubic"), 70, 50, 3, 2, 1)
    assert (drawn[1], drawn[2]) == ((9, 7), (2, 1, 6, 5))
    assert (store.dtype, store.channels_last, store.scale, store.normalize) == ("float32", False, True, True)
    assert (tuple(store.mean), tuple(store.std)) == (MEAN, STD)
    assert compile_plan(T.Resize(9, max_size=11)).geometry == (shorter(9, 11),)
    assert compile_plan(None).store_spec().channels_last
