"""YOLO: its data.yaml and labels, sets of it as sources, and its files again from a packed set."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastload.errors import PackError
from fastload.extras import need
from fastload.machine.paths import exists, is_dir, is_file
from fastload.packing.annotations.annotated_files import (
    FileSamples,
    Paths,
    facts_of,
    pictures_below,
    read_text,
)
from fastload.packing.annotations.unpacked_files import (
    Unpacked,
    picture_field,
    samples_of,
    source_of,
    write_new,
)
from fastload.packing.files import printable, raise_if_transient, unreadable, walk
from fastload.packing.folders import split_folders
from fastload.packing.pictures import read_picture
from fastload.packing.rows import PartialSample, Sample
from fastload.packing.tables import table_path
from fastload.sample.fields import Boxes, Image, Keypoints, Labels, Polygons
from fastload.sample.schema import Field, Schema
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import MAX_NUMBERED
from fastload.shard.suffixes import is_image

# ---- Ultralytics' ``data.yaml`` ---------------------------------------------------------------------

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class DataYaml:
    """The contents of a ``data.yaml``: where pictures are, and what the numbers in label files mean."""

    splits: Mapping[str, tuple[Path, ...]]  # folders, and files that list pictures
    names: tuple[str, ...]
    root: Path
    points: tuple[int, int] | None  # per object: the number of points, and of numbers per point
    pairs: tuple[tuple[int, int], ...]  # points that change places in a mirror


def read_data_yaml(path: Path) -> DataYaml:
    """Read a ``data.yaml``.

    Raises:
        LibraryMissing: PyYAML is missing.
        PackError: it cannot be read, or lacks a required value, which the message names.
    """
    need("yaml", f"YOLO's {path.name}")
    try:
        body = _parsed(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise PackError(f"{path} cannot be read: {error}.") from None
    if not isinstance(body, Mapping):
        raise PackError(f"{path} has no keys; a data.yaml has train, val and names.")
    try:
        points = _keypoints_shape(body)
        pairs = _pairs(body, points[0] if points else 0)
        return DataYaml(_splits(path, body), _names(body), _root(path, body), points, pairs)
    except ValueError as error:
        raise PackError(f"{path}: {error}") from None


def _parsed(text: str) -> Any:
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError(
                "it has aliases (*name), of which a few lines may make more than there is memory"
            )
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (LookupError, AttributeError) as error:  # PyYAML raises these for "!!int ''" and the like
        raise ValueError(f"a value is not what its tag says ({error})") from None


def _root(path: Path, body: Mapping[str, Any]) -> Path:
    folder = body.get("path") or "."
    if not isinstance(folder, str):
        raise ValueError(f"'path' must be a folder. Found: {folder!r:.200}.")
    return (path.parent / folder).absolute()


def _splits(path: Path, body: Mapping[str, Any]) -> dict[str, tuple[Path, ...]]:
    root = _root(path, body)
    if "val" not in body and "validation" in body:
        body = {**body, "val": body["validation"]}
    splits = {}
    for split in _SPLITS:
        places = body.get(split) or []
        places = [places] if isinstance(places, str) else places
        if not isinstance(places, Sequence) or not all(isinstance(place, str) for place in places):
            raise ValueError(f"{split!r} must be a folder or a list of them. Found: {places!r:.200}.")
        if places:
            splits[split] = tuple(_existing(root, place, split) for place in places)
    if not splits:
        raise ValueError("it has none of 'train', 'val' and 'test'.")
    return splits


def _existing(root: Path, place: str, split: str) -> Path:
    path = root / place
    if not exists(path) and place.startswith("../"):
        path = root / place.removeprefix("../")  # written by some exporters, and read so by Ultralytics
    if not exists(path):
        raise ValueError(
            f"{split!r} is {place!r}, and {path} does not exist. 'path' counts from the folder of the file "
            "itself here."
        )
    return path


def _names(body: Mapping[str, Any]) -> tuple[str, ...]:
    names, count = body.get("names"), body.get("nc")
    if isinstance(names, Mapping):
        if sorted(map(str, names)) != sorted(map(str, range(len(names)))):
            raise ValueError(
                f"'names' must be numbered from 0 to {len(names) - 1}. Found: {list(names)!r:.80}."
            )
        numbered = {int(number): name for number, name in names.items()}
        names = [numbered[number] for number in range(len(names))]
    if names is None and isinstance(count, int) and count > 0:
        if count > MAX_NUMBERED:
            raise ValueError(f"'nc' must be at most {MAX_NUMBERED}. Found: {count!r:.80}.")
        return tuple(f"class_{number}" for number in range(count))
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise ValueError(f"'names' must be the classes' names. Found: {names!r:.200}.")
    if count is not None and count != len(names):
        raise ValueError(f"'nc' is {count!r}, and there are {len(names)} names.")
    return tuple(map(str, names))


def _keypoints_shape(body: Mapping[str, Any]) -> tuple[int, int] | None:
    shape = body.get("kpt_shape")
    if shape is None:
        return None
    whole = isinstance(shape, Sequence) and all(type(number) is int for number in shape)
    if not whole or len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3):
        raise ValueError(f"'kpt_shape' must be how many points, and 2 or 3. Found: {shape!r:.200}.")
    return shape[0], shape[1]


def _pairs(body: Mapping[str, Any], points: int) -> tuple[tuple[int, int], ...]:
    mirror = body.get("flip_idx")
    if mirror is None or not points:
        return ()
    if not isinstance(mirror, Sequence) or sorted(map(repr, mirror)) != sorted(map(repr, range(points))):
        raise ValueError(
            f"'flip_idx' must have each point from 0 to {points - 1} once. Found: {mirror!r:.200}."
        )
    if any(mirror[other] != point for point, other in enumerate(mirror)):
        raise ValueError(f"'flip_idx' must change points in pairs. Found: {mirror!r:.200}.")
    return tuple((point, other) for point, other in enumerate(mirror) if point < other)


# ---- Pictures with a text file each, as Ultralytics reads them --------------------------------------

#: The usual names of a data.yaml.
YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml")
_NAMES = ("labels/classes.txt", "classes.txt")  # LabelImg's
_MOST, _LEAST = 1.01, -0.01  # of coordinates: Ultralytics' tolerance
_KEY = re.compile(r"^(\w+)\s*:", re.MULTILINE)
_BOX, _OUTLINE = 5, 7  # columns of a box, and of the smallest outline


@dataclass(frozen=True)
class LabelRules:
    """The rules for the label files of a set.

    Args:
        classes: the number of classes; None: unknown.
        points: the number of points of an object, and of numbers per point; None: it has none.
    """

    classes: int | None
    points: tuple[int, int] | None = None

    @property
    def columns(self) -> str:
        """The number of columns that a line may have, in words."""
        if self.points is not None:
            return f"{_BOX + self.points[0] * self.points[1]} (class, cx cy w h, points)"
        return f"{_BOX} (class, cx cy w h), or class and x y of at least 3 points"


class YoloObject(NamedTuple):
    """One line of a label file; coordinates are parts of the picture's sides."""

    label: int
    box: tuple[float, float, float, float]  # cx, cy, w, h
    outline: list[float]  # x, y, x, y ...; []: it has none
    points: list[float]


