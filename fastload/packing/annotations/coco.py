"""COCO's sets: a folder of pictures, and JSONs of their objects (instances, keypoints) and captions."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.packing.annotations.coco_index import CocoFile, first_annotation
from fastload.packing.annotations.coco_schema import CAPTIONS, OBJECTS, ReadAs, read_as, schema_of
from fastload.packing.annotations.coco_values import Rows, named
from fastload.packing.annotations.coco_write import image_of, kept_apart
from fastload.packing.annotations.listed import FileSamples, unturned
from fastload.packing.names import printable
from fastload.packing.options import PackOptions
from fastload.packing.samples.encode import Lessened
from fastload.packing.samples.given import AnnotatedSource, Sample

__all__ = ["coco_files", "coco_source", "digest_of", "folder_of", "split_of"]

_NAMES = re.compile(r"(instances|person_keypoints|captions|image_info|panoptic)[_-]?(.*)")
_IN_ITS_FOLDER = "_annotations.coco.json"  # beside the pictures, as some tools write it
_AT_ONCE = 1 << 20
_LOOKED_AT = 16


@dataclass(frozen=True)
class _Found:
    path: Path
    what: str  # OBJECTS or CAPTIONS


def coco_files(place: Path) -> list[Path]:
    """COCO's JSONs of objects and of captions in a folder of a set."""
    if not place.is_dir():
        return []
    found = [*sorted((place / "annotations").glob("*.json")), place / _IN_ITS_FOLDER]
    return [path for path in found if path.is_file() and _what_of(path) is not None]


def coco_source(
    place: Path, annotations: Sequence[str], options: PackOptions
) -> list[tuple[str, AnnotatedSource]]:
    """The splits of a set, each with its samples; where there is one only, it has no name.

    Args:
        place: the folder of the set, or of the pictures.
        annotations: the JSONs; (): those that lie in ``place``.
        options: the pack's.

    Raises:
        PackError: JSONs that are none of COCO's, or of which nobody knows what goes together.
    """
    paths = [_given(place, name) for name in annotations] or coco_files(place)
    found_files = []
    for path in paths:
        what = _what_of(path)
        if what is None:
            CocoFile(path)  # says what is wrong with it
            raise PackError(
                f"{path} has neither objects ('bbox') nor captions ('caption') in its annotations."
            )
        found_files.append(_Found(path, what))
    # Objects and captions that are named go together, whatever they are called.
    is_one = bool(annotations) and len({one.what for one in found_files}) == len(found_files)
    splits: dict[str, list[_Found]] = {}
    for one in found_files:
        splits.setdefault(split_of(paths[0] if is_one else one.path), []).append(one)
    made = []
    for split, found in splits.items():
        for what in (OBJECTS, CAPTIONS):
            same = [str(one.path) for one in found if one.what == what]
            if len(same) > 1:
                raise PackError(
                    f"{len(same)} files have {what} of the same pictures: {', '.join(same)}. Say which: "
                    "--annotations FILE, once for objects and once for captions."
                )
        files = {one.what: CocoFile(one.path) for one in sorted(found, key=lambda one: one.what != OBJECTS)}
        made.append((split if len(splits) > 1 else "", _source(place, split, files, options)))
    return made


def _given(place: Path, name: str) -> Path:
    path = Path(name).absolute()
    below = place / name
    if not path.is_file() and not below.is_file():
        raise PackError(f"{path} is no file; --annotations takes a JSON.")
    return path if path.is_file() else below


def _what_of(path: Path) -> str | None:
    first = first_annotation(path)
    if first is None:
        return None
    if first and "caption" in first:
        return CAPTIONS
    return OBJECTS if not first or "bbox" in first or "category_id" in first else None


def split_of(path: Path) -> str:
    if path.name == _IN_ITS_FOLDER:
        return ""
    match = _NAMES.fullmatch(path.stem)
    return match[2] if match else path.stem


def _source(place: Path, split: str, files: Mapping[str, CocoFile], options: PackOptions) -> AnnotatedSource:
    first, *others = files.values()
    for other in others:
        if len(other) != len(first) or (other.ids != first.ids).any():
            raise PackError(
                f"{other.path} and {first.path} have other images, or in another order. Pack them apart: "
                "--annotations FILE."
            )
    folder = folder_of(place, split, first)
    return CocoSamples(folder, place, files, options.limit, options.exif)


