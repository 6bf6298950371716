"""Objects under a view: which stay, where their boxes are, and that all that is said of them goes along."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from objects_reference import kept
from pictures import encoded, picture
from PIL import Image as PilImage
from shapes_reference import random_area, random_outlines

from fastload import DataLoader, Fields, Of, PackedDataset, Pad
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import FormatError
from fastload.sample.fields import Array, Boxes, Image, Keypoints, Labels, Polygons
from fastload.sample.schema import Schema

COUNT = 24
ROTATED = [0.9, 0.3, -3.0, -0.2, 1.1, 2.0, 0.0, 0.0]
TILTED = [1.0, 0.05, 1.5, 0.1, 1.0, 0.0, 0.001, 0.002]


def random_boxes(rng: np.random.Generator, width: int, height: int, form: str, relative: bool) -> np.ndarray:
    """Within, across and beyond borders, and of no size."""
    count = int(rng.integers(0, 9))
    low = (rng.random((count, 2)) * 1.6 - 0.3) * [width, height]
    sides = rng.random((count, 2)) * [width, height] * rng.choice([0.0, 0.05, 0.6], (count, 1))
    if rng.random() < 0.3:
        low, sides = np.round(low), np.round(sides)
    rows = {
        "xyxy": np.concatenate([low, low + sides], 1),
        "xywh": np.concatenate([low, sides], 1),
        "cxcywh": np.concatenate([low + sides / 2, sides], 1),
    }[form]
    return (rows / [width, height, width, height] if relative else rows).astype(np.float32)


def random_view(rng: np.random.Generator, width: int, height: int) -> Any:
    x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
    crop = x, y, int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
    resized = int(rng.integers(1, 80)), int(rng.integers(1, 80))
    left, top = int(rng.integers(-5, resized[0])), int(rng.integers(-5, resized[1]))
    window = left, top, int(rng.integers(max(1, -left + 1), 90)), int(rng.integers(max(1, -top + 1), 90))
    more: dict[str, Any] = {}
    if rng.random() < 0.5:
        more["area"] = (0.0, 0.0, float(resized[0]), float(resized[1]))
    if rng.random() < 0.5:
        more["centres"] = crop
    return _C.View((crop, resized, window, bool(rng.integers(2))), **more)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("clip", [False, True])
def test_what_stays_is_what_torchvision_keeps(form: str, relative: bool, clip: bool) -> None:
    rng = np.random.default_rng([len(form), relative, clip])
    dropped = 0
    for turn in range(300):
        width, height = (int(side) for side in rng.integers(1, 71, 2))
        rows, view = random_boxes(rng, width, height, form, relative), random_view(rng, width, height)
        least = (float(rng.choice([1, 2.5])), float(rng.choice([1, 9]))) if turn % 3 else None
        without = rng.random(len(rows)) < 0.3 if turn % 2 else None
        motions = [ROTATED, TILTED][: turn % 4 // 2] if turn % 5 else [TILTED, ROTATED]
        source = [ROTATED] if turn % 7 == 0 else []
        if turn % 4 == 1:  # flips, behind which nothing is clipped
            motions = [[-1, 0, view.made[0], 0, 1, 0, 0, 0], *motions]
            source = [[1, 0, 0, 0, -1, height, 0, 0], *source]
        last = {"clamp": bool(turn % 2), "inside": bool(turn // 2 % 2)}
        plan = _C.ObjectsPlan(
            0, format=form, relative=relative, clip=clip, drop=least is not None, **last,
            min_size=least[0] if least else 1.0, min_area=least[1] if least else 1.0,
        )  # fmt: skip
        numbers, boxes = _C.keep_objects(
            plan, view, width, height, rows.reshape(-1).view(np.uint8),
            np.empty(0, np.uint8) if without is None else without.view(np.uint8),
            [(motion, motion is TILTED) for motion in motions], [(motion, False) for motion in source],
        )  # fmt: skip
        wanted, values = kept(
            rows, form, relative, (width, height), view, clip=clip, least=least, without=without,
            clamp=last["clamp"], inside=last["inside"] and least is not None, motions=motions, source=source,
        )  # fmt: skip
        assert numbers.tolist() == wanted
        assert np.allclose(boxes.reshape(-1, 4), values, rtol=1e-5, atol=1e-4)
        dropped += len(rows) - len(wanted)
    assert dropped > 100


def test_boxes_that_are_none() -> None:
    plan = _C.ObjectsPlan(0, format="xyxy", clamp=True, drop=True)
    view, none = _C.View(((0, 0, 9, 9), (9, 9), (0, 0, 9, 9), False)), np.empty(0, np.uint8)
    rows = np.array([[np.nan, 0, 5, 5], [0, 0, np.inf, 5], [-np.inf, 1, 5, np.nan]], np.float32)
    numbers, boxes = _C.keep_objects(plan, view, 9, 9, rows.reshape(-1).view(np.uint8), none)
    assert numbers.tolist() == [1]
    assert boxes.tolist() == [0, 0, 9, 5]
    with pytest.raises(FormatError, match="has no whole boxes"):
        _C.keep_objects(plan, view, 9, 9, np.zeros(15, np.uint8), none)
    with pytest.raises(FormatError, match="2 boxes, and 3 rows that say which to drop"):
        _C.keep_objects(plan, view, 9, 9, np.zeros(32, np.uint8), np.zeros(3, np.uint8))


# ---- whole loaders ------------------------------------------------------------------------------


def samples(form: str) -> list[dict[str, Any]]:
    """Each object says in every field which it is."""
    rng = np.random.default_rng(4)
    found = []
    for number in range(COUNT):
        width, height = (int(side) for side in rng.integers(30, 71, 2))
        rows = random_boxes(rng, width, height, form, False)
        ids = np.arange(len(rows)) + 1000 * number
        outlines = [
            random_area(rng, height, width) if row % 2 else random_outlines(rng, height, width)
            for row in range(len(rows))
        ]
        found.append(
            {
                "image": encoded(picture(number, width, height)),
                "boxes": rows,
                "labels": ids % 3,
                "ids": ids,
                "iscrowd": ids % 4 == 1,
                "outlines": outlines,
                "points": np.stack([ids, ids, ids % 3], 1).astype(np.float32).reshape(-1, 1, 3),
                "apart": np.arange(number % 4),
            }
        )
    return found


KINDS = {
    "labels": Labels(("a", "b", "c")),
    "ids": Array("int64", (None,)),
    "iscrowd": Array("bool", (None,)),
    "outlines": Polygons("mixed"),
    "points": Keypoints(1),
}
FIELDS = ["image", "boxes", *KINDS, "apart"]
DENSE = Fields(FIELDS, masks="dense")


def schema_of(form: str, says: bool) -> dict[str, Any]:
    followers = {name: Of("boxes", kind) if says else kind for name, kind in KINDS.items()}
    return {"image": Image(), "boxes": Boxes(form), **followers, "apart": Array("int64", (None,))}


@pytest.fixture(scope="module", params=["xyxy", "xywh"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return packed(tmp_path_factory.mktemp("objects") / request.param, request.param)


def packed(folder: Path, form: str, says: bool = True) -> PackedDataset:
    return PackedDataset(write_field_set(folder, Schema.of(schema_of(form, says)), samples(form)))


CHAINS = {
    "crop": [T.RandomResizedCrop(32, (0.05, 0.6)), T.RandomHorizontalFlip()],
    "resize": [T.Resize((40, 30))],
    "window": [T.Resize(30), T.RandomCrop(20)],
    "rotated": [T.RandomRotation(40), T.RandomResizedCrop(32), T.RandomVerticalFlip()],
    "moved": [T.RandomResizedCrop(32, (0.2, 1.0)), T.RandomAffine(30, (0.2, 0.2)), T.RandomPerspective(0.4)],
    "turned": [T.Resize((32, 20)), T.RandomVerticalFlip(), T.RandomQuarterTurn(), T.RandomAffine(9)],
    "turns": [T.RandomHorizontalFlip(), T.RandomIoUCrop(), T.RandomVerticalFlip(), T.RandomQuarterTurn()],
    "letterbox": [T.Letterbox((40, 56), rule="letterbox"), T.RandomHorizontalFlip()],
    "nothing": [],
    "ssd": [T.RandomHorizontalFlip(), T.RandomZoomOut(7), T.RandomIoUCrop(), T.Resize((30, 30))],
    "lsj": [T.ScaleJitter((48, 48)), T.FixedSizeCrop((48, 48)), T.RandomHorizontalFlip()],
}


def batches(dataset: PackedDataset, chain: list[Any], **more: Any) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"fields": FIELDS, "collate": "ragged", "seed": 3, "num_workers": 2, **more}
    return list(DataLoader(dataset, 7, transform=T.Compose(chain) if chain else None, **options))


def joined(all: list[dict[str, Any]], name: str) -> list[Any]:
    """A field's value for each sample."""
    return [value for batch in all for value in batch[name]]


