"""COCO files again from a packed set, including panoptic maps, byte for byte."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.extras import need
from fastload.machine.paths import read_at, write_at
from fastload.packing.annotations.coco import MAPS
from fastload.packing.annotations.coco_file import png_name
from fastload.packing.annotations.coco_rows import (
    BOXES,
    CAPTIONS,
    FIELDS,
    OBJECTS,
    SEGMENTS,
    annotation_of,
    caption_of,
    image_of,
    restored,
)
from fastload.packing.annotations.panoptic import PANOPTIC_FIELDS
from fastload.packing.annotations.unpacked_files import (
    AS_TABLE,
    picture_field,
    require,
    safe_path,
    samples_of,
    source_of,
    write_new,
    written,
)
from fastload.packing.fetched import in_windows
from fastload.packing.files import ESCAPED, decode_key
from fastload.packing.pictures import NUMPY_SUFFIX, png_file
from fastload.sample.fields import Labels
from fastload.shard.codecs import PILLOW_FORMATS
from fastload.shard.dataset import PackedFiles

# ---- Panoptic sets as pictures, PNGs of the same pixels, and a JSON of equal content ----------------


def unpack_panoptic(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, ``annotations/NAME.json`` and ``annotations/NAME/*.png`` below ``folder``.

    Raises:
        PackError: the set was not packed from such files, or does not have all that they said.
        FormatError: keys are not safe paths.
        ChecksumError: records are damaged.
    """
    source = source_of(dataset, "panoptic", ("image_id", "panoptic", *PANOPTIC_FIELDS.values(), "rest"))
    labels = dataset.schema[PANOPTIC_FIELDS["category_id"]]
    assert isinstance(labels.kind, Labels)
    root = os.fsencode(folder)
    pictures = safe_path(os.fsencode(source["folder"]))
    name = safe_path(os.fsencode(source["name"]))
    masks = b"annotations/" + os.path.splitext(name)[0]
    images: list[str] = []
    orders, ends = array("q"), array("q")
    with tempfile.TemporaryFile() as annotations:
        for position, sample in enumerate(samples_of(dataset)):
            rest = sample.value("rest") or {}
            number = int(sample.value("image_id"))
            write_new(root, pictures + b"/" + sample.path, sample.data(picture_field(dataset)))
            image = restored(image_of(number, os.fsdecode(sample.path)), rest.get("image", {}), [])
            images.append(json.dumps(image))
            segments = segments_of(sample.value, number, labels.kind.ids, source["forms"], rest)
            expected = {
                "image_id": number,
                "file_name": os.fsdecode(png_name(sample.path)),
                "segments_info": segments,
            }
            annotation = restored(expected, rest.get("annotation", {}), [])
            png = safe_path(os.fsencode(annotation["file_name"]))
            write_new(root, masks + b"/" + png, png_of(sample.data, sample.value))
            annotations.write(json.dumps(annotation).encode())
            orders.append(rest.get("order", position))
            ends.append(annotations.tell())
        annotations.flush()
        top = {**source["top"], "categories": labels.source["categories"]}
        with open(os.path.join(root, b"annotations", name), "x", encoding="ascii") as file:
            file.write("{" + "".join(f"{json.dumps(key)}: {json.dumps(top[key])},\n" for key in top))
            file.write('"images": [' + ",\n".join(images) + '],\n"annotations": [')
            begins = [0, *ends[:-1]]
            for count, at in enumerate(np.argsort(np.array(orders, np.int64), kind="stable").tolist()):
                data = read_at(annotations.fileno(), ends[at] - begins[at], begins[at])
                file.write((",\n" if count else "") + data.decode())
            file.write("]}\n")


