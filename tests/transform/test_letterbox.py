"""Letterbox against the two rules written out in float64, and its batches against Pillow's resize and pad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_sets import write_field_set
from geometry_v2_reference import letterboxed
from hypothesis import example, given
from hypothesis import strategies as st
from object_sets import object_samples, object_schema
from PIL import Image, ImageOps

from fastload import DataLoader, Fields
from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

COUNT = 40
LEAST = 6.3  # pixels of a box that stays
RULES = [
    T.Letterbox(48),
    T.Letterbox(47, 9, center=False),
    T.Letterbox(48, rule="letterbox"),
    T.Letterbox((41, 70), (1, 2, 3), rule="letterbox"),
    T.Letterbox((96, 80), rule="letterbox", scaleup=False),
]


@given(
    st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 1300), st.integers(1, 1300),
    st.sampled_from(["dataset", "letterbox"]), st.booleans(), st.booleans(),
)  # fmt: skip
@example(5, 10, 5, 5, "letterbox", True, True)  # 2.5 rounds to 2
@example(7, 10, 5, 5, "letterbox", True, True)  # 3.5 to 4
@example(4000, 1, 64, 64, "letterbox", True, True)  # never 0 pixels
@example(640, 427, 640, 640, "dataset", True, True)
def test_places_are_those_of_the_rule(
    width: int, height: int, rows: int, columns: int, rule: str, scaleup: bool, center: bool
) -> None:
    if rule == "dataset":
        columns, scaleup = rows, True
    spec = T.Letterbox((rows, columns), rule=rule, scaleup=scaleup, center=center)
    plan = compile_plan(spec)
    view = _C.draw_view(plan.geometry_spec(), width, height, 0, 0, 0)
    (w, h), (left, top, right, bottom) = letterboxed(width, height, spec)
    assert (left + w + right, top + h + bottom) == (columns, rows) == plan.output_size[::-1]  # type: ignore[index]
    crop, resized, window, flip = view
    assert not flip
    if (w, h) == (width, height):  # fill is around the stored pixels
        assert crop == (-left, -top, columns, rows)
        assert (resized, window) == ((columns, rows), (0, 0, columns, rows))
    else:
        assert crop == (0, 0, width, height)
        assert (resized, window) == ((w, h), (-left, -top, columns, rows))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    samples = object_samples(COUNT)
    return write_field_set(tmp_path_factory.mktemp("letterbox") / "set", object_schema(), samples), samples


@pytest.mark.parametrize("spec", RULES, ids=repr)
@pytest.mark.parametrize("sanitized", [False, True])
def test_batches_for_yolo(
    objects: tuple[Path, list[dict[str, Any]]], spec: T.Letterbox, sanitized: bool
) -> None:
    """Pixels are Pillow's resize and pad; boxes and keypoints the float64 rule's, in parts of the picture."""
    folder, samples = objects
    chain = T.Compose([spec, T.SanitizeBoundingBoxes(LEAST)]) if sanitized else spec
    groups = {"boxes": ["labels", "area", "iscrowd", "keypoints"]}
    with DataLoader(
        folder, batch_size=COUNT, collate="yolo", transform=chain, fields=Fields(rows_of=groups)
    ) as loader:
        (batch,) = loader
    with DataLoader(folder, batch_size=1, fields=["image"], collate="ragged") as loader:
        stored = [one["image"][0].permute(1, 2, 0).numpy() for one in loader]
    wanted: dict[str, list[Any]] = {"cls": [], "bboxes": [], "batch_idx": []}
    dropped = 0
    rows, columns = spec.size
    for place, (sample, pixels) in enumerate(zip(samples, stored, strict=True)):
        height, width = pixels.shape[:2]
        (w, h), sides = letterboxed(width, height, spec)
        colour = spec.fill if isinstance(spec.fill, tuple) else (spec.fill,) * 3
        resized = Image.fromarray(pixels).resize((w, h), Image.Resampling.BILINEAR)
        padded = np.asarray(ImageOps.expand(resized, sides, colour))
        assert np.array_equal(batch["img"][place].permute(1, 2, 0).numpy(), padded)
        assert batch["ori_shape"][place] == (height, width)
        assert batch["resized_shape"][place] == (rows, columns)
        for row, (x, y, across, down) in enumerate(sample["boxes"].astype(float).tolist()):
            if sample["iscrowd"][row]:
                continue
            left, right = (sides[0] + one * w / width for one in (x, x + across))
            top, bottom = (sides[1] + one * h / height for one in (y, y + down))
            assert 0 <= left <= right <= columns  # none of these reaches over the border
            assert 0 <= top <= bottom <= rows
            if sanitized and (right - left < LEAST or bottom - top < LEAST):
                dropped += 1
                continue
            middle = (left + right) / 2 / columns, (top + bottom) / 2 / rows
            wanted["bboxes"].append([*middle, (right - left) / columns, (bottom - top) / rows])
            wanted["cls"].append([sample["labels"][row]])
            wanted["batch_idx"].append(place)
    assert len(wanted["cls"]) > 5
    assert (dropped > 0) == sanitized
    for name, values in wanted.items():
        assert batch[name].shape == np.shape(values), name
        assert np.allclose(batch[name].numpy(), np.array(values), atol=1e-6), name


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rule": "yolo"}, ValueError, "rule must be 'dataset' or 'letterbox'. Found: 'yolo'"),
        ({"size": (3, 4)}, ValueError, r"one size for both sides.*Found: size \(3, 4\).*rule='letterbox'"),
        ({"scaleup": False}, ValueError, "enlarges smaller pictures. Found: .* scaleup False"),
        ({"center": 1}, TypeError, "center must be True or False. Found: 1"),
        ({"fill": -1}, ValueError, "Letterbox.fill"),
        ({"size": 0}, ValueError, "Letterbox.size must be in"),
    ],
)
def test_what_no_rule_has_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        T.Letterbox(**arguments)


def test_one_resizing_step_is_there() -> None:
    with pytest.raises(ValueError, match="out of order or there twice"):
        compile_plan(T.Compose([T.Resize(9), T.Letterbox(9)]))
