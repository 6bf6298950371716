"""Pascal VOC: its XML, sets of it as sources, and its files again from a packed set."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir, is_file
from fastload.packing.annotations.annotated_files import FileSamples, Paths, facts_of, read_small, read_text
from fastload.packing.annotations.unpacked_files import (
    Unpacked,
    picture_field,
    safe_path,
    samples_of,
    source_of,
    write_new,
)
from fastload.packing.files import names_in, printable, raise_if_transient
from fastload.packing.pictures import read_picture
from fastload.packing.rows import PartialSample, Sample
from fastload.sample.fields import Array, Boxes, Image, Json, Labels, Mask
from fastload.sample.schema import Field, Schema
from fastload.shard.dataset import PackedFiles
from fastload.shard.suffixes import is_image

# ---- Pascal VOC's XML as nested lists, and its objects ----------------------------------------------

#: An element: its name, and its text or the elements in it; attributes, if there are any, come third.
Element = list[Any]
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_FLAGS = ("difficult", "truncated")
_DEEPEST = 32
_RETURN = {"\r": "&#13;"}  # XML reads a bare one as the end of a line


class VocObject(NamedTuple):
    """The values of an object's fields."""

    name: str
    box: tuple[float, float, float, float]  # in the file's coordinates
    difficult: bool
    truncated: bool


class _Tree:
    """Elements on their way from the parser."""

    def __init__(self) -> None:
        self._top: Element = ["", []]
        self._open = [self._top]

    @property
    def root(self) -> Element:
        root: Element = self._top[1][0]
        return root

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > _DEEPEST:
            raise ValueError(f"its elements are nested more than {_DEEPEST} deep")
        element: Element = [name, "", attributes] if attributes else [name, ""]
        inside = self._open[-1]
        if isinstance(inside[1], str):
            if inside[1].strip():
                raise ValueError(f"<{inside[0]}> has both text and elements")
            inside[1] = []
        inside[1].append(element)
        self._open.append(element)

    def end(self, name: str) -> None:
        self._open.pop()

    def text(self, text: str) -> None:
        inside = self._open[-1]
        if isinstance(inside[1], str):
            inside[1] += text
        elif text.strip():
            raise ValueError(f"<{inside[0]}> has both text and elements")


def parse_voc(data: bytes) -> Element:
    """Parse the ``annotation`` of a file, without comments.

    Raises:
        ValueError: it is not XML, or not VOC's.
    """
    tree = _Tree()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:  # LookupError: unknown encodings
        raise ValueError(f"it is not XML: {error}") from None
    if tree.root[0] != "annotation":
        raise ValueError(f"its first element is <{tree.root[0]}>; must be <annotation>")
    return tree.root


def _refuse(*_: Any) -> None:
    raise ValueError("it declares a document type, whose entities could grow without end")


def objects_of(root: Element) -> list[Element]:
    """Return the elements of objects, in order."""
    return [element for element in _elements(root) if element[0] == "object"]


def _elements(element: Element) -> list[Element]:
    return element[1] if isinstance(element[1], list) else []


def _child(element: Element, name: str) -> Element | None:
    return next((child for child in _elements(element) if child[0] == name), None)


def _text(element: Element | None, name: str) -> str | None:
    child = None if element is None else _child(element, name)
    return child[1].strip() if child is not None and isinstance(child[1], str) else None


def object_of(element: Element) -> VocObject:
    """Return the values of an object's fields.

    Raises:
        ValueError: it has no name or no box, or a box without area.
    """
    name = _text(element, "name")
    if not name:
        raise ValueError("it has no <name>")
    bounds = _child(element, "bndbox")
    if bounds is None:
        raise ValueError("it has no <bndbox>")
    numbers = []
    for corner in _CORNERS:
        text = _text(bounds, corner)
        try:
            number = float(text or "")
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1 << 20:
            raise ValueError(f"<{corner}> must be a number of pixels. Found: {text!r}")
        numbers.append(number)
    left, top, right, bottom = numbers
    if right <= left or bottom <= top:
        raise ValueError(f"its box has no area: {left:g}, {top:g}, {right:g}, {bottom:g}")
    flags = [_flag(element, flag) for flag in _FLAGS]
    return VocObject(name, (left, top, right, bottom), *flags)


