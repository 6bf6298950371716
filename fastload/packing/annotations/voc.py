"""Pascal VOC: pictures with an XML file each, lists of names, and masks of some."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir, is_file
from fastload.packing.annotations.listed import FileSamples, Paths, facts_of, read_small, read_text
from fastload.packing.annotations.voc_xml import VocObject, object_of, objects_of, parse_voc, rest_of
from fastload.packing.looks import names_in, said_later
from fastload.packing.names import printable
from fastload.packing.samples.encode import Lessened
from fastload.packing.samples.given import Sample
from fastload.packing.samples.pictures import read_picture
from fastload.sample.fields import Array, Boxes, Image, Json, Labels, Mask
from fastload.sample.schema import Field, Schema
from fastload.shard.suffixes import is_image

__all__ = ["MASKS", "VOC_CLASSES", "XML", "YEAR", "voc_places", "voc_sets"]

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
YEAR = re.compile(r"VOC20[0-9][0-9]")
XML, _PICTURES = "Annotations", ("JPEGImages", "images", "Images")
#: Folders of masks by field.
MASKS = {"mask": "SegmentationClass", "instances": "SegmentationObject"}
_LISTS = ("train", "val", "test")


@dataclass(frozen=True)
class _Split:
    """One list of names: of each its picture (empty: there is none)."""

    names: Paths
    pictures: Paths
    masks: tuple[str, ...]  # fields of masks that all of its pictures have


def voc_places(place: Path) -> list[Path]:
    """The folders with ``Annotations`` that a place may mean: itself, or those in it, as VOC2007 and
    VOC2012."""
    if _has_xml(place / XML):
        return [place]
    below = [place / name for name in names_in(place) if YEAR.fullmatch(name)]
    return [folder for folder in below if _has_xml(folder / XML)]


def _has_xml(folder: Path) -> bool:
    return is_dir(folder) and any(name.endswith(".xml") for name in os.listdir(folder))


def voc_sets(
    place: Path, lists: Sequence[str] = (), limit: int | None = None, exif: str = "refuse"
) -> list[tuple[str, VocSamples]]:
    """Split ("": there is one only) and samples of each.

    Args:
        place: the folder with ``Annotations``; or one that has pictures and XML files itself.
        lists: files of names, which become a split each; none: ``ImageSets/Main``'s train and val.

    Raises:
        PackError: no pictures, or lists that cannot be read.
    """
    root = os.fsencode(place)
    folder = XML.encode() if is_dir(place / XML) else b""
    pictures = _pictures(place)
    names = _lists(place, folder, lists)
    found = {split: _split(place, pictures, some) for split, some in names.items()}
    classes = _classes(root, folder, found.values())
    made: list[tuple[str, VocSamples]] = []
    for split, one in found.items():
        source = {"layout": "voc", "folder": os.fsdecode(folder), "split": split}
        schema = Schema((Field("image", Image(), source=source), *_fields(one.masks, classes)))
        made.append((split if len(found) > 1 else "", VocSamples(root, folder, one, schema, limit, exif)))
    return made


class VocSamples(FileSamples):
    """Pictures with their XML files."""

    def __init__(
        self, root: bytes, folder: bytes, one: _Split, schema: Schema, limit: int | None, exif: str
    ) -> None:
        count = len(one.names) if limit is None else min(len(one.names), limit)
        super().__init__(root, schema, count, {"voc": exif})
        self._folder, self._split, self._exif = folder, one, exif
        labels = schema["labels"].kind
        assert isinstance(labels, Labels)
        self._numbers = labels.indices

    def sample(self, position: int) -> Sample | Lessened:
        picture, xml = self.picture(position), self._xml(position)
        if not picture:
            raise ValueError(f"{printable(xml)}: there is no picture of this name")
        tree = parse_voc(read_small(os.path.join(self.root, xml)))
        kept: list[tuple[Any, VocObject]] = []
        left_out: list[tuple[str, str]] = []
        for number, element in enumerate(objects_of(tree), 1):
            try:
                one = object_of(element)
                if one.name not in self._numbers:
                    raise ValueError(f"{one.name!r} was no class when packing began")
                kept.append((element, one))
            except ValueError as error:
                left_out.append((f"object {number} of {printable(xml)}", str(error)))
        data = read_picture(os.path.join(self.root, picture))
        facts_of(data, self._exif)
        objects = [one for _, one in kept]
        sample: dict[str, Any] = {
            "image": {"bytes": data, "path": os.fsdecode(picture)},
            "boxes": [one.box for one in objects],
            "labels": [self._numbers[one.name] for one in objects],
            "difficult": [one.difficult for one in objects],
            "truncated": [one.truncated for one in objects],
            "rest": rest_of(tree, kept),
        }
        for field in self._split.masks:
            sample[field] = os.fsdecode(self._mask(field, position))
        return Lessened(sample, left_out) if left_out else sample

    def files(self, position: int) -> Iterator[bytes]:
        if self.picture(position):
            yield self.picture(position)
        yield self._xml(position)
        for field in self._split.masks:
            yield self._mask(field, position)

    def picture(self, position: int) -> bytes:
        return self._split.pictures[position]

    def _xml(self, position: int) -> bytes:
        return os.path.join(self._folder, self._split.names[position] + b".xml")

    def _mask(self, field: str, position: int) -> bytes:
        return os.path.join(MASKS[field].encode(), self._split.names[position] + b".png")


def _fields(masks: Iterable[str], classes: tuple[str, ...]) -> Iterator[Field]:
    yield Field("boxes", Boxes("xyxy"))
    yield Field("labels", Labels(classes), of="boxes")
    yield Field("difficult", Array("bool", (None,)), of="boxes")
    yield Field("truncated", Array("bool", (None,)), of="boxes")
    for name in masks:
        named = name == "mask" and classes == VOC_CLASSES
        yield Field(name, Mask(classes=("background", *classes) if named else ()))
    yield Field("rest", Json())


def _pictures(place: Path) -> dict[bytes, bytes]:
    """The path of each picture below the place, by its name without suffix."""
    below = next((name for name in _PICTURES if is_dir(place / name)), "")
    found: dict[bytes, bytes] = {}
    for name in sorted(os.listdir(os.fsencode(place / below))):
        stem, suffix = os.path.splitext(name)
        if is_image(suffix):
            path = os.path.join(os.fsencode(below), name)
            if stem in found:
                raise PackError(
                    f"{printable(found[stem])} and {printable(path)} have one name, so nobody knows which "
                    "the annotations are of. Remove or rename one."
                )
            found[stem] = path
    if not found:
        raise PackError(f"{place} has no images, neither itself nor in {', '.join(_PICTURES)}.")
    return found


def _lists(place: Path, folder: bytes, said: Sequence[str]) -> dict[str, list[bytes]]:
    """Names by split."""
    annotations = place / os.fsdecode(folder)
    if said:
        paths = [Path(path) if is_file(Path(path)) else place / path for path in said]
        return {path.stem: _names(path) for path in paths}
    main = place / "ImageSets" / "Main"
    for wanted in (_LISTS, ("trainval",)):
        found = {name: _names(main / f"{name}.txt") for name in wanted if exists(main / f"{name}.txt")}
        found = {
            name: names
            for name, names in found.items()
            if names and exists(annotations / f"{os.fsdecode(names[0])}.xml")
        }
        if found:
            return found
    names = [os.fsencode(name[:-4]) for name in sorted(os.listdir(annotations)) if name.endswith(".xml")]
    if not names:
        raise PackError(f"{annotations} has no .xml files.")
    return {"": names}


def _names(path: Path) -> list[bytes]:
    """The first word of each line."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise PackError(f"{path} cannot be read: {error}.") from None
    found = [os.fsencode(line.split()[0]) for line in lines if line.strip()]
    if not found:
        raise PackError(f"{path} has no names of pictures.")
    return list(dict.fromkeys(found))


def _split(place: Path, pictures: Mapping[bytes, bytes], names: Sequence[bytes]) -> _Split:
    masks = []
    for field, folder in MASKS.items():
        there = set(os.listdir(os.fsencode(place / folder))) if is_dir(place / folder) else set()
        if there and all(name + b".png" in there for name in names):
            masks.append(field)
    return _Split(Paths(names), Paths(pictures.get(name, b"") for name in names), tuple(masks))


def _classes(root: bytes, folder: bytes, splits: Iterable[_Split]) -> tuple[str, ...]:
    """The names of all objects, in their order; VOC's own 20 where all are of these."""
    found: set[str] = set()
    for names in (split.names for split in splits):
        for number in range(len(names)):
            try:
                xml = read_small(path := os.path.join(root, folder, names[number] + b".xml"))
                elements = objects_of(parse_voc(xml))
            except (OSError, ValueError) as error:
                said_later(path, error)
                continue
            for element in elements:
                try:
                    found.add(object_of(element).name)
                except ValueError:
                    continue  # likewise
    return VOC_CLASSES if found.issubset(VOC_CLASSES) else tuple(sorted(found))
