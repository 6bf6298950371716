"""Batches of pictures and the objects in them, in the forms that trainers expect: DETR's, torchvision's
lists, YOLO's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import accumulate, compress
from typing import Any, TypeAlias

import numpy as np
import torch

from fastload.collate.planned import Collated, Collation
from fastload.extras import need
from fastload.sample.fields import Boxes, Image, Keypoints, Polygons
from fastload.sample.layout import IDS, VALID, VIEW, sizes_name
from fastload.sample.ragged import Ragged
from fastload.sample.schema import Field

# ---- Roles of fields --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names of fields, as a user may give them; None: found by kind, or by this very name.

    Args:
        image, boxes, labels: always needed.
        masks, keypoints, area, iscrowd, image_id: delivered where they are.
    """

    image: str | None = None
    boxes: str | None = None
    labels: str | None = None
    masks: str | None = None
    keypoints: str | None = None
    area: str | None = None
    iscrowd: str | None = None
    image_id: str | None = None


@dataclass(frozen=True)
class Roles:
    """The fields that a batch of objects is made of.

    Args:
        image, boxes, labels, masks, keypoints, area, iscrowd, image_id: names; None: there is no such field.
        format, relative: of the boxes.
        numbers: the number that the source calls each class; empty: its index.
    """

    image: str
    boxes: str
    labels: str
    masks: str | None
    keypoints: str | None
    area: str | None
    iscrowd: str | None
    image_id: str | None
    format: str
    relative: bool
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, schema: Sequence[Field], names: Names) -> Roles:
        """The roles of these fields.

        Args:
            schema: the fields that batches may have.
            names: what the user has said.

        Raises:
            ValueError: an image, boxes or labels are not there, or it is not known which they are; or a field
                is not of the kind that is needed.
        """
        find = _Finder(schema)
        image = find.one("image", names.image, lambda field: isinstance(field.kind, Image))
        boxes = find.one("boxes", names.boxes, lambda field: isinstance(field.kind, Boxes) and not _of(field))
        find.leader = boxes.name
        labels = find.one("labels", names.labels, _holds_labels)
        kind: Any = boxes.kind
        return cls(
            image.name,
            boxes.name,
            labels.name,
            find.perhaps("masks", names.masks, lambda field: isinstance(field.kind, Polygons)),
            find.perhaps("keypoints", names.keypoints, lambda field: isinstance(field.kind, Keypoints)),
            find.perhaps("area", names.area, _holds_numbers("area")),
            find.perhaps("iscrowd", names.iscrowd, _holds_numbers("iscrowd")),
            find.perhaps("image_id", names.image_id, lambda field: field.name == "image_id"),
            kind.format,
            kind.relative,
            tuple(getattr(labels.kind, "ids", ())),
        )

    def without(self, role: str) -> Roles:
        """The same without one that is not always needed."""
        return replace(self, **{role: None})  # type: ignore[arg-type]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that batches need, each once."""
        found = (getattr(self, one.name) for one in fields(Names))
        return tuple(name for name in found if name is not None)


