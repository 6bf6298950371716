"""Pictures whose marks say where everything is, and whether a batch's fields agree about it.

Each picture has two rectangles of colours of their own on a plain ground. A mask has their numbers, boxes are
around them, points are at their middles, outlines run along them, and a second picture is painted likewise.
Whatever a transform does to a sample, all of these must lie upon each other behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fastload
from fastload import (
    Array,
    Boxes,
    Fields,
    Image,
    Keypoints,
    Label,
    Labels,
    Mask,
    Of,
    PackedDataset,
    Pad,
    Polygons,
)

__all__ = [
    "COLOURS",
    "FORMATS",
    "GROUND",
    "Found",
    "World",
    "check",
    "edge_of",
    "eroded",
    "found_in",
    "make_world",
    "marks_of",
]

GROUND = (50, 70, 60)
# Of the marks, by their numbers, which are also their labels: apart from each other, from the ground and from
# fills in gray, too, and as negatives.
COLOURS = {1: (215, 150, 50), 2: (235, 190, 235)}
RIGHT = {1: (120, 180, 235), 2: (250, 195, 180)}  # in the second picture
FORMATS = [("xyxy", False), ("xywh", False), ("cxcywh", False), ("xyxy", True), ("cxcywh", True)]
COUNT = 4
MIDDLE = 10  # added to a mark's number in the mask, around its middle
POINTS = 3  # the middle, and two that lie left and right of it


@dataclass(frozen=True)
class Marks:
    """What was painted into a picture: each mark's number, left, top, right and bottom."""

    height: int
    width: int
    rows: list[tuple[int, int, int, int, int]]


def marks_of(number: int, rng: np.random.Generator, size: tuple[int, int] | None = None) -> Marks:
    """Two rectangles that do not touch, in different halves of a picture; the third picture has none."""
    height, width = size or (int(rng.integers(44, 80)), int(rng.integers(50, 90)))
    if number == 2:
        return Marks(height, width, [])
    middle = width // 2
    rows = []
    for mark, (left, right) in enumerate([(3, middle - 3), (middle + 2, width - 4)], 1):
        wide, high = int(rng.integers(14, 20)), int(rng.integers(14, 24))
        x = int(rng.integers(left, max(right - wide, left + 1)))
        y = int(rng.integers(2, height - high - 2))
        rows.append((mark, x, y, x + wide, y + high))
    return Marks(height, width, rows)


def painted(marks: Marks, colours: dict[int, tuple[int, int, int]]) -> Any:
    pixels = np.empty((marks.height, marks.width, 3), np.uint8)
    pixels[:] = GROUND
    for mark, left, top, right, bottom in marks.rows:
        pixels[top:bottom, left:right] = colours[mark]
    return pixels


def sample_of(marks: Marks, form: tuple[str, bool]) -> dict[str, Any]:
    """The sample as it is packed."""
    mask = np.zeros((marks.height, marks.width), np.uint8)
    boxes, points, outlines = [], [], []
    for mark, left, top, right, bottom in marks.rows:
        mask[top:bottom, left:right] = mark
        across, down = (left + right) // 2, (top + bottom) // 2
        mask[down - 2 : down + 3, across - 2 : across + 3] = MIDDLE + mark
        sides = {
            "xyxy": (left, top, right, bottom),
            "xywh": (left, top, right - left, bottom - top),
            "cxcywh": ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
        }[form[0]]
        scale = (marks.width, marks.height) * 2 if form[1] else (1,) * 4
        boxes.append([side / by for side, by in zip(sides, scale, strict=True)])
        x, y = (left + right) / 2, (top + bottom) / 2
        points.append([(x, y, 2), (left + 2, y, 1), (right - 2, y, 2)])
        outlines.append([[left, top, right, top, right, bottom, left, bottom]])
    count = len(marks.rows)
    return {
        "image": painted(marks, COLOURS),
        "right": painted(marks, RIGHT),
        "mask": mask,
        "boxes": np.array(boxes, np.float32).reshape(count, 4),
        "labels": np.array([row[0] for row in marks.rows], np.int64),
        "area": np.array([(row[3] - row[1]) * (row[4] - row[2]) for row in marks.rows], np.float32),
        "points": np.array(points, np.float32).reshape(count, POINTS, 3),
        "outlines": outlines,
        "number": count,
    }


