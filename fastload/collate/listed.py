"""``collate="list"``: a list of pictures and one of dicts, as torchvision's detection references."""

from __future__ import annotations

from typing import Any

import torch

from fastload.collate.objects import image_ids, masks_of, objects_of, samples_only
from fastload.collate.planned import Delivered
from fastload.collate.roles import Roles
from fastload.extras import need

__all__ = ["listed"]


def listed(
    delivered: Delivered, roles: Roles, tv_tensors: bool = False
) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """The pictures and targets of a batch's samples.

    Args:
        delivered: the batch.
        roles: which field is what.
        tv_tensors: boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

    Returns:
        Pictures (channels, height, width), and as many dicts: ``boxes`` (n, 4) float32 left, top, right,
        bottom; ``labels`` (n,) int64 as the source numbers its classes; ``image_id`` an int; ``area`` (n,)
        float32; ``iscrowd`` (n,) int64; where the set has them ``masks`` (n, height, width) uint8 and
        ``keypoints`` (n, points, 3) float32. Keys are those of torchvision's references
        (``references/detection/coco_utils.py``, ``ConvertCocoPolysToMask``).
    """
    samples = samples_only(delivered, roles)
    found = objects_of(samples, roles)
    rows = {"boxes": found.boxes, "labels": found.labels, "area": found.area, "iscrowd": found.iscrowd}
    if found.keypoints is not None:
        rows["keypoints"] = found.keypoints
    columns: dict[str, list[Any]] = {
        name: found.split(value) for name, value in delivered.device.move(rows).items()
    }
    columns["image_id"] = image_ids(samples, roles)
    masks = masks_of(samples, found, delivered)
    if masks is not None:
        columns["masks"] = masks
    targets = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if tv_tensors:
        for target, size in zip(targets, found.sizes, strict=True):
            _wrap(target, size)
    return list(samples.pictures), targets


def _wrap(target: dict[str, Any], size: tuple[int, int]) -> None:
    need("torchvision.tv_tensors", "Detection(tv_tensors=True)")
    from torchvision import tv_tensors  # type: ignore[import-not-found,import-untyped,unused-ignore]

    target["boxes"] = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)
    if "masks" in target:
        target["masks"] = tv_tensors.Mask(target["masks"])
