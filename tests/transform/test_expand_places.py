"""Steps that show more than the picture, or less for the sake of an object: one cut of the core against
torchvision v2's steps, one after the other, in pixels, masks and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from geometry_v2_reference import Scene, after
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

FLIP = T.RandomHorizontalFlip(0.5)
ZOOM = T.RandomZoomOut(fill=(123, 117, 104), p=0.8)
IOU = T.RandomIoUCrop(trials=5, sampler_options=(0.0, 0.1, 0.3, 0.5, 0.9, 1.0))
TURN = T.RandomQuarterTurn()
IGNORE = 250
CHAINS = {
    "zoom": [ZOOM],
    "zoom, resize": [ZOOM, T.Resize((11, 8))],
    "flip, zoom, resize": [FLIP, ZOOM, T.Resize((11, 8))],
    "zoom, flip, resize": [ZOOM, FLIP, T.Resize(9)],
    "zoom, crop": [ZOOM, T.RandomResizedCrop((9, 12))],
    "flip, zoom, crop, center": [
        FLIP,
        T.RandomZoomOut(p=0.8),
        T.RandomResizedCrop((9, 12)),
        T.CenterCrop((7, 20)),
    ],
    "iou": [IOU],
    "iou, resize": [IOU, T.Resize((16, 13))],
    "flip, iou, resize": [FLIP, IOU, T.Resize((16, 13))],
    "ssd": [ZOOM, IOU, T.Resize((10, 10)), FLIP],
    "flip, ssd": [ZOOM, FLIP, IOU, T.Resize((10, 10))],
    "pad": [T.Pad((1, 2, 3, 4), 9)],
    "pad, resize": [T.Pad((3, 0), (1, 2, 3)), T.Resize((9, 14))],
    "flip, pad, resize": [FLIP, T.Pad((1, 2, 3, 4), 9), T.Resize((9, 14))],
    "resize, flip, pad": [T.Resize((9, 14)), FLIP, T.Pad((5, 0, 2, 1), {"image": 7, "mask": 3})],
    "crop, random, pad": [T.RandomResizedCrop(12), T.RandomCrop((7, 9)), T.Pad((5, 0, 2, 1), 9)],
    "pad, iou, resize": [T.Pad(4, 9), IOU, T.Resize((10, 10))],
    "lsj": [T.ScaleJitter((20, 20)), T.FixedSizeCrop((20, 20), 114), FLIP],
    "flip, lsj": [FLIP, T.ScaleJitter((20, 24)), T.FixedSizeCrop((20, 17), 114)],
    "jitter, flip, fixed": [T.ScaleJitter((16, 16), (0.5, 3.0)), FLIP, T.FixedSizeCrop((20, 17))],
    "fixed alone": [T.FixedSizeCrop((30, 30), 5)],
    "shortest": [T.RandomShortestSize((5, 9, 14), 20), FLIP],
    "shortest, unbounded": [FLIP, T.RandomShortestSize(7)],
    "random resize": [T.RandomResize(5, 14), T.RandomCrop((5, 4))],
    "random, padded": [T.RandomCrop((12, 9), padding=(2, 9, 4, 12), pad_if_needed=True, fill=77)],
    "flip, random, padded": [FLIP, T.Resize(12), T.RandomCrop(15, padding=4, fill=(1, 2, 3))],
    "padded at need": [T.Resize(6), FLIP, T.RandomCrop((20, 5), pad_if_needed=True, fill=(1, 2, 3))],
    "bucket": [T.BucketCrop([(8, 8), (6, 12), (13, 5)])],
    "flip, iou, bucket": [FLIP, IOU, T.BucketCrop([(8, 8), (6, 12), (13, 5)], anywhere=True)],
    "letterbox": [T.Letterbox(20)],
    "flip, letterbox": [FLIP, T.Letterbox(21, (1, 2, 3))],
    "letterbox, flip": [T.Letterbox((14, 23), rule="letterbox"), FLIP],
    "flip, iou, small letterbox": [FLIP, IOU, T.Letterbox(16, rule="letterbox", scaleup=False)],
    "zoom, letterbox at the corner, crop": [
        ZOOM,
        FLIP,
        T.Letterbox(17, (123, 117, 104), center=False),
        T.RandomCrop(13),
    ],
    "patches": [T.ResizeToPatches(4, 12)],
    "flip, pad, patches": [FLIP, T.Pad(3, 9), T.ResizeToPatches(3, 20, max_ratio=1.5), T.RandomCrop(3)],
    "turn": [TURN],
    "upside down, turn, flip": [T.RandomVerticalFlip(), TURN, FLIP],
    "flip, turn": [FLIP, TURN],
    "flip, ssd, turn": [FLIP, ZOOM, IOU, T.Resize((13, 10)), T.RandomVerticalFlip(), TURN],
    "crop, turned once, flip": [T.RandomResizedCrop((9, 14)), T.RandomQuarterTurn(1), FLIP],
    "pad, turn": [T.Resize(12), T.RandomCrop((8, 11)), FLIP, T.Pad((5, 0, 2, 1), 9), TURN],
    "zoom, random": [ZOOM, T.RandomCrop((3, 2), padding=30, fill=(123, 117, 104))],
}


def scene_of(seed: int, width: int, height: int, objects: int, bits: int) -> Scene:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    mask = rng.integers(0, 200, (height, width)).astype(f"u{bits // 8}")
    corners = rng.uniform(-0.2, 1.2, (objects, 2, 2)) * [width, height]  # over the border, too
    corners = np.sort(corners, 1).astype(np.float32).astype(np.float64)
    return Scene(pixels, mask, corners.reshape(-1, 4), np.ones(objects, bool))


def moved(boxes: np.ndarray, view: Any) -> np.ndarray:
    """Boxes under a view, clipped to what crops and pads have left."""
    (x, y, w, h), (width, height), (left, top, columns, rows), flip = view
    scale = np.array([width / w, height / h] * 2)
    found = np.clip((boxes - [x, y, x, y]) * scale, [*view.area[:2]] * 2, [*view.area[2:]] * 2)
    found -= [left, top, left, top]
    if flip:
        found = np.stack([columns - found[:, 2], found[:, 1], columns - found[:, 0], found[:, 3]], 1)
    made = columns, rows
    for _ in range(view.quarter):
        left, top, right, bottom = found.T
        found = np.stack([top, made[0] - right, bottom, made[0] - left], 1)
        made = made[::-1]
    return found


def masked(mask: np.ndarray, view: Any, fill: int) -> np.ndarray:
    height, width = mask.shape
    bits = mask.dtype.itemsize * 8
    store = _C.StoreSpec(dtype="uint8" if bits == 8 else "int32")
    raw, data = (width, height, 1, bits), np.frombuffer(mask.tobytes(), np.uint8)
    found = _C.cut(data, view, (1, bits, True), store=store, nearest=True, fill=fill, raw=raw)
    return found[0].view("u1" if bits == 8 else "i4")


@pytest.mark.parametrize("name", list(CHAINS))
@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32), st.integers(0, 2**63), st.integers(0, 4),
    st.sampled_from([8, 16]), st.sampled_from([1, 3, 64]),
)  # fmt: skip
def test_every_order_equals_torchvisions_steps(
    name: str, width: int, height: int, seed: int, sample: int, objects: int, bits: int, chunk: int
) -> None:
    """Pixels of pictures and 8-bit masks bit for bit; boxes to what the order of two products makes."""
    plan = compile_plan(T.Compose(CHAINS[name]))
    scene = scene_of(seed, width, height, objects, bits)
    pixels, mask, boxes = scene.pixels, scene.mask, scene.boxes
    spec, fill = plan.geometry_spec(), plan.fill
    view = _C.draw_view(spec, width, height, seed, 3, sample, boxes=boxes.tolist())
    ignore = IGNORE if fill.mask is None else fill.mask
    after(scene, CHAINS[name], Draws(seed, 3, sample), IGNORE)
    found = _C.resize(pixels, view, spec.filter, chunk, fill=list(fill.image))
    assert found.shape == scene.pixels.shape
    assert view.made == scene.size
    assert np.array_equal(found, scene.pixels)
    if bits == 8:
        assert np.array_equal(masked(mask, view, ignore), scene.mask)
    assert np.allclose(moved(boxes, view), scene.boxes, rtol=1e-12, atol=1e-9)
    assert [view.keeps(box) for box in boxes.tolist()] == scene.stays.tolist()
    left, top, w, h = _C.decoded_rect(view)
    assert 0 <= left < left + w <= width
    assert 0 <= top < top + h <= height


def test_every_instruction_set_fills_the_same(levels: list[str]) -> None:
    """Resizes of a fill are the fill, whatever the sizes, at each level and by both filters."""
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)
    differ = []
    for sample in range(60):
        size = (int(rng.integers(1, 90)), int(rng.integers(1, 90)))
        filter = ("bilinear", "bicubic")[sample % 2]
        chain = [ZOOM, T.Resize(size, filter), FLIP]
        plan = compile_plan(T.Compose(chain))
        view = _C.draw_view(plan.geometry_spec(), 53, 37, 1, 0, sample)
        scene = Scene(pixels, pixels[..., 0], np.zeros((0, 4)), np.zeros(0, bool))
        wanted = after(scene, chain, Draws(1, 0, sample), 0, filter).pixels
        for level in levels:
            _C.set_simd_level(level)
            if not np.array_equal(_C.resize(pixels, view, filter, fill=[123, 117, 104]), wanted):
                differ.append((level, sample))
    assert differ == []


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_a_resize_of_one_colour_is_that_colour(filter: str, level: str) -> None:
    """What fill counts on: weights of any two sizes sum up to one, for every value."""
    values = np.arange(256, dtype=np.uint8)
    for before in (1, 2, 3, 7, 16, 61, 250, 2047):
        for now in (1, 2, 5, 13, 64, 333):
            for value in (0, 1, 114, 127, 128, 254, 255):
                row = np.full((1, before, 3), values[value])
                view = ((0, 0, before, 1), (now, 1), (0, 0, now, 1), False)
                assert (_C.resize(row, view, filter) == value).all(), (before, now, value)


def test_a_view_of_fill_alone_asks_for_one_pixel() -> None:
    """The picture is opened, and of its pixels one is looked at and not shown."""
    chain = [T.RandomCrop((2, 2), padding=50, fill=9)]
    plan = compile_plan(T.Compose(chain))
    pixels, blank = np.full((1, 1, 3), 200, np.uint8), 0
    for sample in range(40):
        view = _C.draw_view(plan.geometry_spec(), 1, 1, 0, 0, sample)
        assert _C.decoded_rect(view) == _C.decoded_rect(view, nearest=True) == (0, 0, 1, 1)
        found = _C.resize(pixels, view, fill=[9])
        wanted = after(
            Scene(pixels, pixels[..., 0], np.zeros((0, 4)), np.zeros(0, bool)), chain, Draws(0, 0, sample), 0
        )
        assert np.array_equal(found, wanted.pixels)
        blank += bool((found == 9).all())
    assert blank > 30


def test_fills_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="another fill than a step before it"):
        compile_plan(T.Compose([T.RandomZoomOut(fill=3), T.Resize(9), T.FixedSizeCrop(9, fill=4)]))
    with pytest.raises(ValueError, match="out of order or there twice"):
        compile_plan(T.Compose([T.Resize(9), IOU]))
    with pytest.raises(ValueError, match="out of order or there twice"):
        compile_plan(T.Compose([IOU, IOU]))
    with pytest.raises(ValueError, match=r"RandomZoomOut.side_range must be .least, greatest.*\(0.5, 2.0\)"):
        T.RandomZoomOut(side_range=(0.5, 2))
    with pytest.raises(ValueError, match="Pad.padding must be an int"):
        T.Pad((1, 2, 3))
    with pytest.raises(ValueError, match="has keys image and mask. Found: images"):
        T.Pad(1, {"images": 3})
    with pytest.raises(ValueError, match=r"fill must be one number or one for each channel, in \[0, 255\]"):
        _C.resize(np.zeros((1, 1, 3), np.uint8), ((0, 0, 1, 1), (1, 1), (0, 0, 1, 1), False), fill=[1, 2])
