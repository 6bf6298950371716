"""Operations on pixels: equal to Pillow's, drawn for each sample, the same alone and in batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pillow_points
import pytest
import torch
from blur_reference import convolved, core_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from motion_reference import MOVING
from PIL import Image, ImageFilter, ImageOps
from pixel_reference import drawn_steps
from tensor_colours import TENSORS
from torchvision_likes import from_torchvision, tv_crop
from transform_reference import Draws

from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.operations.operation import Draft
from fastload.transforms.operations.registry import operation_of

THRESHOLDS = [-1.0, 0.0, 0.5, 100.0, 127.5, 128.0, 255.0, 255.5, 256.0, 1e9]


def gray(picture: Image.Image) -> Image.Image:
    return picture.convert("L").convert("RGB")


def solarized(threshold: float) -> Callable[[Image.Image], Image.Image]:
    return lambda picture: ImageOps.solarize(picture, threshold)  # type: ignore[arg-type]


def pillow_blurred(radius: float) -> Callable[[Image.Image], Image.Image]:
    return lambda picture: picture.filter(ImageFilter.GaussianBlur(radius))


def torch_blurred(across: int, down: int, sigma: float) -> Callable[[Image.Image], Image.Image]:
    weights = core_weights(across, sigma), core_weights(down, sigma)
    return lambda picture: Image.fromarray(convolved(np.asarray(picture), *weights))


# Each operation of the core with what Pillow does for it; a new one gets a line.
PILLOW: dict[str, list[tuple[tuple[float, ...], Callable[[Image.Image], Image.Image]]]] = {
    "grayscale": [((), gray)],
    "invert": [((), ImageOps.invert)],
    "gaussian_blur": [(numbers, torch_blurred(*numbers)) for numbers in ((23, 23, 1.0), (5, 3, 0.5))],
    "gaussian_blur_pillow": [((radius,), pillow_blurred(radius)) for radius in (0.5, 1.5, 4.0)],
    "solarize": [((threshold,), solarized(threshold)) for threshold in THRESHOLDS],
    **pillow_points.PILLOW,
    **TENSORS,
    **{name: [(numbers, partial(run, numbers=numbers))] for name, (run, numbers) in MOVING.items()},
}


def step_by_step(pixels: Any, plan: T.Plan, draws: Draws) -> Any:
    """The operations of a plan, one after the other, by Pillow."""
    picture = Image.fromarray(pixels)
    for name, numbers in drawn_steps(plan.pixels, draws):
        (run,) = [run for known, run in PILLOW[name] if known == numbers]
        picture = run(picture)
    return np.asarray(picture)


def test_every_operation_has_a_reference_and_a_number_of_its_own() -> None:
    assert set(_C.PIXEL_OPERATIONS) == set(PILLOW)
    numbers = [number for number, _ in _C.PIXEL_OPERATIONS.values()]
    assert len(numbers) == len(set(numbers)) > 2


def test_the_registry_and_the_core_have_the_same_operations() -> None:
    specs = [T.Grayscale(3), T.RandomGrayscale(), T.RandomInvert(), T.RandomSolarize(128)]
    specs += [T.GaussianBlur(3), T.PillowGaussianBlur()]
    specs += [T.RandomRotation(9), T.RandomAffine(9), T.RandomPerspective()]
    named = set()
    for spec in specs:
        operation = operation_of(spec)
        assert operation is not None
        (use,) = operation.add(Draft(), spec, False).plan.pixels
        assert len(use.numbers) == len(_C.PIXEL_OPERATIONS[use.name][1])
        named.add(use.name)
    # The others are parts of recipes.
    assert named | set(pillow_points.PILLOW) | set(TENSORS) | set(MOVING) == set(_C.PIXEL_OPERATIONS)


@pytest.mark.parametrize("name", list(PILLOW))
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32))
def test_the_core_equals_pillow(name: str, width: int, height: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    before = pixels.copy()
    for numbers, run in PILLOW[name]:
        found = _C.operate(pixels, _C.PixelSpec([(name, 1.0, list(numbers))]), 0, 0, 0)
        assert np.array_equal(found, np.asarray(run(Image.fromarray(pixels))))
    assert np.array_equal(pixels, before)


COLOURS: list[tuple[str, tuple[float, ...]]] = [
    ("grayscale", ()),
    *(("hue", (factor,)) for factor in (0.0, -0.1, 0.5)),
    *(("saturation", (factor,)) for factor in (0.3, 1.1, 1.4)),
]


@pytest.mark.parametrize(("name", "numbers"), COLOURS)
def test_all_colours_are_pillows(name: str, numbers: tuple[float, ...]) -> None:
    values = np.arange(1 << 24, dtype=np.uint32)
    channels = [values >> 16, values >> 8 & 255, values & 255]
    pixels = np.stack(channels, -1).astype(np.uint8).reshape(4096, 4096, 3)
    run = pillow_points.BY_NUMBERS[name](*numbers) if numbers else gray
    found = _C.operate(pixels, _C.PixelSpec([(name, 1.0, list(numbers))]), 0, 0, 0)
    assert np.array_equal(found, np.asarray(run(Image.fromarray(pixels))))


CHAIN = T.Compose(
    [
        T.RandomInvert(0.5),
        T.RandomSolarize(100, 0.5),
        T.RandomGrayscale(0.5),
        T.RandomInvert(0.5),  # draws for itself
        T.RandomSolarize(128.0, 0.0),
        T.RandomInvert(1.0),
    ]
)


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
)
def test_a_chain_equals_pillow_step_by_step(seed: int, epoch: int, sample: int, draw: int) -> None:
    plan = compile_plan(CHAIN)
    pixels = np.random.default_rng(sample).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    found = _C.operate(pixels, plan.pixel_spec(), seed, epoch, sample, draw)
    assert np.array_equal(found, step_by_step(pixels, plan, Draws(seed, epoch, sample, draw)))


def test_two_uses_of_an_operation_draw_apart() -> None:
    plan = compile_plan(T.Compose([T.RandomInvert(0.5), T.RandomInvert(0.5)]))
    pixels = np.zeros((1, 1, 3), np.uint8)
    found = [int(_C.operate(pixels, plan.pixel_spec(), 1, 0, i)[0, 0, 0]) for i in range(4000)]
    assert 1800 < sum(value == 255 for value in found) < 2200  # one of the two


def test_refuses_what_the_core_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"must be one of grayscale, .*Found: sharpen"):
        _C.PixelSpec([("sharpen", 1.0, [])])
    with pytest.raises(ValueError, match=r"solarize takes 1 numbers. Found: 0"):
        _C.PixelSpec([("solarize", 1.0, [])])
    with pytest.raises(ValueError, match=r"invert may be used 2048 times in a transform. Found: more"):
        _C.PixelSpec([("invert", 1.0, [])] * 2049)
    assert len(_C.PixelSpec([("invert", 1.0, [])] * 2048)) == 2048


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Grayscale(), r"num_output_channels must be 3. Found: 1"),
        (lambda: T.RandomGrayscale(1.5), r"RandomGrayscale.p must be in \[0, 1\]. Found: 1.5"),
        (lambda: T.RandomInvert(-1), r"RandomInvert.p must be in \[0, 1\]. Found: -1"),
        (lambda: T.RandomSolarize(float("nan")), r"RandomSolarize.threshold must be 1 finite numbers"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_torchvisions_objects_become_native() -> None:
    parts = [
        tv_crop(),
        from_torchvision("RandomInvert", p=0.25),
        from_torchvision("RandomSolarize", threshold=128, p=0.5),
        from_torchvision("RandomGrayscale", p=0.1),
        from_torchvision("Grayscale", num_output_channels=3),
        from_torchvision("RandomHorizontalFlip", p=0.5),
        from_torchvision("ToTensor"),
    ]
    plan = compile_plan(T.Compose(parts))
    assert plan.tail == ()
    uses = [(use.name, use.probability, use.numbers) for use in plan.pixels]
    assert uses == [
        ("invert", 0.25, ()),
        ("solarize", 0.5, (128.0,)),
        ("grayscale", 0.1, ()),
        ("grayscale", 1.0, ()),
    ]
    one = from_torchvision("Grayscale", num_output_channels=1)
    assert compile_plan(one).tail == (one,)


def test_grayscale_of_a_tensor_is_torchvisions() -> None:
    """It weighs the channels otherwise than Pillow; a negative is the same for both."""
    gray_one, invert = from_torchvision("RandomGrayscale", p=0.1), from_torchvision("RandomInvert", p=0.5)
    plan = compile_plan(T.Compose([from_torchvision("PILToTensor"), invert, gray_one]))
    assert [use.name for use in plan.pixels] == ["invert", "tensor_grayscale"]
    assert plan.tail == ()
    sharp = from_torchvision("RandomAdjustSharpness", sharpness_factor=2.0, p=0.5)
    plan = compile_plan(T.Compose([from_torchvision("PILToTensor"), sharp]))
    assert plan.tail == (sharp,)
    assert "other pixels for tensors" in plan.steps[-1].why


def test_colours_of_tensors_are_torchs() -> None:
    """By torch's own arithmetic: a fused sum more or less, by processor, moves a value by one at most."""
    rng = np.random.default_rng(1)
    for factor in (0.0, 0.6, 1.0, 1.4, 2.0):
        pixels = rng.integers(0, 256, (37, 41, 3), dtype=np.uint8)
        image = torch.from_numpy(pixels).permute(2, 0, 1)
        red, green, blue = image.unbind(-3)
        gray = red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(0)
        wanted = {
            "tensor_saturation": image.mul(factor).add_(gray.floor(), alpha=1.0 - factor),
            "tensor_contrast": image.mul(factor).add_(gray.floor().mean(), alpha=1.0 - factor),
        }
        for name, values in wanted.items():
            found = _C.operate(pixels, _C.PixelSpec([(name, 1.0, [factor])]), 0, 0, 0).astype(int)
            apart = np.abs(found - values.clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy().astype(int))
            assert apart.max() <= 1, (name, factor)
            assert (apart > 0).mean() < 0.01, (name, factor)


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ([T.Resize(12), T.RandomInvert(), T.CenterCrop(9)], r"CenterCrop.* is out of order"),
        ([T.RandomInvert(), T.CenterCrop(9), T.RandomInvert(), T.Resize(9)], r"Resize.* is out of order"),
        ([T.RandomApply([T.Resize(9)])], r"Resize.* is out of order"),
        ([T.ToDtype("float32"), T.RandomInvert()], r"RandomInvert.* is out of order"),
    ],
)
def test_the_order_is_geometry_pixels_dtype(chain: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_plan(T.Compose(chain))


@pytest.mark.parametrize("flip_first", [True, False])
def test_a_flip_may_stand_on_either_side(flip_first: bool) -> None:
    flip, invert = T.RandomHorizontalFlip(0.5), T.RandomInvert(0.5)
    plan = compile_plan(T.Compose([flip, invert] if flip_first else [invert, flip]))
    assert ([use.name for use in plan.geometry], len(plan.pixels)) == (["horizontal_flip"], 1)
    assert plan.is_random


def test_what_is_certain_is_not_random() -> None:
    assert not compile_plan(T.Compose([T.RandomInvert(1.0), T.Grayscale(3)])).is_random
    assert compile_plan(T.RandomInvert(0.5)).is_random
    assert compile_plan(T.RandomCrop(5)).is_random


def batches(folder: Path, transform: Any, **options: Any) -> list[torch.Tensor]:
    with DataLoader(folder, 16, transform=transform, seed=3, **options) as loader:
        return [images.clone() for images, _ in loader]


GEOMETRY = [T.Resize((20, 30)), T.RandomHorizontalFlip()]
OPERATIONS_GIVEN = [T.RandomGrayscale(0.5), T.RandomSolarize(100.0, 0.5), T.RandomInvert(0.5)]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_equal_pillow_step_by_step(folder: Path, workers: int) -> None:
    plain = batches(folder, T.Compose(GEOMETRY), num_workers=workers)
    found = batches(folder, T.Compose([*GEOMETRY, *OPERATIONS_GIVEN]), num_workers=workers)
    plan, changed = compile_plan(T.Compose(OPERATIONS_GIVEN)), 0
    assert len(plain) == len(found) > 1
    for step, (before, after) in enumerate(zip(plain, found, strict=True)):
        for i in range(len(before)):
            pixels = np.ascontiguousarray(before[i].permute(1, 2, 0).numpy())
            wanted = step_by_step(pixels, plan, Draws(3, 0, step * 16 + i))
            assert np.array_equal(after[i].permute(1, 2, 0).numpy(), wanted)
            changed += not np.array_equal(pixels, wanted)
    assert changed > 10


def test_samples_one_by_one_are_those_of_a_batch(folder: Path) -> None:
    """Where a callable sees pictures of differing size, each is made outside the engine."""
    chain = [*GEOMETRY, *OPERATIONS_GIVEN]

    def same(image: Any) -> Any:
        return image

    def stack(samples: list[Any]) -> Any:
        images = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image, _ in samples]
        return torch.stack(images), torch.tensor([label for _, label in samples])

    wanted = batches(folder, T.Compose(chain))
    options: dict[str, Any] = {"num_workers": 0, "collate_fn": stack}
    found = batches(folder, T.Compose([*chain, same]), **options)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    plan = compile_plan(T.Compose([*chain, T.Normalize((0.5,) * 3, (0.5,) * 3)]))
    pixels = np.random.default_rng(0).integers(0, 256, (33, 44, 3), dtype=np.uint8)
    for sample in range(8):
        stored = plan.made_of(pixels, 3, 1, sample)
        view = _C.draw_view(plan.geometry_spec(), 44, 33, 3, 1, sample)
        cut = step_by_step(_C.resize(pixels, view, plan.filter), plan, Draws(3, 1, sample))
        assert np.array_equal(stored, _C.store(np.ascontiguousarray(cut), plan.store_spec()))


def test_dali_refuses_them(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"backend='dali' crops, resizes and mirrors; invert in transform"):
        DataLoader(folder, 4, transform=T.Compose([T.RandomResizedCrop(9), T.RandomInvert()]), backend="dali")
