"""COCO sets as sources: instances, captions, keypoints and panoptic segments of one set of pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import is_dir, is_file
from fastload.packing.annotations.annotated_files import FileSamples, check_size, unturned
from fastload.packing.annotations.coco_file import (
    IN_ITS_FOLDER,
    CocoFile,
    digest_of,
    first_annotation,
    folder_of,
    is_deep,
    is_outside,
    maps_of,
    png_name,
    split_of,
)
from fastload.packing.annotations.coco_rows import (
    CAPTIONS,
    OBJECTS,
    SEGMENTS,
    Captions,
    CocoPart,
    CocoRows,
    image_id_of,
    image_of,
    kept_apart,
    named,
    read_as,
    schema_of,
    values_of,
)
from fastload.packing.annotations.panoptic import Segments
from fastload.packing.files import names_in, printable
from fastload.packing.options import PackOptions
from fastload.packing.rows import PartialSample, Sample
from fastload.packing.sample_rows import SampleRows
from fastload.sample.fields import Mask
from fastload.sample.schema import Field

# ---- The images of COCO's JSONs as samples ----------------------------------------------------------

MAPS = "stuff"  # the field of COCO-Stuff's PNGs
_LOOKED_AT = 16


def coco_samples(
    place: Path, split: str, parts: Sequence[CocoPart], maps: Path | None, limit: int | None, exif: str
) -> CocoSamples:
    """Return the samples of one split.

    Args:
        place: the folder of the set, or of the pictures.
        split: its name.
        parts: its JSONs, those of objects first.
        maps: the folder of PNGs of ids.
        limit: only the first this many images.
        exif: "refuse" or "ignore" pictures that EXIF turns.

    Raises:
        PackError: there are no pictures, or the JSONs do not go together.
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
        """Return an image's position in a file's list; -1: it does not have it."""
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
        positions = np.searchsorted(ids[order], wanted).clip(0, len(ids) - 1)
        matches = ids[order][positions] == wanted
        places[matches] = order[positions[matches]]
    return places


