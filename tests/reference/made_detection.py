"""Made sets of objects, of which the truth is known exactly: shapes pasted on photographs, in COCO's format.

    made_set(folder, 20)      ->  folder/images/*.jpg, annotations/instances.json, annotations/captions.json,
                                  masks/*.png (classes, 0 is background), panoptic/*.png and its JSON
    write_yolo(folder)        ->  folder/labels/*.txt and data.yaml of the same objects, in YOLO's format
    python made_detection.py FOLDER --images 500 --photos PHOTOGRAPHS

What is painted is what pycocotools draws of the annotation itself, so masks, boxes and areas are right by
construction. Objects do not overlap (their boxes keep apart), so that every pixel has one owner.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as coco_mask

__all__ = ["CATEGORY_IDS", "CLASSES", "KEYPOINTS", "MadeSet", "made_set", "write_yolo"]

# The category ids have gaps and are not in the order of the classes' colours, as COCO's 80 under 91 numbers.
CLASSES = ("ellipse", "star", "triangle", "cross", "frame", "twins")
CATEGORY_IDS = (1, 2, 4, 7, 13, 90)
COLOURS = ((220, 40, 40), (240, 200, 30), (40, 180, 60), (40, 90, 220), (200, 50, 200), (30, 200, 210))
KEYPOINTS = ("centre", "left_hand", "right_hand", "left_foot", "right_foot")
SKELETON = ((1, 2), (1, 3), (1, 4), (1, 5))
_PLACES = np.array([(0, 0), (-0.6, -0.2), (0.6, -0.2), (-0.4, 0.6), (0.4, 0.6)])  # in half sides
TRIES = 20  # to find room for an object
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Points = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]


@dataclass
class MadeSet:
    """Where a made set lies, and its truth as COCO's JSON has it."""

    folder: Path
    instances: dict[str, Any]
    captions: dict[str, Any]
    names: list[str] = field(default_factory=list)  # of the pictures, by position

    @property
    def images(self) -> Path:
        """The folder of the pictures."""
        return self.folder / "images"

    @property
    def json(self) -> Path:
        """The JSON of the objects."""
        return self.folder / "annotations" / "instances.json"

    def objects_of(self, position: int) -> list[dict[str, Any]]:
        """The annotations of one picture, in the JSON's order."""
        number = self.instances["images"][position]["id"]
        return [one for one in self.instances["annotations"] if one["image_id"] == number]


# ---- pictures and shapes --------------------------------------------------------------------------


def background(random: np.random.Generator, width: int, height: int) -> Pixels:
    """(height, width, 3): smooth colours with grain, which a codec has to work for as for a photograph."""
    greys = random.integers(60, 196, (7, 9, 1)) + random.integers(-30, 31, (7, 9, 3))
    coarse = Image.fromarray(greys.astype(np.uint8))
    fine = Image.fromarray(random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8))
    layers = [
        np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC), np.int16)
        for layer in (coarse, fine)
    ]
    grain = random.integers(-6, 7, (height, width, 1), dtype=np.int16)
    return (layers[0] + (layers[1] - 128) // 6 + grain).clip(0, 255).astype(np.uint8)


def _photograph(path: Path, size: tuple[int, int] | None) -> Pixels:
    with Image.open(path) as image:
        picture = image.convert("RGB")
        return np.array(picture if size is None else picture.resize(size, Image.Resampling.BICUBIC))


def outlines(shape: str, random: np.random.Generator) -> list[Points]:
    """The polygons of a class, around 0, within -1 to 1; of a frame the outer one and the hole."""
    turn = random.uniform(0, 2 * np.pi)
    if shape == "ellipse":
        return [_round(24, lambda at: 1.0, turn) * (1, random.uniform(0.55, 0.95))]
    if shape == "star":
        return [_round(10, lambda at: 1.0 if at % 2 else 0.42, turn)]
    if shape == "triangle":
        return [_round(3, lambda at: 1.0, turn)]
    if shape == "cross":
        arm = np.array([(-1, -0.3), (-0.3, -0.3), (-0.3, -1)])
        return [
            np.concatenate([arm @ np.array([(c, s), (-s, c)]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))])
        ]
    square = np.array([(-1.0, -1), (1, -1), (1, 1), (-1, 1)]) * (1, random.uniform(0.6, 1))
    if shape == "frame":
        return [square, square * 0.5]
    halves = square * (0.4, 1)  # twins: two parts with a gap
    aside = np.array([0.6, 0.0])
    return [halves - aside, halves + aside]


def _round(corners: int, radius: Any, turn: float) -> Points:
    angles = turn + 2 * np.pi * np.arange(corners) / corners
    far = np.array([radius(at) for at in range(corners)])
    return np.stack([far * np.cos(angles), far * np.sin(angles)], axis=1)


def _runs(polygons: Sequence[Points], height: int, width: int) -> Any:
    flat = [polygon.ravel().tolist() for polygon in polygons]
    return coco_mask.merge(coco_mask.frPyObjects(flat, height, width))


