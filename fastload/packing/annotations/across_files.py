"""Files of COCO, YOLO and Pascal VOC that say what these can of any set with boxes."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastload.packing.annotations.across import Across, Picture, Target, Thing
from fastload.packing.annotations.voc_xml import CORNERS, to_xml
from fastload.packing.annotations.yolo import label_path
from fastload.sample.fields import Keypoints, Labels

__all__ = ["TARGETS"]

_HERE = "instances.json"


def _short(number: float) -> float:
    """The shortest number of the same float32: what a difference of two such has behind that is noise."""
    return float(str(np.float32(number)))


class _Coco(Target):
    """``images/`` and ``annotations/instances.json``."""

    says = frozenset({"masks", "points", "ids", "area", "iscrowd", "image_id"})

    def __init__(self, folder: Path, across: Across, unsaid: Counter[str]) -> None:
        super().__init__(folder, across, unsaid)
        kind = across.labels.kind
        assert isinstance(kind, Labels)
        self._ids = kind.ids or tuple(range(1, len(kind.classes) + 1))
        (folder / "annotations").mkdir()
        self._images = 0
        self._numbers = array("q")  # of the annotations
        self._rows = open(folder / "annotations" / ".rows", "w+", encoding="ascii")  # noqa: SIM115
        self._file = open(folder / "annotations" / _HERE, "x", encoding="ascii")  # noqa: SIM115
        self._file.write('{"images": [')

    def place(self, picture: Picture) -> bytes:
        return b"images/" + picture.path

    def add(self, picture: Picture) -> None:
        width, height = picture.size
        name = os.fsdecode(picture.path)
        image = {"id": picture.number, "file_name": name, "width": width, "height": height}
        self._file.write((",\n" if self._images else "") + json.dumps(image))
        self._images += 1
        for thing in picture.things:
            if thing.label < 0:
                self.unsaid["objects without a class: left out"] += 1
                continue
            self._numbers.append(int(thing.facts.get("ids", len(self._numbers) + 1)))
            self._rows.write(json.dumps(self._annotation(thing, picture))[1:] + "\n")

    def _annotation(self, thing: Thing, picture: Picture) -> dict[str, Any]:
        """All of it but its id."""
        left, top, right, bottom = thing.box
        area = thing.facts.get("area", _area_of(thing))
        found = {
            "image_id": picture.number,
            "category_id": self._ids[thing.label],
            "bbox": [_short(left), _short(top), _short(right - left), _short(bottom - top)],
            "area": area,
            "iscrowd": int(thing.facts.get("iscrowd", False)),
        }
        if self.across.masks is not None:
            outlines = [one.reshape(-1).tolist() for one in thing.polygons]
            runs = thing.runs
            found["segmentation"] = (
                outlines if runs is None else {"size": list(runs["size"]), "counts": list(runs["counts"])}
            )
        if thing.points is not None:
            points = thing.points if thing.points.shape[1] == 3 else _visible(thing.points)
            found["keypoints"] = [_short(number) for number in points.reshape(-1).tolist()]
            found["num_keypoints"] = int((points[:, 2] > 0).sum())
        return found

    def end(self) -> None:
        categories: list[dict[str, Any]] = [
            {"id": number, "name": name} for number, name in zip(self._ids, self.across.classes, strict=True)
        ]
        if self.across.points is not None:
            kind = self.across.points.kind
            assert isinstance(kind, Keypoints)
            names = [f"point_{number}" for number in range(kind.points)]
            for pair, (one, other) in enumerate(kind.pairs or ()):
                names[one], names[other] = f"left_{pair}", f"right_{pair}"
            categories = [{**one, "keypoints": names, "skeleton": []} for one in categories]
        self._file.write(f'],\n"categories": {json.dumps(categories)},\n"annotations": [')
        self._rows.seek(0)
        for place, (number, row) in enumerate(zip(self._ids_of_rows(), self._rows, strict=True)):
            self._file.write((",\n" if place else "") + f'{{"id": {number}, {row.rstrip()}')
        self._file.write("]}\n")
        self._file.close()
        self._rows.close()
        os.unlink(self._rows.name)

    def _ids_of_rows(self) -> Sequence[int]:
        """Evaluators keep one annotation of an id, and take 0 for none."""
        ids = np.asarray(self._numbers)
        wrong = len(ids) - len(np.unique(ids)) + int((ids < 1).sum())
        if not wrong:
            return self._numbers
        self.unsaid["ids of annotations that repeat or are not positive: they are counted from 1"] = wrong
        return range(1, len(ids) + 1)


def _visible(points: Any) -> Any:
    return np.concatenate([points, np.full((len(points), 1), 2, points.dtype)], 1)


def _area_of(thing: Thing) -> float:
    """Pixels of the outlines, of the runs, or of the box."""
    if thing.runs is not None:
        return float(sum(list(thing.runs["counts"])[1::2]))
    if not thing.polygons:
        left, top, right, bottom = thing.box
        return (right - left) * (bottom - top)
    total = 0.0
    for one in thing.polygons:
        x, y = one.T
        total += abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
    return total


class _Yolo(Target):
    """``images/``, ``labels/`` and ``data.yaml``."""

    says = frozenset({"masks", "points"})

    def place(self, picture: Picture) -> bytes:
        return b"images/" + picture.path

    def add(self, picture: Picture) -> None:
        if self.across.points is not None and self.across.masks is not None:
            self.unsaid["objects whose outlines are left out: a line has points or an outline"] += sum(
                bool(one.polygons or one.runs) for one in picture.things
            )
        outlined = self.across.points is None and any(len(one.polygons) == 1 for one in picture.things)
        lines = [line for one in picture.things if (line := self._line(one, picture, outlined))]
        self.unsaid["objects that are the very line of another: once"] += len(lines) - len(set(lines))
        lines = list(dict.fromkeys(lines))
        if lines:
            self.write(label_path(self.place(picture)), "".join(f"{line}\n" for line in lines))

    def _line(self, thing: Thing, picture: Picture, outlined: bool) -> str:
        size = np.array(picture.size, np.float64)
        box = np.array(thing.box).reshape(2, 2) / size
        within = box.clip(0, 1)
        if thing.label < 0 or (within[1] <= within[0]).any():
            self.unsaid["objects without a class, or with none of their box in the picture: left out"] += 1
            return ""
        if not np.allclose(box, within, 0, 1e-6):
            self.unsaid["boxes cut off at the border, beyond which YOLO has none"] += 1
        numbers = [*(within.sum(0) / 2).tolist(), *(within[1] - within[0]).tolist()]
        if self.across.points is None and (len(thing.polygons) > 1 or thing.runs is not None):
            self.unsaid["objects of several outlines, or of run lengths: as boxes"] += 1
        if len(thing.polygons) == 1 and outlined:
            outline = thing.polygons[0] / size
            if (outline < 0).any() or (outline > 1).any():
                self.unsaid["outlines whose points were moved to the border"] += 1
            numbers = outline.clip(0, 1).reshape(-1).tolist()
        elif outlined:  # readers take all lines of a file for outlines, if any is one
            self.unsaid["boxes as outlines of four corners, in files with outlines"] += 1
            (left, top), (right, bottom) = within.tolist()
            numbers = [left, top, right, top, right, bottom, left, bottom]
        if thing.points is not None:
            for x, y, *seen in thing.points.tolist():
                numbers += [*(np.array([x, y]) / size).clip(0, 1).tolist(), *seen]
        return " ".join([str(thing.label), *(f"{number:.9g}" for number in numbers)])

    def end(self) -> None:
        said: dict[str, Any] = {"path": ".", "train": "images", "val": "images"}
        if self.across.points is not None:
            kind = self.across.points.kind
            assert isinstance(kind, Keypoints)
            said["kpt_shape"] = [kind.points, 3 if kind.visibility else 2]
            mirror = list(range(kind.points))
            for one, other in kind.pairs or ():
                mirror[one], mirror[other] = other, one
            said["flip_idx"] = mirror
        lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in said.items()]
        names = [
            f"  {at}: {json.dumps(name, ensure_ascii=False)}" for at, name in enumerate(self.across.classes)
        ]
        self.write(b"data.yaml", "\n".join([*lines, "names:", *names, ""]))


class _Voc(Target):
    """``JPEGImages/``, ``Annotations/`` and ``ImageSets/Main/train.txt``."""

    says = frozenset({"difficult", "truncated"})

    def __init__(self, folder: Path, across: Across, unsaid: Counter[str]) -> None:
        super().__init__(folder, across, unsaid)
        self._names: list[bytes] = []

    def place(self, picture: Picture) -> bytes:
        return b"JPEGImages/" + os.path.basename(picture.path)

    def add(self, picture: Picture) -> None:
        stem = os.path.splitext(os.path.basename(picture.path))[0]
        sides = zip(("width", "height", "depth"), (*picture.size, 3), strict=True)
        said: list[Any] = [
            ["filename", os.fsdecode(os.path.basename(picture.path))],
            ["size", [[name, str(side)] for name, side in sides]],
            *self._objects(picture),
        ]
        self.write(b"Annotations/" + stem + b".xml", to_xml(["annotation", said]))
        self._names.append(stem)

    def _objects(self, picture: Picture) -> Iterator[list[Any]]:
        for thing in picture.things:
            if thing.label < 0:
                self.unsaid["objects without a class: left out"] += 1
                continue
            corners = [f"{_short(number)!r}".removesuffix(".0") for number in thing.box]
            flags = [[name, str(int(thing.facts.get(name, 0)))] for name in ("truncated", "difficult")]
            bounds = [list(one) for one in zip(CORNERS, corners, strict=True)]
            yield ["object", [["name", self.across.classes[thing.label]], *flags, ["bndbox", bounds]]]

    def end(self) -> None:
        listed = b"".join(name + b"\n" for name in self._names)
        self.write(b"ImageSets/Main/train.txt", os.fsdecode(listed))


TARGETS: dict[str, type[Target]] = {"coco": _Coco, "yolo": _Yolo, "voc": _Voc}
