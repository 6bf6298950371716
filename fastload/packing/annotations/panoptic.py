"""COCO's panoptic sets: pictures, PNGs whose colours are ids of segments, and a JSON of these."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.annotations.coco import digest_of, folder_of, split_of
from fastload.packing.annotations.coco_index import CocoFile, Facts, first_annotation
from fastload.packing.annotations.coco_schema import categories_of
from fastload.packing.annotations.coco_values import Objects, Rows
from fastload.packing.annotations.coco_write import image_of, kept_apart
from fastload.packing.annotations.listed import FileSamples, unturned
from fastload.packing.samples.encode import Lessened
from fastload.packing.samples.given import Sample
from fastload.sample.fields import Array, Boxes, Image, Json, Labels, Mask, Scalar
from fastload.sample.schema import Field, Schema

__all__ = ["SEGMENTS", "is_panoptic", "panoptic_files", "panoptic_sets", "png_name"]

#: COCO's keys of segments, and the fields that become of them.
SEGMENTS = {
    "bbox": "segments_boxes",
    "category_id": "segments_labels",
    "id": "segments_ids",
    "area": "segments_area",
    "iscrowd": "segments_iscrowd",
}
_LISTS = ("images", "annotations", "categories")
_MOST_ID = 256**3 - 1


def is_panoptic(path: Path) -> bool:
    """Whether a file is such a JSON."""
    first = first_annotation(path)
    return first is not None and "segments_info" in first


def panoptic_files(place: Path) -> list[Path]:
    """Those in the folder of a set."""
    return [path for path in sorted((place / "annotations").glob("panoptic*.json")) if is_panoptic(path)]


def panoptic_sets(
    place: Path, paths: Sequence[Path], limit: int | None = None, exif: str = "refuse"
) -> list[tuple[str, PanopticSamples]]:
    """Split ("": there is one only) and samples of each.

    Args:
        place: the folder of the set, or of the pictures.
        paths: the JSONs; of each the PNGs lie in the folder of its name beside it, or in ``place``.

    Raises:
        PackError: files that are none of COCO's, or no pictures.
    """
    made: list[tuple[str, PanopticSamples]] = []
    for path in paths:
        file = CocoFile(path)
        split = split_of(path)
        folder = folder_of(place, split, file)
        samples = PanopticSamples(place, folder, _masks(place, path), file, limit, exif)
        made.append((split if len(paths) > 1 else "", samples))
    return made


def _masks(place: Path, path: Path) -> Path:
    folders = [path.parent / path.stem, place / path.stem]
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        raise PackError(f"the PNGs of {path} are in none of these folders: {', '.join(map(str, folders))}.")
    return found


class PanopticSamples(FileSamples):
    """The images of a JSON in the order of its list, each with its segments."""

    def __init__(
        self, place: Path, folder: Path, masks: Path, file: CocoFile, limit: int | None, exif: str
    ) -> None:  # fmt: skip
        self._file, self._masks, self._exif = file, os.fsencode(masks), exif
        facts, most = _seen(file)
        categories = categories_of(file)
        classes = {one["id"]: index for index, one in enumerate(categories)}
        keys = frozenset(key for key in SEGMENTS if key != "bbox")
        self._reader = Objects(keys, classes, 0, facts.forms)
        self._bits = 8 if most < 256 else 16
        inside = os.path.relpath(folder, place)
        told = {
            "layout": "panoptic", "folder": "images" if inside.startswith(os.curdir) else inside,
            "name": file.path.name, "forms": facts.forms,
            "top": {key: one for key, one in file.top.items() if key not in _LISTS},
        }  # fmt: skip
        count = len(file) if limit is None else min(len(file), limit)
        settings = {"annotations": [digest_of(file.path)], "coco": exif}
        super().__init__(os.fsencode(folder), _schema(told, categories, self._bits), count, settings)

    def picture(self, position: int) -> bytes:
        return self._file.name(position)

    def files(self, position: int) -> Iterator[bytes]:
        if self.picture(position):
            yield self.picture(position)
        for _, data in self._file.annotations(position):
            try:
                name = json.loads(data).get("file_name")
            except ValueError:
                continue  # said where the sample is made
            if isinstance(name, str):
                yield os.path.join(self._masks, os.fsencode(name))

    def newest_ns(self) -> int:
        return max(super().newest_ns(), self._file.path.stat().st_mtime_ns)

    def sample(self, position: int) -> Sample | Lessened:
        name, image = self._file.name(position), self._file.image(position)
        found = list(self._file.annotations(position))
        if len(found) != 1:
            raise ValueError(f"it must have one panoptic annotation. Found: {len(found)}")
        order, annotation = found[0][0], json.loads(found[0][1])
        segments = annotation.get("segments_info")
        if not isinstance(segments, list):
            raise ValueError("its annotation has no list 'segments_info'")
        numbers = self._numbers(annotation.get("file_name"), image)
        rows, left_out = self._rows(segments, image, frozenset(np.unique(numbers).tolist()))
        ids = [int(one["id"]) for one in rows.values]
        made = {"image_id": image["id"], "file_name": png_name(name), "segments_info": segments}
        rest: dict[str, Any] = {
            "image": kept_apart(image, image_of(image["id"], os.fsdecode(name)))[0],
            "annotation": kept_apart(annotation, made)[0],
            "order": order if order != position else None,
            "segments": rows.other,
            "without": rows.without,
        }
        sample: dict[str, Any] = {
            "image": unturned(self.root, name, self._exif),
            "image_id": image["id"],
            "panoptic": _local(numbers, ids, segments, self._bits),
            "rest": {key: one for key, one in rest.items() if one not in (None, {}, [])} or None,
        }
        for key, field in SEGMENTS.items():
            sample[field] = [one[key] for one in rows.values]
        sample["segments_labels"] = [self._reader.classes[one] for one in sample["segments_labels"]]
        return Lessened(sample, left_out) if left_out else sample

    def _rows(
        self, segments: Sequence[Any], image: Mapping[str, Any], there: frozenset[int]
    ) -> tuple[Rows, list[tuple[str, str]]]:
        """The segments that can be packed, and those that cannot."""
        rows, left_out = Rows(), []
        seen: set[int] = set()
        for place, segment in enumerate(segments):
            said = segment if isinstance(segment, dict) else {}
            number = said.get("id")
            try:
                if type(number) is not int or not 1 <= number <= _MOST_ID or number in seen:
                    raise ValueError(f"a segment must have an id of its own from 1 to {_MOST_ID}")
                if number not in there:
                    raise ValueError("it has no pixels")
                data = json.dumps({**said, "image_id": image["id"]}).encode()
                self._reader.add(rows, place, data, image)
                seen.add(number)
            except (ValueError, OverflowError) as error:
                left_out.append((f"segment {number!r:.40}", str(error)))
        return rows, left_out

    def _numbers(self, name: Any, image: Mapping[str, Any]) -> npt.NDArray[np.uint32]:
        """The ids of a PNG's pixels: red + 256 green + 65536 blue."""
        from PIL import Image as pillow

        if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"file_name must be a path below the folder of the PNGs. Found: {name!r:.80}")
        try:
            with pillow.open(os.path.join(os.fsdecode(self._masks), name)) as picture:
                mode, colours = picture.mode, np.asarray(picture).astype(np.uint32)
        except FileNotFoundError:
            raise
        except Exception as error:  # Pillow raises anything
            raise ValueError(f"{name} cannot be read: {error}") from None
        if mode != "RGB":
            raise ValueError(f"{name} must be a PNG of colours, which are ids. Found: {mode}")
        if [image.get("height"), image.get("width")] != list(colours.shape[:2]):
            raise ValueError(
                f"{name} has {colours.shape[1]}x{colours.shape[0]} pixels, its image "
                f"{image.get('width')}x{image.get('height')}"
            )
        return colours[..., 0] + 256 * colours[..., 1] + 65536 * colours[..., 2]