def _flag(element: Element, name: str) -> bool:
    text = _text(element, name)
    if text not in (None, "", "0", "1"):
        raise ValueError(f"<{name}> must be 0 or 1. Found: {text!r}")
    return text == "1"


def _printed(number: float) -> str:
    """Return a coordinate as text: the shortest that gives this float32 again."""
    text = str(np.float32(number))
    return text.removesuffix(".0")


def _said(one: VocObject) -> dict[str, str]:
    """Return the texts of an object's fields."""
    corners = {corner: _printed(number) for corner, number in zip(_CORNERS, one.box, strict=True)}
    return {
        "name": one.name,
        "difficult": str(int(one.difficult)),
        "truncated": str(int(one.truncated)),
        **corners,
    }


def rest_of(root: Element, kept: Sequence[tuple[Element, VocObject]]) -> Element:
    """Return the annotation without the objects that are not kept, and with None for each text of the others
    that their fields give exactly."""
    objects = {id(element): values for element, values in kept}
    elements: list[Element] = []
    for element in _elements(root):
        if element[0] != "object":
            elements.append(element)
        elif id(element) in objects:
            elements.append(_changed(element, functools.partial(_forgotten, _said(objects[id(element)]))))
    return [root[0], elements, *root[2:]]


def filled(rest: Element, objects: Sequence[VocObject]) -> Element:
    """Restore the annotation from what :func:`rest_of` left and the values of the fields."""
    texts = iter(map(_said, objects))
    elements: list[Element] = []
    for element in _elements(rest):
        if element[0] == "object":
            element = _changed(element, functools.partial(_remembered, next(texts)))
        elements.append(element)
    return [rest[0], elements, *rest[2:]]


def _forgotten(said: dict[str, str], name: str, text: str | None) -> str | None:
    return None if text == said[name] else text


def _remembered(said: dict[str, str], name: str, text: str | None) -> str | None:
    return said[name] if text is None else text


def _changed(element: Element, change: Callable[[str, str | None], str | None]) -> Element:
    """Return an object with changed texts of its fields."""
    inside = []
    for child in _elements(element):
        if child[0] == "bndbox":
            inner = [
                [leaf[0], change(leaf[0], leaf[1]), *leaf[2:]] if _is_leaf(leaf, _CORNERS) else leaf
                for leaf in _elements(child)
            ]
            child = [child[0], inner, *child[2:]]
        elif _is_leaf(child, ("name", *_FLAGS)):
            child = [child[0], change(child[0], child[1]), *child[2:]]
        inside.append(child)
    return [element[0], inside, *element[2:]]


def _is_leaf(element: Element, names: Sequence[str]) -> bool:
    return element[0] in names and not isinstance(element[1], list)


def to_xml(element: Element, depth: int = 0) -> str:
    """Return an element as text, indented by tabs like VOC's own files."""
    attributes = "".join(
        f" {name}={quoteattr(value)}" for name, value in (element[2] if len(element) > 2 else {}).items()
    )
    tabs, name = "\t" * depth, element[0]
    if isinstance(element[1], str):
        return f"{tabs}<{name}{attributes}>{escape(element[1], _RETURN)}</{name}>\n"
    inside = "".join(to_xml(child, depth + 1) for child in element[1])
    return f"{tabs}<{name}{attributes}>\n{inside}{tabs}</{name}>\n"


# ---- Sets of Pascal VOC: pictures with an XML file each, lists of names, and masks of some ----------

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
    """One list of names, each with its picture (empty: there is none)."""

    names: Paths
    pictures: Paths
    masks: tuple[str, ...]  # fields of masks that all of its pictures have


def voc_places(place: Path) -> list[Path]:
    """Return the folders with ``Annotations`` that a place may mean: itself, or VOC2007, VOC2012 in it."""
    if _has_xml(place / XML):
        return [place]
    below = [place / name for name in names_in(place) if YEAR.fullmatch(name)]
    return [folder for folder in below if _has_xml(folder / XML)]


