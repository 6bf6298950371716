"""``collate="list"``: a list of pictures and one of dicts, as torchvision's detection references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastload.collate.objects import Objects, image_ids, objects_of, samples_only
from fastload.collate.planned import Origins
from fastload.collate.roles import Roles

__all__ = ["listed", "targets_of"]


def listed(
    batch: Mapping[str, Any], roles: Roles, origins: Origins, tv_tensors: bool = False
) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """The pictures and targets of a batch's samples.

    Args:
        batch: as it is delivered.
        roles: which field is what.
        origins: of its positions, for sets without image ids.
        tv_tensors: boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

    Returns:
        Pictures (channels, height, width), and as many dicts: ``boxes`` (n, 4) float32 left, top, right,
        bottom; ``labels`` (n,) int64 as the source numbers its classes; ``image_id`` an int; ``area`` (n,)
        float32; ``iscrowd`` (n,) int64; where the set has them ``masks`` (n, height, width) uint8 and
        ``keypoints`` (n, points, 3) float32. Keys are those of torchvision's references
        (``references/detection/coco_utils.py``, ``ConvertCocoPolysToMask``).
    """
    samples = samples_only(batch)
    found = objects_of(samples, roles)
    targets = targets_of(found, image_ids(batch, roles, origins))
    if tv_tensors:
        for target, size in zip(targets, found.sizes, strict=True):
            _wrap(target, size)
    return list(samples[roles.image]), targets


def targets_of(found: Objects, image_ids: Sequence[int]) -> list[dict[str, Any]]:
    """A dict for each sample; tensors are views of the batch's."""
    columns: dict[str, list[Any]] = {
        "boxes": found.split(found.boxes),
        "labels": found.split(found.labels),
        "image_id": list(image_ids),
        "area": found.split(found.area),
        "iscrowd": found.split(found.iscrowd),
    }
    if found.masks is not None:
        columns["masks"] = found.masks
    if found.keypoints is not None:
        columns["keypoints"] = found.split(found.keypoints)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _wrap(target: dict[str, Any], size: tuple[int, int]) -> None:
    from torchvision import tv_tensors  # type: ignore[import-not-found,import-untyped,unused-ignore]

    target["boxes"] = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)
    if "masks" in target:
        target["masks"] = tv_tensors.Mask(target["masks"])