@dataclass(frozen=True)
class _Set:
    """The pictures of one split."""

    root: bytes
    pictures: Paths
    alone: Sequence[bytes]  # label files without a picture
    folders: tuple[str, ...]  # of the pictures; (): lists name them


def yolo_sets(place: Path, limit: int | None = None, exif: str = "refuse") -> list[tuple[str, YoloSamples]]:
    """Return split ("": the only one) and samples of each.

    Args:
        place: a ``data.yaml``, or a folder with ``images`` and ``labels``.

    Raises:
        PackError: there are no pictures, or a ``data.yaml`` lacks a required value.
    """
    data_yaml = read_data_yaml(place) if is_file(place) else None
    sets = _said_sets(data_yaml) if data_yaml is not None else _found_sets(place)
    names = data_yaml.names if data_yaml is not None else _names_beside(place)
    rules = LabelRules(len(names) or None, data_yaml.points if data_yaml is not None else None)
    outlines = rules.points is None and any(_has_outlines(files) for files in sets.values())
    fields = [Field("boxes", Boxes("cxcywh", relative=True))]
    fields.append(Field("labels", Labels(names), of="boxes"))
    if outlines:
        fields.append(Field("masks", Polygons("mixed"), of="boxes"))
    if data_yaml is not None and data_yaml.points is not None:
        kind = Keypoints(data_yaml.points[0], data_yaml.points[1] == 3, data_yaml.pairs)
        fields.append(Field("keypoints", kind, of="boxes"))
    results: list[tuple[str, YoloSamples]] = []
    for split, files in sets.items():
        source = {"layout": "yolo", "split": split, "folders": list(files.folders)}
        schema = Schema((Field("image", Image(), source=source), *fields))
        results.append((split if len(sets) > 1 else "", YoloSamples(files, schema, rules, limit, exif)))
    return results


