"""Sets that were packed from COCO's back to pictures and JSONs that say the same."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastload.errors import PackError
from fastload.packing.annotations.coco_schema import BOXES, CAPTIONS, FIELDS, OBJECTS
from fastload.packing.annotations.coco_write import annotation_of, caption_of, image_of, restored
from fastload.packing.fetched import in_windows
from fastload.packing.names import ESCAPED, decode_key
from fastload.packing.unpacked_files import safe_path, written
from fastload.sample.fields import Labels
from fastload.shard.dataset import PackedFiles

__all__ = ["unpack_coco"]

_ELSE = "Unpack it as a table: without --as."
_NEEDED = {OBJECTS: (BOXES, "order"), CAPTIONS: (CAPTIONS, "caption_order")}


def unpack_coco(
    dataset: PackedFiles, folder: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write pictures and ``annotations/NAME.json`` below ``folder``.

    The JSONs are equal to those that were packed, value by value and type by type, lists in their order; what
    packing left out is not in them.

    Raises:
        PackError: the set was not packed from COCO's files, or not all of what they said.
        FormatError: keys that are no safe paths.
        ChecksumError: damaged records.
    """
    source = _source_of(dataset)
    root = os.fsencode(folder)
    pictures = safe_path(os.fsencode(source["folder"]))
    with ExitStack() as stack:
        files = [_File(dataset, told, stack) for told in source["files"]]
        for sample, part in ((sample, part) for ids, part in in_windows(dataset) for sample in ids):
            data = part.value_bytes(dataset.schema.index_field.name, sample)
            escaped = bool(dataset.record(sample)["flags"] & ESCAPED)
            name = safe_path(decode_key(dataset.index.key(sample), escaped))
            if not written(root, pictures + b"/" + name, data):
                raise PackError(f"two records have the name {os.fsdecode(name)!r} and are not the same.")

            def value(field: str, sample: int = sample, part: Any = part) -> Any:
                return dataset.schema[field].decode(part.value_bytes(field, sample))

            rest = value("rest") or {}
            number = int(value("image_id"))
            image = restored(image_of(number, os.fsdecode(name)), rest.get("image", {}), [])
            for file in files:
                file.add(image, number, value, rest)
            if progress is not None:
                progress(1, len(data))
        for file in files:
            file.write(folder / "annotations")


def _source_of(dataset: PackedFiles) -> Any:
    schema, options = dataset.schema, dataset.manifest.options
    source = schema.index_field.source
    if not isinstance(source, Mapping) or source.get("layout") != "coco":
        raise PackError(f"{dataset.where} was not packed from COCO's files. {_ELSE}")
    changed = [name for name in ("raw", "max_side", "size") if options.get(name)]
    if changed:
        raise PackError(
            f"{dataset.where} was packed with {changed[0]}={options[changed[0]]!r}, so its pictures are not "
            f"those that COCO's files are about. {_ELSE}"
        )
    needed = ["image_id", "rest", *(name for told in source["files"] for name in _NEEDED[told["has"]])]
    missing = [name for name in needed if name not in schema]
    if missing:
        raise PackError(
            f"{dataset.where} was packed without the field {missing[0]!r}, which COCO's files need. {_ELSE}"
        )
    return source


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


class _File:
    """One JSON on its way: its images, and its annotations in the order of the samples."""

    def __init__(self, dataset: PackedFiles, told: Mapping[str, Any], stack: ExitStack) -> None:
        self._schema, self._told = dataset.schema, told
        self._what: str = told["has"]
        self._images = stack.enter_context(_temporary())
        self._annotations = stack.enter_context(_temporary())
        self._orders, self._ends = array("q"), array("q")
        self._has_images = False

    def add(
        self, image: Mapping[str, Any], number: int, value: Callable[[str], Any], rest: Mapping[str, Any]
    ) -> None:
        """An image and its annotations.

        Args:
            image: what the first file says of it.
            number: its id.
            value: gives the value of a field.
            rest: what the fields cannot say.
        """
        image = rest.get(f"image_of_{self._what}", image)
        self._images.write(((",\n" if self._has_images else "") + json.dumps(image)).encode())
        self._has_images = True
        other, without = dict(rest.get(self._what, [])), dict(rest.get(f"{self._what}_without", []))
        orders = value(_NEEDED[self._what][1]).tolist()
        made = self._captions(number, value) if self._what == CAPTIONS else self._objects(number, value)
        for row, (order, one) in enumerate(zip(orders, made, strict=True)):
            said = restored(one, other.get(row, {}), without.get(row, []))
            self._annotations.write(json.dumps(said).encode())
            self._orders.append(order)
            self._ends.append(self._annotations.tell())

    def _captions(self, number: int, value: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
        texts = value(CAPTIONS)
        has_ids = "caption_ids" in self._schema
        ids = value("caption_ids").tolist() if has_ids else [None] * len(texts)
        return (caption_of(text, one, number) for text, one in zip(texts, ids, strict=True))

    def _objects(self, number: int, value: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
        columns = {"bbox": value(BOXES)}
        for key, name in FIELDS.items():
            if name in self._schema:
                found = value(name)
                columns[key] = found if key in ("segmentation", "keypoints") else found.tolist()
        if "category_id" in columns:
            kind = self._schema[FIELDS["category_id"]].kind
            assert isinstance(kind, Labels)
            columns["category_id"] = [kind.ids[index] for index in columns["category_id"]]
        for row in zip(*columns.values(), strict=True):
            yield annotation_of(dict(zip(columns, row, strict=True)), number, self._told["forms"])

    def write(self, folder: Path) -> None:
        """Put the file together, its annotations in the order of its list."""
        folder.mkdir(exist_ok=True)
        top = dict(self._told["top"])
        if self._what == OBJECTS and FIELDS["category_id"] in self._schema:
            top |= self._schema[FIELDS["category_id"]].source
        name = os.fsdecode(safe_path(os.fsencode(self._told["name"])))
        with open(folder / name, "x", encoding="ascii") as file:
            file.write("{")
            for key, value in top.items():
                file.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
            file.write('"images": [')
            self._images.seek(0)
            while part := self._images.read(1 << 20):
                file.write(part.decode())
            if self._told.get("no_annotations"):
                file.write("]}\n")
                return
            file.write('],\n"annotations": [')
            self._annotations.flush()
            begins = [0, *self._ends[:-1]]
            for count, at in enumerate(np.argsort(np.array(self._orders, np.int64), kind="stable").tolist()):
                data = os.pread(self._annotations.fileno(), self._ends[at] - begins[at], begins[at])
                file.write((",\n" if count else "") + data.decode())
            file.write("]}\n")