def folder_of(place: Path, split: str, file: CocoFile) -> Path:
    """Where the pictures are: the folder in which some of the first ones are found."""
    images = place / "images"
    folders = [*([place / split, images / split] if split else []), images, place]
    names = [file.name(number) for number in range(min(len(file), _LOOKED_AT))]
    for folder in folders:
        inside = (os.path.join(os.fsencode(folder), name) for name in names if not _is_outside(name))
        if any(map(_is_file, inside)):
            return folder
    looked = ", ".join(map(str, folders))
    shown = printable(names[0]) if names else "none"
    raise PackError(
        f"the pictures of {file.path} are in none of these folders: {looked} (the first: {shown})."
    )


def _is_outside(name: bytes) -> bool:
    """Whether a file name is no path below the folder of the pictures."""
    return os.path.isabs(name) or os.path.normpath(name).split(b"/")[0] == b".."


def _is_file(path: bytes) -> bool:
    try:
        return os.path.isfile(path)
    except ValueError:  # a NUL
        return False


class CocoSamples(FileSamples):
    """The images of COCO's JSONs with what these say of them, in the order of the first file's list.

    Behind them come annotations that are of no image, each as a sample that cannot be packed.
    """

    def __init__(
        self, folder: Path, place: Path, files: Mapping[str, CocoFile], limit: int | None, exif: str
    ) -> None:  # fmt: skip
        self._files = dict(files)
        self._first = next(iter(self._files.values()))
        self._images = min(len(self._first), limit or len(self._first))
        strays = 0 if limit else sum(file.strays for file in self._files.values())
        inside = os.path.relpath(folder, place)
        schema = schema_of(self._files, "images" if inside.startswith(os.curdir) else inside)
        self._read: dict[str, ReadAs] = {what: read_as(what, file) for what, file in self._files.items()}
        self._exif = exif if OBJECTS in files else "ignore"  # captions are the same whichever way it lies
        settings = {
            "annotations": [digest_of(file.path) for file in self._files.values()],
            "coco": self._exif,
        }
        super().__init__(os.fsencode(folder), schema, self._images + strays, settings)

    def files(self, position: int) -> Iterator[bytes]:
        name = self._first.name(position) if position < self._images else b""
        if name:
            yield name

    def picture(self, position: int) -> bytes:
        if position < self._images:
            return self._first.name(position)
        return os.fsencode(self._stray(position - self._images)[0].path.name)

    def newest_ns(self) -> int:
        return max(super().newest_ns(), *(file.path.stat().st_mtime_ns for file in self._files.values()))

    def needed_bytes(self) -> int:
        return super().needed_bytes() + sum(file.path.stat().st_size for file in self._files.values())

    def sample(self, position: int) -> Sample | Lessened:
        if position < self._images:
            return self._of_image(position)
        order, data = self._stray(position - self._images)[1]
        raise ValueError(f"{named(data, order)}: its image_id is none of the images'")

    def _of_image(self, number: int) -> Sample | Lessened:
        name = self._first.name(number)
        image = self._first.image(number)
        if not name:
            raise ValueError(f"{self._first.path.name}: image {image['id']} has no file_name that is one")
        if _is_outside(name):
            raise ValueError(
                f"file_name must be a path below the folder of the pictures. Found: {printable(name)}"
            )
        left_out: list[tuple[str, str]] = []
        name = os.path.normpath(name)
        sample: dict[str, Any] = {"image": unturned(self.root, name, self._exif), "image_id": image["id"]}
        rest: dict[str, Any] = {}
        for what, file in self._files.items():
            rows = Rows()
            reader = self._read[what]
            for order, data in file.annotations(number):
                try:
                    reader.rows.add(rows, order, data, image)
                except (ValueError, OverflowError, RecursionError) as error:
                    left_out.append((named(data, order), str(error)))
            sample |= reader.values(rows)
            rest |= {f"{what}": rows.other} if rows.other else {}
            rest |= {f"{what}_without": rows.without} if rows.without else {}
        rest |= self._of_images(number, image, os.fsdecode(name))
        sample["rest"] = rest or None
        return Lessened(sample, left_out) if left_out else sample

    def _of_images(self, number: int, image: Mapping[str, Any], name: str) -> dict[str, Any]:
        """What the fields cannot say of an image; and of the same in another file where that says else."""
        made = image_of(image["id"], name)
        other, _ = kept_apart(image, made)
        found = {"image": other} if other else {}
        for what, file in list(self._files.items())[1:]:
            again = file.image(number)
            if kept_apart(again, image) != ({}, []):
                found[f"image_of_{what}"] = again
        return found

    def _stray(self, number: int) -> tuple[CocoFile, tuple[int, bytes]]:
        """An annotation that is of no image: its file, its place in the list and its bytes."""
        for file in self._files.values():
            if number < file.strays:
                return file, file.stray(number)
            number -= file.strays
        raise IndexError(number)


def digest_of(path: Path) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(_AT_ONCE):
            hashed.update(part)
    return hashed.hexdigest()
