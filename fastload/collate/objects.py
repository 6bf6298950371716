"""The objects of a batch in one form, whatever form the fields have: what all collates begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch

from fastload.collate.planned import Origins
from fastload.collate.roles import Roles
from fastload.sample.layout import VALID, sizes_name
from fastload.sample.ragged import Ragged

__all__ = ["Objects", "image_ids", "objects_of", "origins_only", "samples_only"]

_T = TypeVar("_T")
_LABELLED = 2  # COCO's visibility of a point that is labelled and seen


@dataclass(frozen=True)
class Objects:
    """The objects of the samples of a batch, one sample's behind the other's.

    Args:
        sizes: (height, width) of each sample's picture, without padding.
        lengths: how many objects each sample has.
        boxes: (objects, 4) float32, left, top, right and bottom in pixels.
        classes: (objects,) int64, the class's index; -1: none.
        labels: (objects,) int64, the number that the source calls the class.
        area: (objects,) float32; of the box, where the set has none.
        iscrowd: (objects,) int64; 0 where the set does not say.
        keypoints: (objects, points, 3) float32: x, y, visibility; None: the set has none.
        masks: of each sample (objects, height, width) uint8; None: none are delivered.
    """

    sizes: list[tuple[int, int]]
    lengths: list[int]
    boxes: torch.Tensor
    classes: torch.Tensor
    labels: torch.Tensor
    area: torch.Tensor
    iscrowd: torch.Tensor
    keypoints: torch.Tensor | None
    masks: list[torch.Tensor] | None

    def split(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Each sample's part of what has a row for each object: views."""
        return list(torch.split(rows, self.lengths))

    def only(self, kept: torch.Tensor) -> Objects:
        """Without the objects that ``kept``, (objects,) bool, leaves out."""
        if bool(kept.all()):
            return self
        return self.chosen([part.nonzero()[:, 0] for part in self.split(kept)])

    def chosen(self, rows: Sequence[torch.Tensor]) -> Objects:
        """Of each sample the objects of these numbers, in this order."""
        begins = [0, *accumulate(self.lengths)]
        index = torch.cat([part + begin for part, begin in zip(rows, begins, strict=False)])
        masks = self.masks
        if masks is not None:
            masks = [of_one[part] for of_one, part in zip(masks, rows, strict=True)]
        return replace(
            self,
            lengths=[len(part) for part in rows],
            boxes=self.boxes[index],
            classes=self.classes[index],
            labels=self.labels[index],
            area=self.area[index],
            iscrowd=self.iscrowd[index],
            keypoints=None if self.keypoints is None else self.keypoints[index],
            masks=masks,
        )

    def per_row(self, values: Sequence[Sequence[float]]) -> torch.Tensor:
        """Numbers of each sample, as rows of its objects: (objects, numbers) float32."""
        # By NumPy: torch's repeat_interleave wakes all of its threads, however little there is to do, and
        # they then spin for a while on cores that decode.
        table = np.asarray(values, np.float32).reshape(len(self.lengths), -1)
        return torch.from_numpy(table.repeat(self.lengths, 0)).to(self.boxes.device)


def samples_only(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch without the positions that are no samples: padding of ranks, and skipped bad samples."""
    valid = batch[VALID]
    if bool(valid.all()):
        return dict(batch)
    kept = valid.tolist()
    return {name: _kept(value, valid, kept) for name, value in batch.items()}


def origins_only(values: Sequence[_T], batch: Mapping[str, Any]) -> list[_T]:
    """What :class:`Origins` says of a batch's positions, without those that are no samples."""
    return [value for value, keep in zip(values, batch[VALID].tolist(), strict=True) if keep]


def _kept(value: Any, valid: torch.Tensor, kept: Sequence[bool]) -> Any:
    if isinstance(value, list):
        return [one for one, keep in zip(value, kept, strict=True) if keep]
    return value[valid]


def objects_of(batch: Mapping[str, Any], roles: Roles) -> Objects:
    """The objects of a batch of :func:`samples_only`."""
    sizes = sizes_of(batch, roles.image)
    rows: Ragged = batch[roles.boxes]
    lengths: list[int] = rows.lengths.tolist()
    _check_alike(batch, roles, lengths)
    boxes = corners(rows.values, roles.format)
    classes = labels = batch[roles.labels].values.to(torch.int64)
    if roles.numbers:
        table = torch.tensor([*roles.numbers, -1], dtype=torch.int64, device=labels.device)
        labels = table[classes]  # -1, no class, is the last one
    area = _areas(boxes) if roles.area is None else batch[roles.area].values.to(torch.float32)
    crowds = torch.zeros_like(labels) if roles.iscrowd is None else batch[roles.iscrowd].values
    points = None if roles.keypoints is None else _with_visibility(batch[roles.keypoints].values)
    masks = None if roles.masks is None else _masks(batch[roles.masks])
    crowds = crowds.to(torch.int64)
    found = Objects(sizes, lengths, boxes, classes, labels, area, crowds, points, masks)
    if not roles.relative:
        return found
    boxes = boxes * found.per_row([(width, height) * 2 for height, width in sizes])
    return replace(found, boxes=boxes, area=_areas(boxes) if roles.area is None else area)


def image_ids(batch: Mapping[str, Any], roles: Roles, origins: Origins) -> list[int]:
    """The number of each sample of a batch, as the source calls its picture, else its sample id.

    Args:
        batch: with all its positions.
        roles: which field is what.
        origins: of its positions.
    """
    numbers = origins.ids() if roles.image_id is None else batch[roles.image_id].tolist()
    return [int(number) for number in origins_only(numbers, batch)]


def sizes_of(batch: Mapping[str, Any], image: str) -> list[tuple[int, int]]:
    """(height, width) of each picture, without padding."""
    known = batch.get(sizes_name(image))
    if known is not None:
        return [(int(height), int(width)) for height, width in known.tolist()]
    return [(int(one.shape[-2]), int(one.shape[-1])) for one in batch[image]]


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


def _check_alike(batch: Mapping[str, Any], roles: Roles, lengths: list[int]) -> None:
    """Refuse a batch whose rows do not go together, which a schema without groups does not promise."""
    followers = (roles.labels, roles.area, roles.iscrowd, roles.keypoints, roles.masks)
    for name in followers:
        if name is None:
            continue
        found = batch[name]
        have = found.lengths.tolist() if isinstance(found, Ragged) else [len(one) for one in found]
        if have != lengths:
            place = next(at for at, (one, two) in enumerate(zip(have, lengths, strict=True)) if one != two)
            raise ValueError(
                f"Field {name!r} has {have[place]} rows for the sample at position {place} of a batch, and "
                f"{roles.boxes!r} has {lengths[place]}: they are not of the same objects. Pack the set with "
                f"Of({roles.boxes!r}, ...), which checks it, or leave the field out by fields=[...]."
            )
