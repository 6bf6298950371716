"""COCO's panoptic sets: pictures, PNGs whose colours are ids of segments, and a JSON of these."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.dataset.decoding import pillow_words
from fastload.errors import PackError
from fastload.extras import need
from fastload.machine.paths import is_dir
from fastload.packing.annotations.annotated_files import FileSamples, unturned
from fastload.packing.annotations.coco_file import (
    CocoFile,
    Facts,
    digest_of,
    first_annotation,
    folder_of,
    png_name,
    split_of,
)
from fastload.packing.annotations.coco_rows import CocoRows, Objects, categories_of, image_of, kept_apart
from fastload.packing.files import names_in
from fastload.packing.pictures import read_picture
from fastload.packing.rows import PartialSample, Sample
from fastload.sample.fields import Array, Boxes, Image, Json, Labels, Mask, Scalar
from fastload.sample.schema import Field, Schema
from fastload.shard.codecs import PILLOW_FORMATS

#: COCO's keys of segments, and the fields that they become.
PANOPTIC_FIELDS = {
    "bbox": "segments_boxes",
    "category_id": "segments_labels",
    "id": "segments_ids",
    "area": "segments_area",
    "iscrowd": "segments_iscrowd",
}
_LISTS = ("images", "annotations", "categories")
_MOST_ID = 256**3 - 1
_MOST_SIDE = 65535  # of a JPEG


def is_panoptic(path: Path) -> bool:
    """Whether a file is a panoptic JSON."""
    first = first_annotation(path)
    return first is not None and "segments_info" in first


def panoptic_files(place: Path) -> list[Path]:
    """Return the panoptic JSONs in the folder of a set."""
    folder = place / "annotations"
    names = [name for name in names_in(folder) if name.startswith("panoptic") and name.endswith(".json")]
    return [folder / name for name in names if is_panoptic(folder / name)]


def panoptic_sets(
    place: Path, paths: Sequence[Path], limit: int | None = None, exif: str = "refuse"
) -> list[tuple[str, PanopticSamples]]:
    """Return split ("": the only one) and samples of each.

    Args:
        place: the folder of the set, or of the pictures.
        paths: the JSONs; the PNGs of each lie in the folder of its name beside it, or in ``place``.

    Raises:
        PackError: files are not COCO's, or there are no pictures.
    """
    sets: list[tuple[str, PanopticSamples]] = []
    for path in paths:
        file = CocoFile(path)
        split = split_of(path)
        folder = folder_of(place, split, file)
        samples = PanopticSamples(place, folder, file, limit, exif)
        sets.append((split if len(paths) > 1 else "", samples))
    return sets


def _masks(place: Path, path: Path) -> Path:
    folders = [path.parent / path.stem, place / path.stem]
    existing = next((folder for folder in folders if is_dir(folder)), None)
    if existing is None:
        raise PackError(f"the PNGs of {path} are in none of these folders: {', '.join(map(str, folders))}.")
    return existing


class Segments:
    """The segments of a JSON's images, and the PNGs that show them.

    Args:
        file: the JSON.
        place: the folder of the set; :func:`panoptic_sets` says where the PNGs are.
    """

    def __init__(self, file: CocoFile, place: Path) -> None:
        need("PIL.Image", "a panoptic set")
        self._file, self._masks = file, os.fsencode(_masks(place, file.path))
        self.facts, most = _seen(file)
        self.categories = categories_of(file)
        classes = {category["id"]: index for index, category in enumerate(self.categories)}
        keys = frozenset(key for key in PANOPTIC_FIELDS if key != "bbox")
        self._reader = Objects(keys, classes, 0, self.facts.forms)
        self._bits = 8 if most < 256 else 16

    def moved(self, to: Callable[[bytes], bytes]) -> Segments:
        """Return the same segments with their PNGs elsewhere; see :meth:`SampleRows.moved`."""
        other = copy.copy(self)
        other._masks = to(self._masks)
        return other

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of a sample's segments."""
        labels = Labels(tuple(c["name"] for c in self.categories), tuple(c["id"] for c in self.categories))
        of = PANOPTIC_FIELDS["bbox"]
        return (
            Field("panoptic", Mask(self._bits, ignore=0)),
            Field(of, Boxes("xywh")),
            Field(PANOPTIC_FIELDS["category_id"], labels, of, {"categories": list(self.categories)}),
            Field(PANOPTIC_FIELDS["id"], Array("int64", (None,)), of),
            Field(PANOPTIC_FIELDS["area"], Array("float64", (None,)), of),
            Field(PANOPTIC_FIELDS["iscrowd"], Array("bool", (None,)), of),
        )

    def files(self, number: int) -> Iterator[bytes]:
        """Yield the PNG of an image."""
        for _, data in self._file.annotations(number):
            try:
                name = json.loads(data).get("file_name")
            except ValueError:
                continue  # reported where the sample is made
            if isinstance(name, str):
                yield os.path.join(self._masks, os.fsencode(name))

    def of_image(self, number: int) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]:
        """Return the fields of an image's segments, what these cannot say, and the segments left out.

        Raises:
            ValueError, OSError: they cannot be packed.
        """
        image = self._file.image(number)
        annotations = list(self._file.annotations(number))
        if len(annotations) != 1:
            raise ValueError(f"it must have one panoptic annotation. Found: {len(annotations)}")
        order, annotation = annotations[0][0], json.loads(annotations[0][1])
        segments = annotation.get("segments_info")
        if not isinstance(segments, list):
            raise ValueError("its annotation has no list 'segments_info'")
        numbers = self._numbers(annotation.get("file_name"), image)
        rows, left_out = self._rows(segments, image, frozenset(np.unique(numbers).tolist()))
        ids = [int(row["id"]) for row in rows.values]
        png = os.fsdecode(png_name(self._file.name(number)))
        expected = {"image_id": image["id"], "file_name": png, "segments_info": segments}
        rest: dict[str, Any] = {
            "annotation": kept_apart(annotation, expected)[0],
            "order": order,
            "segments": rows.other,
            "without": rows.without,
        }
        values: dict[str, Any] = {"panoptic": _local(numbers, ids, segments, self._bits)}
        values |= {field: [row[key] for row in rows.values] for key, field in PANOPTIC_FIELDS.items()}
        labels = PANOPTIC_FIELDS["category_id"]
        values[labels] = [self._reader.classes[number] for number in values[labels]]
        return values, {key: value for key, value in rest.items() if value not in (None, {}, [])}, left_out

    def nothing(self, image: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an image that the JSON does not have."""
        sides: list[Any] = [image.get("height"), image.get("width")]
        if not all(isinstance(side, int) and 0 < side <= _MOST_SIDE for side in sides):
            raise ValueError(
                f"{self._file.path.name} does not have it, and its height and width are {sides}: there is no "
                "mask of no segments"
            )
        empty = np.zeros(tuple(map(int, sides)), np.uint8 if self._bits == 8 else np.uint16)
        return {"panoptic": empty, **{field: [] for field in PANOPTIC_FIELDS.values()}}

    def _rows(
        self, segments: Sequence[Any], image: Mapping[str, Any], there: frozenset[int]
    ) -> tuple[CocoRows, list[tuple[str, str]]]:
        """Return the segments that can be packed, and those that cannot."""
        rows, left_out = CocoRows(), []
        seen: set[int] = set()
        for place, segment in enumerate(segments):
            entry = segment if isinstance(segment, dict) else {}
            number = entry.get("id")
            try:
                if type(number) is not int or not 1 <= number <= _MOST_ID or number in seen:
                    raise ValueError(f"a segment must have an id of its own from 1 to {_MOST_ID}")
                if number not in there:
                    raise ValueError("it has no pixels")
                data = json.dumps({**entry, "image_id": image["id"]}).encode()
                self._reader.add(rows, place, data, image)
                seen.add(number)
            except (ValueError, OverflowError) as error:
                left_out.append((f"segment {number!r:.40}", str(error)))
        return rows, left_out

    def _numbers(self, name: Any, image: Mapping[str, Any]) -> npt.NDArray[np.uint32]:
        """Return the ids of a PNG's pixels: red + 256 green + 65536 blue."""
        from PIL import Image as pillow

        if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"file_name must be a path below the folder of the PNGs. Found: {name!r:.80}")
        try:
            data = read_picture(os.path.join(os.fsencode(self._masks), name.encode()))
            with pillow.open(io.BytesIO(data), formats=PILLOW_FORMATS) as picture:
                mode, (width, height) = picture.mode, picture.size
                fits = mode == "RGB" and (width, height) == (image.get("width"), image.get("height"))
                colours = np.asarray(picture if fits else 0).astype(np.uint32)
        except FileNotFoundError:
            raise
        except Exception as error:  # Pillow raises anything
            raise ValueError(f"{name} cannot be read: {pillow_words(error)}") from None
        if mode != "RGB":
            raise ValueError(f"{name} must be a PNG of colours, which are ids. Found: {mode}")
        if not fits:
            raise ValueError(
                f"{name} has {width}x{height} pixels, its image {image.get('width')}x{image.get('height')}"
            )
        return colours[..., 0] + 256 * colours[..., 1] + 65536 * colours[..., 2]


