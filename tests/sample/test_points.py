"""Boxes, points and outlines under a view equal NumPy's, bit for bit; damaged values are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from field_reference import shown_area
from geometry_uses import center, crop, exact, flip, shorter, spec_of
from points_reference import boxes, points

from fastload._native import _C
from fastload.errors import FormatError
from fastload.sample.fields import Polygons
from fastload.sample.values import decode, encode

SIZE = (640, 427)
SPECS = [
    spec_of(),
    spec_of(crop(192, 224), flip(0.5)),
    spec_of(shorter(256), center(224, 224)),
    spec_of(exact(77, 31), flip(1.0)),
]


def views() -> Iterator[tuple]:
    for spec in SPECS:
        for sample in range(6):
            view = _C.draw_view(spec, *SIZE, 3, 0, sample, 0)
            yield _C.View(tuple(view), quarter=sample % 4)


def under(view: tuple, form: str, rows: np.ndarray, relative: bool = False) -> np.ndarray:
    found = _C.view_points(view, *SIZE, form, relative, rows.reshape(-1).view(np.uint8))
    return found.view(np.float32).reshape(rows.shape)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_boxes(form: str, relative: bool) -> None:
    rng = np.random.default_rng(0)
    flips = set()
    for view in views():
        rows = rng.uniform(-20, 700, (9, 4)).astype(np.float32) / (500 if relative else 1)
        flips.add(view[3])
        found = under(view, form, rows.astype(np.float32), relative)
        assert found.tobytes() == boxes(rows, view, SIZE, form, relative).tobytes()
    assert flips == {False, True}


@pytest.mark.parametrize(("form", "numbers"), [("xy", 2), ("xyv", 3)])
def test_points(form: str, numbers: int) -> None:
    rng = np.random.default_rng(1)
    assert len(list(views())) == 6 * len(SPECS)
    for view in views():
        rows = rng.uniform(-20, 700, (5, 17, numbers)).astype(np.float32)
        found = under(view, form, rows)
        assert found.tobytes() == points(rows, view, SIZE).tobytes()
        assert (found[..., 2:] == rows[..., 2:]).all()


def test_corners_stay_in_order_where_the_view_is_flipped() -> None:
    view = ((0, 0, 100, 50), (200, 100), (0, 0, 200, 100), True)
    found = _C.view_points(view, 100, 50, "xyxy", False, np.array([10, 5, 30, 20], np.float32).view(np.uint8))
    assert found.view(np.float32).tolist() == [140, 10, 180, 40]
    found = _C.view_points(view, 100, 50, "xywh", False, np.array([10, 5, 20, 15], np.float32).view(np.uint8))
    assert found.view(np.float32).tolist() == [140, 10, 40, 30]


def test_outlines() -> None:
    rng = np.random.default_rng(2)
    kind = Polygons()
    assert len(list(views())) == 6 * len(SPECS)
    for view in views():
        value = [
            [rng.uniform(0, 600, (3 + part, 2)).astype(np.float32) for part in range(count)]
            for count in (2, 0, 1)
        ]
        data = np.frombuffer(encode(kind, value), np.uint8)
        found = decode(kind, _C.view_points(view, *SIZE, "polygons", False, data).tobytes())
        assert len(found) == 3
        for one, wanted in zip(found, value, strict=True):
            assert len(one) == len(wanted)
            for a, b in zip(one, wanted, strict=True):
                assert a.tobytes() == points(b, view, SIZE).tobytes()


@pytest.mark.parametrize(
    "words", [[1], [1, 1], [1, 1, 3], [2**32 - 1], [1, 2**32 - 1, 0, 0], [0, 0], [1, 1, 2, 0, 0, 0]]
)
def test_bytes_that_are_no_outlines_are_refused(words: list[int]) -> None:
    data = np.array(words, np.uint32).view(np.uint8)
    with pytest.raises(FormatError, match="has no outlines of objects"):
        _C.view_points(next(views()), *SIZE, "polygons", False, data)


def test_areas() -> None:
    rng = np.random.default_rng(3)
    kind = Polygons("rle")
    assert len(list(views())) == 6 * len(SPECS)
    for view in views():
        value = []
        for width, height in (SIZE, (64, 43), (1, 1)):
            inside = np.repeat(rng.integers(0, 2, width * height // 7 + 1), 7)[: width * height].tolist()
            counts = [len(list(run)) for _, run in itertools.groupby(inside)]
            value.append({"size": [height, width], "counts": [0] * inside[0] + counts})
        data = np.frombuffer(encode(kind, value), np.uint8)
        found = decode(kind, _C.view_points(view, *SIZE, "rle", False, data).tobytes())
        assert found == [shown_area(area, view, SIZE) for area in value]


@pytest.mark.parametrize(
    "words",
    [
        [1], [1, 2, 2], [1, 2, 2, 1], [1, 2, 2, 1, 3], [1, 2, 2, 2, 4, 1], [1, 0, 5, 0], [2**32 - 1, 1, 1],
        [1, 1, 1, 1, 1, 9], [1, 2**31, 2**31, 1, 0], [1, 2, 2, 2**32 - 1, 4],
    ],
)  # fmt: skip
def test_bytes_that_are_no_areas_are_refused(words: list[int]) -> None:
    data = np.array(words, np.uint32).view(np.uint8)
    with pytest.raises(FormatError, match="has no areas of objects|the runs of an object have"):
        _C.view_points(next(views()), *SIZE, "rle", False, data)


def test_bytes_that_are_no_rows_are_refused() -> None:
    with pytest.raises(FormatError, match="the value of 12 bytes has no whole rows"):
        _C.view_points(next(views()), *SIZE, "xyxy", False, np.zeros(12, np.uint8))
    with pytest.raises(ValueError, match="format must be one of xyxy, xywh.*Found: xyz"):
        _C.view_points(next(views()), *SIZE, "xyz", False, np.zeros(12, np.uint8))