def schema_of(form: tuple[str, bool]) -> dict[str, Any]:
    return {
        "image": Image(),
        "right": Image(),
        "mask": Mask(ignore=250),
        "boxes": Boxes(*form),
        "labels": Of("boxes", Labels(("ground", "one", "two"))),
        "area": Of("boxes", Array("float32", (None,))),
        "points": Of("boxes", Keypoints(POINTS, pairs=((1, 2),))),
        "outlines": Of("boxes", Polygons()),
        "number": Array("int64", (1,)),
    }


@dataclass
class World:
    """The sets that chains are tried on: with all fields, one for each format of boxes; and of pairs."""

    rich: dict[tuple[str, bool], Path]
    pairs: Path
    samples: dict[tuple[str, bool], list[dict[str, Any]]] = field(default_factory=dict)

    def dataset(self, form: tuple[str, bool]) -> PackedDataset:
        return PackedDataset(self.rich[form])


def make_world(root: Path, seed: int = 5) -> World:
    world = World({}, root / "pairs")
    for number, form in enumerate(FORMATS):
        rng = np.random.default_rng(seed + number)
        samples = [sample_of(marks_of(i, rng), form) for i in range(COUNT)]
        folder = root / f"rich{number}"
        packed = [{**one, "number": np.array([one["number"]])} for one in samples]
        fastload.pack(packed, folder, schema_of(form))
        world.rich[form] = folder
        world.samples[form] = samples
    first = world.samples[FORMATS[0]]
    plain = [{"image": one["image"], "label": i} for i, one in enumerate(first)]
    fastload.pack(plain, world.pairs, {"image": Image(), "label": Label()})
    return world


# ---- what a batch has ------------------------------------------------------------------------------


@dataclass
class Found:
    """What was delivered of one sample: of each field what there is, boxes as corners in pixels."""

    images: list[Any]  # (C, H, W)
    mask: Any = None  # (H, W)
    boxes: Any = None  # (n, 4)
    labels: Any = None
    points: Any = None  # (n, POINTS, 2 or 3)
    dense: Any = None  # (n, H, W)
    outlines: Any = None
    area: Any = None

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.images[0].shape[-2:]
        return int(height), int(width)


def corners(rows: Any, form: str, relative: bool, size: tuple[int, int]) -> Any:
    rows = rows.double()
    if relative:
        rows = rows * torch.tensor([size[1], size[0]] * 2, dtype=torch.float64)
    if form == "xyxy":
        return rows
    first = rows[:, :2] - (rows[:, 2:] / 2 if form == "cxcywh" else 0)
    return torch.cat([first, first + rows[:, 2:]], 1)


def found_in(batch: dict[str, Any], form: tuple[str, bool], view: str = "") -> Iterator[Found]:
    """The samples of a batch that is a dict by field; ``form``: of its boxes; ``view``: whose fields."""
    names = _names(batch, view)
    image = names["image"]
    for i in range(len(batch["valid"])):
        if not bool(batch["valid"][i]):
            continue
        found = Found([_cut(batch, image, i)])
        if "right" in names:
            found.images.append(_cut(batch, names["right"], i))
        if "mask" in names:
            found.mask = _cut(batch, names["mask"], i)
        if "boxes" in names:
            found.boxes = corners(batch[names["boxes"]][i], *form, found.size)
        if "outlines" in names:
            value = batch[names["outlines"]][i]
            if isinstance(value, torch.Tensor):
                found.dense = _cut(batch, names["outlines"], i)
            else:
                found.outlines = value
        for name in ("labels", "points", "area"):
            if name in names:
                setattr(found, name, batch[names[name]][i])
        yield found