class PanopticSamples(FileSamples):
    """The images of a JSON in the order of its list, each with its segments."""

    def __init__(
        self, place: Path, folder: Path, file: CocoFile, limit: int | None, exif: str
    ) -> None:  # fmt: skip
        self._file, self._exif = file, exif
        self._segments = Segments(file, place)
        inside = os.path.relpath(folder, place)
        told = {
            "layout": "panoptic", "folder": "images" if inside.startswith(os.curdir) else inside,
            "name": file.path.name, "forms": self._segments.facts.forms,
            "top": {key: value for key, value in file.top.items() if key not in _LISTS},
        }  # fmt: skip
        count = len(file) if limit is None else min(len(file), limit)
        settings = {"annotations": [digest_of(file.path)], "coco": exif}
        image = Field("image", Image(), source=told), Field("image_id", Scalar("int64"))
        schema = Schema((*image, *self._segments.fields(), Field("rest", Json())))
        super().__init__(os.fsencode(folder), schema, count, settings)

    def moved(self, to: Callable[[bytes], bytes]) -> PanopticSamples:
        other = super().moved(to)
        other._segments = self._segments.moved(to)
        return other

    def picture(self, position: int) -> bytes:
        return self._file.name(position)

    def sources(self, position: int) -> Iterator[bytes]:
        if self.picture(position):
            yield self.picture(position)
        yield from self._segments.files(position)

    def sample(self, position: int) -> Sample | PartialSample:
        name, image = self._file.name(position), self._file.image(position)
        values, rest, left_out = self._segments.of_image(position)
        if rest["order"] == position:
            del rest["order"]
        other = kept_apart(image, image_of(image["id"], os.fsdecode(name)))[0]
        sample: dict[str, Any] = {
            "image": unturned(self.root, name, self._exif),
            "image_id": image["id"],
            **values,
            "rest": (({"image": other} if other else {}) | rest) or None,
        }
        return PartialSample(sample, left_out) if left_out else sample