@pytest.mark.parametrize("masks", ["packed", "dense"])
@pytest.mark.parametrize("chain", CHAINS)
def test_whatever_is_said_of_an_object_goes_with_it(dataset: PackedDataset, chain: str, masks: str) -> None:
    """Against the same loader that drops nothing, of which rows are then taken by number."""
    every = batches(dataset, [*CHAINS[chain], T.ClampBoundingBoxes()], fields=Fields(FIELDS, masks=masks))
    least = T.SanitizeBoundingBoxes(3, 20)
    some = batches(
        dataset,
        [*CHAINS[chain], T.DropCrowds(), T.ClampBoundingBoxes(), least],
        fields=Fields(FIELDS, masks=masks),
    )
    columns = {name: (joined(every, name), joined(some, name)) for name in FIELDS}
    corners = 0 if dataset.schema["boxes"].kind.format == "xywh" else columns["boxes"][0]
    gone = 0
    for sample in range(COUNT):
        boxes = columns["boxes"][0][sample].double()
        sides = boxes[:, 2:] if isinstance(corners, int) else boxes[:, 2:] - boxes[:, :2]
        crowd = columns["iscrowd"][0][sample].bool()
        unsure = ((sides - 3).abs() < 1e-3).any(1) | ((sides.prod(1) - 20).abs() < 1e-2)
        assert not unsure.any()
        stays = (sides >= 3).all(1) & (sides.prod(1) >= 20) & ~crowd
        gone += int((~stays).sum())
        for name in ("boxes", *KINDS):
            old, new = (column[sample] for column in columns[name])
            wanted = [value for value, keep in zip(old, stays.tolist(), strict=True) if keep]
            assert len(new) == len(wanted), name
            for one, other in zip(new, wanted, strict=True):
                assert _same(one, other), name
        assert torch.equal(columns["apart"][0][sample], columns["apart"][1][sample])
        assert torch.equal(columns["image"][0][sample], columns["image"][1][sample])
    assert gone > COUNT


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other if isinstance(one, dict) else bool(np.array_equal(one, other))