def _names(batch: dict[str, Any], view: str) -> dict[str, str]:
    if not view:
        return {name: name for name in batch}
    own = {name.removeprefix(f"{view}_"): name for name in batch if name.startswith(f"{view}_")}
    shared = {name: name for name in batch if name in ("labels", "area", "number")}
    return {"image": view, **shared, **own}


def _cut(batch: dict[str, Any], name: str, i: int) -> Any:
    """A picture without what it was padded with."""
    value, sizes = batch[name][i], batch.get(f"{name}_sizes")
    if sizes is None:
        return value
    height, width = sizes[i].tolist()
    return value[..., :height, :width]


# ---- whether it agrees -----------------------------------------------------------------------------


def check(
    found: Found,
    exact: bool = True,
    loose: float = 2.0,
    sees: bool = True,
    zeros: bool = False,
    points: bool = True,
) -> str:
    """What does not lie where the marks are; empty: all does.

    Args:
        found: a sample.
        exact: boxes are as large as the marks; else they are at least around them, as of turned ones.
        loose: how many pixels places may be apart.
        sees: the marks' colours differ from all others in the pictures.
        zeros: boxes without sides are of objects that RandomIoUCrop has given up.
        points: they are where they belong also outside of the picture.
    """
    if not points:
        found = replace(found, points=None)
    mask = None if found.mask is None else found.mask.long()
    count = None if found.labels is None else len(found.labels)
    for name in ("boxes", "points", "dense", "area", "outlines"):
        value = getattr(found, name)
        if value is not None and count is not None and len(value) != count:
            return f"{name} has {len(value)} rows, labels {count}"
    if mask is not None:
        if tuple(mask.shape) != found.size:
            return f"the mask is {tuple(mask.shape)}, the picture {found.size}"
        for number, image in enumerate(found.images):
            wrong = _picture_and_mask(image, mask, loose) if sees else ""
            if wrong:
                return f"picture {number}: {wrong}"
    if found.labels is None:
        return ""
    for i, mark in enumerate(found.labels.tolist()):
        if zeros and found.boxes is not None and bool((found.boxes[i][:2] == found.boxes[i][2:]).all()):
            continue
        wrong = _object(found, mask, i, mark, exact, loose)
        if wrong:
            return f"object {i} (mark {mark}): {wrong}"
    return ""


def _picture_and_mask(image: Any, mask: Any, loose: float) -> str:
    """Whether the mask's numbers are where the marks' colours are."""
    pixels = image.double().reshape(image.shape[0], *mask.shape)
    if image.is_floating_point():  # a fill of 123 has no part in the contrast of colours up to 1
        pixels = pixels.clamp(max=1)
    if pixels.max() <= 0:
        return ""
    grounds, edge = eroded(mask == 0, loose), edge_of(mask, max(int(loose) - 2, 0))
    for mark in COLOURS:
        inside = eroded(_region(mask, mark), loose) & ~edge
        if int(inside.sum()) < 12 or int(grounds.sum()) < 60:
            continue
        own, ground = _middle(pixels, inside), _middle(pixels, grounds)
        contrast = (own - ground).abs().max()
        span = float(pixels.max() - pixels.min())
        if contrast < 0.06 * span:
            return f"mark {mark} looks like the ground, {own.tolist()} and {ground.tolist()}"
        off = (pixels - own[:, None, None]).abs().max(0).values
        share = float((off < contrast / 2)[inside].double().mean())
        if share < 0.8:
            return f"{share:.2f} of mark {mark} have its colour"
        beside = float((off < 0.07 * span)[grounds].double().mean())
        if beside > 0.12:
            return f"{beside:.2f} of the ground have the colour of mark {mark}"
    return ""


def edge_of(mask: Any, width: int) -> Any:
    """Along the picture's border, where what bends a picture mixes in what is outside."""
    found = torch.ones_like(mask, dtype=torch.bool)
    found[width : found.shape[0] - width, width : found.shape[1] - width] = False
    return found


