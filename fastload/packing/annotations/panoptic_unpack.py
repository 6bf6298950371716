"""Panoptic sets back to pictures, PNGs of the same pixels, and a JSON that says the same."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.extras import need
from fastload.machine.paths import read_at
from fastload.packing.annotations.again import samples_of, source_of
from fastload.packing.annotations.coco_folders import png_name
from fastload.packing.annotations.coco_write import annotation_of, image_of, restored
from fastload.packing.annotations.panoptic import SEGMENTS
from fastload.packing.png_file import png_file
from fastload.packing.unpacked_files import safe_path, write_new
from fastload.sample.fields import Labels
from fastload.shard.codecs import PILLOW_FORMATS
from fastload.shard.dataset import PackedFiles

__all__ = ["png_of", "segments_of", "unpack_panoptic"]


def unpack_panoptic(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, ``annotations/NAME.json`` and ``annotations/NAME/*.png`` below ``folder``.

    Raises:
        PackError: the set was not packed from such files, or not all of what they said.
        FormatError: keys that are no safe paths.
        ChecksumError: damaged records.
    """
    source = source_of(dataset, "panoptic", ("image_id", "panoptic", *SEGMENTS.values(), "rest"))
    labels = dataset.schema[SEGMENTS["category_id"]]
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
            write_new(root, pictures + b"/" + sample.path, sample.data(dataset.schema.index_field.name))
            image = restored(image_of(number, os.fsdecode(sample.path)), rest.get("image", {}), [])
            images.append(json.dumps(image))
            segments = segments_of(sample.value, number, labels.kind.ids, source["forms"], rest)
            made = {
                "image_id": number,
                "file_name": os.fsdecode(png_name(sample.path)),
                "segments_info": segments,
            }
            said = restored(made, rest.get("annotation", {}), [])
            png = safe_path(os.fsencode(said["file_name"]))
            write_new(root, masks + b"/" + png, png_of(sample.data, sample.value))
            annotations.write(json.dumps(said).encode())
            orders.append(rest.get("order", position))
            ends.append(annotations.tell())
        annotations.flush()
        top = {**source["top"], "categories": labels.source["categories"]}
        with open(os.path.join(root, b"annotations", name), "x", encoding="ascii") as file:
            file.write("{" + "".join(f"{json.dumps(key)}: {json.dumps(one)},\n" for key, one in top.items()))
            file.write('"images": [' + ",\n".join(images) + '],\n"annotations": [')
            begins = [0, *ends[:-1]]
            for count, at in enumerate(np.argsort(np.array(orders, np.int64), kind="stable").tolist()):
                data = read_at(annotations.fileno(), ends[at] - begins[at], begins[at])
                file.write((",\n" if count else "") + data.decode())
            file.write("]}\n")


def segments_of(
    value: Callable[[str], Any], number: int, ids: tuple[int, ...], forms: Any, rest: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """``segments_info`` of an image.

    Args:
        value: gives the value of a field.
        number: the image's id.
        ids: of the categories.
        forms: how the file writes numbers.
        rest: what the fields cannot say.
    """
    columns = {key: value(field) for key, field in SEGMENTS.items()}
    columns = {key: one if key == "bbox" else one.tolist() for key, one in columns.items()}
    columns["category_id"] = [ids[index] for index in columns["category_id"]]
    other, without = dict(rest.get("segments", [])), dict(rest.get("without", []))
    found = []
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        made = annotation_of(dict(zip(columns, values, strict=True)), number, forms)
        del made["image_id"]
        found.append(restored(made, other.get(row, {}), without.get(row, [])))
    return found


def png_of(data: Callable[[str], bytes], value: Callable[[str], Any]) -> bytes:
    """Ids as colours: red + 256 green + 65536 blue.

    Args:
        data: gives the bytes of a field.
        value: gives its value.
    """
    from io import BytesIO

    need("PIL.Image", "a panoptic set")
    from PIL import Image as pillow

    with pillow.open(BytesIO(data("panoptic")), formats=PILLOW_FORMATS) as picture:
        local: npt.NDArray[Any] = np.asarray(picture).astype(np.int64)
    ids = np.array([0, *value(SEGMENTS["id"]).tolist()], np.int64)[local]
    return png_file(np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=2).astype(np.uint8))