def segments_of(
    value: Callable[[str], Any], number: int, ids: tuple[int, ...], forms: Any, rest: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return ``segments_info`` of an image.

    Args:
        value: returns the value of a field.
        number: the image's id.
        ids: the categories' ids.
        forms: how the file writes numbers.
        rest: what the fields cannot say.
    """
    columns = {key: value(field) for key, field in PANOPTIC_FIELDS.items()}
    columns = {key: values if key == "bbox" else values.tolist() for key, values in columns.items()}
    columns["category_id"] = [ids[index] for index in columns["category_id"]]
    other, without = dict(rest.get("segments", [])), dict(rest.get("without", []))
    segments = []
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        segment = annotation_of(dict(zip(columns, values, strict=True)), number, forms)
        del segment["image_id"]
        segments.append(restored(segment, other.get(row, {}), without.get(row, [])))
    return segments


def png_of(data: Callable[[str], bytes], value: Callable[[str], Any]) -> bytes:
    """Return a PNG with ids as colours: red + 256 green + 65536 blue.

    Args:
        data: returns the bytes of a field.
        value: returns its value.
    """
    from io import BytesIO

    need("PIL.Image", "a panoptic set")
    from PIL import Image as pillow

    with pillow.open(BytesIO(data("panoptic")), formats=PILLOW_FORMATS) as picture:
        local: npt.NDArray[Any] = np.asarray(picture).astype(np.int64)
    ids = np.array([0, *value(PANOPTIC_FIELDS["id"]).tolist()], np.int64)[local]
    return png_file(np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=2).astype(np.uint8))


# ---- COCO's sets as pictures and JSONs of equal content ---------------------------------------------

_NEEDED = {
    OBJECTS: (BOXES, "order"),
    CAPTIONS: (CAPTIONS, "caption_order"),
    SEGMENTS: ("panoptic", *PANOPTIC_FIELDS.values()),
}


def _needed(told: Mapping[str, Any]) -> tuple[str, ...]:
    return (BOXES, told["order"]) if "order" in told else _NEEDED[told["has"]]


def unpack_coco(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures and ``annotations/NAME.json`` below ``folder``.

    The JSONs equal those that were packed, value by value and type by type, with lists in order, except for
    what packing left out.

    Raises:
        PackError: the set was not packed from COCO's files, or does not have all that they said.
        FormatError: keys are not safe paths.
        ChecksumError: records are damaged.
    """
    source = source_of(dataset, "coco", ("image_id", "rest"))
    require(dataset, (name for told in source["files"] for name in _needed(told)))
    root = os.fsencode(folder)
    pictures = safe_path(os.fsencode(source["folder"]))
    with ExitStack() as stack:
        files = [_File(dataset, told, stack) for told in source["files"]]
        for sample, part in ((sample, part) for ids, part in in_windows(dataset) for sample in ids):
            data = part.value_bytes(picture_field(dataset), sample)
            escaped = bool(dataset.record(sample)["flags"] & ESCAPED)
            name = safe_path(decode_key(dataset.index.key(sample), escaped))
            if name.endswith(NUMPY_SUFFIX):
                raise PackError(
                    f"{os.fsdecode(name)} was packed as pixels, and --as gives files back as they were. "
                    f"{AS_TABLE}"
                )
            if not written(root, pictures + b"/" + name, data):
                raise PackError(f"two records have the name {os.fsdecode(name)!r} and are not the same.")

            def value(field: str, sample: int = sample, part: Any = part) -> Any:
                return dataset.schema[field].decode(part.value_bytes(field, sample))

            rest = value("rest") or {}
            number = int(value("image_id"))
            image = restored(image_of(number, os.fsdecode(name)), rest.get("image", {}), [])
            for file in files:
                file.add(image, number, value, rest)
                if file.what == SEGMENTS and file.has(rest):
                    png = file.png_name(rest, name)
                    write_new(root, png, png_of(lambda field: part.value_bytes(field, sample), value))  # noqa: B023
            if MAPS in dataset.schema:
                where = safe_path(os.fsencode(dataset.schema[MAPS].source["folder"]))
                path = where + b"/" + png_name(name)
                if not written(root, path, part.value_bytes(MAPS, sample)):
                    raise PackError(f"two records have the map {os.fsdecode(path)!r} and are not the same.")
        for file in files:
            file.write(folder / "annotations")


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


_SPAN = struct.Struct("<qq")  # where a value begins and ends; no value ends at 0
_MOST_PLACES = 1 << 40
_AT_ONCE = 1 << 12


class _List:
    """JSON values on their way into a list, each with its position; they wait in files, not in memory."""

    def __init__(self, stack: ExitStack) -> None:
        self._values, self._spans = (stack.enter_context(_temporary()) for _ in range(2))
        self._count = self._places = 0

    def add(self, place: int, value: Any) -> None:
        """Add one value.

        Raises:
            PackError: the position is not legal, or is taken.
        """
        taken = (
            read_at(self._spans.fileno(), _SPAN.size, place * _SPAN.size)
            if 0 <= place < self._places
            else b""
        )
        if not 0 <= place < _MOST_PLACES or any(taken):
            raise PackError(
                f"The set's fields cannot be right: position {place} of a list is taken or not legal. "
                "Check the set by 'fastload verify'."
            )
        begin = self._values.tell()
        self._values.write(json.dumps(value).encode())
        write_at(self._spans.fileno(), _SPAN.pack(begin, self._values.tell()), place * _SPAN.size)
        self._places = max(self._places, place + 1)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def write(self, file: IO[str]) -> None:
        """Write the list in the order of positions, some of which may be empty."""
        self._values.flush()
        file.write("[")
        written = 0
        for first in range(0, self._places, _AT_ONCE):
            spans = read_at(self._spans.fileno(), _AT_ONCE * _SPAN.size, first * _SPAN.size)
            for begin, end in _SPAN.iter_unpack(spans):
                if end == 0:
                    continue
                data = read_at(self._values.fileno(), end - begin, begin)
                file.write((",\n" if written else "") + data.decode())
                written += 1
        file.write("]")


class _File:
    """One JSON on its way: its images, and its annotations in the order of the samples."""

    def __init__(self, dataset: PackedFiles, told: Mapping[str, Any], stack: ExitStack) -> None:
        self._schema, self._told = dataset.schema, told
        self.what: str = told["has"]
        self._name: str = told.get("part", self.what)  # among the set's files
        self._images, self._annotations = _List(stack), _List(stack)

    def has(self, rest: Mapping[str, Any]) -> bool:
        """Whether an image is in this file."""
        return not self._told.get("own_images") or self._name in rest.get("places", {})

    def add(
        self, image: Mapping[str, Any], number: int, value: Callable[[str], Any], rest: Mapping[str, Any]
    ) -> None:
        """Add an image and its annotations.

        Args:
            image: its entry in the first file.
            number: its id.
            value: returns the value of a field.
            rest: what the fields cannot say.
        """
        if not self.has(rest):
            return
        place = rest["places"][self._name] if self._told.get("own_images") else len(self._images)
        self._images.add(place, rest.get(f"image_of_{self._name}", image))
        if self.what == SEGMENTS:
            self._add_segments(image, number, value, rest.get(self._name, {}))
            return
        other, without = dict(rest.get(self._name, [])), dict(rest.get(f"{self._name}_without", []))
        orders = value(_needed(self._told)[1]).tolist()
        annotations = self._captions(number, value) if self.what == CAPTIONS else self._objects(number, value)
        for row, (order, annotation) in enumerate(zip(orders, annotations, strict=True)):
            if order >= 0:  # otherwise only another file has it
                self._annotations.add(order, restored(annotation, other.get(row, {}), without.get(row, [])))

    def png_name(self, rest: Mapping[str, Any], picture: bytes) -> bytes:
        """Return where an image's PNG goes."""
        name = rest.get(self._name, {}).get("annotation", {}).get("file_name")
        folder = os.path.splitext(safe_path(os.fsencode(self._told["name"])))[0]
        return b"annotations/" + folder + b"/" + safe_path(os.fsencode(name) if name else png_name(picture))

    def _add_segments(
        self, image: Mapping[str, Any], number: int, value: Callable[[str], Any], rest: Mapping[str, Any]
    ) -> None:
        kind = self._schema[PANOPTIC_FIELDS["category_id"]].kind
        assert isinstance(kind, Labels)
        segments = segments_of(value, number, kind.ids, self._told["forms"], rest)
        png = os.fsdecode(png_name(os.fsencode(image["file_name"])))
        expected = {"image_id": number, "file_name": png, "segments_info": segments}
        self._annotations.add(rest["order"], restored(expected, rest.get("annotation", {}), []))

    def _captions(self, number: int, value: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
        texts = value(CAPTIONS)
        has_ids = "caption_ids" in self._schema
        ids = value("caption_ids").tolist() if has_ids else [None] * len(texts)
        return (caption_of(text, one, number) for text, one in zip(texts, ids, strict=True))

    def _objects(self, number: int, value: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
        columns = {"bbox": value(BOXES)}
        keys = self._told.get("keys", FIELDS)
        for key, name in FIELDS.items():
            if name in self._schema and key in keys:
                values = value(name)
                columns[key] = values if key in ("segmentation", "keypoints") else values.tolist()
        if "category_id" in columns:
            kind = self._schema[FIELDS["category_id"]].kind
            assert isinstance(kind, Labels)
            columns["category_id"] = [
                kind.ids[index] if index >= 0 else -1 for index in columns["category_id"]
            ]
        for row in zip(*columns.values(), strict=True):
            yield annotation_of(dict(zip(columns, row, strict=True)), number, self._told["forms"])

    def write(self, folder: Path) -> None:
        """Put the file together, with its annotations in the order of its list."""
        folder.mkdir(exist_ok=True)
        top = dict(self._told["top"])
        field = {OBJECTS: FIELDS["category_id"], SEGMENTS: PANOPTIC_FIELDS["category_id"]}.get(self.what)
        if field is not None and field in self._schema and "part" not in self._told:
            top |= self._schema[field].source
        name = os.fsdecode(safe_path(os.fsencode(self._told["name"])))
        with open(folder / name, "x", encoding="ascii") as file:
            file.write("{")
            for key, value in top.items():
                file.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
            file.write('"images": ')
            self._images.write(file)
            if not self._told.get("no_annotations"):
                file.write(',\n"annotations": ')
                self._annotations.write(file)
            file.write("}\n")