def _uncompressed(mask: Pixels) -> dict[str, Any]:
    """COCO's uncompressed RLE of a mask: runs by columns, the first of zeros."""
    flat = np.concatenate([[0], mask.ravel(order="F"), [1 - mask[-1, -1]]])
    ends = np.flatnonzero(np.diff(flat))
    return {"size": list(mask.shape), "counts": np.diff(ends, prepend=0).tolist()}


# ---- one picture ----------------------------------------------------------------------------------


@dataclass
class _Kinds:
    """What annotations have, and how large and how many the objects are."""

    keypoints: bool
    most: int
    share: tuple[float, float]  # half sides, of the picture's shorter one
    crowds: float


def _object(shape: str, kinds: _Kinds, random: np.random.Generator, pixels: Pixels, taken: list[Any]) -> Any:
    """One object's annotation, painted; None where no room was found."""
    height, width = pixels.shape[:2]
    label = CLASSES.index(shape)
    for _ in range(TRIES):
        half = random.uniform(*kinds.share) * min(width, height)
        centre = random.uniform((half + 1, half + 1), (width - half - 1, height - half - 1))
        found = [np.round(one * half + centre, 2) for one in outlines(shape, random)]
        room = (*(centre - half - 2), *(centre + half + 2))
        if not any(_meet(room, other) for other in taken):
            break
    else:
        return None
    taken.append(room)
    mask = coco_mask.decode(_runs(found[:1] if shape == "frame" else found, height, width))
    if shape == "frame":
        mask = mask & ~coco_mask.decode(_runs(found[1:], height, width)) & 1
    _paint(pixels, mask, COLOURS[label], random)
    runs = coco_mask.encode(np.asfortranarray(mask))
    annotation = {
        "segmentation": _uncompressed(mask) if shape == "frame" else [one.ravel().tolist() for one in found],
        "area": float(coco_mask.area(runs)),
        "iscrowd": int(shape == "frame" and random.random() < kinds.crowds),
        "bbox": [float(number) for number in coco_mask.toBbox(runs)],
        "category_id": CATEGORY_IDS[label],
    }
    if kinds.keypoints:
        annotation |= _keypoints(centre, half, random)
    return annotation, mask


def _meet(one: Any, other: Any) -> bool:
    return bool(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])


def _paint(pixels: Pixels, mask: Pixels, colour: Sequence[int], random: np.random.Generator) -> None:
    rows, columns = np.nonzero(mask)
    grain = random.integers(-12, 13, (len(rows), 1))
    shade = np.array(colour) + random.integers(-20, 21, 3)
    pixels[rows, columns] = (shade + grain).clip(0, 255)


def _keypoints(centre: Points, half: float, random: np.random.Generator) -> dict[str, Any]:
    """COCO's three numbers a point: whole ones, 0 0 0 where a point is not labelled."""
    seen = random.choice([0, 1, 2], len(KEYPOINTS), p=[0.1, 0.2, 0.7])
    places = np.round(centre + half * _PLACES).astype(int)
    flat = [int(n) for (x, y), v in zip(places, seen, strict=True) for n in ((x, y, v) if v else (0, 0, 0))]
    return {"keypoints": flat, "num_keypoints": int((seen > 0).sum())}


def _told(labels: Sequence[int], width: int, height: int) -> list[str]:
    """Five captions of the objects of a picture."""
    counts = [(name, labels.count(at)) for at, name in enumerate(CLASSES) if at in labels]
    what = " and ".join(f"{WORDS[min(count, 9)]} {name}" for name, count in counts) or "nothing"
    return [
        f"A picture with {what}.",
        f"There is {what} here \u2013 {len(labels)} in all.",
        f"{what.capitalize()} on a photograph.",
        f"{width} by {height} pixels, showing {what}.",
        f"Someone has pasted {what} on it.",
    ]


# ---- the set --------------------------------------------------------------------------------------


