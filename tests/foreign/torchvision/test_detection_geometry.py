"""The steps of detection against torchvision v2 itself: its functions on pictures, masks and float64 boxes,
its own make_params with the core's draws, and its objects in a loader's transform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from geometry_v2_reference import (
    IOU,
    RESIZE_TO,
    ZOOM,
    Scene,
    after,
    between,
    drawn_crop,
    jittered,
    shortest,
    times,
    zoom_padding,
)
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F
from torchvision_scenes import Functional
from transform_reference import CROP, Draws, below, uniform

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

FLIP = T.RandomHorizontalFlip(0.5)
ZOOM_OUT = T.RandomZoomOut(fill=(123, 117, 104), p=0.8)
IOU_CROP = T.RandomIoUCrop(trials=5)
CHAINS = [
    [ZOOM_OUT, IOU_CROP, T.Resize((31, 30)), FLIP],
    [FLIP, ZOOM_OUT, T.Resize(24)],
    [T.ScaleJitter((40, 40)), FLIP, T.FixedSizeCrop((40, 40), 114)],
    [T.RandomShortestSize((20, 30), 50), FLIP],
    [FLIP, T.RandomResize(12, 30), T.RandomCrop((20, 12), padding=(4, 9), pad_if_needed=True, fill=7)],
    [T.Pad((1, 2, 3, 4), 9), IOU_CROP, T.Resize((20, 30))],
]


def scene_of(kind: type[Scene], number: int) -> Scene:
    rng = np.random.default_rng(number)
    width, height, objects = (int(one) for one in rng.integers((5, 5, 0), (70, 70, 5)))
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    mask = rng.integers(0, 200, (height, width), dtype=np.uint8)
    corners = np.sort(rng.uniform(-0.2, 1.2, (objects, 2, 2)) * [width, height], 1)
    return kind(pixels, mask, corners.reshape(-1, 4), np.ones(objects, bool))


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_the_reference_does_what_torchvision_does(chain: list[Any]) -> None:
    """Pixels of pictures bit for bit; masks by its nearest-exact, of which a few ties go elsewhere than
    Pillow's."""
    pictures, boxes, apart, pixels = [], [], 0, 0
    for number in range(60):
        ours, theirs = (
            after(scene_of(kind, number), chain, Draws(3, 1, number), 250) for kind in (Scene, Functional)
        )
        assert ours.mask.shape == theirs.mask.shape
        pictures.append(np.array_equal(ours.pixels, theirs.pixels))
        boxes.append(float(np.abs(ours.boxes - theirs.boxes).max(initial=0.0)))
        apart += int((ours.mask != theirs.mask).sum())
        pixels += ours.mask.size
    assert all(pictures)
    assert max(boxes) < 1e-4  # torchvision's factors of a resize are float32
    assert apart <= 0.03 * pixels


class Given:
    """torch.rand and torch.randint with numbers of ours, in float32 as torch has them."""

    def __init__(self, numbers: Iterator[Any]) -> None:
        self._numbers = numbers

    def rand(self, size: Any, **_: Any) -> torch.Tensor:
        return torch.tensor([next(self._numbers) for _ in range(int(size))], dtype=torch.float32)

    def randint(self, *_: Any, size: Any = (), **__: Any) -> torch.Tensor:
        return torch.tensor(next(self._numbers)).reshape(size)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(numbers: Iterator[Any]) -> None:
        stub = Given(numbers)
        monkeypatch.setattr(torch, "rand", stub.rand)
        monkeypatch.setattr(torch, "randint", stub.randint)

    return use


def pairs(draws: Draws, op: int, *blocks: int) -> Iterator[float]:
    for block in blocks:
        words = draws.words(op, block)
        yield uniform(words[0], words[1])
        yield uniform(words[2], words[3])


def image_of(width: int, height: int) -> Any:
    return Image.new("RGB", (width, height))


SIZES = [(width, height) for width in (5, 31, 64, 333) for height in (7, 31, 200)]


def test_zoom_out_draws_as_torchvision(given: Any) -> None:
    theirs = v2.RandomZoomOut(fill=0, side_range=(1.0, 4.0), p=1.0)
    found, wanted = [], []
    for sample, (width, height) in enumerate(SIZES * 20):
        draws = Draws(5, 0, sample)
        given(iter(list(pairs(draws, ZOOM, 0, 1))[1:]))
        found.append(tuple(theirs.make_params([image_of(width, height)])["padding"]))
        wanted.append(zoom_padding(width, height, T.RandomZoomOut(p=1.0), draws))
    assert found == wanted


