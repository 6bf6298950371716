"""Sets of pictures with boxes as COCO's, YOLO's or Pascal VOC's files, whatever they were packed from.

Each of these can say less than a packed set, and something else than the others. What is not said is counted
and listed once, never left out silently.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.annotations.again import Unpacked, samples_of
from fastload.packing.annotations.turned import orientation_of
from fastload.packing.unpacked_files import write_new
from fastload.sample.fields import Array, Boxes, Keypoints, Labels, Polygons, Scalar
from fastload.sample.schema import Field, Schema
from fastload.shard.dataset import PackedFiles

__all__ = ["Across", "Picture", "Target", "Thing", "unpack_across"]

_ROWS = ("ids", "area", "iscrowd", "difficult", "truncated")  # arrays of boxes that some layout can say
_PLACES = (b"images/", b"JPEGImages/")
Progress = Callable[[int, int], None] | None


class Thing(NamedTuple):
    """An object, in pixels of its picture."""

    label: int
    box: tuple[float, float, float, float]  # left, top, right, bottom
    polygons: list[npt.NDArray[np.float64]]
    runs: Mapping[str, Any] | None  # size and counts, where it is no outlines
    points: npt.NDArray[np.float32] | None  # (K, 3) or (K, 2)
    facts: Mapping[str, Any]  # of _ROWS, those that there are


class Picture(NamedTuple):
    """A picture with its objects."""

    path: bytes  # below the folder of pictures
    size: tuple[int, int]
    number: int  # its id, or its place
    things: list[Thing]


@dataclass(frozen=True)
class Across:
    """What a set says that other layouts have a place for.

    Args:
        schema: the set's.
        boxes, labels, masks, points: fields; None: it has none.
        rows: which of the arrays that some layout has there are.
    """

    schema: Schema
    boxes: Field
    labels: Field
    masks: Field | None
    points: Field | None
    rows: tuple[str, ...]

    @classmethod
    def of(cls, dataset: PackedFiles, layout: str) -> Across:
        """Of a set.

        Raises:
            PackError: it has no boxes and classes, or no files of pictures.
        """
        schema = dataset.schema
        if dataset.manifest.options.get("raw"):
            raise PackError(
                f"{dataset.where} was packed with raw=True: it has pixels, and no files of pictures that "
                f"{layout} could be about. Unpack it as a table: without --as."
            )
        leaders = [field for field in schema if isinstance(field.kind, Boxes) and field.of is None]
        if len(leaders) != 1:
            names = ", ".join(field.name for field in leaders) or "none"
            raise PackError(
                f"{dataset.where} must have one field of boxes to be unpacked as {layout}. Found: {names}. "
                "Unpack it as a table: without --as."
            )
        (boxes,) = leaders
        rows = {field.name: field for field in schema if field.of == boxes.name}

        def first(kind: type) -> Field | None:
            return next((field for field in rows.values() if isinstance(field.kind, kind)), None)

        labels = first(Labels)
        if labels is None:
            raise PackError(
                f"{dataset.where} was packed without labels of {boxes.name!r}, which {layout} needs. Unpack "
                "it as a table: without --as."
            )
        there = [name for name in _ROWS if name in rows]
        if "ids" in there and not (isinstance(ids := rows["ids"].kind, Array) and ids.has_ids):
            there.remove("ids")
        return cls(schema, boxes, labels, first(Polygons), first(Keypoints), tuple(there))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        assert isinstance(self.labels.kind, Labels)
        return self.labels.kind.classes

    @property
    def has_numbers(self) -> bool:
        """Whether pictures have numbers; a set's own field of that name may be a text."""
        kind = self.schema["image_id"].kind if "image_id" in self.schema else None
        return isinstance(kind, Scalar) and kind.item_dtype.kind in "iu"

    def pictures(
        self, dataset: PackedFiles, progress: Progress, *, numbered: bool
    ) -> Iterator[tuple[Unpacked, Picture]]:
        """All of them; ``numbered``: by the set's own numbers, else from 1."""
        for place, sample in enumerate(samples_of(dataset, progress)):
            number = int(sample.value("image_id")) if numbered else place + 1
            path = sample.path
            for folder in _PLACES:
                path = path.removeprefix(folder)
            yield sample, Picture(path, sample.size, number, self._things(sample))

    def _things(self, sample: Unpacked) -> list[Thing]:
        boxes = self._corners(sample.value(self.boxes.name), sample.size)
        labels = sample.value(self.labels.name).tolist()
        areas = sample.value(self.masks.name) if self.masks is not None else [[]] * len(labels)
        points = sample.value(self.points.name) if self.points is not None else [None] * len(labels)
        facts = {name: sample.value(name).tolist() for name in self.rows}
        found = []
        for row, (label, box) in enumerate(zip(labels, boxes.tolist(), strict=True)):
            runs = areas[row] if isinstance(areas[row], Mapping) else None
            outlines = [] if runs is not None else [np.asarray(one, np.float64) for one in areas[row]]
            said = {name: column[row] for name, column in facts.items()}
            found.append(Thing(label, tuple(box), outlines, runs, points[row], said))
        return found

    def _corners(self, boxes: npt.NDArray[np.float32], size: tuple[int, int]) -> npt.NDArray[np.float64]:
        kind = self.boxes.kind
        assert isinstance(kind, Boxes)
        found = boxes.astype(np.float64)
        if kind.relative:
            found = found * np.array([*size, *size], np.float64)
        first, second = found[:, :2], found[:, 2:]
        if kind.format == "xyxy":
            return found
        begin = first - second / 2 if kind.format == "cxcywh" else first
        return np.concatenate([begin, begin + second], 1)