def _has_xml(folder: Path) -> bool:
    return is_dir(folder) and any(name.endswith(".xml") for name in os.listdir(folder))


def voc_sets(
    place: Path, lists: Sequence[str] = (), limit: int | None = None, exif: str = "refuse"
) -> list[tuple[str, VocSamples]]:
    """Return split ("": the only one) and samples of each.

    Args:
        place: the folder with ``Annotations``, or one that has pictures and XML files itself.
        lists: files of names, each of which becomes a split; none: ``ImageSets/Main``'s train and val.

    Raises:
        PackError: there are no pictures, or lists cannot be read.
    """
    root = os.fsencode(place)
    folder = XML.encode() if is_dir(place / XML) else b""
    pictures = _pictures(place)
    names = _lists(place, folder, lists)
    splits = {split: _split(place, pictures, some) for split, some in names.items()}
    classes = _classes(root, folder, splits.values())
    sets: list[tuple[str, VocSamples]] = []
    for split, files in splits.items():
        source = {"layout": "voc", "folder": os.fsdecode(folder), "split": split}
        schema = Schema((Field("image", Image(), source=source), *_fields(files.masks, classes)))
        sets.append((split if len(splits) > 1 else "", VocSamples(root, folder, files, schema, limit, exif)))
    return sets


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

    def sample(self, position: int) -> Sample | PartialSample:
        picture, xml = self.picture(position), self._xml(position)
        if not picture:
            raise ValueError(f"{printable(xml)}: there is no picture of this name")
        tree = parse_voc(read_small(os.path.join(self.root, xml)))
        kept: list[tuple[Any, VocObject]] = []
        left_out: list[tuple[str, str]] = []
        for number, element in enumerate(objects_of(tree), 1):
            try:
                values = object_of(element)
                if values.name not in self._numbers:
                    raise ValueError(f"{values.name!r} was no class when packing began")
                kept.append((element, values))
            except ValueError as error:
                left_out.append((f"object {number} of {printable(xml)}", str(error)))
        data = read_picture(os.path.join(self.root, picture))
        facts_of(data, self._exif)
        objects = [values for _, values in kept]
        sample: dict[str, Any] = {
            "image": {"bytes": data, "path": os.fsdecode(picture)},
            "boxes": [values.box for values in objects],
            "labels": [self._numbers[values.name] for values in objects],
            "difficult": [values.difficult for values in objects],
            "truncated": [values.truncated for values in objects],
            "rest": rest_of(tree, kept),
        }
        for field in self._split.masks:
            sample[field] = os.fsdecode(self._mask(field, position))
        return PartialSample(sample, left_out) if left_out else sample

    def sources(self, position: int) -> Iterator[bytes]:
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
    """Return the path of each picture below the place, by its name without suffix."""
    below = next((name for name in _PICTURES if is_dir(place / name)), "")
    paths: dict[bytes, bytes] = {}
    for name in sorted(os.listdir(os.fsencode(place / below))):
        stem, suffix = os.path.splitext(name)
        if is_image(suffix):
            path = os.path.join(os.fsencode(below), name)
            if stem in paths:
                raise PackError(
                    f"{printable(paths[stem])} and {printable(path)} have the same name, so it is unclear "
                    "which the annotations are of. Remove or rename one."
                )
            paths[stem] = path
    if not paths:
        raise PackError(f"{place} has no images, neither itself nor in {', '.join(_PICTURES)}.")
    return paths


def _lists(place: Path, folder: bytes, said: Sequence[str]) -> dict[str, list[bytes]]:
    """Return names by split."""
    annotations = place / os.fsdecode(folder)
    if said:
        paths = [Path(path) if is_file(Path(path)) else place / path for path in said]
        return {path.stem: _names(path, annotations) for path in paths}
    main = place / "ImageSets" / "Main"
    for wanted in (_LISTS, ("trainval",)):
        files = {name: main / f"{name}.txt" for name in wanted}
        lists = {name: _names(path, annotations) for name, path in files.items() if exists(path)}
        lists = {
            name: names
            for name, names in lists.items()
            if names and exists(annotations / f"{os.fsdecode(names[0])}.xml")
        }
        if lists:
            return lists
    names = [os.fsencode(name[:-4]) for name in sorted(os.listdir(annotations)) if name.endswith(".xml")]
    if not names:
        raise PackError(f"{annotations} has no .xml files.")
    return {"": names}