def made_set(
    folder: Path,
    images: int,
    seed: int = 0,
    *,
    photos: Path | None = None,
    size: tuple[int, int] | None = None,
    large: bool = False,
    most: int = 7,
    share: tuple[float, float] = (0.06, 0.2),
    keypoints: bool = True,
    crowds: float = 0.1,
    empty: float = 0.1,
    quality: int = 90,
) -> MadeSet:
    """Make a set in ``folder``: pictures, COCO's JSONs, class masks and panoptic PNGs.

    Args:
        images: how many pictures.
        photos: a folder of JPEGs to paste on; else backgrounds are drawn.
        size: width and height; default that of the photographs, else about 160x120, each one different.
        large: pictures of 12 megapixels (4000x3000).
        most: objects a picture, at least one but in ``empty`` of the pictures.
        share: the least and the greatest half side of an object, in shorter sides of the picture.
        crowds: the share of the frames (whose segmentation is RLE) that are marked iscrowd.

    Returns:
        Where it is, and its truth.
    """
    random = np.random.default_rng(seed)
    kinds = _Kinds(keypoints, most, share, crowds)
    for name in ("images", "annotations", "masks", "panoptic"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    found = sorted(photos.rglob("*.[jJ][pP]*[gG]")) if photos is not None else []
    made = MadeSet(
        folder, _head(keypoints), {"info": {"description": "made"}, "images": [], "annotations": []}
    )
    panoptic: dict[str, Any] = {"images": made.instances["images"], "annotations": []}
    for number in range(images):
        if found:
            pixels = _photograph(found[number % len(found)], (4000, 3000) if large else size)
        else:
            drawn = (140 + 13 * number % 40, 110 + 7 * number % 30)
            pixels = background(random, *((4000, 3000) if large else size or drawn))
        _one(made, panoptic, number, pixels, kinds, 0 if random.random() < empty else 1, random)
        Image.fromarray(pixels).save(folder / "images" / made.names[-1], quality=quality, subsampling="4:2:0")
    panoptic["categories"] = [one | {"isthing": 1} for one in made.instances["categories"]]
    written = {"instances": made.instances, "captions": made.captions, "panoptic": panoptic}
    for name, content in written.items():
        (folder / "annotations" / f"{name}.json").write_text(json.dumps(content))
    return made


def _head(keypoints: bool) -> dict[str, Any]:
    points = {"keypoints": list(KEYPOINTS), "skeleton": [list(one) for one in SKELETON]} if keypoints else {}
    categories = [
        {"supercategory": "shape", "id": number, "name": name, **points}
        for number, name in zip(CATEGORY_IDS, CLASSES, strict=True)
    ]
    info = {"description": "shapes on photographs", "version": "1.0", "year": 2026}
    licences = [{"id": 1, "name": "made"}]
    return {"info": info, "licenses": licences, "images": [], "annotations": [], "categories": categories}


def _one(
    made: MadeSet, panoptic: dict[str, Any], number: int, pixels: Pixels, kinds: _Kinds, least: int,
    random: np.random.Generator,
) -> None:  # fmt: skip
    height, width = pixels.shape[:2]
    name = f"{number:06d}.jpg"
    made.names.append(name)
    image = {"id": 3 * number + 5, "file_name": name, "width": width, "height": height, "license": 1}
    made.instances["images"].append(image)
    made.captions["images"].append(image)
    classes = np.zeros((height, width), np.uint8)
    segments: list[dict[str, Any]] = []
    ids = np.zeros((height, width, 3), np.uint8)
    taken: list[Any] = []
    labels = []
    for _ in range(random.integers(1, kinds.most + 1) if least else 0):
        label = int(random.integers(len(CLASSES)))
        given = _object(CLASSES[label], kinds, random, pixels, taken)
        if given is None:
            continue
        annotation, mask = given
        labels.append(label)
        numbers = {"id": len(made.instances["annotations"]) + 1, "image_id": image["id"]}
        made.instances["annotations"].append(annotation | numbers)
        classes[mask != 0] = label + 1
        segments.append({key: annotation[key] for key in ("area", "iscrowd", "bbox", "category_id")})
        segments[-1]["id"] = len(segments) + 256 * (number % 250)
        ids[mask != 0] = (len(segments), number % 250, 0)
    for text in _told(labels, width, height):
        one = {"id": len(made.captions["annotations"]) + 1, "image_id": image["id"], "caption": text}
        made.captions["annotations"].append(one)
    png = f"{number:06d}.png"
    Image.fromarray(classes).save(made.folder / "masks" / png)
    Image.fromarray(ids).save(made.folder / "panoptic" / png)
    panoptic["annotations"].append({"image_id": image["id"], "file_name": png, "segments_info": segments})


def write_yolo(made: MadeSet) -> Path:
    """The same objects in YOLO's format: labels/*.txt (class, centre, size, of the picture) and data.yaml."""
    labels = made.folder / "labels"
    labels.mkdir(exist_ok=True)
    for position, image in enumerate(made.instances["images"]):
        lines = []
        for one in made.objects_of(position):
            x, y, w, h = one["bbox"]
            numbers = np.array([x + w / 2, y + h / 2, w, h]) / ([image["width"], image["height"]] * 2)
            lines.append(f"{CATEGORY_IDS.index(one['category_id'])} " + " ".join(f"{n:.6f}" for n in numbers))
        (labels / f"{Path(image['file_name']).stem}.txt").write_text("".join(f"{line}\n" for line in lines))
    names = "".join(f"  {at}: {name}\n" for at, name in enumerate(CLASSES))
    path = made.folder / "data.yaml"
    path.write_text(f"path: {made.folder.resolve()}\ntrain: images\nval: images\nnames:\n{names}")
    return path


def main() -> None:
    """Make one from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--photos", type=Path, help="JPEGs to paste on; else backgrounds are drawn")
    parser.add_argument("--large", action="store_true", help="12 megapixels")
    options = parser.parse_args()
    made = made_set(options.folder, options.images, photos=options.photos, large=options.large)
    write_yolo(made)


if __name__ == "__main__":
    main()