def png_name(picture: bytes) -> str:
    """What the PNG of a picture is called in COCO's own files."""
    return os.path.splitext(os.path.basename(os.fsdecode(picture)))[0] + ".png"


def _local(
    numbers: npt.NDArray[np.uint32], ids: Sequence[int], segments: Sequence[Any], bits: int
) -> npt.NDArray[Any]:
    """Pixels by the places of their segments, from 1 on; 0: of none, or of one that is left out."""
    values, where = np.unique(numbers, return_inverse=True)
    known = {one.get("id") for one in segments if isinstance(one, dict)} | {0}
    unknown = next((value for value in values.tolist() if value not in known), None)
    if unknown is not None:
        raise ValueError(f"its PNG has pixels of the segment {unknown}, which segments_info does not have")
    places = {number: place for place, number in enumerate(ids, 1)}
    local = np.array(
        [places.get(value, 0) for value in values.tolist()], np.uint8 if bits == 8 else np.uint16
    )
    return local[where.reshape(numbers.shape)]


def _seen(file: CocoFile) -> tuple[Facts, int]:
    """How the segments are written, and the most that one picture has."""
    facts, most = Facts(), 0
    for number in range(len(file)):
        for _, data in file.annotations(number):
            try:
                segments = json.loads(data).get("segments_info")
            except (ValueError, RecursionError):
                continue  # said where the sample is made
            segments = segments if isinstance(segments, list) else []
            most = max(most, len(segments))
            for segment in segments:
                if isinstance(segment, dict):
                    facts.see(segment)
    return facts, most


def _schema(told: Mapping[str, Any], categories: Sequence[Mapping[str, Any]], bits: int) -> Schema:
    labels = Labels(tuple(one["name"] for one in categories), tuple(one["id"] for one in categories))
    of = SEGMENTS["bbox"]
    return Schema((
        Field("image", Image(), source=told),
        Field("image_id", Scalar("int64")),
        Field("panoptic", Mask(bits, ignore=0)),
        Field(of, Boxes("xywh")),
        Field(SEGMENTS["category_id"], labels, of, {"categories": list(categories)}),
        Field(SEGMENTS["id"], Array("int64", (None,)), of),
        Field(SEGMENTS["area"], Array("float64", (None,)), of),
        Field(SEGMENTS["iscrowd"], Array("bool", (None,)), of),
        Field("rest", Json()),
    ))  # fmt: skip