class Target:
    """Files of one layout on their way.

    Args:
        folder: where they are written.
        across: the set.
        unsaid: what they cannot say, counted; "field NAME": of all samples.
    """

    #: Of the fields that some layout has a place for, which this one has, by their names in Across.
    says: frozenset[str] = frozenset()

    def __init__(self, folder: Path, across: Across, unsaid: Counter[str]) -> None:
        self.folder, self.across, self.unsaid = folder, across, unsaid

    def place(self, picture: Picture) -> bytes:
        """Where a picture's file goes."""
        raise NotImplementedError

    def add(self, picture: Picture) -> None:
        """One more picture, whose file is written."""
        raise NotImplementedError

    def end(self) -> None:
        """All pictures have come."""

    def write(self, path: bytes, text: str) -> None:
        """A file of text."""
        write_new(os.fsencode(self.folder), path, text.encode())


def unpack_across(
    dataset: PackedFiles, folder: Path, layout: str, target: type[Target], progress: Progress
) -> list[str]:
    """Write a set's pictures, and what a layout can say of them, below ``folder``.

    Returns:
        What it cannot say, a line each.

    Raises:
        PackError: it has no boxes with classes, or no files of pictures.
        FormatError: keys that are no safe paths.
        ChecksumError: damaged records.
    """
    across = Across.of(dataset, layout)
    unsaid: Counter[str] = Counter()
    files = target(folder, across, unsaid)
    numbered = across.has_numbers and "image_id" in files.says
    repeated = _repeated(dataset) if numbered else 0
    if repeated:
        unsaid["image ids that other pictures have, too: pictures are numbered from 1"] = repeated
    for sample, picture in across.pictures(dataset, progress, numbered=numbered and not repeated):
        data = sample.data(across.schema.index_field.name)
        if orientation_of(data) != 1:
            unsaid["pictures that EXIF turns: their coordinates are of the pixels as stored"] += 1
        write_new(os.fsencode(folder), files.place(picture), data)
        files.add(picture)
    files.end()
    return [
        *_fields_unsaid(across, files.says),
        *(f"{count} {what}" for what, count in unsaid.items() if count),
    ]


def _repeated(dataset: PackedFiles) -> int:
    """How many samples have the image id of one before."""
    kind = dataset.schema["image_id"].kind
    assert isinstance(kind, Scalar)
    ids = (int(dataset.value("image_id", sample)) for sample in range(len(dataset)))
    return len(dataset) - len(np.unique(np.fromiter(ids, kind.item_dtype, len(dataset))))


def _fields_unsaid(across: Across, says: frozenset[str]) -> Iterator[str]:
    """The fields that a layout has no place for."""
    said = {across.schema.index_field.name, across.boxes.name, across.labels.name}
    said |= {name for name in across.rows if name in says}
    said |= {"image_id"} if across.has_numbers and "image_id" in says else set()
    for name, field in (("masks", across.masks), ("points", across.points)):
        said |= {field.name} if field is not None and name in says else set()
    for field in across.schema:
        if field.name not in said:
            yield f"field {field.name!r} ({field.kind.name})"
