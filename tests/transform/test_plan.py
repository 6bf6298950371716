"""Compilation: what becomes native, what becomes the tail, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fastload import transforms as T
from fastload.transforms import Plan, compile_plan

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = Plan(kind="random_resized_crop", out_height=224, out_width=224)
NORMALIZED = {"dtype": "float32", "scale": True, "normalize": True, "mean": MEAN, "std": STD}


def foreign(image: torch.Tensor) -> torch.Tensor:
    return image


def from_torchvision(name: str, module: str = "torchvision.transforms.v2._misc", **attributes: Any) -> Any:
    """An object that looks like torchvision's (which is not needed to be installed)."""

    def call(self: Any, image: Any) -> Any:
        if name in ("ToTensor", "PILToTensor"):
            raise TypeError(f"pic should be PIL Image or ndarray. Got {type(image)}")
        return image

    kind = type(name, (), {"__module__": module, "__call__": call})
    item = kind()
    item.__dict__.update(attributes)
    return item


def tv_crop(**changes: Any) -> Any:
    attributes: dict[str, Any] = {
        "size": [224, 224],
        "scale": (0.08, 1.0),
        "ratio": (3 / 4, 4 / 3),
        "interpolation": SimpleNamespace(value="bilinear"),
        "antialias": True,
    }
    return from_torchvision("RandomResizedCrop", **{**attributes, **changes})


def tv_normalize() -> Any:
    return from_torchvision("Normalize", mean=list(MEAN), std=list(STD), inplace=False)


def tv_to_dtype(dtype: Any, scale: bool) -> Any:
    return from_torchvision("ToDtype", dtype=dtype, scale=scale)


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
            Plan(
                kind="random_resized_crop",
                out_height=7,
                out_width=9,
                crop_scale=(0.1, 0.2),
                crop_ratio=(1.0, 2.0),
                filter="bicubic",
                flip_probability=0.3,
            ),
        ),
        (
            T.Compose([T.Compose([T.Resize(256), T.CenterCrop((224, 200))]), T.Normalize(MEAN, STD)]),
            Plan(kind="resize_shorter", out_width=256, center_height=224, center_width=200, **NORMALIZED),
        ),
        (T.Resize(256, max_size=300), Plan(kind="resize_shorter", out_width=256, max_size=300)),
        (T.Resize((7, 9)), Plan(kind="resize_exact", out_height=7, out_width=9)),
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
        (foreign, Plan(tail=(foreign,))),
        (T.Compose([T.RandomResizedCrop(224), foreign, foreign]), replace(CROP, tail=(foreign, foreign))),
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
        (T.Compose([T.RandomResizedCrop(9), T.CenterCrop((5, 6))]), (5, 6)),
    ],
)
def test_output_sizes(transform: Any, size: tuple[int, int] | None) -> None:
    assert compile_plan(transform).output_size == size


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            [T.RandomHorizontalFlip(), T.RandomResizedCrop(9)],
            r"RandomResizedCrop.* is out of order or there twice. The",
        ),
        ([T.Resize(9), T.RandomResizedCrop(9)], r"RandomResizedCrop.* is out of order or there twice"),
        ([T.CenterCrop(9), T.Resize(9)], r"Resize.* is out of order"),
        ([T.RandomHorizontalFlip(), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.RandomHorizontalFlip(), T.RandomHorizontalFlip()], r"RandomHorizontalFlip.* there twice"),
        ([T.Normalize(MEAN, STD), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.Normalize(MEAN, STD), T.Normalize(MEAN, STD)], r"Normalize.* there twice"),
        ([T.ToDtype("float32"), T.ToDtype("uint8")], r"ToDtype.* cannot follow float32"),
        ([T.ToDtype("float16"), T.ToDtype("float32")], r"ToDtype.* cannot follow float16"),
        (
            [foreign, T.CenterCrop(9)],
            r"CenterCrop\(size=\(9, 9\)\) stands behind foreign, which runs in Python",
        ),
        ([T.Resize(9), foreign, T.Normalize(MEAN, STD)], r"Normalize.* stands behind foreign"),
    ],
)
def test_refuses_wrong_orders(transforms: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_plan(T.Compose(transforms))


def test_refuses_what_is_not_callable() -> None:
    with pytest.raises(TypeError, match=r"must be one of fastload.transforms or callable. Found: 5"):
        compile_plan(5)


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
    assert compile_plan(pipeline) == replace(CROP, flip_probability=0.5, **NORMALIZED)


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
    wanted = Plan(kind="resize_shorter", out_width=256, center_height=224, center_width=224, **NORMALIZED)
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
    assert compile_plan(T.Compose([T.RandomResizedCrop(224), item])) == replace(CROP, tail=(item,))


def test_torchvision_behind_a_callable_runs_in_the_tail() -> None:
    """torchvision's converters from PIL refuse tensors there, so they are replaced by what they mean."""
    crop, flip = tv_crop(), from_torchvision("RandomHorizontalFlip", p=0.5)
    to_tensor, as_is = from_torchvision("ToTensor"), from_torchvision("PILToTensor")
    plan = compile_plan(T.Compose([crop, foreign, flip, as_is, to_tensor, to_tensor, tv_normalize()]))
    assert replace(plan, tail=()) == CROP
    assert plan.tail[:2] == (foreign, flip)
    pixels = torch.arange(0, 252, 21, dtype=torch.uint8).reshape(3, 2, 2)
    image = pixels
    for step in plan.tail:
        image = step(image)
    assert torch.equal(image, pixels.float() / 255)


def test_torchvision_out_of_order_runs_in_the_tail() -> None:
    """A flip of floats is torchvision's to do; a second Normalize in another dtype, too."""
    flip = from_torchvision("RandomHorizontalFlip", p=0.5)
    plan = compile_plan(T.Compose([from_torchvision("ToTensor"), flip]))
    assert plan == Plan(dtype="float32", scale=True, tail=(flip,))
    norm = tv_normalize()
    assert compile_plan(T.Compose([tv_to_dtype(torch.float16, True), norm])).tail == (norm,)


def test_the_cores_specs_carry_the_plan() -> None:
    crop = T.RandomResizedCrop((7, 9), (0.1, 0.2), (1, 2), "bicubic")
    plan = compile_plan(
        T.Compose([crop, T.CenterCrop((5, 6)), T.RandomHorizontalFlip(0.3), T.Normalize(MEAN, STD)])
    )
    geometry, store = plan.geometry_spec(), plan.store_spec(channels_last=False)
    assert (geometry.kind, geometry.out_height, geometry.out_width) == ("random_resized_crop", 7, 9)
    assert (geometry.scale, geometry.ratio, geometry.filter) == ((0.1, 0.2), (1.0, 2.0), "bicubic")
    assert (geometry.center_height, geometry.center_width, geometry.flip_probability) == (5, 6, 0.3)
    assert (store.dtype, store.channels_last, store.scale, store.normalize) == ("float32", False, True, True)
    assert (tuple(store.mean), tuple(store.std)) == (MEAN, STD)
    assert compile_plan(T.Resize(9, max_size=11)).geometry_spec().max_size == 11
    assert compile_plan(None).store_spec().channels_last