class _Finder:
    def __init__(self, schema: Sequence[Field]) -> None:
        self._schema = schema
        self.leader = ""  # the boxes, once they are known

    def one(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> Field:
        """The field of a role that there must be."""
        found = self._found(role, name, fits)
        if len(found) == 1:
            return found[0]
        have = ", ".join(map(str, self._schema))
        which = f"{len(found)} may be it: {', '.join(field.name for field in found)}" if found else "none is"
        raise ValueError(
            f"collate needs a field that is the {role}; of those that batches have, {which}. Found: {have}. "
            f'Name it: collate=fastload.Detection("list", {role}=NAME), and see that fields=[...] has it.'
        )

    def perhaps(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> str | None:
        """The name of the field of a role, if there is one."""
        found = self._found(role, name, fits)
        return found[0].name if len(found) == 1 else None

    def _found(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> list[Field]:
        if name is not None:
            found = [field for field in self._schema if field.name == name]
            if not found:
                have = ", ".join(field.name for field in self._schema)
                raise ValueError(
                    f"Detection({role}={name!r}): batches have no such field. They have: {have}."
                )
            return found
        found = [field for field in self._schema if fits(field) and _of(field) in ("", self.leader)]
        grouped = [field for field in found if _of(field)]
        return grouped if len(grouped) == 1 else found


def _of(field: Field) -> str:
    """The field that leads the group that this one belongs to; "": it belongs to none."""
    return getattr(field, "of", None) or ""


def _holds_labels(field: Field) -> bool:
    return field.kind.name == "labels" or (field.name == "labels" and _is_row_of_numbers(field))


def _holds_numbers(name: str) -> Callable[[Field], bool]:
    return lambda field: field.name == name and _is_row_of_numbers(field)


def _is_row_of_numbers(field: Field) -> bool:
    return field.kind.has_rows and field.item_shape == ()


# ---- Objects of a batch -----------------------------------------------------------------------------

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


def samples_only(delivered: Collated, roles: Roles) -> Samples:
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


def masks_of(samples: Samples, found: Objects, delivered: Collated) -> list[torch.Tensor] | None:
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


# ---- ``collate="detr"`` -----------------------------------------------------------------------------


def for_detr(delivered: Collated, roles: Roles, fixed: bool = False) -> dict[str, Any]:
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


# ---- ``collate="yolo"`` -----------------------------------------------------------------------------

_RATIO = 4  # a mask's pixels are so many of the picture's, in each direction
RatioPad: TypeAlias = "tuple[tuple[float, float], tuple[float, float]]"
_MOST_UINT8 = 255  # objects that a map of bytes can tell apart


def for_yolo(delivered: Collated, roles: Roles) -> dict[str, Any]:
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


# ---- ``collate="list"`` -----------------------------------------------------------------------------


def listed(
    delivered: Collated, roles: Roles, tv_tensors: bool = False
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


# ---- Detection --------------------------------------------------------------------------------------

#: For each form what makes it, and the ``sizes`` that it goes with, the first one where pictures differ.
_FORMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "list": (listed, ("list", "stack")),
    "detr": (for_detr, ("pad", "stack")),
    "yolo": (for_yolo, ("stack",)),
}


@dataclass(frozen=True)
class Detection(Names):
    """``DataLoader(collate=Detection("list", ...))``: objects in the form of some trainer's code
    (``docs/guide/detection.md``); the word alone, ``collate="list"``, where fields are found by themselves.

    Args:
        form: "list": a list of pictures and a list of dicts, as torchvision's detection models take them;
            "detr": padded pictures, pixel mask and normalised boxes, as DETR in transformers; "yolo": flat
            rows with the picture's number, as Ultralytics' trainers.
        image, boxes, labels: the names of these fields, where a set has several, or calls labels otherwise.
        masks, keypoints, area, iscrowd, image_id: likewise; not needed. Masks are delivered with
            ``masks="dense"``, or where ``fields`` names them.
        tv_tensors: "list": boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

    Raises:
        ValueError: there is no such form.
    """

    form: str
    tv_tensors: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.form not in _FORMS:
            raise ValueError(f"Detection's form must be one of {', '.join(_FORMS)}. Found: {self.form!r}.")
        if self.tv_tensors and self.form != "list":
            raise ValueError(f'tv_tensors are for "list". Found: form={self.form!r}.')

    def planned(
        self, schema: Sequence[Field], given: Mapping[str, Any], views: Sequence[str], one_size: bool
    ) -> Collation:
        """Fitted to a loader.

        Args:
            schema: the fields that batches may have.
            given: the loader's arguments.
            views: the names of the views that its transform makes of a sample, if it makes several.
            one_size: whether the transform leaves all pictures at one size.

        Raises:
            ValueError: a field that is needed is not there, or an argument does not go with the form.
        """
        if views:
            raise ValueError(
                f"collate={self.form!r} makes targets of one picture a sample. Found: Views of "
                f"{', '.join(views)}. Leave out the one or the other; a callable takes dicts of any views."
            )
        roles = Roles.of(schema, self)
        if given["masks"] != "dense" and (given["fields"] is None or roles.masks not in given["fields"]):
            roles = roles.without("masks")
        make, legal = _FORMS[self.form]
        sizes = given["sizes"]
        if sizes == "stack" and not (one_size and "stack" in legal):
            sizes = legal[0]
        if (sizes if isinstance(sizes, str) else "pad") not in legal:
            raise ValueError(
                f"collate={self.form!r} goes with sizes={' or '.join(map(repr, legal))}. Found: "
                f"sizes={given['sizes']!r}. Leave sizes out."
            )
        more = {"tv_tensors": True} if self.tv_tensors else {}
        if self.form == "detr" and not isinstance(sizes, str):
            more = {"fixed": True}
        changes = {"fields": list(roles.names), "sizes": sizes}
        if roles.masks is not None:
            changes["masks"] = "dense"
        return Collation(partial(_made, make, roles, more), changes, self, True)


def _made(make: Callable[..., Any], roles: Roles, more: Mapping[str, Any], delivered: Collated) -> Any:
    return make(delivered, roles, **more)
