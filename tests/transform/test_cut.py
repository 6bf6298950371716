"""Views of pictures of any format: nearest and filtered against Pillow, 16 bits also against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from decode_images import encode, photo
from decode_png_writer import write_png
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transform_reference import View, kernel, resize, show

from fastload._native import _C

NEAREST = Image.Resampling.NEAREST
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS["lanczos"] = Image.Resampling.LANCZOS
SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 64, 97, 100, 128, 224, 255, 333]


def as_png(pixels: np.ndarray) -> np.ndarray:
    depth, colour = pixels.dtype.itemsize * 8, {1: 0, 2: 4, 3: 2, 4: 6}[pixels.shape[2]]
    return np.frombuffer(write_png(pixels, depth, colour), np.uint8)


def cut(pixels: np.ndarray, view: View, dtype: str | None = None, **options: Any) -> np.ndarray:
    """A view of raw pixels (height, width, channels), in their own dtype or another; channels last."""
    height, width, channels = pixels.shape
    bits = pixels.dtype.itemsize * 8
    ids = options.pop("ids", False)
    options.setdefault("store", _C.StoreSpec(dtype=dtype or pixels.dtype.name))
    found = _C.cut(
        np.frombuffer(pixels.tobytes(), np.uint8),
        view,
        (channels, bits, ids),
        raw=(width, height, channels, bits),
        **options,
    )
    window = view[2]
    return found[0].view(dtype or pixels.dtype).reshape(window[3], window[2], channels)


def random_view(rng: np.random.Generator, width: int, height: int, inside: bool = True) -> View:
    x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
    w, h = int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
    to = (w, h) if rng.random() < 0.1 else (int(rng.integers(1, 150)), int(rng.integers(1, 150)))
    window = (0, 0, *to)
    if not inside:
        left, top = int(rng.integers(-9, to[0])), int(rng.integers(-9, to[1]))
        window = left, top, int(rng.integers(max(1, 1 - left), 150)), int(rng.integers(max(1, 1 - top), 150))
    return (x, y, w, h), to, window, bool(rng.integers(2))


def noise(rng: np.random.Generator, height: int, width: int, channels: int, bits: int) -> np.ndarray:
    return rng.integers(0, 2**bits, (height, width, channels)).astype(f"u{bits // 8}")


def windowed(pixels: np.ndarray, view: View, fill: int = 0) -> np.ndarray:
    """The window of the resized picture, filled outside and mirrored."""
    x, y, width, height = view[2]
    out = np.full((height, width, *pixels.shape[2:]), fill, pixels.dtype)
    inside = pixels[max(y, 0) : y + height, max(x, 0) : x + width]
    top, left = max(-y, 0), max(-x, 0)
    out[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return out[:, ::-1] if view[3] else out


def pillow_nearest(mask: np.ndarray, view: View) -> np.ndarray:
    x, y, w, h = view[0]
    return np.asarray(Image.fromarray(mask[y : y + h, x : x + w]).resize(view[1], NEAREST))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("before", SIZES)
def test_nearest_is_pillows_for_every_pair_of_sizes(before: int, dtype: str) -> None:
    """One axis at a time, whole pictures: some sizes to all below 360. Pillow rounds 16 bits otherwise."""
    row = np.arange(before).astype(dtype)[None, :, None]
    for after in range(1, 360):
        view = (0, 0, before, 1), (after, 1), (0, 0, after, 1), False
        wanted = np.asarray(Image.fromarray(row[..., 0]).resize((after, 1), NEAREST))
        assert np.array_equal(cut(row, view, ids=True, nearest=True)[..., 0], wanted), after
        column, turned = row.transpose(1, 0, 2), ((0, 0, 1, before), (1, after), (0, 0, 1, after), False)
        assert np.array_equal(cut(column, turned, ids=True, nearest=True)[..., 0], wanted.T), after


@pytest.mark.parametrize("bits", [8, 16])
def test_nearest_of_crops_windows_and_flips(bits: int) -> None:
    """Crops as torchvision makes them: cut first, then resized; what the window has beyond is filled."""
    rng = np.random.default_rng(bits)
    for number in range(300):
        mask = noise(rng, int(rng.integers(1, 200)), int(rng.integers(1, 200)), 1, bits)
        view = random_view(rng, mask.shape[1], mask.shape[0], inside=number % 2 == 0)
        wanted = windowed(pillow_nearest(mask[..., 0], view), view, 255)
        for dtype in (None, "int32", "uint16"):
            found = cut(mask, view, dtype, ids=True, nearest=True, fill=255)
            assert np.array_equal(found[..., 0], wanted.astype(found.dtype))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("bits", [8, 16])
def test_nearest_of_pictures(channels: int, bits: int) -> None:
    rng = np.random.default_rng([channels, bits])
    for _ in range(40):
        picture = noise(rng, 61, 83, channels, bits)
        view = random_view(rng, 83, 61, inside=False)
        wanted = np.stack([pillow_nearest(picture[..., c], view) for c in range(channels)], axis=2)
        assert np.array_equal(cut(picture, view, nearest=True), windowed(wanted, view))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("channels", [1, 2, 4, 5, 16])
def test_filtered_channels_are_pillows(channels: int, name: str, level: str) -> None:
    """8 bits: each channel bit for bit Pillow's resize of it alone."""
    rng = np.random.default_rng([channels, 8])
    for number in range(40):
        picture = noise(rng, int(rng.integers(1, 160)), int(rng.integers(1, 160)), channels, 8)
        if number % 3 == 0:
            picture = (picture > 127).astype(np.uint8) * 255  # bicubic overshoots
        view = random_view(rng, picture.shape[1], picture.shape[0], inside=number % 2 == 0)
        x, y, w, h = view[0]
        part = picture[y : y + h, x : x + w]
        wanted = np.stack([resize(part[..., c : c + 1], *view[1], name) for c in range(channels)], axis=2)
        assert np.array_equal(cut(picture, view, filter=name), windowed(wanted[..., 0], view))