def _middle(pixels: Any, where: Any) -> Any:
    return pixels[:, where].median(1).values


def eroded(where: Any, by: float) -> Any:
    """Without what lies within some pixels of anything else."""
    reach = int(np.ceil(by))
    padded = torch.nn.functional.pad(where[None, None].double(), [reach] * 4, value=1.0)
    return -torch.nn.functional.max_pool2d(-padded, 2 * reach + 1, 1)[0, 0] > 0.5


def _object(found: Found, mask: Any, i: int, mark: int, exact: bool, loose: float) -> str:
    height, width = found.size
    region = None if mask is None else _region(mask, mark)
    if found.dense is not None and region is not None:
        dense = found.dense[i] == 1
        apart = int((eroded(dense, loose) & ~region).sum() + (eroded(region, loose) & ~dense).sum())
        if apart:
            return f"its own mask and the picture's mask are {apart} pixels apart"
    if region is None and found.dense is not None:
        region = found.dense[i] == 1
    if region is None or int(region.sum()) < 16:
        return ""
    seen = _extent(region)
    if found.boxes is not None:
        box = found.boxes[i].tolist()
        clipped = [min(max(box[0], 0), width), min(max(box[1], 0), height)]
        clipped += [min(max(box[2], 0), width), min(max(box[3], 0), height)]
        beyond = [clipped[0] - seen[0], clipped[1] - seen[1], seen[2] - clipped[2], seen[3] - clipped[3]]
        apart = max(map(abs, beyond)) if exact else max(beyond)
        if apart > loose:
            return f"its box is {[round(one, 1) for one in box]}, the mark {seen}"
    if found.points is not None and mask is not None:
        wrong = _point(found.points[i][0][:2].tolist(), mask, mark, loose)
        if wrong:
            return wrong
    if found.outlines is not None and exact:
        return _outline(found.outlines[i], seen, found.boxes[i].tolist(), found.size, loose)
    return ""


def _region(mask: Any, mark: int) -> Any:
    return (mask == mark) | (mask == MIDDLE + mark)


def _point(point: list[float], mask: Any, mark: int, loose: float) -> str:
    """Whether a mark's middle is where the mask has it; where that was cut off, that it is not elsewhere."""
    x, y = point
    middle = mask == MIDDLE + mark
    if int(middle.sum()) >= 9:
        left, top, right, bottom = _extent(middle)
        off = max(left - x, x - right, top - y, y - bottom)
        return f"its middle is at {x:.1f}, {y:.1f}, and seen at {_extent(middle)}" if off > loose + 2 else ""
    column, row = int(x), int(y)
    inside = 0 <= column < mask.shape[1] and 0 <= row < mask.shape[0]
    wrong = inside and int(middle.sum()) == 0 and bool(eroded(mask == mark, loose)[row, column])
    return f"its middle is at {x:.1f}, {y:.1f}, where the mark is, and its middle is cut off" if wrong else ""


def _outline(polygons: Any, seen: list[int], box: list[float], size: tuple[int, int], loose: float) -> str:
    """Whether an outline runs around the mark; it goes on where crops have cut the picture off."""
    xy = np.concatenate([np.asarray(one, float).reshape(-1, 2) for one in polygons])
    low, high = np.clip(xy.min(0), 0, size[::-1]), np.clip(xy.max(0), 0, size[::-1])
    low, high = np.maximum(low, box[:2]), np.minimum(high, box[2:])
    apart = np.abs(np.array([*low, *high]) - np.array(seen, float)).max()
    return f"its outline is {[*low, *high]}, the mark {seen}" if apart > loose else ""


def _extent(region: Any) -> list[int]:
    rows, columns = torch.nonzero(region, as_tuple=True)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


# ---- a chain on a set ------------------------------------------------------------------------------

FORMS = [
    "stack",
    "pad",
    "list",
    "to",
    "one",
    "dense",
    "dense pad",
    "listed",
    "views",
    "workers",
    "mix",
    "rich",
]
PLACED = ["image", "mask", "boxes", "labels", "area", "points"]