class YoloSamples(FileSamples):
    """Pictures with their label files; a picture without one has no objects."""

    def __init__(self, one: _Set, schema: Schema, rules: LabelRules, limit: int | None, exif: str) -> None:
        total = len(one.pictures) + len(one.alone)
        count = total if limit is None else min(total, limit)
        super().__init__(one.root, schema, count, {"yolo": exif})
        self._pictures, self._alone, self._rules, self._exif = one.pictures, one.alone, rules, exif

    def sample(self, position: int) -> Sample | PartialSample:
        if position >= len(self._pictures):
            alone = self._alone[position - len(self._pictures)]
            raise ValueError(f"{printable(alone)}: there is no picture of this name")
        picture = self._pictures[position]
        path = label_path(picture)
        objects, wrong = self._objects(path)
        data = read_picture(os.path.join(self.root, picture))
        width, height = facts_of(data, self._exif)
        sample: dict[str, Any] = {
            "image": {"bytes": data, "path": os.fsdecode(picture)},
            "boxes": [entry.box for entry in objects],
            "labels": [entry.label for entry in objects],
            "masks": [_outlines(entry.outline, width, height) for entry in objects],
        }
        if self._rules.points is not None:
            shape = self._rules.points
            sample["keypoints"] = [_placed(entry.points, shape, width, height) for entry in objects]
        left_out = [(f"line {line} of {printable(path)}", reason) for line, reason in wrong]
        return PartialSample(sample, left_out) if left_out else sample

    def sources(self, position: int) -> Iterator[bytes]:
        if position >= len(self._pictures):
            yield self._alone[position - len(self._pictures)]
            return
        picture = self._pictures[position]
        yield picture
        yield label_path(picture)

    def picture(self, position: int) -> bytes:
        return self._pictures[position] if position < len(self._pictures) else b""

    def _objects(self, path: bytes) -> tuple[list[YoloObject], list[tuple[int, str]]]:
        try:
            text = read_text(os.path.join(self.root, path))
        except FileNotFoundError:
            return [], []
        return parse_labels(text, self._rules)