@pytest.mark.parametrize("name", FILTERS)
def test_filtered_gray_is_pillows(name: str, level: str) -> None:
    """Pillow itself, so that the reference above stands for it."""
    rng = np.random.default_rng(3)
    for before, after in (
        ((100, 75), (224, 224)),
        ((300, 200), (64, 48)),
        ((64, 64), (64, 33)),
        ((1, 9), (5, 3)),
    ):
        gray = noise(rng, before[1], before[0], 1, 8)
        view = (0, 0, *before), after, (0, 0, *after), False
        wanted = np.asarray(Image.fromarray(gray[..., 0]).resize(after, FILTERS[name]))
        assert np.array_equal(cut(gray, view, filter=name)[..., 0], wanted)


def exact_weights(before: int, after: int, name: str) -> np.ndarray:
    """(after, before) float64."""
    scale = before / after
    stretch = max(scale, 1.0)
    support = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}[name] * stretch
    matrix = np.zeros((after, before))
    for i in range(after):
        center = (i + 0.5) * scale
        low, high = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), before)
        values = np.array([kernel((k - center + 0.5) / stretch, name) for k in range(low, high)])
        matrix[i, low:high] = values / values.sum()
    return matrix


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_filtered_sixteen_bits(channels: int, name: str) -> None:
    """Within 0.5 of a pass by rounding, times what a row of weights sums to in size."""
    most = 1.64 if name == "lanczos" else 1.25
    rng = np.random.default_rng([channels, 16])
    for number in range(40):
        picture = noise(rng, int(rng.integers(1, 120)), int(rng.integers(1, 120)), channels, 16)
        picture = np.where(picture % 5 == 0, 65535, picture).astype(np.uint16)
        view = random_view(rng, picture.shape[1], picture.shape[0], inside=number % 2 == 0)
        x, y, w, h = view[0]
        rows, columns = exact_weights(h, view[1][1], name), exact_weights(w, view[1][0], name)
        part = picture[y : y + h, x : x + w].astype(np.float64)
        passes = [("ij,jkc->ikc", rows, 0), ("ij,kjc->kic", columns, 1)]
        if not (h - view[1][1] > 0 and h - view[1][1] > 2 * (w - view[1][0])):
            passes.reverse()
        for formula, matrix, _ in passes:
            part = np.clip(np.einsum(formula, matrix, part), 0, 65535)
        found = cut(picture, view, filter=name).astype(np.float64)
        assert np.abs(found - windowed(part, view)).max() <= 0.5 + 0.5 * most + 1e-6