@dataclass
class Outcome:
    """What became of a chain.

    Args:
        kind: "right", "wrong", "refused" (before the first batch) or "failed" (behind it).
        words: why.
        batches: what was checked, sample by sample, for a comparison with others.
    """

    kind: str
    words: str = ""
    batches: list[Found] = field(default_factory=list)


def options_of(form: str) -> dict[str, Any]:
    """The DataLoader's arguments of a form of batches."""
    several = [*PLACED[:1], "right", *PLACED[1:]]
    return {
        "stack": {"fields": PLACED},
        "pad": {"fields": PLACED, "collate": "pad"},
        "list": {"fields": PLACED, "collate": "ragged"},
        "to": {"fields": PLACED, "collate": Pad(420, 420)},
        "one": {"fields": PLACED, "batch_size": None},
        "dense": {"fields": Fields([*PLACED, "outlines"], masks="dense"), "collate": "ragged"},
        "dense pad": {"fields": Fields([*PLACED, "outlines"], masks="dense"), "collate": "pad"},
        "listed": {"collate": fastload.Detection("list", image="image"), "fields": Fields(masks="dense")},
        "views": {"fields": PLACED, "collate": "ragged"},
        "workers": {"fields": PLACED, "collate": "ragged", "num_workers": 2},
        "mix": {"fields": PLACED, "collate": "ragged"},
        "rich": {"fields": [*several, "outlines"], "collate": "ragged"},
    }[form]


def tried(
    world: World,
    form: tuple[str, bool],
    batch_form: str,
    chain: Any,
    becomes: str | None = None,
    seed: int = 0,
    **how: Any,
) -> Outcome:
    """What becomes of a chain on a set.

    Args:
        world, form: the set.
        batch_form: one of FORMS.
        chain: the transform; for "views" of both views.
        becomes: the format that the chain converts boxes to, if any.
        how: see :func:`check`.
    """
    options = {"batch_size": COUNT, "num_workers": 0, "seed": seed, **options_of(batch_form)}
    dataset: Any = world.dataset(form)
    if batch_form == "mix":
        dataset = fastload.mix([world.rich[form], world.rich[form]], [0.5, 0.5])
    transform = fastload.transforms.Views(a=chain, b=chain) if batch_form == "views" else chain
    try:
        loader = fastload.DataLoader(dataset, transform=transform, **options)
    except (ValueError, TypeError, ImportError) as error:
        if "cannot be stacked" in str(error):
            return tried(world, form, "list", chain, becomes, seed, **how)
        return Outcome("refused", str(error))
    as_stored = (becomes or form[0], form[1])
    batches: list[Found] = []
    with loader:
        try:
            for number, batch in enumerate(loader):
                if number * (options["batch_size"] or 1) >= COUNT:
                    break
                batches += list(_samples(batch, batch_form, as_stored))
        except Exception as error:
            if "cannot be stacked" in str(error) or "after the transforms, others are" in str(error):
                return tried(world, form, "list", chain, becomes, seed, **how)
            cause = error.__cause__
            return Outcome("failed", f"{type(error).__name__}: {error} <- {type(cause).__name__}: {cause}")
    for found in batches:
        wrong = check(found, **how)
        if wrong:
            return Outcome("wrong", wrong, batches)
    return Outcome("right", batches=batches)


def _samples(batch: Any, batch_form: str, form: tuple[str, bool]) -> Iterator[Found]:
    if batch_form == "listed":
        for image, target in zip(*batch, strict=True):
            marks = {"boxes": target["boxes"].double(), "labels": target["labels"], "dense": target["masks"]}
            yield Found([image], **marks, points=target.get("keypoints"))
    elif batch_form == "one":
        single = {name: [value] for name, value in batch.items()}
        yield from found_in(single, form)
    elif batch_form == "views":
        for view in ("a", "b"):
            yield from found_in(batch, form, view)
    else:
        yield from found_in(batch, form)
