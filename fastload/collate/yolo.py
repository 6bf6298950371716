"""``collate="yolo"``: flat rows of all pictures, each with its picture's number, as Ultralytics has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from fastload.collate.objects import Objects, masks_of, objects_of, samples_only, stored_sizes
from fastload.collate.planned import Delivered
from fastload.collate.roles import Roles
from fastload.sample.layout import IDS, VIEW

__all__ = ["for_yolo"]

_RATIO = 4  # a mask's pixels are so many of the picture's, in each direction
RatioPad: TypeAlias = "tuple[tuple[float, float], tuple[float, float]]"
_MOST_UINT8 = 255  # objects that a map of bytes can tell apart


def for_yolo(delivered: Delivered, roles: Roles) -> dict[str, Any]:
    """A batch with the keys, shapes and dtypes that Ultralytics' trainers take (detect, segment, pose).

    Args:
        delivered: the batch; its pictures are of one size.
        roles: which field is what.

    Returns:
        ``img`` (n, 3, height, width) as the transform leaves it (the trainer wants uint8), RGB; of all
        objects ``cls`` (objects, 1) float32, class indices, ``bboxes`` (objects, 4) float32, centre, width
        and height in parts of the picture, ``batch_idx`` (objects,) float32, which picture; ``keypoints``
        (objects, points, 3), in parts of the picture; ``masks`` (n, height / 4, width / 4), where the
        i-th object of a picture is i + 1, smaller ones over larger, and ``sem_masks``, float32, their
        classes; ``im_file``, ``ori_shape`` and ``resized_shape``, tuples with an entry for each picture, and
        ``ratio_pad``, ((down, across), (left, top)): stored pixels times the one plus the other are those of
        the picture before it is mirrored; None where they are not, as in a mosaic.
        Crowds are left out. With masks a picture's objects are in order of their areas, the largest first.
    """
    samples = samples_only(delivered, roles)
    found = objects_of(samples, roles)
    found = found.only(found.iscrowd == 0)
    pictures: torch.Tensor = samples.pictures
    rows = delivered.device.move(_rows(found))
    masks = masks_of(samples, found, delivered)
    if masks is not None:
        rows = delivered.device.run(lambda: _with_maps(rows, masks, found.lengths, pictures))
    return {
        "img": pictures,
        **rows,
        "im_file": tuple(delivered.keys(samples.numbers[IDS].tolist())),
        "ori_shape": tuple(stored_sizes(samples)),
        "resized_shape": tuple(found.sizes),
        "ratio_pad": tuple(_ratio_pad(numbers) for numbers in samples.numbers[VIEW].tolist()),
    }


def _ratio_pad(view: Sequence[float]) -> RatioPad | None:
    """How predictions are brought back to the stored picture; None: not by a scale and a shift."""
    _, _, across, down, left, top, _, quarters = view
    return ((down, across), (left, top)) if across and not quarters else None


def _rows(found: Objects) -> dict[str, torch.Tensor]:
    """What there is of each object, on the host."""
    sides = found.per_row([(width, height) for height, width in found.sizes], 2)
    low, high = found.boxes[:, :2], found.boxes[:, 2:]
    rows = {
        "cls": found.classes.to(torch.float32).view(-1, 1),
        "bboxes": torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1),
        "batch_idx": found.per_row([(number,) for number in range(len(found.sizes))], 1)[:, 0],
    }
    if found.keypoints is not None:
        points = found.keypoints.clone()
        points[..., :2] /= sides[:, None]
        rows["keypoints"] = points
    return rows


def _with_maps(
    rows: dict[str, torch.Tensor], masks: list[torch.Tensor], lengths: list[int], pictures: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The objects by area, and one map a picture of which of them is where."""
    height, width = (side // _RATIO for side in pictures.shape[-2:])
    dtype = torch.uint8 if max(lengths, default=0) <= _MOST_UINT8 else torch.int32
    maps = torch.zeros((len(masks), height, width), dtype=dtype, device=pictures.device)
    semantic = torch.zeros(maps.shape, device=pictures.device)
    orders, begin = [], 0
    for number, of_one in enumerate(masks):
        if not len(of_one):
            continue
        small = of_one[:, _RATIO // 2 :: _RATIO, _RATIO // 2 :: _RATIO][:, :height, :width]
        order = small.sum((1, 2), dtype=torch.int64).argsort(descending=True, stable=True)
        places = torch.arange(1, len(order) + 1, dtype=dtype, device=small.device)
        maps[number] = (small[order].ne(0) * places[:, None, None]).amax(0)
        orders.append(order + begin)
        begin += len(of_one)
        semantic[number] = rows["cls"][orders[-1], 0][maps[number].long() - 1]
    if orders:
        index = torch.cat(orders)
        rows = {name: value[index] for name, value in rows.items()}
    return {**rows, "masks": maps, "sem_masks": semantic}
