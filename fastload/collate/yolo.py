"""``collate="yolo"``: flat rows of all pictures, each with its picture's number, as Ultralytics has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fastload.collate.objects import Objects, objects_of, origins_only, samples_only
from fastload.collate.planned import Origins
from fastload.collate.roles import Roles

__all__ = ["for_yolo"]

_RATIO = 4  # a mask's pixels are so many of the picture's, in each direction
_MOST_UINT8 = 255  # objects that a map of bytes can tell apart


def for_yolo(batch: Mapping[str, Any], roles: Roles, origins: Origins) -> dict[str, Any]:
    """A batch with the keys, shapes and dtypes that Ultralytics' trainers take (detect, segment, pose).

    Args:
        batch: as it is delivered; pictures of one size.
        roles: which field is what.
        origins: of its positions.

    Returns:
        ``img`` (n, 3, height, width) as the transform leaves it (the trainer wants uint8), RGB; of all
        objects ``cls`` (objects, 1) float32, class indices, ``bboxes`` (objects, 4) float32, centre, width
        and height in parts of the picture, ``batch_idx`` (objects,) float32, which picture; ``keypoints``
        (objects, points, 3), in parts of the picture; ``masks`` (n, height / 4, width / 4), where the
        i-th object of a picture is i + 1, smaller ones over larger, and ``sem_masks``, float32, their
        classes; ``im_file``, ``ori_shape`` and ``resized_shape``, tuples with an entry for each picture.
        Crowds are left out. With masks a picture's objects are in order of their areas, the largest first.
    """
    samples = samples_only(batch)
    found = objects_of(samples, roles)
    found = found.only(found.iscrowd == 0)
    pictures: torch.Tensor = samples[roles.image]
    more: dict[str, Any] = {}
    if found.masks is not None:
        found, more = _with_maps(found, pictures)
    sides = found.per_row([(width, height) for height, width in found.sizes])
    low, high = found.boxes[:, :2], found.boxes[:, 2:]
    if found.keypoints is not None:
        points = found.keypoints.clone()
        points[..., :2] /= sides[:, None]
        more["keypoints"] = points
    return {
        "img": pictures,
        "cls": found.classes.to(torch.float32).view(-1, 1),
        "bboxes": torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1),
        "batch_idx": found.per_row([(number,) for number in range(len(found.sizes))]).view(-1),
        **more,
        "im_file": tuple(origins_only(origins.keys(), batch)),
        "ori_shape": tuple(origins_only(origins.sizes(roles.image), batch)),
        "resized_shape": tuple(found.sizes),
    }


def _with_maps(found: Objects, pictures: torch.Tensor) -> tuple[Objects, dict[str, Any]]:
    """Objects by area, and one map a picture of which of them is where."""
    assert found.masks is not None
    small = [masks[:, _RATIO // 2 :: _RATIO, _RATIO // 2 :: _RATIO] for masks in found.masks]
    orders = [masks.sum((1, 2), dtype=torch.int64).argsort(descending=True, stable=True) for masks in small]
    size = (pictures.shape[-2] // _RATIO, pictures.shape[-1] // _RATIO)
    most = max(found.lengths, default=0)
    dtype = torch.uint8 if most <= _MOST_UINT8 else torch.int32
    maps = torch.zeros((len(small), *size), dtype=dtype, device=pictures.device)
    for number, (masks, order) in enumerate(zip(small, orders, strict=True)):
        for place, row in enumerate(order.tolist()):
            maps[number].masked_fill_(masks[row, : size[0], : size[1]].bool(), place + 1)
    found = found.chosen(orders)
    classes = [part.to(torch.float32) for part in found.split(found.classes)]
    flat = [
        part[found_map.long() - 1] if len(part) else torch.zeros(size, device=pictures.device)
        for part, found_map in zip(classes, maps, strict=True)
    ]
    semantic = torch.stack(flat) if flat else maps.to(torch.float32)
    return found, {"masks": maps, "sem_masks": semantic}