class CocoSamples(FileSamples):
    """The images of COCO's JSONs with their annotations.

    After them come annotations of no image, each as a sample that cannot be packed.
    """

    def __init__(
        self, folder: Path, place: Path, parts: Sequence[CocoPart], maps: Path | None, limit: int | None,
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
        # Captions are the same whichever way a picture is turned.
        self._exif = exif if {OBJECTS, SEGMENTS} & {part.what for part in parts} else "ignore"
        more = [field for segments in self._segments.values() for field in segments.fields()]
        if maps is not None:
            some = (png_name(self._name(image)) for image in range(self._images))
            deep = is_deep(maps, islice(some, _LOOKED_AT))
            # Unpacking would put a folder with only the split's name among the pictures.
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

    def moved(self, to: Callable[[bytes], bytes]) -> CocoSamples:
        other = super().moved(to)
        other._maps = None if self._maps is None else to(self._maps)
        other._segments = {name: segments.moved(to) for name, segments in self._segments.items()}
        return other

    def sources(self, position: int) -> Iterator[bytes]:
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

    def sample(self, position: int) -> Sample | PartialSample:
        if position < self._images:
            return self._of_image(position)
        order, data = self._stray(position - self._images)[1]
        raise ValueError(f"{named(data, order)}: its image_id, {image_id_of(data)}, is not that of an image")

    def _of(self, image: int) -> Iterator[tuple[CocoPart, int]]:
        """Yield the files that have an image, with its position in each one's list."""
        for at, part in enumerate(self._parts):
            number = self._all.place(at, image)
            if number >= 0:
                yield part, number

    def _name(self, image: int) -> bytes:
        part, number = next(self._of(image))
        return part.file.name(number)

    def _of_image(self, image: int) -> Sample | PartialSample:
        (first, number), *others = self._of(image)
        name, entry = first.file.name(number), first.file.image(number)
        if not name:
            raise ValueError(f"{first.file.path.name}: image {entry['id']} has no file_name that is one")
        if is_outside(name):
            raise ValueError(
                f"file_name must be a path below the folder of the pictures. Found: {printable(name)}"
            )
        for part, again in others:
            if part.file.name(again) != name:
                raise ValueError(
                    f"image {entry['id']} is {printable(name)} in {first.file.path.name} and "
                    f"{printable(part.file.name(again))} in {part.file.path.name}"
                )
        name = os.path.normpath(name)
        picture = unturned(self.root, name, self._exif)
        if isinstance(picture, dict):
            check_size(picture["bytes"], entry)
        sample: dict[str, Any] = {"image": picture, "image_id": entry["id"]}
        if self._maps is not None:
            sample[MAPS] = os.fsdecode(os.path.join(self._maps, png_name(name)))
        numbers = {part.name: again for part, again in self._of(image)}
        rest: dict[str, Any] = {}
        left_out: list[tuple[str, str]] = []
        rows = self._rows(numbers, rest, left_out)
        objects = {part: of_part for part, of_part in rows.items() if part.what == OBJECTS}
        sample |= self._objects.values(objects) if objects else {}
        for part, of_part in rows.items():
            if part.what == CAPTIONS:
                sample |= values_of(part, of_part)
        for key, segments in self._segments.items():
            if key in numbers:
                values, rest[key], lost = segments.of_image(numbers[key])
                left_out += lost
            else:
                values = segments.nothing(entry)
            sample |= values
        rest |= self._of_images(numbers, entry, os.fsdecode(name))
        sample["rest"] = rest or None
        return PartialSample(sample, left_out) if left_out else sample

    def _rows(
        self, there: Mapping[str, int], rest: dict[str, Any], left_out: list[tuple[str, str]]
    ) -> dict[CocoPart, CocoRows]:
        """Return the annotations of an image in the files of objects and captions, as rows of each."""
        all_rows: dict[CocoPart, CocoRows] = {}
        before: CocoRows | None = None
        for part in self._parts:
            reader = self._captions.get(part.name) or self._objects.readers.get(part.name)
            if reader is None:
                continue
            rows = all_rows[part] = CocoRows(before if part.what == OBJECTS else None)
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
        return all_rows

    def _of_images(self, there: Mapping[str, int], said: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return what the fields cannot say of an image, its entry in another file if that differs, and its
        positions in the lists of files that have other images."""
        other, _ = kept_apart(said, image_of(said["id"], name))
        rest = {"image": other} if other else {}
        places = {}
        for at, part in enumerate(self._parts):
            if part.name not in there:
                continue
            again = part.file.image(there[part.name])
            if kept_apart(again, said) != ({}, []):
                rest[f"image_of_{part.name}"] = again
            if self._all.has_own(at):
                places[part.name] = there[part.name]
        return rest | ({"places": places} if places else {})

    def _stray(self, number: int) -> tuple[CocoFile, tuple[int, bytes]]:
        """Return an annotation of no image: its file, its position in the list and its bytes."""
        for part in self._parts:
            if number < part.file.strays:
                return part.file, part.file.stray(number)
            number -= part.file.strays
        raise IndexError(number)


# ---- COCO's sets: a folder of pictures, and JSONs of objects, captions and segments -----------------

_FIRST = ("instances", "person_keypoints")  # the first files with objects; others follow


@dataclass(frozen=True)
class _Found:
    path: Path
    what: str  # OBJECTS, CAPTIONS or SEGMENTS


def coco_files(place: Path) -> list[Path]:
    """Return COCO's JSONs of objects and of captions in a folder of a set."""
    if not is_dir(place):
        return []
    folder = place / "annotations"
    names = [name for name in names_in(folder) if name.endswith(".json")]
    paths = [*(folder / name for name in names), place / IN_ITS_FOLDER]
    return [path for path in paths if is_file(path) and _what_of(path) in (OBJECTS, CAPTIONS)]


def refuse_unread(place: Path) -> None:
    """Refuse a folder of pictures whose annotations, as COCO has them, are no JSON that can be read.

    Its pictures would be packed without them, in silence.

    Raises:
        PackError: there is such a file.
    """
    folder = place / "annotations"
    for name in names_in(folder) if is_dir(folder) else []:
        if name.endswith(".json"):
            try:
                CocoFile(folder / name)
            except PackError as error:
                raise PackError(
                    f"{error} Mend it, or pack the pictures alone: --as classes (in Python as_='classes')."
                ) from None


def coco_source(
    place: Path, annotations: Sequence[str], options: PackOptions
) -> list[tuple[str, SampleRows]]:
    """Return the splits of a set, each with its samples; the only one has no name.

    Args:
        place: the folder of the set, or of the pictures.
        annotations: the JSONs; (): those that lie in ``place``.
        options: the pack's options.

    Raises:
        PackError: JSONs are not COCO's, or it is unknown which go together.
    """
    paths = [_given(place, name) for name in annotations] or coco_files(place)
    found_files = []
    for path in paths:
        what = _what_of(path)
        if what is None:
            CocoFile(path)  # raises if the file itself is wrong
            raise PackError(
                f"{path} has neither objects ('bbox') nor captions ('caption') in its annotations, nor "
                "segments ('segments_info')."
            )
        found_files.append(_Found(path, what))
    # Objects, captions and segments that are named go together, whatever they are called.
    is_one = bool(annotations) and len({file.what for file in found_files}) == len(found_files)
    splits: dict[str, list[_Found]] = {}
    for file in found_files:
        splits.setdefault(split_of(paths[0] if is_one else file.path), []).append(file)
    results: list[tuple[str, SampleRows]] = []
    for split, files in splits.items():
        maps = maps_of(place, split, [file.path for file in files], options.masks)
        samples = coco_samples(place, split, _parts(files), maps, options.limit, options.exif)
        results.append((split if len(splits) > 1 else "", samples))
    return results


def _given(place: Path, name: str) -> Path:
    path = Path(name).absolute()
    below = place / name
    if not is_file(path) and not is_file(below):
        raise PackError(f"{path} is not a file; --annotations takes a JSON.")
    return path if is_file(path) else below


def _what_of(path: Path) -> str | None:
    first = first_annotation(path)
    if first is None:
        return None
    if "segments_info" in first:
        return SEGMENTS
    if "caption" in first:
        return CAPTIONS
    return OBJECTS if not first or "bbox" in first or "category_id" in first else None


def _parts(found: Sequence[_Found]) -> list[CocoPart]:
    """Return the files of a split, those of objects first."""
    parts = []
    for what in (OBJECTS, CAPTIONS, SEGMENTS):
        same = sorted((file.path for file in found if file.what == what), key=_rank)
        if len(same) > 1 and what != OBJECTS:
            raise PackError(
                f"{len(same)} files have {what} of the same pictures: {', '.join(map(str, same))}. Say "
                f"which: --annotations FILE, once for {what} and once for each other file."
            )
        parts += [CocoPart(what, number, CocoFile(path)) for number, path in enumerate(same, 1)]
    return parts


def _rank(path: Path) -> tuple[int, str]:
    return next((at for at, name in enumerate(_FIRST) if path.name.startswith(name)), len(_FIRST)), path.name
