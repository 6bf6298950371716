"""Objects' outlines and areas drawn as masks, against pycocotools and Pillow, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shapes_reference import (
    bytes_of,
    coco_mask,
    nearest_view,
    objects_in,
    random_area,
    random_outlines,
)

from fastload._native import _C
from fastload.errors import FormatError

SIZES = [(1, 1), (7, 5), (40, 1), (1, 40), (64, 48), (37, 91)]


def whole(height: int, width: int) -> Any:
    return _C.View(((0, 0, width, height), (width, height), (0, 0, width, height), False))


def drawn(
    form: str, objects: list[Any], view: Any, height: int, width: int, chosen: Any = None
) -> np.ndarray:
    numbers = list(range(len(objects))) if chosen is None else chosen
    found = _C.draw_masks(view, width, height, form, bytes_of(form, objects), numbers)
    return found.reshape(len(numbers), *view.made[::-1])


def random_view(rng: np.random.Generator, height: int, width: int) -> Any:
    x, y = rng.integers(0, width), rng.integers(0, height)
    crop = int(x), int(y), int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
    resized = int(rng.integers(1, 80)), int(rng.integers(1, 80))
    left, top = int(rng.integers(-5, resized[0])), int(rng.integers(-5, resized[1]))
    window = left, top, int(rng.integers(max(1, -left + 1), 90)), int(rng.integers(max(1, -top + 1), 90))
    return _C.View((crop, resized, window, bool(rng.integers(2))), quarter=int(rng.integers(4)))


def random_objects(rng: np.random.Generator, form: str, height: int, width: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(rng.integers(0, 6)):
        area = form == "rle" or (form == "mixed" and rng.random() < 0.4)
        found.append(random_area(rng, height, width) if area else random_outlines(rng, height, width))
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("form", ["polygons", "rle", "mixed"])
def test_whole_pictures_are_pycocotools(form: str, size: tuple[int, int]) -> None:
    rng = np.random.default_rng([*size, len(form)])
    drawn_objects = 0
    for _ in range(60):
        objects = random_objects(rng, form, *size)
        drawn_objects += len(objects)
        if form == "polygons":  # as they are stored
            objects = [[points.astype(np.float32) for points in one] for one in objects]
        found = drawn(form, objects, whole(*size), *size)
        for mask, one in zip(found, objects, strict=True):
            assert np.array_equal(mask, coco_mask(one, *size)), one
    assert drawn_objects > 60


def test_corners_on_the_grid_and_sides_along_it() -> None:
    """Where sides pass the middle of a column exactly, steep and flat, up and down, in both directions."""
    rng = np.random.default_rng(5)
    for _ in range(400):
        points = rng.integers(-4, 24, (int(rng.integers(3, 7)), 2)) / rng.choice([1.0, 2.0, 5.0, 10.0])
        assert np.array_equal(
            drawn("mixed", [[points]], whole(12, 14), 12, 14)[0], coco_mask([points], 12, 14)
        )


def test_outlines_far_outside() -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        points = (rng.random((4, 2)) - 0.5) * rng.choice([1e3, 1e4])
        assert np.array_equal(
            drawn("mixed", [[points]], whole(30, 40), 30, 40)[0], coco_mask([points], 30, 40)
        )


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", ["rle", "mixed"])
def test_views_are_pillows(form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(1, 70, 2))
    view = random_view(rng, height, width)
    objects = random_objects(rng, form, height, width)
    found = drawn(form, objects, view, height, width)
    assert found.shape == (len(objects), *view.made[::-1])
    for mask, one in zip(found, objects, strict=True):
        assert np.array_equal(mask, nearest_view(coco_mask(one, height, width), view))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("before", [False, True])
def test_masks_move_as_areas_do(before: bool, seed: int) -> None:
    """Their runs under the same view and motions, which tests/sample/test_following.py has against Pillow."""
    rng = np.random.default_rng([seed, before])
    height, width = (int(side) for side in rng.integers(1, 50, 2))
    view = random_view(rng, height, width)
    objects = random_objects(rng, "rle", height, width)
    numbers = [1, 0.3, -3, -0.2, 1.1, 2, 0, 0], [1, 0, 1.5, 0.1, 1, 0, 0.001, 0.002]
    motions = [(numbers[0], False), (numbers[1], True)][: int(rng.integers(1, 3))]
    moving = {"source": motions} if before else {"motions": motions}
    value = bytes_of("rle", objects)
    found = _C.draw_masks(view, width, height, "rle", value, range(len(objects)), **moving)
    moved = _C.view_points(view, width, height, "rle", False, value, **moving)
    masks = found.reshape(len(objects), *view.made[::-1])
    for mask, one in zip(masks, objects_in("rle", moved.tobytes()), strict=True):
        assert np.array_equal(mask, coco_mask(one, height, width))


@pytest.mark.parametrize("seed", range(20))
def test_mixed_objects_move_as_each_kind_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(1, 50, 2))
    view = random_view(rng, height, width)
    objects = random_objects(rng, "mixed", height, width)
    motions = [([1, 0.3, -3, -0.2, 1.1, 2, 0, 0], False)] if seed % 2 else []
    found = _C.view_points(view, width, height, "mixed", False, bytes_of("mixed", objects), motions)
    areas = [one for one in objects if isinstance(one, dict)]
    moved = iter(
        objects_in(
            "rle",
            _C.view_points(view, width, height, "rle", False, bytes_of("rle", areas), motions).tobytes(),
        )
    )
    for new, old in zip(objects_in("mixed", found.tobytes()), objects, strict=True):
        if isinstance(old, dict):
            assert new == next(moved)
            continue
        for points, before in zip(new, old, strict=True):
            rows = np.ascontiguousarray(before, np.float32).view(np.uint8).reshape(-1)
            wanted = _C.view_points(view, width, height, "xy", False, rows, motions).view(np.float32)
            assert np.allclose(points, wanted.reshape(-1, 2), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", ["polygons", "rle", "mixed"])
def test_some_of_the_objects(form: str) -> None:
    rng = np.random.default_rng(9)
    for _ in range(40):
        objects = random_objects(rng, form, 20, 30)
        chosen = [number for number in range(len(objects)) if rng.random() < 0.5]
        value = _C.objects_of(form, bytes_of(form, objects), chosen)
        assert value.tobytes() == bytes_of(form, [objects[number] for number in chosen]).tobytes()
        assert len(objects_in(form, value.tobytes())) == len(chosen)
        masks = drawn(form, objects, whole(20, 30), 20, 30)
        assert np.array_equal(drawn(form, objects, whole(20, 30), 20, 30, chosen), masks[chosen])


def test_no_objects_are_no_bytes() -> None:
    nothing = np.empty(0, np.uint8)
    assert _C.objects_of("mixed", nothing, []).size == 0
    assert _C.draw_masks(whole(4, 5), 5, 4, "mixed", nothing, []).size == 0


@pytest.mark.parametrize("form", ["polygons", "rle", "mixed"])
def test_values_cut_anywhere_are_refused(form: str) -> None:
    rng = np.random.default_rng(3)
    area, outlines = random_area(rng, 5, 6), random_outlines(rng, 5, 6)
    objects = {"polygons": [outlines], "rle": [area], "mixed": [outlines, area]}[form]
    value = bytes_of(form, objects)
    assert len(value) > 12
    for end in range(1, len(value)):
        with pytest.raises(FormatError, match=r"the value of \d+ bytes has no"):
            _C.objects_of(form, value[:end], [0])


@pytest.mark.parametrize("at", [np.nan, np.inf, -np.inf, 1e300, 2.0**28])
def test_coordinates_without_a_pixel_are_refused(at: float) -> None:
    points = np.array([[0, 0], [5, 0], [at, 5]])
    with pytest.raises(FormatError, match="has the coordinate"):
        drawn("mixed", [[points]], whole(8, 8), 8, 8)


def test_an_object_that_there_is_not() -> None:
    with pytest.raises(FormatError, match="it has outlines of 1 objects, fewer than boxes"):
        drawn("mixed", [[np.eye(3, 2)]], whole(8, 8), 8, 8, [1])
