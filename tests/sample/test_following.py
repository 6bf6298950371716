"""Masks, boxes, keypoints and outlines follow operations that move pixels, as the image of the view does."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import field_reference
import follow_reference as reference
import numpy as np
import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set
from motion_reference import MOVING
from PIL import Image
from pixel_reference import drawn_around, drawn_steps
from source_reference import shown
from transform_reference import Draws

from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.sample.fields import Polygons
from fastload.sample.values import decode, encode
from fastload.transforms import compile_plan

SIZE = (640, 427)
VIEW = ((100, 50, 400, 300), (90, 70), (3, 2, 80, 64), True)
WINDOW = (80, 64)
STEPS = [(name, numbers) for name, (_, numbers) in MOVING.items() if name != "perspective"]
CLOSE = {"rtol": 1e-5, "atol": 1e-3}  # pixels: numbers are float32, matrices are inverted otherwise


def chains() -> list[list[Any]]:
    rng = random.Random(0)
    return [*[[step] for step in STEPS], *[rng.sample(STEPS, 3) for _ in range(12)]]


def motions(steps: Any) -> list[Any]:
    return [_C.motion_of(name, list(numbers), *WINDOW) for name, numbers in steps]


def under(form: str, rows: np.ndarray, steps: Any, relative: bool = False) -> np.ndarray:
    data = rows.reshape(-1).view(np.uint8)
    found = _C.view_points(VIEW, *SIZE, form, relative, data, motions(steps))
    return found.view(np.float32).reshape(rows.shape)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_boxes(form: str, relative: bool) -> None:
    rng = np.random.default_rng(0)
    for steps in chains():
        low = rng.uniform(50, 400, (9, 2))
        rows = np.concatenate([low, low + rng.uniform(1, 90, (9, 2))], 1)
        if form != "xyxy":
            rows[:, 2:] -= rows[:, :2]
        if relative:
            rows = rows / [*SIZE, *SIZE]
        rows = rows.astype(np.float32)
        matrices = [reference.inverse(*step, WINDOW) for step in steps]
        wanted = reference.moved_boxes(rows, VIEW, SIZE, form, relative, matrices)
        assert np.allclose(under(form, rows, steps, relative), wanted, **CLOSE), steps


@pytest.mark.parametrize(("form", "numbers"), [("xy", 2), ("xyv", 3)])
def test_points(form: str, numbers: int) -> None:
    rng = np.random.default_rng(1)
    for steps in chains():
        rows = rng.uniform(0, 500, (7, numbers)).astype(np.float32)
        matrices = [reference.inverse(*step, WINDOW) for step in steps]
        in_view = reference.points_reference.moved(rows[:, :2], VIEW, SIZE, False)
        found = under(form, rows, steps)
        assert np.allclose(found[:, :2], reference.moved_points(in_view, matrices), **CLOSE), steps
        assert (found[:, 2:] == rows[:, 2:]).all()


def test_points_lie_where_perspective_takes_the_pixels() -> None:
    """The other way round they come back."""
    for sample in range(50):
        numbers = [0.6, 0, 0, 0, 0]
        motion = _C.motion_of("perspective", numbers, *WINDOW, 0, 0, sample)
        rows = np.random.default_rng(sample).uniform(100, 350, (5, 2)).astype(np.float32)
        data = rows.reshape(-1).view(np.uint8)
        found = _C.view_points(VIEW, *SIZE, "xy", False, data, [motion]).view(np.float32).reshape(-1, 2)
        matrix = np.array([*motion[0], 1.0]).reshape(3, 3)
        back = reference.moved_points(found, [np.linalg.inv(matrix)])
        assert np.allclose(back, reference.points_reference.moved(rows, VIEW, SIZE, False), **CLOSE)


@pytest.mark.parametrize("bits", [8, 16])
def test_masks_equal_pillows(bits: int) -> None:
    rng = np.random.default_rng(2)
    for number, steps in enumerate(chains()):
        ids = rng.integers(0, 2**bits, (31, 45)).astype(f"u{bits // 8}")
        whole = ((0, 0, 45, 31), (45, 31), (0, 0, 45, 31), False)
        spec = _C.PixelSpec([(name, 1.0, list(numbers), ()) for name, numbers in steps])
        found = _C.cut(
            np.frombuffer(ids.tobytes(), np.uint8),
            whole,
            (1, bits, True),
            _C.StoreSpec(dtype="uint8" if bits == 8 else "int32"),
            nearest=True,
            fill=77 + number,
            raw=(45, 31, 1, bits),
            pixels=spec,
        )
        found = found[0].view(np.uint8 if bits == 8 else np.int32).reshape(31, 45)
        assert np.array_equal(found, reference.moved_mask(ids, steps, 77 + number)), steps


def test_areas_move_as_masks_do() -> None:
    kind, rng = Polygons("rle"), np.random.default_rng(3)
    for steps in chains():
        inside = np.repeat(rng.integers(0, 2, 60 * 50 // 7 + 1), 7)[:3000]
        counts = np.diff(np.flatnonzero(np.diff(inside, prepend=1 - inside[0], append=1 - inside[-1])))
        area = {"size": [50, 60], "counts": [0] * int(inside[0]) + counts.tolist()}
        data = np.frombuffer(encode(kind, [area]), np.uint8)
        found = decode(kind, _C.view_points(VIEW, *SIZE, "rle", False, data, motions(steps)).tobytes())
        assert found == [reference.moved_area(field_reference.shown_area(area, VIEW, SIZE), steps)]


NAMES = ["image", "mask", "boxes", "points", "outlines", "areas", "label"]
MOVES = [
    T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), 15, interpolation="bilinear", fill=9),
    T.RandomVerticalFlip(),
    T.RandomApply([T.RandomRotation(40, center=(3, 5)), T.RandomHorizontalFlip(0.5)], p=0.7),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("moved") / "rich", RICH, rich_samples(11))


def test_all_fields_of_a_loader_follow(folder: Path) -> None:
    crop = [T.RandomResizedCrop((40, 48)), T.RandomHorizontalFlip()]
    plan, changed = compile_plan(T.Compose([*crop, *MOVES])), 0
    options: dict[str, Any] = {"seed": 3, "num_workers": 2, "fields": NAMES}
    still = next(iter(DataLoader(folder, 11, transform=T.Compose(crop), **options)))
    batch = next(iter(DataLoader(folder, 11, transform=T.Compose([*crop, *MOVES]), **options)))
    for i in range(11):
        steps = drawn_steps(plan.pixels, Draws(3, 0, i))
        changed += len(steps) > 0
        picture = Image.fromarray(still["image"][i].permute(1, 2, 0).contiguous().numpy())
        for name, numbers in steps:
            picture = MOVING[name][0](picture, numbers)
        assert np.array_equal(batch["image"][i].permute(1, 2, 0).numpy(), np.asarray(picture))
        mask = reference.moved_mask(still["mask"][i].numpy(), steps, RICH["mask"].kind.ignore)
        assert np.array_equal(batch["mask"][i].numpy(), mask)
        matrices = [reference.inverse(name, numbers, (48, 40)) for name, numbers in steps]
        points = reference.moved_points(still["points"][i][..., :2].numpy(), matrices)
        assert np.allclose(batch["points"][i][..., :2].numpy(), points, **CLOSE)
        whole = ((0, 0, 48, 40), (48, 40), (0, 0, 48, 40), False)
        boxes = reference.moved_boxes(still["boxes"][i].numpy(), whole, (48, 40), "xywh", False, matrices)
        assert not steps or np.allclose(batch["boxes"][i].numpy(), boxes, **CLOSE)
        assert batch["areas"][i] == [reference.moved_area(area, steps) for area in still["areas"][i]]
        for found, before in zip(batch["outlines"][i], still["outlines"][i], strict=True):
            for a, b in zip(found, before, strict=True):
                assert np.allclose(a, reference.moved_points(b, matrices), **CLOSE)
    assert changed == 11
    assert torch.equal(still["label"], batch["label"])


BEFORE = [
    T.RandomHorizontalFlip(),
    T.RandomAffine(30, (0.2, 0.1), (0.7, 1.4), 15, fill=9),
    T.RandomInvert(0.5),
]


def placed(xy: Any, view: Any, size: tuple[int, int], before: Any, behind: Any) -> Any:
    """Where points of the whole picture are in the view, which is moved before and after the cut."""
    seen = reference.points_reference.moved(reference.moved_points(xy, before), view, size, False)
    return reference.moved_points(seen, behind)


def test_all_fields_follow_what_moves_the_whole_picture(folder: Path) -> None:
    """Areas are of 5 x 4 pixels here: they follow in their own."""
    behind = [T.CenterCrop((30, 32)), T.RandomRotation((180, 180))]
    plan = compile_plan(T.Compose([*BEFORE, *behind]))
    assert len(plan.source) == 3
    options: dict[str, Any] = {"seed": 3, "num_workers": 2, "fields": NAMES}
    batch = next(iter(DataLoader(folder, 11, transform=T.Compose([*BEFORE, *behind]), **options)))
    samples, ignore = rich_samples(11), RICH["mask"].kind.ignore
    for i in range(11):
        draws = Draws(3, 0, i)
        source, cut = drawn_around(plan, draws)
        assert np.array_equal(
            batch["image"][i].permute(1, 2, 0).numpy(), shown(samples[i]["image"], plan, draws)
        )
        with Image.open(io.BytesIO(samples[i]["image"])) as picture:
            width, height = picture.size
        view = _C.draw_view(plan.geometry_spec(), width, height, 3, 0, i)
        ids = np.asarray(Image.open(io.BytesIO(samples[i]["mask"])))
        moved = reference.moved_mask(ids, source, ignore)
        wanted = reference.moved_mask(field_reference.shown_mask(moved, view, ignore), cut, ignore)
        assert np.array_equal(batch["mask"][i].numpy(), wanted)
        matrices = [reference.inverse(*step, (width, height)) for step in source if step[0] in MOVING]
        after = [reference.inverse(*step, (32, 30)) for step in cut]

        def place(
            xy: Any, view: Any = view, size: Any = (width, height), first: Any = matrices, last: Any = after
        ) -> Any:
            whole = reference.moved_points(xy, first)
            return reference.moved_points(reference.points_reference.moved(whole, view, size, False), last)

        points = samples[i]["points"]
        assert np.allclose(batch["points"][i][..., :2].numpy(), place(points[..., :2]), **CLOSE)
        low, extent = samples[i]["boxes"][:, :2], samples[i]["boxes"][:, 2:]
        ends = low, low + extent
        corners = [place(np.stack([x[:, 0], y[:, 1]], -1)) for x in ends for y in ends]
        boxes = np.concatenate([np.min(corners, 0), np.ptp(corners, 0)], 1)
        assert np.allclose(batch["boxes"][i].numpy(), boxes, **CLOSE)
        for found, given in zip(batch["outlines"][i], samples[i]["outlines"], strict=True):
            for a, b in zip(found, given, strict=True):
                assert np.allclose(a, place(b), **CLOSE)


def test_areas_of_the_pictures_size_follow_as_masks_do() -> None:
    kind, rng = Polygons("rle"), np.random.default_rng(4)
    whole = ((0, 0, 60, 50), (60, 50), (0, 0, 60, 50), False)
    for name, numbers in STEPS:
        inside = np.repeat(rng.integers(0, 2, 60 * 50 // 7 + 1), 7)[:3000]
        counts = np.diff(np.flatnonzero(np.diff(inside, prepend=1 - inside[0], append=1 - inside[-1])))
        area = {"size": [50, 60], "counts": [0] * int(inside[0]) + counts.tolist()}
        data = np.frombuffer(encode(kind, [area]), np.uint8)
        motion = _C.motion_of(name, list(numbers), 60, 50)
        found = _C.view_points(whole, 60, 50, "rle", False, data, source=[motion])
        assert decode(kind, found.tobytes()) == [reference.moved_area(area, [(name, numbers)])]
        # A picture of another size is moved alike, by whole pixels where it is a flip.
        if name.endswith("flip"):
            motion = _C.motion_of(name, list(numbers), 120, 200)
            doubled = ((0, 0, 120, 200), (60, 50), (0, 0, 60, 50), False)
            again = _C.view_points(doubled, 120, 200, "rle", False, data, source=[motion])
            assert np.array_equal(again, found)


def test_a_mix_of_moved_pictures_cannot_be_followed(folder: Path) -> None:
    chain = T.Compose([T.RandomResizedCrop(16), T.AugMix()])
    with pytest.raises(ValueError, match=r"mixes pictures of which some were moved .*fields=\["):
        next(iter(DataLoader(folder, 4, transform=chain, fields=["image", "mask"])))
    next(iter(DataLoader(folder, 4, transform=chain, fields=["image", "label"])))
