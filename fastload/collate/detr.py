"""``collate="detr"``: padded pictures, their mask and normalised boxes, as DETR and its like take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fastload.collate.objects import Objects, image_ids, objects_of, origins_only, samples_only
from fastload.collate.planned import Origins
from fastload.collate.roles import Roles

__all__ = ["for_detr"]


def for_detr(batch: Mapping[str, Any], roles: Roles, origins: Origins, fixed: bool = False) -> dict[str, Any]:
    """A batch as ``transformers.DetrForObjectDetection`` and its like take it.

    The rules are those of its image processor (``models/detr/image_processing_detr.py``,
    ``prepare_coco_detection_annotation`` and ``normalize_annotation``): crowds are left out, boxes clipped to
    the picture and left out if nothing is left of them, and the rest are centre, width and height in parts of
    the picture, without its padding.

    Args:
        batch: as it is delivered.
        roles: which field is what.
        origins: of its positions.
        fixed: pictures are padded to one size in all batches, not to the batch's largest.

    Returns:
        ``pixel_values`` (n, channels, height, width), ``pixel_mask`` (n, height, width) int64, 1 where there
        is a picture, and ``labels``, a dict for each: ``image_id`` (1,), ``class_labels`` (objects,),
        ``boxes`` (objects, 4), ``area``, ``iscrowd``, ``orig_size``, ``size`` (2,), height and width, and
        where the set has them ``masks`` and ``keypoints``.
    """
    samples = samples_only(batch)
    found = objects_of(samples, roles)
    pictures: torch.Tensor = samples[roles.image]
    if not fixed and found.sizes:  # the layout rounds up
        height, width = (max(size[side] for size in found.sizes) for side in range(2))
        pictures = pictures[..., :height, :width]
    found, boxes = _normalised(found)
    columns: dict[str, Any] = {
        "image_id": torch.tensor(image_ids(batch, roles, origins), dtype=torch.int64).view(-1, 1),
        "class_labels": found.split(found.labels),
        "boxes": found.split(boxes),
        "area": found.split(found.area),
        "iscrowd": found.split(found.iscrowd),
        "orig_size": torch.tensor(origins_only(origins.sizes(roles.image), batch)).view(-1, 2),
        "size": torch.tensor(found.sizes).view(-1, 2),
    }
    if found.masks is not None:
        columns["masks"] = [masks[..., : pictures.shape[-2], : pictures.shape[-1]] for masks in found.masks]
    if found.keypoints is not None:
        columns["keypoints"] = found.split(found.keypoints)
    labels = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {"pixel_values": pictures, "pixel_mask": _mask(found.sizes, pictures), "labels": labels}


def _normalised(found: Objects) -> tuple[Objects, torch.Tensor]:
    """The objects that count, and their boxes in parts of their pictures."""
    sides = found.per_row([(width, height) for height, width in found.sizes])
    low = found.boxes[:, :2].clamp(min=0).minimum(sides)
    high = found.boxes[:, 2:].clamp(min=0).minimum(sides)
    kept = (high > low).all(1) & (found.iscrowd == 0)
    low, high, sides = low[kept], high[kept], sides[kept]
    return found.only(kept), torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1)


def _mask(sizes: list[tuple[int, int]], pictures: torch.Tensor) -> torch.Tensor:
    height, width = pictures.shape[-2:]
    known = torch.tensor(sizes, device="cpu").view(-1, 2)
    rows = torch.arange(height, device="cpu") < known[:, :1]
    columns = torch.arange(width, device="cpu") < known[:, 1:]
    return (rows[:, :, None] & columns[:, None]).to(torch.int64).to(pictures.device)