@pytest.mark.parametrize("name", FILTERS)
def test_filtered_sixteen_bits_are_pillows(name: str) -> None:
    """Bit for bit I;16, where nothing overshoots: Pillow clips the two bytes of a value by themselves."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        size = int(rng.integers(1, 200)), int(rng.integers(1, 200))
        after = int(rng.integers(1, 200)), int(rng.integers(1, 200))
        depth = rng.integers(20000, 40000, (size[1], size[0], 1)).astype(np.uint16)
        view = (0, 0, *size), after, (0, 0, *after), False
        wanted = np.asarray(Image.fromarray(depth[..., 0]).resize(after, FILTERS[name]))
        assert wanted.dtype == np.uint16
        assert np.array_equal(cut(depth, view, filter=name)[..., 0], wanted)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["uint8", "float16", "bfloat16", "float32"]), st.booleans())
def test_rgb_is_what_it_was(seed: int, dtype: str, last: bool) -> None:
    """The cut of an RGB picture is resize_store's, byte for byte, with or without a gap behind each row."""
    rng = np.random.default_rng(seed)
    picture = noise(rng, 50, 60, 3, 8)
    view = random_view(rng, 60, 50, inside=False)
    spec = _C.StoreSpec(dtype=dtype, channels_last=last, scale=dtype != "uint8")
    wanted = _C.resize_store(picture, view, "bicubic", spec)
    for gap in (0, 8):
        found = _C.cut(as_png(picture), view, (3, 8, False), spec, filter="bicubic", gap=gap)
        row = found.shape[2] - gap
        assert np.array_equal(found[..., :row].reshape(wanted.shape), wanted)
        assert (found[..., row:] == 0xA5).all()


@pytest.mark.parametrize("nearest", [False, True])
def test_operations_on_pixels_lie_between(nearest: bool) -> None:
    picture = noise(np.random.default_rng(9), 40, 30, 3, 8)
    view = (2, 3, 25, 30), (20, 22), (-1, 2, 20, 20), True
    spec = _C.PixelSpec([("invert", 1.0, [])])
    plain = _C.cut(as_png(picture), view, nearest=nearest).reshape(20, 20, 3)
    found = _C.cut(as_png(picture), view, nearest=nearest, pixels=spec).reshape(20, 20, 3)
    assert np.array_equal(found, _C.operate(plain, spec, 0, 0, 0))
    assert not np.array_equal(found, plain)
    with pytest.raises(
        ValueError, match="Operations on pixels take 3 channels of 8 bits. Found: 1 channel of 8"
    ):
        _C.cut(as_png(picture), view, (1, 8, False), pixels=spec)


