"""Sets that were packed from YOLO's files back to pictures, label files and a ``data.yaml``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastload.packing.annotations.again import Unpacked, samples_of, source_of
from fastload.packing.annotations.yolo import label_path
from fastload.packing.unpacked_files import write_new
from fastload.sample.fields import Keypoints, Labels
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles

__all__ = ["part_of", "unpack_yolo"]

_DIGITS = 17  # of a double


def unpack_yolo(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, labels and ``data.yaml`` below ``folder``.

    Numbers are the shortest that packing makes the same values of: those that were packed, where these had no
    more digits than a float32 (boxes, points) or a double (outlines) keeps.

    Raises:
        PackError: the set was not packed from YOLO's files, or not all of what they said.
        FormatError: keys that are no safe paths.
        ChecksumError: damaged records.
    """
    source = source_of(dataset, "yolo", ("boxes", "labels"))
    root = os.fsencode(folder)
    paths: list[bytes] = []
    for sample in samples_of(dataset):
        write_new(root, sample.path, sample.data(dataset.schema.index_field.name))
        text = "".join(line + "\n" for line in _lines(sample, dataset.schema))
        write_new(root, label_path(sample.path), text.encode())
        paths.append(sample.path)
    split = source["split"] or "train"
    places = list(source["folders"])
    if not places:
        places = [f"{split}.txt"]
        write_new(root, places[0].encode(), b"".join(b"./" + path + b"\n" for path in paths))
    write_new(root, b"data.yaml", _yaml(dataset.schema, split, places).encode())


def _lines(sample: Unpacked, schema: Schema) -> Iterator[str]:
    labels = sample.value("labels").tolist()
    masks = sample.value("masks") if "masks" in schema else [[] for _ in labels]
    points = sample.value("keypoints") if "keypoints" in schema else [[] for _ in labels]
    for label, box, polygons, places in zip(labels, sample.value("boxes"), masks, points, strict=True):
        if polygons:
            numbers = _outline(polygons[0].reshape(-1).tolist(), sample.size)
        else:
            numbers = [*(_short(number) for number in box), *_points(places, sample.size)]
        yield " ".join([str(label), *numbers])


def _short(number: Any) -> str:
    """The shortest text of a float32."""
    return str(np.float32(number)).removesuffix(".0")


def _outline(numbers: list[float], size: tuple[int, int]) -> list[str]:
    return [part_of(number, size[at % 2], lambda product: product) for at, number in enumerate(numbers)]


def _points(points: Any, size: tuple[int, int]) -> Iterator[str]:
    for point in points:
        for at, number in enumerate(point):
            yield part_of(number, size[at], np.float32) if at < 2 else _short(number)


def part_of(number: Any, side: int, stored: Callable[[float], Any]) -> str:
    """The shortest text of the part of a side that was stored as so many pixels."""
    part = float(number) / side
    for digits in range(1, _DIGITS):
        text = f"{part:.{digits}g}"
        if stored(float(text) * side) == number:
            return text
    return f"{part:.{_DIGITS}g}"


def _yaml(schema: Schema, split: str, places: list[str]) -> str:
    """Texts are JSON's, which YAML takes as they are."""
    said: dict[str, Any] = {"path": ".", split: places if len(places) > 1 else places[0]}
    labels = schema["labels"].kind
    assert isinstance(labels, Labels)
    if "keypoints" in schema:
        kind = schema["keypoints"].kind
        assert isinstance(kind, Keypoints)
        said["kpt_shape"] = [kind.points, 3 if kind.visibility else 2]
        if kind.pairs:
            mirror = list(range(kind.points))
            for one, other in kind.pairs:
                mirror[one], mirror[other] = other, one
            said["flip_idx"] = mirror
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in said.items()]
    names = [f"  {at}: {json.dumps(name, ensure_ascii=False)}" for at, name in enumerate(labels.classes)]
    return "\n".join([*lines, *(["names:", *names] if names else []), ""])