def test_sizes_are_drawn_as_torchvision(given: Any) -> None:
    found, wanted = [], []
    sizes = (480, 512, 544)
    for sample, (width, height) in enumerate(SIZES * 20):
        draws = Draws(5, 0, sample)
        words = draws.words(RESIZE_TO, 0)
        given(pairs(draws, RESIZE_TO, 0))
        found.append(v2.ScaleJitter((300, 200)).make_params([image_of(width, height)])["size"])
        wanted.append(jittered(width, height, T.ScaleJitter((300, 200)), draws)[::-1])
        given(iter([below(words[0], words[1], len(sizes))]))
        found.append(v2.RandomShortestSize(sizes, 700).make_params([image_of(width, height)])["size"])
        wanted.append(shortest(width, height, T.RandomShortestSize(sizes, 700), draws)[::-1])
    assert [tuple(max(side, 1) for side in size) for size in found] == wanted  # torchvision has sides of 0


def iou_numbers(spec: T.RandomIoUCrop, width: int, height: int, draws: Draws) -> Iterator[Any]:
    """What RandomIoUCrop asks for: a place only where the sides do."""
    for round in range(800):
        first = round * (1 + 2 * spec.trials)
        words = draws.words(IOU, first)
        yield below(words[0], words[1], len(spec.sampler_options or ()))
        for trial in range(spec.trials):
            a, b = (draws.words(IOU, first + 1 + 2 * trial + i) for i in range(2))
            r = [uniform(*a[:2]), uniform(*a[2:])]
            yield from r
            scales = [between(a[i : i + 2], spec.min_scale, spec.max_scale) for i in (0, 2)]
            ratio = times(width, scales[0]) / times(height, scales[1])
            if spec.min_aspect_ratio <= ratio <= spec.max_aspect_ratio:
                yield from (uniform(*b[:2]), uniform(*b[2:]))


def test_iou_crops_are_drawn_as_torchvision(given: Any) -> None:
    spec = T.RandomIoUCrop(trials=7)
    theirs = v2.RandomIoUCrop(trials=7)
    found, wanted = [], []
    for sample in range(300):
        scene = scene_of(Scene, sample)
        width, height = scene.size
        if len(scene.boxes) == 0:
            continue  # torchvision waits for its last option there, and leaves the picture, too
        draws = Draws(5, 0, sample)
        given(iou_numbers(spec, width, height, draws))
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(scene.boxes), format="XYXY", canvas_size=(height, width)
        )
        given_crop = theirs.make_params([image_of(width, height), boxes])
        crop = drawn_crop(width, height, scene.boxes, spec, draws)
        sides = tuple(given_crop[name] for name in ("left", "top", "width", "height")) if given_crop else None
        found.append((sides, given_crop["is_within_crop_area"].tolist() if given_crop else None))
        wanted.append((None, None) if crop is None else (crop[0], crop[1].tolist()))
    assert len(found) > 200
    assert found == wanted


def test_random_crops_are_drawn_as_torchvision(given: Any) -> None:
    theirs = v2.RandomCrop((20, 12), padding=(4, 9, 1, 2), pad_if_needed=True)
    ours = T.RandomCrop((20, 12), padding=(4, 9, 1, 2), pad_if_needed=True)
    found, wanted = [], []
    for sample, (width, height) in enumerate(SIZES * 5):
        draws = Draws(5, 0, sample)
        words = draws.words(CROP, 20)
        pixels = np.zeros((height, width, 3), np.uint8)
        pads = Padded(pixels, pixels[..., 0], np.zeros((0, 4)), np.zeros(0, bool))
        after(pads, [ours], draws, 0)
        columns, rows = pads.before
        free = (below(words[0], words[1], rows - 19), below(words[2], words[3], columns - 11))
        given(iter([one for one, size in zip(free, (rows - 20, columns - 12), strict=True) if size > 0]))
        params = theirs.make_params([image_of(width, height)])
        left, top, right, bottom = params["padding"]
        found.append((params["left"], params["top"], left + right, top + bottom))
        wanted.append((*pads.corner, columns - width, rows - height))
    assert found == wanted


class Padded(Scene):
    """A scene that remembers its last crop, and its size before it."""

    before = (0, 0)
    corner = (0, 0)

    def crop(self, x: int, y: int, width: int, height: int) -> None:
        self.before, self.corner = self.size, (x, y)
        super().crop(x, y, width, height)


