"""``collate="detr"``: padded pictures, their mask and normalised boxes, as DETR and its like take them."""

from __future__ import annotations

from typing import Any

import torch

from fastload.collate.objects import Objects, image_ids, masks_of, objects_of, samples_only, stored_sizes
from fastload.collate.planned import Delivered
from fastload.collate.roles import Roles

__all__ = ["for_detr"]


def for_detr(delivered: Delivered, roles: Roles, fixed: bool = False) -> dict[str, Any]:
    """A batch as ``transformers.DetrForObjectDetection`` and its like take it.

    The rules are those of its image processor (``models/detr/image_processing_detr.py``,
    ``prepare_coco_detection_annotation`` and ``normalize_annotation``): crowds are left out, boxes clipped to
    the picture and left out if nothing is left of them, and the rest are centre, width and height in parts of
    the picture, without its padding.

    Args:
        delivered: the batch.
        roles: which field is what.
        fixed: pictures are padded to one size in all batches, not to the batch's largest.

    Returns:
        ``pixel_values`` (n, channels, height, width), ``pixel_mask`` (n, height, width) int64, 1 where there
        is a picture, and ``labels``, a dict for each: ``image_id`` (1,), ``class_labels`` (objects,),
        ``boxes`` (objects, 4), ``area``, ``iscrowd``, ``orig_size``, ``size`` (2,), height and width, and
        where the set has them ``masks`` and ``keypoints``.
    """
    samples = samples_only(delivered, roles)
    found = objects_of(samples, roles)
    pictures: torch.Tensor = samples.pictures
    if not fixed and found.sizes:  # the layout rounds up
        height, width = (max(size[side] for size in found.sizes) for side in range(2))
        pictures = pictures[..., :height, :width]
    found, boxes = _normalised(found)
    rows = {"class_labels": found.labels, "boxes": boxes, "area": found.area, "iscrowd": found.iscrowd}
    if found.keypoints is not None:
        rows["keypoints"] = found.keypoints
    equal = {
        "image_id": _whole(image_ids(samples, roles), 1),
        "orig_size": _whole(stored_sizes(samples), 2),
        "size": _whole(found.sizes, 2),
    }
    rows, equal = delivered.device.move((rows, equal))
    columns: dict[str, Any] = {**equal, **{name: found.split(value) for name, value in rows.items()}}
    masks = masks_of(samples, found, delivered)
    if masks is not None:
        columns["masks"] = [one[..., : pictures.shape[-2], : pictures.shape[-1]] for one in masks]
    labels = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    mask = delivered.device.run(lambda: _mask(equal["size"], pictures))
    return {"pixel_values": pictures, "pixel_mask": mask, "labels": labels}


def _whole(numbers: Any, width: int) -> torch.Tensor:
    """Numbers of each sample, (samples, width) int64."""
    return torch.tensor(numbers, dtype=torch.int64, device="cpu").view(-1, width)


def _normalised(found: Objects) -> tuple[Objects, torch.Tensor]:
    """The objects that count, and their boxes in parts of their pictures."""
    sides = found.per_row([(width, height) for height, width in found.sizes], 2)
    low = found.boxes[:, :2].clamp(min=0).minimum(sides)
    high = found.boxes[:, 2:].clamp(min=0).minimum(sides)
    kept = (high > low).all(1) & (found.iscrowd == 0)
    low, high, sides = low[kept], high[kept], sides[kept]
    return found.only(kept), torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1)


def _mask(sizes: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    height, width = pictures.shape[-2:]
    rows = torch.arange(height, device=pictures.device) < sizes[:, :1]
    columns = torch.arange(width, device=pictures.device) < sizes[:, 1:]
    return (rows[:, :, None] & columns[:, None]).to(torch.int64)