@pytest.mark.parametrize("chain", ["crop", "window", "resize", "nothing", "ssd", "lsj", "turns"])
def test_boxes_of_a_loader(dataset: PackedDataset, chain: str) -> None:
    found = batches(dataset, [*CHAINS[chain], T.SanitizeBoundingBoxes(2)])
    boxes, ids = joined(found, "boxes"), joined(found, "ids")
    assert len(boxes) == COUNT
    form = dataset.schema["boxes"].kind.format
    spec = T.compile_plan(T.Compose(CHAINS[chain])).geometry_spec()
    for number, sample in enumerate(samples(form)):
        width, height = PilImage.open(io.BytesIO(sample["image"])).size
        corners = sample["boxes"].astype(np.float64)
        if form == "xywh":
            corners[:, 2:] += corners[:, :2]
        view = _C.draw_view(spec, width, height, 3, 0, number, boxes=list(map(tuple, corners)))
        rows, values = kept(
            sample["boxes"], form, False, (width, height), view, clip=True, inside=True, least=(2.0, 1.0)
        )
        assert (ids[number] - 1000 * number).tolist() == rows
        assert np.allclose(boxes[number].numpy(), values, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("collate", ["stack", "pad", Pad(64, 96), "ragged"], ids=str)
def test_masks_of_every_form_are_the_same(dataset: PackedDataset, collate: Any) -> None:
    last = [T.ClampBoundingBoxes(), T.SanitizeBoundingBoxes(2)]
    chain = [T.Resize((40, 56)), T.RandomHorizontalFlip(), *last]
    listed = joined(batches(dataset, chain, fields=DENSE), "outlines")
    assert sum(len(masks) for masks in listed) > 10
    for number, masks in enumerate(
        joined(batches(dataset, chain, fields=DENSE, collate=collate), "outlines")
    ):
        assert masks.dtype == torch.uint8
        assert torch.equal(masks[:, :40, :56], listed[number])
        assert not masks[:, 40:].any()
        assert not masks[:, :, 56:].any()


def test_masks_of_pictures_that_differ(dataset: PackedDataset) -> None:
    chain = [T.SanitizeBoundingBoxes(2)]
    listed = batches(dataset, chain, fields=DENSE)
    assert sum(len(batch["valid"]) for batch in listed) == COUNT
    for batch, padded in zip(listed, batches(dataset, chain, fields=DENSE, collate="pad"), strict=True):
        assert torch.equal(padded["image_sizes"], padded["outlines_sizes"])
        for number, masks in enumerate(padded["outlines"]):
            height, width = padded["image_sizes"][number].tolist()
            assert torch.equal(masks[:, :height, :width], batch["outlines"][number])
            assert masks.sum() == batch["outlines"][number].sum()
            assert masks.shape[1:] == padded["image"].shape[-2:]


def test_threads_and_seeds_change_nothing(dataset: PackedDataset) -> None:
    chain = [*CHAINS["crop"], T.SanitizeBoundingBoxes(2)]
    one = joined(batches(dataset, chain, num_workers=1, shuffle=True), "ids")
    three = joined(batches(dataset, chain, num_workers=3, shuffle=True), "ids")
    assert all(map(torch.equal, one, three))


def test_views_that_drop_have_rows_of_their_own(dataset: PackedDataset) -> None:
    small = T.Compose([T.RandomResizedCrop(24, (0.05, 0.3)), T.SanitizeBoundingBoxes(2)])
    views = T.Views({"small": small, "whole": T.Resize(20)})
    names = ["image", "boxes", "labels", "ids", "apart"]
    found = list(DataLoader(dataset, 6, transform=views, fields=names, collate="ragged", seed=1))
    assert len(found) == COUNT // 6
    for batch in found:
        assert set(batch) == {
            "small", "whole", "small_boxes", "whole_boxes", "small_labels", "whole_labels", "small_ids",
            "whole_ids", "apart", "valid",
        }  # fmt: skip
        for view in ("small", "whole"):
            assert torch.equal(batch[f"{view}_boxes"].lengths, batch[f"{view}_ids"].lengths)
            assert torch.equal(batch[f"{view}_ids"].values % 3, batch[f"{view}_labels"].values.long())
        assert batch["small_ids"].values.numel() < batch["whole_ids"].values.numel()


@pytest.mark.parametrize("visibility", [False, True])
@pytest.mark.parametrize(
    ("chain", "mirrored"),
    [
        ([], False),
        ([T.RandomHorizontalFlip(1.0)], True),
        ([T.RandomVerticalFlip(1.0)], True),
        ([T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)], False),
        ([T.RandomRotation((90, 90))], False),
        ([T.RandomRotation((30, 30)), T.Resize((20, 30)), T.RandomHorizontalFlip(1.0)], True),
    ],
)
def test_left_and_right_change_places(
    chain: list[Any], mirrored: bool, visibility: bool, tmp_path: Path
) -> None:
    """Against the same points of a set that has no pairs; what is not labelled stays where it is."""
    points = np.arange(30, dtype=np.float32).reshape(2, 5, 3) + 1
    points[1, 2:4] = 0
    points = points if visibility else points[..., :2]
    found = []
    for number, pairs in enumerate([(), ((1, 2), (3, 4))]):
        kinds = {"image": Image(), "points": Keypoints(5, visibility, pairs)}
        rows = [{"image": encoded(picture(0, 40, 40)), "points": points}]
        one = PackedDataset(write_field_set(tmp_path / str(number), Schema.of(kinds), rows))
        (batch,) = list(DataLoader(one, 1, transform=T.Compose(chain) if chain else None))
        found.append(batch["points"][0])
    assert torch.equal(found[1], found[0][:, [0, 2, 1, 4, 3]] if mirrored else found[0])
    if visibility:
        assert not found[0][1, 2:4].any()
        assert found[0][1, 4].all()