OBJECTS = {
    "zoom": (
        v2.RandomZoomOut(fill=9, side_range=(1, 3), p=0.3),
        T.RandomZoomOut({"image": 9, "mask": 9}, (1, 3), 0.3),
    ),
    "zoom by type": (
        v2.RandomZoomOut(fill={tv_tensors.Image: (1, 2, 3), tv_tensors.Mask: 4, "others": 5}),
        T.RandomZoomOut({"image": (1, 2, 3), "mask": 4}),
    ),
    "iou": (
        v2.RandomIoUCrop(0.2, 0.9, 0.6, 1.5, [0.3, 1.0], 9),
        T.RandomIoUCrop(0.2, 0.9, 0.6, 1.5, [0.3, 1.0], 9),
    ),
    "jitter": (v2.ScaleJitter((30, 30), (0.5, 1.5)), T.ScaleJitter((30, 30), (0.5, 1.5))),
    "shortest": (v2.RandomShortestSize([30, 40], 60), T.RandomShortestSize([30, 40], 60)),
    "resize": (v2.RandomResize(30, 40), T.RandomResize(30, 40)),
    "pad": (v2.Pad([1, 2, 3, 4], 7), T.Pad((1, 2, 3, 4), {"image": 7, "mask": 7})),
    "pad pairs": (v2.Pad([1, 2]), T.Pad((1, 2), {"image": 0, "mask": 0})),
    "crop": (
        v2.RandomCrop(20, (1, 2, 3, 4), pad_if_needed=True, fill=7),
        T.RandomCrop(20, (1, 2, 3, 4), True, {"image": 7, "mask": 7}),
    ),
    "crop by one": (v2.RandomCrop(20, 4), T.RandomCrop(20, 4, False, {"image": 0, "mask": 0})),
}


@pytest.mark.parametrize("name", list(OBJECTS))
def test_objects_become_specs(name: str) -> None:
    theirs, ours = OBJECTS[name]
    plan = compile_plan(v2.Compose([theirs]))
    assert all(step.native for step in plan.steps)
    assert plan.geometry == compile_plan(ours).geometry


@pytest.mark.parametrize(
    "item",
    [
        v2.RandomCrop(9, 2, pad_if_needed=True, padding_mode="edge"),
        v2.Pad(3, fill={tv_tensors.Mask: (1, 2, 3), "others": 0}),
    ],
    ids=["two borders", "masks of a colour"],
)
def test_what_means_something_else_stays_in_python(item: Any) -> None:
    (step,) = compile_plan(item).steps
    assert not step.native
    assert "padding_mode" in step.why or "masks have one" in step.why


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
@pytest.mark.parametrize("flips", [False, True])
def test_borders_are_torchvisions(mode: str, flips: bool) -> None:
    """Of pictures and masks, behind flips and a crop, bit for bit, however wide they are."""
    rng = np.random.default_rng(3)
    for number in range(40):
        height, width = (int(side) for side in rng.integers(3, 30, 2))
        padding = [int(side) for side in rng.integers(0, 40, 4)]
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        before = [v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)] if flips else []
        chain = [*before, v2.Pad(padding, padding_mode=mode), v2.CenterCrop((2, 2))][: len(before) + 1]
        behind = [v2.RandomVerticalFlip(1.0), v2.RandomHorizontalFlip(1.0)] if number % 2 else []
        plan = compile_plan(v2.Compose([*chain, *behind]))
        assert plan.tail == ()
        wanted = np.asarray(v2.Compose([*chain, *behind])(Image.fromarray(pixels)))
        made = plan.made_of(pixels, 0).reshape(wanted.shape)
        assert np.array_equal(made, wanted), (height, width, padding)


def test_sides_that_come_out_whole_are_torchvisions() -> None:
    """A factor that is not drawn: float32 makes them whole, double a pixel less."""
    for target in (64, 200, 1024):
        theirs, spec = v2.ScaleJitter((target, target), (1.0, 1.0)), T.ScaleJitter(target, (1.0, 1.0))
        geometry = compile_plan(spec).geometry_spec()
        for width in range(3, 500, 7):
            for height in (31, 333, 480):
                wanted = theirs.make_params([image_of(width, height)])["size"]
                made = _C.draw_view(geometry, width, height, 0, 0, 0).made
                assert made[::-1] == tuple(max(side, 1) for side in wanted), (target, width, height)


def test_affine_is_v2s_of_pictures() -> None:
    """Bit for bit, where its matrix is rounded otherwise than version 1's."""
    rng = np.random.default_rng(8)
    for number in range(300):
        height, width = (int(side) for side in rng.integers(5, 60, 2))
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        angle = float(rng.choice([180.0, 90.0, rng.uniform(-180, 180)]))
        scale, shear = float(rng.choice([1.0, 0.5, 1.3])), [float(one) for one in rng.uniform(-30, 30, 2)]
        shift = [int(one) for one in rng.integers(-9, 10, 2)]
        how = [InterpolationMode.NEAREST, InterpolationMode.BILINEAR][number % 2]
        wanted = F.affine(Image.fromarray(pixels), angle, shift, scale, shear, how, [7, 7, 7])
        shares = shift[0] / width, shift[1] / height
        numbers = [angle, *shares, scale, *shear, 0.0, 0.0, 0.0, 2.0, float(number % 2), 7.0, 7.0, 7.0]
        found = _C.operate(pixels, _C.PixelSpec([("affine", 1.0, numbers)]), 0, 0, 0)
        assert np.array_equal(found, np.asarray(wanted)), (angle, scale, shear)
