"""The images of COCO's JSONs as samples, with what all of these say of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.packing.annotations.coco_folders import (
    digest_of,
    folder_of,
    is_deep,
    is_outside,
    png_name,
    split_of,
)
from fastload.packing.annotations.coco_index import CocoFile
from fastload.packing.annotations.coco_schema import (
    CAPTIONS,
    OBJECTS,
    SEGMENTS,
    Part,
    read_as,
    schema_of,
    values_of,
)
from fastload.packing.annotations.coco_values import Captions, Rows, named
from fastload.packing.annotations.coco_write import image_of, kept_apart
from fastload.packing.annotations.listed import FileSamples, unturned
from fastload.packing.annotations.panoptic import Segments
from fastload.packing.names import printable
from fastload.packing.samples.encode import Lessened
from fastload.packing.samples.given import Sample
from fastload.sample.fields import Mask
from fastload.sample.schema import Field

__all__ = ["MAPS", "coco_samples"]

MAPS = "stuff"  # the field of COCO-Stuff's PNGs
_LOOKED_AT = 16


def coco_samples(
    place: Path, split: str, parts: Sequence[Part], maps: Path | None, limit: int | None, exif: str
) -> CocoSamples:
    """The samples of one split.

    Args:
        place: the folder of the set, or of the pictures.
        split: what it is called.
        parts: its JSONs, those of objects first.
        maps: the folder of PNGs of ids.
        limit: only this number of images, the first ones.
        exif: "refuse" or "ignore" pictures that EXIF turns.

    Raises:
        PackError: no pictures, or JSONs that do not go together.
    """
    return CocoSamples(folder_of(place, split, parts[0].file), place, parts, maps, limit, exif)


class _Images:
    """The images of all files: those of the first in its order, then those that only others have."""

    def __init__(self, files: Sequence[CocoFile]) -> None:
        first = files[0].ids
        ids = [first]
        for file in files[1:]:
            seen = np.concatenate(ids)
            ids.append(file.ids[~np.isin(file.ids, seen)])
        self.ids = np.concatenate(ids)
        self._places = [_places(self.ids, file.ids) for file in files]

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, file: int, image: int) -> int:
        """An image's place in a file's list; -1: it does not have it."""
        places = self._places[file]
        return image if places is None else int(places[image])

    def has_own(self, file: int) -> bool:
        """Whether a file has other images, or in another order."""
        return self._places[file] is not None


def _places(wanted: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    if len(wanted) == len(ids) and (wanted == ids).all():
        return None
    places = np.full(len(wanted), -1, np.int64)
    if len(ids):
        order = np.argsort(ids)
        found = np.searchsorted(ids[order], wanted).clip(0, len(ids) - 1)
        there = ids[order][found] == wanted
        places[there] = order[found[there]]
    return places


class CocoSamples(FileSamples):
    """The images of COCO's JSONs with what these say of them.

    Behind them come annotations that are of no image, each as a sample that cannot be packed.
    """

    def __init__(
        self, folder: Path, place: Path, parts: Sequence[Part], maps: Path | None, limit: int | None,
        exif: str,
    ) -> None:  # fmt: skip
        self._parts = list(parts)
        self._all = _Images([part.file for part in parts])
        self._images = min(len(self._all), limit or len(self._all))
        self._objects = read_as(self._parts)
        self._captions = {
            part.name: Captions(bool(part.file.facts.keys["id"])) for part in parts if part.what == CAPTIONS
        }
        self._segments = {part.name: Segments(part.file, place) for part in parts if part.what == SEGMENTS}
        self._maps = None if maps is None else os.fsencode(maps)
        # Captions are the same whichever way a picture lies.
        self._exif = exif if {OBJECTS, SEGMENTS} & {part.what for part in parts} else "ignore"
        more = [field for segments in self._segments.values() for field in segments.fields()]
        if maps is not None:
            some = (png_name(self._name(image)) for image in range(self._images))
            deep = is_deep(maps, islice(some, _LOOKED_AT))
            # A folder that has the split's name only would lie among the pictures when it is unpacked.
            is_split = maps.name in {split_of(part.file.path) for part in parts}
            source = {"folder": f"stuffthingmaps/{maps.name}" if is_split else maps.name}
            more.append(Field(MAPS, Mask(16, ignore=65535) if deep else Mask(), None, source))
        forms = {name: segments.facts.forms for name, segments in self._segments.items()}
        own = frozenset(part.name for at, part in enumerate(parts) if self._all.has_own(at))
        inside = os.path.relpath(folder, place)
        schema = schema_of(parts, "images" if inside.startswith(os.curdir) else inside, own, more, forms)
        strays = 0 if limit else sum(part.file.strays for part in parts)
        settings = {
            "annotations": [digest_of(part.file.path) for part in parts],
            "coco": self._exif,
            **({} if maps is None else {"maps": maps.name}),
        }
        super().__init__(os.fsencode(folder), schema, self._images + strays, settings)

    def files(self, position: int) -> Iterator[bytes]:
        name = self._name(position) if position < self._images else b""
        if not name:
            return
        yield name
        if self._maps is not None:
            yield os.path.join(self._maps, png_name(name))
        for part, number in self._of(position):
            if part.name in self._segments:
                yield from self._segments[part.name].files(number)

    def picture(self, position: int) -> bytes:
        if position < self._images:
            return self._name(position)
        return os.fsencode(self._stray(position - self._images)[0].path.name)

    def newest_ns(self) -> int:
        return max(super().newest_ns(), *(part.file.path.stat().st_mtime_ns for part in self._parts))

    def needed_bytes(self) -> int:
        return super().needed_bytes() + sum(part.file.path.stat().st_size for part in self._parts)

    def sample(self, position: int) -> Sample | Lessened:
        if position < self._images:
            return self._of_image(position)
        order, data = self._stray(position - self._images)[1]
        raise ValueError(f"{named(data, order)}: its image_id is none of the images'")

    def _of(self, image: int) -> Iterator[tuple[Part, int]]:
        """The files that have an image, with its place in each one's list."""
        for at, part in enumerate(self._parts):
            number = self._all.place(at, image)
            if number >= 0:
                yield part, number

    def _name(self, image: int) -> bytes:
        part, number = next(self._of(image))
        return part.file.name(number)

    def _of_image(self, image: int) -> Sample | Lessened:
        (first, number), *others = self._of(image)
        name, said = first.file.name(number), first.file.image(number)
        if not name:
            raise ValueError(f"{first.file.path.name}: image {said['id']} has no file_name that is one")
        if is_outside(name):
            raise ValueError(
                f"file_name must be a path below the folder of the pictures. Found: {printable(name)}"
            )
        for part, again in others:
            if part.file.name(again) != name:
                raise ValueError(
                    f"image {said['id']} is {printable(name)} in {first.file.path.name} and "
                    f"{printable(part.file.name(again))} in {part.file.path.name}"
                )
        name = os.path.normpath(name)
        sample: dict[str, Any] = {"image": unturned(self.root, name, self._exif), "image_id": said["id"]}
        if self._maps is not None:
            sample[MAPS] = os.fsdecode(os.path.join(self._maps, png_name(name)))
        there = {part.name: again for part, again in self._of(image)}
        rest: dict[str, Any] = {}
        left_out: list[tuple[str, str]] = []
        rows = self._rows(there, rest, left_out)
        objects = {part: one for part, one in rows.items() if part.what == OBJECTS}
        sample |= self._objects.values(objects) if objects else {}
        for part, one in rows.items():
            if part.what == CAPTIONS:
                sample |= values_of(part, one)
        for key, segments in self._segments.items():
            if key in there:
                values, rest[key], lost = segments.of_image(there[key])
                left_out += lost
            else:
                values = segments.nothing(said)
            sample |= values
        rest |= self._of_images(there, said, os.fsdecode(name))
        sample["rest"] = rest or None
        return Lessened(sample, left_out) if left_out else sample

    def _rows(
        self, there: Mapping[str, int], rest: dict[str, Any], left_out: list[tuple[str, str]]
    ) -> dict[Part, Rows]:
        """The annotations of an image in the files of objects and captions, as rows of each."""
        found: dict[Part, Rows] = {}
        before: Rows | None = None
        for part in self._parts:
            reader = self._captions.get(part.name) or self._objects.readers.get(part.name)
            if reader is None:
                continue
            rows = found[part] = Rows(before if part.what == OBJECTS else None)
            before = rows if part.what == OBJECTS else before
            if part.name not in there:
                continue
            image = part.file.image(there[part.name])
            for order, data in part.file.annotations(there[part.name]):
                try:
                    reader.add(rows, order, data, image)
                except (ValueError, OverflowError, RecursionError) as error:
                    left_out.append((named(data, order), str(error)))
            rest |= {part.name: rows.other} if rows.other else {}
            rest |= {f"{part.name}_without": rows.without} if rows.without else {}
        return found

    def _of_images(self, there: Mapping[str, int], said: Mapping[str, Any], name: str) -> dict[str, Any]:
        """What the fields cannot say of an image; of the same in another file where that says else; and its
        places in the lists of files that have other images."""
        other, _ = kept_apart(said, image_of(said["id"], name))
        found = {"image": other} if other else {}
        places = {}
        for at, part in enumerate(self._parts):
            if part.name not in there:
                continue
            again = part.file.image(there[part.name])
            if kept_apart(again, said) != ({}, []):
                found[f"image_of_{part.name}"] = again
            if self._all.has_own(at):
                places[part.name] = there[part.name]
        return found | ({"places": places} if places else {})

    def _stray(self, number: int) -> tuple[CocoFile, tuple[int, bytes]]:
        """An annotation that is of no image: its file, its place in the list and its bytes."""
        for part in self._parts:
            if number < part.file.strays:
                return part.file, part.file.stray(number)
            number -= part.file.strays
        raise IndexError(number)