# ---- what is refused ----------------------------------------------------------------------------


def test_sets_that_do_not_say_what_goes_together(tmp_path: Path) -> None:
    silent = packed(tmp_path / "silent", "xyxy", says=False)
    chain = [T.Resize((32, 32)), T.SanitizeBoundingBoxes(3)]
    with pytest.raises(
        ValueError, match=r"nothing says which fields .* Found: labels, ids, .*rows_of=\{'boxes'"
    ):
        batches(silent, chain)
    told = packed(tmp_path / "told", "xyxy")
    said = batches(silent, chain, fields=Fields(FIELDS, rows_of={"boxes": list(KINDS)}))
    for one, other in zip(joined(said, "ids"), joined(batches(told, chain), "ids"), strict=True):
        assert torch.equal(one, other)
    alone = batches(silent, chain, fields=["image", "boxes"])
    for boxes, ids in zip(joined(alone, "boxes"), joined(said, "ids"), strict=True):
        assert len(boxes) == len(ids)


def test_transforms_that_ask_for_what_there_is_not(dataset: PackedDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"DropCrowds\('crowd'\) needs a field of that name"):
        batches(dataset, [T.DropCrowds("crowd")])
    images = PackedDataset(
        write_field_set(
            tmp_path / "plain",
            Schema.of({"image": Image(), "n": Array("int64", (None,))}),
            [{"image": encoded(picture(0, 6, 5)), "n": np.arange(2)}],
        )
    )
    with pytest.raises(ValueError, match="works on the boxes of objects. Found: none: image"):
        next(iter(DataLoader(images, 1, transform=T.SanitizeBoundingBoxes())))
    assert next(iter(DataLoader(images, 1, transform=T.ClampBoundingBoxes())))["n"].lengths.tolist() == [2]
    found = next(
        iter(DataLoader(dataset, 4, transform=T.SanitizeBoundingBoxes(), fields=["image"], collate="ragged"))
    )
    assert len(found["image"]) == 4