@pytest.mark.parametrize("channels", [1, 2, 4, 9])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("last", [True, False])
def test_stored(channels: int, bits: int, dtype: str, last: bool) -> None:
    """Integers are kept; others are (x / most - mean) / std, rounded to float32 and then to the dtype."""
    if (bits, dtype) == (16, "uint8"):
        pytest.skip("does not hold them")
    rng = np.random.default_rng([channels, bits])
    picture = noise(rng, 19, 23, channels, bits)
    mean, std = rng.uniform(-1, 1, channels), rng.uniform(0.2, 2, channels)
    norm = {} if "int" in dtype else {"normalize": True, "mean": mean.tolist(), "std": std.tolist()}
    spec = _C.StoreSpec(dtype=dtype, channels_last=last, **norm)
    found = _C.cut(
        np.frombuffer(picture.tobytes(), np.uint8),
        ((0, 0, 23, 19), (23, 19), (0, 0, 23, 19), False),
        (channels, bits, False),
        spec,
        raw=(23, 19, channels, bits),
        gap=4,
    )
    assert (found[..., -4:] == 0xA5).all()
    values = torch.from_numpy(np.ascontiguousarray(found[..., :-4])).view(getattr(torch, dtype))
    values = values.view(19, 23, channels) if last else values.permute(1, 2, 0)
    wanted = torch.from_numpy(picture.astype(np.float64))
    if not norm:
        assert torch.equal(values.double(), wanted)
        return
    wanted = (wanted / (2**bits - 1) - torch.from_numpy(mean)) / torch.from_numpy(std)
    bound = (2**-23 * (1.5 + np.abs(mean)) / std).max()
    bound += {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype] * float(wanted.abs().max())
    assert (values.double() - wanted).abs().max() <= bound


def test_encoded_pictures() -> None:
    """A JPEG as gray and a PNG of 16 bits, decoded no further than the view needs."""
    pixels = photo(120, 90)
    view = (10, 5, 90, 70), (50, 40), (-3, 2, 60, 30), True
    jpeg = np.frombuffer(encode(pixels, "JPEG"), np.uint8)
    gray = _C.Decoder().decode(jpeg, (1, 8, False))
    found = _C.cut(jpeg, view, (1, 8, False))
    assert np.array_equal(found.reshape(30, 60), show(gray.repeat(3, 2), view, "bilinear")[..., 0])
    depth = noise(np.random.default_rng(6), 90, 120, 1, 16)
    found = _C.cut(as_png(depth), view, (1, 16, True), _C.StoreSpec(dtype="int32"), nearest=True, fill=65535)
    wanted = windowed(pillow_nearest(depth[..., 0], view), view, 65535)
    assert np.array_equal(found.view(np.int32)[0], wanted)


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ((1, 8, True), {}, "Ids are cut by the nearest pixel"),
        (
            (1, 8, True),
            {"nearest": True, "fill": 256},
            r"fill must be one number .* in \[0, 255\], for ids of 8 bits. Found: 256",
        ),
        (
            (1, 8, False),
            {"fill": 1},
            "that are filtered have a colour, those of the nearest pixel a fill",
        ),
        ((1, 16, False), {}, "uint8 does not hold 1 channel of 16 bits. Choose uint16 or int32"),
        ((1, 16, False), {"store": {"dtype": "float16"}}, "float16 ends at 65504"),
        (
            (1, 8, True),
            {"nearest": True, "store": {"dtype": "float32"}},
            "Ids are no numbers to count with. Choose uint8, uint16 or int32",
        ),
        (
            (1, 8, False),
            {"store": {"dtype": "float32", "normalize": True}},
            "mean and std must have a value for each channel, 1. Found: 3 and 3",
        ),
    ],
)
def test_refused(form: tuple[int, int, bool], options: dict[str, Any], message: str) -> None:
    view = (0, 0, 4, 3), (4, 3), (0, 0, 4, 3), False
    given_store = {"store": _C.StoreSpec(**options["store"])} if "store" in options else {}
    with pytest.raises(ValueError, match=message):
        _C.cut(np.zeros(12, np.uint8), view, form, raw=(4, 3, 1, 8), **{**options, **given_store})


def test_rows_apart_by_part_of_a_number_are_refused() -> None:
    view = (0, 0, 4, 3), (4, 3), (0, 0, 4, 3), False
    with pytest.raises(ValueError, match="multiple of 4 bytes apart. Found: 51 and 153"):
        _C.cut(as_png(np.zeros((3, 4, 3), np.uint8)), view, store=_C.StoreSpec(dtype="float32"), gap=3)


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_integers_are_not_scaled(dtype: str) -> None:
    with pytest.raises(ValueError, match="uint16 and int32 take neither scale nor normalize"):
        _C.StoreSpec(dtype=dtype, scale=True)
