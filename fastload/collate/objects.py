"""The objects of a batch in one form, whatever form the fields have: what all collates begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, compress
from typing import Any

import numpy as np
import torch

from fastload.collate.planned import Delivered
from fastload.collate.roles import Roles
from fastload.sample.layout import IDS, VALID, VIEW, sizes_name
from fastload.sample.ragged import Ragged

__all__ = ["Objects", "Samples", "image_ids", "masks_of", "objects_of", "samples_only", "stored_sizes"]

_LABELLED = 2  # COCO's visibility of a point that is labelled and seen


@dataclass(frozen=True)
class Objects:
    """The objects of the samples of a batch, one sample's behind the other's; on the host.

    Args:
        sizes: (height, width) of each sample's picture, without padding.
        lengths: how many objects each sample has.
        boxes: (objects, 4) float32, left, top, right and bottom in pixels.
        classes: (objects,) int64, the class's index; -1: none.
        labels: (objects,) int64, the number that the source calls the class.
        area: (objects,) float32; of the box, where the set has none.
        iscrowd: (objects,) int64; 0 where the set does not say.
        keypoints: (objects, points, 3) float32: x, y, visibility; None: the set has none.
        rows: (objects,) int64: which of its sample's objects each was when it was delivered.
    """

    sizes: list[tuple[int, int]]
    lengths: list[int]
    boxes: torch.Tensor
    classes: torch.Tensor
    labels: torch.Tensor
    area: torch.Tensor
    iscrowd: torch.Tensor
    keypoints: torch.Tensor | None
    rows: torch.Tensor

    def split(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Each sample's part of what has a row for each object: views."""
        return list(torch.split(rows, self.lengths))

    def only(self, kept: torch.Tensor) -> Objects:
        """Without the objects that ``kept``, (objects,) bool, leaves out."""
        if bool(kept.all()):
            return self
        changes: dict[str, Any] = {
            one.name: value[kept]
            for one in fields(self)
            if isinstance(value := getattr(self, one.name), torch.Tensor)
        }
        return replace(self, lengths=[int(part.sum()) for part in self.split(kept)], **changes)

    def per_row(self, values: Sequence[Sequence[float]], count: int) -> torch.Tensor:
        """``count`` numbers of each sample, as rows of its objects: (objects, count) float32."""
        # By NumPy: torch's repeat_interleave wakes all of its threads, however little there is to do, and
        # they then spin for a while on cores that decode.
        table = np.asarray(values, np.float32).reshape(len(self.lengths), count)
        return torch.from_numpy(table.repeat(self.lengths, 0))


@dataclass(frozen=True)
class Samples:
    """A batch without the positions that are no samples: padding of ranks, and skipped bad samples.

    Args:
        pictures: one tensor or a list, where the batch is.
        masks: of each sample (objects, height, width) uint8, where the batch is; None: none are delivered.
        numbers: everything else that is asked for, by field, on the host; the sizes of pictures, and where
            the samples come from.
    """

    pictures: Any
    masks: list[torch.Tensor] | None
    numbers: dict[str, Any]


def samples_only(delivered: Delivered, roles: Roles) -> Samples:
    """The samples of a batch."""
    batch, host = delivered.batch, delivered.host
    kept: list[bool] = host[VALID].tolist()
    pixels = (roles.image, roles.masks)
    wanted = [*(name for name in roles.names if name not in pixels), sizes_name(roles.image), IDS, VIEW]
    numbers = {name: host[name] for name in wanted if name in host}
    pictures = batch[roles.image]
    masks = None if roles.masks is None else _masks(batch[roles.masks])
    if all(kept):
        return Samples(pictures, masks, numbers)
    valid = host[VALID]
    numbers = {name: value[valid] for name, value in numbers.items()}
    if isinstance(pictures, list):
        pictures = list(compress(pictures, kept))
    else:
        index, every = delivered.device.move(valid.nonzero()[:, 0]), pictures
        pictures = delivered.device.run(lambda: every[index])
    return Samples(pictures, None if masks is None else list(compress(masks, kept)), numbers)