def _local(
    numbers: npt.NDArray[np.uint32], ids: Sequence[int], segments: Sequence[Any], bits: int
) -> npt.NDArray[Any]:
    """Return pixels as positions of their segments, from 1 on; 0: of none, or of one that is left out."""
    values, where = np.unique(numbers, return_inverse=True)
    known = {segment.get("id") for segment in segments if isinstance(segment, dict)} | {0}
    unknown = next((value for value in values.tolist() if value not in known), None)
    if unknown is not None:
        raise ValueError(f"its PNG has pixels of the segment {unknown}, which segments_info does not have")
    places = {number: place for place, number in enumerate(ids, 1)}
    local = np.array(
        [places.get(value, 0) for value in values.tolist()], np.uint8 if bits == 8 else np.uint16
    )
    return local[where.reshape(numbers.shape)]


def _seen(file: CocoFile) -> tuple[Facts, int]:
    """Return how the segments are written, and the most that one picture has."""
    facts, most = Facts(), 0
    for number in range(len(file)):
        for _, data in file.annotations(number):
            try:
                segments = json.loads(data).get("segments_info")
            except (ValueError, RecursionError):
                continue  # reported where the sample is made
            segments = segments if isinstance(segments, list) else []
            most = max(most, len(segments))
            for segment in segments:
                if isinstance(segment, dict):
                    facts.see(segment)
    return facts, most