def _names(path: Path, annotations: Path) -> list[bytes]:
    """Return the name in each line, which a number may follow."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise PackError(f"{path} cannot be read: {error}.") from None
    names = [os.fsencode(_name_in(line.strip(), annotations)) for line in lines if line.strip()]
    if not names:
        raise PackError(f"{path} has no names of pictures.")
    return list(dict.fromkeys(names))


def _name_in(line: str, annotations: Path) -> str:
    """Return the line, or what is before its last word, if there are annotations of that name; else its first
    word."""
    words = line.split()
    for name in (line, line[: -len(words[-1])].rstrip()) if len(words) > 1 else ():
        if exists(annotations / f"{name}.xml"):
            return name
    return words[0]


def _split(place: Path, pictures: Mapping[bytes, bytes], names: Sequence[bytes]) -> _Split:
    masks = []
    for field, folder in MASKS.items():
        existing = set(os.listdir(os.fsencode(place / folder))) if is_dir(place / folder) else set()
        if existing and all(name + b".png" in existing for name in names):
            masks.append(field)
    return _Split(Paths(names), Paths(pictures.get(name, b"") for name in names), tuple(masks))


def _classes(root: bytes, folder: bytes, splits: Iterable[_Split]) -> tuple[str, ...]:
    """Return the names of all objects, sorted; VOC's own 20 if all are among these."""
    classes: set[str] = set()
    for names in (split.names for split in splits):
        for number in range(len(names)):
            try:
                xml = read_small(path := os.path.join(root, folder, names[number] + b".xml"))
                elements = objects_of(parse_voc(xml))
            except (OSError, ValueError) as error:
                raise_if_transient(path, error)
                continue
            for element in elements:
                try:
                    classes.add(object_of(element).name)
                except ValueError:
                    continue  # left out where the sample is made
    return VOC_CLASSES if classes.issubset(VOC_CLASSES) else tuple(sorted(classes))


# ---- Pascal VOC's sets as pictures, XML, masks and lists --------------------------------------------

_NEEDED = ("boxes", "labels", "difficult", "truncated", "rest")


def unpack_voc(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, XML files of equal content, masks, and the list of names below ``folder``.

    Raises:
        PackError: the set was not packed from VOC's files, or does not have all that they said.
        FormatError: keys are not safe paths.
        ChecksumError: records are damaged.
    """
    source = source_of(dataset, "voc", _NEEDED)
    labels = dataset.schema["labels"].kind
    assert isinstance(labels, Labels)
    root = os.fsencode(folder)
    below = os.fsencode(source["folder"])
    masks = {name: os.fsencode(place) for name, place in MASKS.items() if name in dataset.schema}
    names: list[bytes] = []
    for sample in samples_of(dataset):
        stem = os.path.splitext(os.path.basename(sample.path))[0]
        write_new(root, sample.path, sample.data(picture_field(dataset)))
        text = to_xml(filled(sample.value("rest"), _objects(sample, labels.classes)))
        write_new(root, safe_path(os.path.join(below, stem + b".xml")), text.encode())
        for name, place in masks.items():
            write_new(root, os.path.join(place, stem + b".png"), sample.data(name))
        names.append(stem)
    if source["split"]:
        listed = safe_path(b"ImageSets/Main/" + os.fsencode(source["split"]) + b".txt")
        write_new(root, listed, b"".join(name + b"\n" for name in names))


def _objects(sample: Unpacked, classes: tuple[str, ...]) -> list[VocObject]:
    columns = [sample.value(name).tolist() for name in ("labels", "boxes", "difficult", "truncated")]
    return [
        VocObject(classes[label], (box[0], box[1], box[2], box[3]), difficult, truncated)
        for label, box, difficult, truncated in zip(*columns, strict=True)
    ]