def objects_of(samples: Samples, roles: Roles) -> Objects:
    """The objects of the samples of a batch."""
    numbers = samples.numbers
    sizes = _sizes(samples, roles.image)
    rows: Ragged = numbers[roles.boxes]
    lengths = rows.counts()
    _check_alike(samples, roles, lengths)
    boxes = corners(rows.values, roles.format)
    classes = labels = numbers[roles.labels].values.to(torch.int64)
    if roles.numbers:
        table = torch.tensor([*roles.numbers, -1], dtype=torch.int64, device="cpu")
        labels = table[classes]  # -1, no class, is the last one
    area = _areas(boxes) if roles.area is None else numbers[roles.area].values.to(torch.float32)
    crowds = torch.zeros_like(labels) if roles.iscrowd is None else numbers[roles.iscrowd].values
    points = None if roles.keypoints is None else _with_visibility(numbers[roles.keypoints].values)
    places = np.arange(len(boxes)) - np.repeat([0, *accumulate(lengths)][:-1], lengths)
    crowds, own = crowds.to(torch.int64), torch.from_numpy(places)
    found = Objects(sizes, lengths, boxes, classes, labels, area, crowds, points, own)
    if not roles.relative:
        return found
    boxes = boxes * found.per_row([(width, height) * 2 for height, width in sizes], 4)
    return replace(found, boxes=boxes, area=_areas(boxes) if roles.area is None else area)


def masks_of(samples: Samples, found: Objects, delivered: Delivered) -> list[torch.Tensor] | None:
    """The masks of the objects that there still are, of each sample; None: none are delivered."""
    masks = samples.masks
    if masks is None or all(len(one) == count for one, count in zip(masks, found.lengths, strict=True)):
        return masks
    rows = found.split(delivered.device.move(found.rows))
    return delivered.device.run(lambda: [one[part] for one, part in zip(masks, rows, strict=True)])


def image_ids(samples: Samples, roles: Roles) -> list[int]:
    """The number of each sample, as the source calls its picture, else its sample id."""
    return [int(number) for number in samples.numbers[roles.image_id or IDS].tolist()]


def stored_sizes(samples: Samples) -> list[tuple[int, int]]:
    """(height, width) of each picture as it is stored."""
    return [(int(height), int(width)) for width, height in samples.numbers[VIEW][:, :2].tolist()]


def _sizes(samples: Samples, image: str) -> list[tuple[int, int]]:
    """(height, width) of each picture, without padding."""
    known = samples.numbers.get(sizes_name(image))
    if known is not None:
        return [(int(height), int(width)) for height, width in known.tolist()]
    return [(int(one.shape[-2]), int(one.shape[-1])) for one in samples.pictures]


def corners(boxes: torch.Tensor, form: str) -> torch.Tensor:
    """(n, 4) boxes of a format as left, top, right, bottom; memory of their own."""
    if form == "xyxy":
        return boxes.clone()
    first, sides = boxes[:, :2], boxes[:, 2:]
    if form == "xywh":
        return torch.cat([first, first + sides], 1)
    return torch.cat([first - sides / 2, first + sides / 2], 1)


def _areas(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _with_visibility(points: torch.Tensor) -> torch.Tensor:
    if points.shape[-1] == 3:
        return points
    return torch.cat([points, torch.full_like(points[..., :1], _LABELLED)], -1)


def _masks(found: Any) -> list[torch.Tensor]:
    return found.to_list() if isinstance(found, Ragged) else list(found)


def _check_alike(samples: Samples, roles: Roles, lengths: list[int]) -> None:
    """Refuse a batch whose rows do not go together, which a schema without groups does not promise."""
    have: dict[str, list[int]] = {
        name: samples.numbers[name].counts()
        for name in (roles.labels, roles.area, roles.iscrowd, roles.keypoints)
        if name is not None
    }
    if roles.masks is not None and samples.masks is not None:
        have[roles.masks] = [len(one) for one in samples.masks]
    for name, counts in have.items():
        if counts != lengths:
            place = next(at for at, (one, two) in enumerate(zip(counts, lengths, strict=True)) if one != two)
            raise ValueError(
                f"Field {name!r} has {counts[place]} rows for the sample at position {place} of a batch, and "
                f"{roles.boxes!r} has {lengths[place]}: they are not of the same objects. Pack the set with "
                f"Of({roles.boxes!r}, ...), which checks it, or leave the field out by fields=[...]."
            )