def test_two_fields_of_boxes_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"image": encoded(picture(0, 9, 9)), "a": np.array([[1, 2, 1, 9]]), "b": np.array([[0, 0, 9, 9]])}
    ]
    kinds = Schema.of({"image": Image(), "a": Boxes(), "b": Boxes()})
    two = PackedDataset(write_field_set(tmp_path / "two", kinds, rows))
    with pytest.raises(ValueError, match="two fields of boxes, 'a' or 'b': name one, boxes=NAME"):
        next(iter(DataLoader(two, 1, transform=T.SanitizeBoundingBoxes())))
    found = next(iter(DataLoader(two, 1, transform=T.SanitizeBoundingBoxes(boxes="a"))))
    assert (len(found["a"][0]), len(found["b"][0])) == (0, 1)


MOVE = T.RandomRotation(9)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: T.SanitizeBoundingBoxes(0.5), "min_size must be at least 1"),
        (lambda: T.SanitizeBoundingBoxes(1, 0), "min_area must be at least 1"),
        (lambda: T.SanitizeBoundingBoxes(labels_getter=None), "labels_getter must be 'default'"),
        (lambda: T.compile_plan(T.Compose([MOVE, T.SanitizeBoundingBoxes(), MOVE])), "out of order"),
        (
            lambda: T.compile_plan(
                T.Compose([T.Resize(9), *[T.SanitizeBoundingBoxes(), T.CenterCrop(9)] * 3])
            ),
            "out of order",
        ),
        (lambda: T.compile_plan(T.RandomApply([T.SanitizeBoundingBoxes()], 0.5)), "out of order|group"),
    ],
)
def test_words_that_mean_nothing(make: Any, wrong: str) -> None:
    with pytest.raises((ValueError, TypeError), match=wrong):
        make()
