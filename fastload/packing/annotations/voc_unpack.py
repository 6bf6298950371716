"""Sets that were packed from Pascal VOC's files back to pictures, XML, masks and lists."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.packing.annotations.again import Unpacked, samples_of, source_of
from fastload.packing.annotations.voc import MASKS
from fastload.packing.annotations.voc_xml import VocObject, filled, to_xml
from fastload.packing.unpacked_files import safe_path, write_new
from fastload.sample.fields import Labels
from fastload.shard.dataset import PackedFiles

__all__ = ["unpack_voc"]

_NEEDED = ("boxes", "labels", "difficult", "truncated", "rest")


def unpack_voc(dataset: PackedFiles, folder: Path) -> None:
    """Write pictures, XML files that say the same, masks, and the list of names below ``folder``.

    Raises:
        PackError: the set was not packed from VOC's files, or not all of what they said.
        FormatError: keys that are no safe paths.
        ChecksumError: damaged records.
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
        write_new(root, sample.path, sample.data(dataset.schema.index_field.name))
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