def parse_labels(text: str, rules: LabelRules) -> tuple[list[YoloObject], list[tuple[int, str]]]:
    """Return the objects of a label file, and the lines that are invalid, with reasons."""
    objects: list[YoloObject] = []
    wrong: list[tuple[int, str]] = []
    seen: dict[tuple[float, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            numbers = [float(word) for word in words]
            earlier = seen.setdefault(tuple(numbers), number)
            if earlier != number:
                raise ValueError(f"it is the same as line {earlier}")
            objects.append(_object(numbers, rules))
        except (ValueError, OverflowError) as error:
            wrong.append((number, str(error)))
    return objects, wrong


def _object(numbers: list[float], rules: LabelRules) -> YoloObject:
    count = len(numbers)
    if rules.points is not None:
        legal = count == _BOX + rules.points[0] * rules.points[1]
    else:
        legal = count == _BOX or (count >= _OUTLINE and count % 2 == 1)
    if not legal:
        raise ValueError(f"it has {count} columns; must be {rules.columns}")
    if not all(map(math.isfinite, numbers)):
        raise ValueError("it has numbers that are not finite")
    label = int(numbers[0])
    if label != numbers[0] or label < 0 or (rules.classes is not None and label >= rules.classes):
        legal_words = "0 or more" if rules.classes is None else f"an integer from 0 to {rules.classes - 1}"
        raise ValueError(f"the class must be {legal_words}. Found: {numbers[0]:g}")
    rest = numbers[1:]
    _check_range(rest[:4] if rules.points is not None else rest)
    if rules.points is None and count >= _OUTLINE:
        return YoloObject(label, _with_area(_around(rest)), rest, [])
    points = rest[4:]
    if rules.points is not None:
        _check_range([points[at + i] for at in range(0, len(points), rules.points[1]) for i in (0, 1)])
    return YoloObject(label, _with_area((rest[0], rest[1], rest[2], rest[3])), [], points)


def _check_range(numbers: Sequence[float]) -> None:
    wrong = next((number for number in numbers if not _LEAST <= number <= _MOST), None)
    if wrong is not None:
        raise ValueError(f"coordinates are parts of the picture, 0 to 1. Found: {wrong:g}")


def _with_area(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    if box[2] <= 0 or box[3] <= 0:
        raise ValueError(f"its box has no area: {box[2]:g} x {box[3]:g}")
    return box


def _around(outline: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box around an outline's points."""
    xs, ys = outline[::2], outline[1::2]
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def _outlines(outline: Sequence[float], width: int, height: int) -> list[list[float]]:
    """Return an object's polygons in pixels: one, or none if only its box is known."""
    if not outline:
        return []
    return [[number * (height if at % 2 else width) for at, number in enumerate(outline)]]


def _placed(points: Sequence[float], shape: tuple[int, int], width: int, height: int) -> list[list[float]]:
    """Return an object's points in pixels, with any further numbers of each."""
    size = shape[1]
    return [
        [points[at] * width, points[at + 1] * height, *points[at + 2 : at + size]]
        for at in range(0, len(points), size)
    ]


def is_data_yaml(path: Path) -> bool:
    """Whether a file says where pictures are and what classes they have."""
    if path.suffix not in (".yaml", ".yml") or not is_file(path):
        return False
    try:
        keys = set(_KEY.findall(read_text(path)))
    except OSError as error:  # without the file the classes would have no names
        raise unreadable(path, error) from error
    except ValueError:
        return False
    return bool(keys & {"train", "val", "test"}) and bool(keys & {"names", "nc"})


def has_labels(place: Path) -> bool:
    """Whether a folder has ``images``, and label files in ``labels``."""
    if not is_dir(place / "images"):
        return False
    below = walk(str(place / "labels"))
    return any(name.endswith(".txt") and name != "classes.txt" for _, _, names in below for name in names)


def label_path(picture: bytes) -> bytes:
    """Return where a picture's labels are: the last folder ``images`` is ``labels``, the suffix ``.txt``."""
    stem = os.path.splitext(picture)[0]
    parts = stem.split(b"/")
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == b"images":
            parts[at] = b"labels"
            break
    return b"/".join(parts) + b".txt"


def _said_sets(said: DataYaml) -> dict[str, _Set]:
    return {split: _set(os.fsencode(said.root), places) for split, places in said.splits.items()}


def _found_sets(place: Path) -> dict[str, _Set]:
    images = place / "images"
    names = split_folders(os.fsencode(images)) or [""]
    return {name: _set(os.fsencode(place), (images / name,)) for name in names}


def _set(root: bytes, places: Sequence[Path]) -> _Set:
    """Return the pictures of folders and of lists, with the label files that have no picture."""
    paths: list[bytes] = []
    alone: list[bytes] = []
    folders: list[str] = []
    for place in places:
        if is_dir(place):
            folder = os.path.relpath(os.fsencode(place), root)
            below = table_path(root, os.fsdecode(folder))
            pictures = list(pictures_below(root, b"" if below == b"." else below))
            paths += pictures
            folders.append(os.fsdecode(below))
            alone += _without_pictures(root, below, {label_path(path) for path in pictures})
        else:
            paths += _listed(root, place)
    if not paths:
        raise PackError(f"{', '.join(map(str, places))}: there are no images.")
    all_folders = tuple(folders) if len(folders) == len(places) else ()
    return _Set(root, Paths(dict.fromkeys(paths)), alone, all_folders)


def _listed(root: bytes, place: Path) -> list[bytes]:
    try:
        lines = [line.strip() for line in read_text(place).splitlines()]
    except (OSError, ValueError) as error:
        raise PackError(f"{place} cannot be read: {error}.") from None
    paths = []
    for line in lines:
        if line:
            path = place.parent / line if line.startswith("./") else Path(os.fsdecode(root), line)
            paths.append(table_path(root, str(path)))
    wrong = next((path for path in paths if not is_image(path)), None)
    if wrong is not None:
        raise PackError(f"{place} must list images, one per line. Found: {printable(wrong)!r:.80}.")
    return paths


def _without_pictures(root: bytes, below: bytes, known: set[bytes]) -> list[bytes]:
    """Return label files without a picture, if they lie in another folder than the pictures."""
    folder = os.path.dirname(label_path(os.path.join(below, b"x")))
    if folder == below:
        return []
    paths = []
    for path, folders, names in walk(os.path.join(root, folder)):
        folders.sort()
        inside = os.path.relpath(path, root)
        paths += [os.path.join(inside, name) for name in sorted(names) if name.endswith(b".txt")]
    return [path for path in paths if path not in known and os.path.basename(path) != b"classes.txt"]


def _names_beside(place: Path) -> tuple[str, ...]:
    for name in _NAMES:
        if exists(place / name):
            try:
                lines = read_text(place / name).splitlines()
            except (OSError, ValueError) as error:
                raise PackError(f"{place / name} cannot be read: {error}.") from None
            return tuple(line.strip() for line in lines if line.strip())
    return ()


def _has_outlines(one: _Set) -> bool:
    """Whether any object of a set has more than a box."""
    for number in range(len(one.pictures)):
        try:
            text = read_text(path := os.path.join(one.root, label_path(one.pictures[number])))
        except (OSError, ValueError) as error:
            raise_if_transient(path, error)
            continue
        if any(len(line.split()) >= _OUTLINE for line in text.splitlines()):
            return True
    return False


# ---- YOLO's sets as pictures, label files and a ``data.yaml`` ---------------------------------------

_DIGITS = 17  # of a double


def unpack_yolo(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, labels and ``data.yaml`` below ``folder``.

    Numbers are the shortest that packing turns into the same values: those that were packed, if they had no
    more digits than a float32 (boxes, points) or a double (outlines) keeps.

    Raises:
        PackError: the set was not packed from YOLO's files, or does not have all that they said.
        FormatError: keys are not safe paths.
        ChecksumError: records are damaged.
    """
    source = source_of(dataset, "yolo", ("boxes", "labels"))
    root = os.fsencode(folder)
    paths: list[bytes] = []
    for sample in samples_of(dataset):
        write_new(root, sample.path, sample.data(picture_field(dataset)))
        text = "".join(line + "\n" for line in _lines(sample, dataset.schema))
        write_new(root, label_path(sample.path), text.encode())
        paths.append(sample.path)
    split = source["split"] or "train"
    places = list(source["folders"])
    if not places:
        places = [f"{split}.txt"]
        write_new(root, places[0].encode(), b"".join(b"./" + path + b"\n" for path in paths))
    write_new(root, b"data.yaml", _yaml(dataset.schema, split, places).encode())


def _lines(sample: Unpacked, schema: Schema) -> Iterator[str]:
    labels = sample.value("labels").tolist()
    masks = sample.value("masks") if "masks" in schema else [[] for _ in labels]
    points = sample.value("keypoints") if "keypoints" in schema else [[] for _ in labels]
    for label, box, polygons, places in zip(labels, sample.value("boxes"), masks, points, strict=True):
        if polygons:
            numbers = _outline(polygons[0].reshape(-1).tolist(), sample.size)
        else:
            numbers = [*(_short(number) for number in box), *_points(places, sample.size)]
        yield " ".join([str(label), *numbers])


def _short(number: Any) -> str:
    """Return the shortest text of a float32."""
    return str(np.float32(number)).removesuffix(".0")


def _outline(numbers: list[float], size: tuple[int, int]) -> list[str]:
    return [part_of(number, size[at % 2], lambda product: product) for at, number in enumerate(numbers)]


def _points(points: Any, size: tuple[int, int]) -> Iterator[str]:
    for point in points:
        for at, number in enumerate(point):
            yield part_of(number, size[at], np.float32) if at < 2 else _short(number)


def part_of(number: Any, side: int, stored: Callable[[float], Any]) -> str:
    """Return the shortest text of the part of a side that was stored as this many pixels."""
    part = float(number) / side
    for digits in range(1, _DIGITS):
        text = f"{part:.{digits}g}"
        if stored(float(text) * side) == number:
            return text
    return f"{part:.{_DIGITS}g}"


def _yaml(schema: Schema, split: str, places: list[str]) -> str:
    """Return a ``data.yaml``; its texts are JSON's, which YAML takes as they are."""
    content: dict[str, Any] = {"path": ".", split: places if len(places) > 1 else places[0]}
    labels = schema["labels"].kind
    assert isinstance(labels, Labels)
    if "keypoints" in schema:
        kind = schema["keypoints"].kind
        assert isinstance(kind, Keypoints)
        content["kpt_shape"] = [kind.points, 3 if kind.visibility else 2]
        if kind.pairs:
            mirror = list(range(kind.points))
            for one, other in kind.pairs:
                mirror[one], mirror[other] = other, one
            content["flip_idx"] = mirror
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
    names = [f"  {at}: {json.dumps(name, ensure_ascii=False)}" for at, name in enumerate(labels.classes)]
    return "\n".join([*lines, *(["names:", *names] if names else []), ""])
