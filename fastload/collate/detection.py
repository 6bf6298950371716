"""Batches of pictures and their objects as trainers expect them: DETR's, torchvision's lists, YOLO's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import accumulate, compress
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from fastload.collate.planned import Collated, Collation, Wanted
from fastload.extras import need
from fastload.sample.fields import Boxes, Image, Keypoints, Polygons
from fastload.sample.layout import IDS, VALID, VIEW, Sizes, sizes_name
from fastload.sample.ragged import Ragged
from fastload.sample.schema import Field

# ---- Roles of fields --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names of fields; None: the field is found by its kind, or by this very name.

    Args:
        image, boxes, labels: always needed.
        masks, keypoints, area, iscrowd, image_id: delivered if the set has them.
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
        format, relative: settings of the boxes.
        numbers: the source's number of each class; empty: its index.
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
        """Return the roles of these fields.

        Args:
            schema: the fields that batches may have.
            names: the names that the user has set.

        Raises:
            ValueError: image, boxes or labels are missing or ambiguous, or there is no field of a name.
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
        """Return the roles without one that is not always needed."""
        return replace(self, **{role: None})  # type: ignore[arg-type]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that batches need, each once."""
        names = (getattr(self, role.name) for role in fields(Names))
        return tuple(name for name in names if name is not None)


class _Finder:
    def __init__(self, schema: Sequence[Field]) -> None:
        self._schema = schema
        self.leader = ""  # the boxes, once they are known

    def one(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> Field:
        """Return the field of a required role."""
        candidates = self._candidates(role, name, fits)
        if len(candidates) == 1:
            return candidates[0]
        have = ", ".join(map(str, self._schema))
        names = ", ".join(field.name for field in candidates)
        which = f"{len(candidates)} may be it: {names}" if candidates else "none is"
        raise ValueError(
            f"collate needs a field that is the {role}; of those that batches have, {which}. Found: {have}. "
            f'Name it: collate=fastload.Detection("list", {role}=NAME), and see that fields=[...] has it.'
        )

    def perhaps(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> str | None:
        """Return the name of the field of a role, if there is one."""
        candidates = self._candidates(role, name, fits)
        return candidates[0].name if len(candidates) == 1 else None

    def _candidates(self, role: str, name: str | None, fits: Callable[[Field], bool]) -> list[Field]:
        if name is not None:
            named = [field for field in self._schema if field.name == name]
            if not named:
                have = ", ".join(field.name for field in self._schema)
                raise ValueError(
                    f"Detection({role}={name!r}): batches have no such field. They have: {have}."
                )
            return named
        candidates = [field for field in self._schema if fits(field) and _of(field) in ("", self.leader)]
        grouped = [field for field in candidates if _of(field)]
        return grouped if len(grouped) == 1 else candidates


def _of(field: Field) -> str:
    """Return the field that leads this one's group; "": it belongs to none."""
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
    """The objects of a batch, sample by sample; on the host.

    Args:
        sizes: (height, width) of each sample's picture, without padding.
        lengths: the number of objects of each sample.
        boxes: (objects, 4) float32, left, top, right and bottom in pixels.
        classes: (objects,) int64, the class's index; -1: none.
        labels: (objects,) int64, the source's number of the class.
        area: (objects,) float32; the box's area if the set has none.
        iscrowd: (objects,) int64; 0 if the set has no such field.
        keypoints: (objects, points, 3) float32: x, y, visibility; None: the set has none.
        rows: (objects,) int64: each object's position in its sample as delivered.
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
        """Split a tensor with a row for each object by sample, into views."""
        return list(torch.split(rows, self.lengths))

    def only(self, kept: torch.Tensor) -> Objects:
        """Return the objects that ``kept``, (objects,) bool, selects."""
        if bool(kept.all()):
            return self
        changes: dict[str, Any] = {
            setting.name: value[kept]
            for setting in fields(self)
            if isinstance(value := getattr(self, setting.name), torch.Tensor)
        }
        return replace(self, lengths=[int(part.sum()) for part in self.split(kept)], **changes)

    def per_row(self, values: Sequence[Sequence[float]], count: int) -> torch.Tensor:
        """Repeat ``count`` numbers of each sample for each of its objects: (objects, count) float32."""
        # With NumPy: torch's repeat_interleave wakes all of its threads, even for small tensors, and they
        # then spin for a while on cores that decode.
        table = np.asarray(values, np.float32).reshape(len(self.lengths), count)
        return torch.from_numpy(table.repeat(self.lengths, 0))


@dataclass(frozen=True)
class Samples:
    """A batch without the positions that are not samples: padding of ranks, and skipped bad samples.

    Args:
        pictures: one tensor or a list, on the batch's device.
        masks: (objects, height, width) uint8 for each sample, on the batch's device; None: not delivered.
        numbers: the other fields that are needed, on the host; also sizes of pictures and the samples'
            origins.
    """

    pictures: Any
    masks: list[torch.Tensor] | None
    numbers: dict[str, Any]


def samples_only(delivered: Collated, roles: Roles) -> Samples:
    """Return the samples of a batch."""
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
    """Return the objects of the samples of a batch."""
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
    objects = Objects(sizes, lengths, boxes, classes, labels, area, crowds, points, own)
    if not roles.relative:
        return objects
    boxes = boxes * objects.per_row([(width, height) * 2 for height, width in sizes], 4)
    return replace(objects, boxes=boxes, area=_areas(boxes) if roles.area is None else area)


def masks_of(samples: Samples, objects: Objects, delivered: Collated) -> list[torch.Tensor] | None:
    """Return each sample's masks of the objects that are left; None: masks are not delivered."""
    masks = samples.masks
    if masks is None or all(len(own) == count for own, count in zip(masks, objects.lengths, strict=True)):
        return masks
    rows = objects.split(delivered.device.move(objects.rows))
    return delivered.device.run(lambda: [own[part] for own, part in zip(masks, rows, strict=True)])


def image_ids(samples: Samples, roles: Roles) -> list[int]:
    """Return the source's number of each sample's picture, else its sample id."""
    return [int(number) for number in samples.numbers[roles.image_id or IDS].tolist()]


def stored_sizes(samples: Samples) -> list[tuple[int, int]]:
    """Return (height, width) of each picture as it is stored."""
    return [(int(height), int(width)) for width, height in samples.numbers[VIEW][:, :2].tolist()]


def _sizes(samples: Samples, image: str) -> list[tuple[int, int]]:
    """Return (height, width) of each picture, without padding."""
    known = samples.numbers.get(sizes_name(image))
    if known is not None:
        return [(int(height), int(width)) for height, width in known.tolist()]
    return [(int(picture.shape[-2]), int(picture.shape[-1])) for picture in samples.pictures]


def corners(boxes: torch.Tensor, form: str) -> torch.Tensor:
    """Return (n, 4) boxes of a format as left, top, right, bottom; always a copy."""
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


def _masks(masks: Any) -> list[torch.Tensor]:
    return masks.to_list() if isinstance(masks, Ragged) else list(masks)


def _check_alike(samples: Samples, roles: Roles, lengths: list[int]) -> None:
    """Raise ValueError if fields have unequally many rows, which a schema without groups allows."""
    have: dict[str, list[int]] = {
        name: samples.numbers[name].counts()
        for name in (roles.labels, roles.area, roles.iscrowd, roles.keypoints)
        if name is not None
    }
    if roles.masks is not None and samples.masks is not None:
        have[roles.masks] = [len(masks) for masks in samples.masks]
    for name, counts in have.items():
        if counts != lengths:
            place = next(at for at, (a, b) in enumerate(zip(counts, lengths, strict=True)) if a != b)
            raise ValueError(
                f"Field {name!r} has {counts[place]} rows for the sample at position {place} of a batch, and "
                f"{roles.boxes!r} has {lengths[place]}: they are not of the same objects. Pack the set with "
                f"Of({roles.boxes!r}, ...), which checks it, or leave the field out by fields=[...]."
            )


# ---- ``collate="detr"`` -----------------------------------------------------------------------------


def for_detr(delivered: Collated, roles: Roles, fixed: bool = False) -> dict[str, Any]:
    """Return a batch as ``transformers.DetrForObjectDetection`` and its like take it.

    The rules are those of its image processor (``models/detr/image_processing_detr.py``,
    ``prepare_coco_detection_annotation`` and ``normalize_annotation``): crowds are left out; boxes are
    clipped to the picture, left out if nothing remains, and become centre, width and height relative to the
    picture without its padding.

    Args:
        delivered: the batch.
        roles: the roles of its fields.
        fixed: pictures are padded to one size in all batches, not to the batch's largest.

    Returns:
        ``pixel_values`` (n, channels, height, width), ``pixel_mask`` (n, height, width) int64, 1 for pixels
        of the picture, and ``labels``, a dict for each picture: ``image_id`` (1,), ``class_labels``
        (objects,), ``boxes`` (objects, 4), ``area``, ``iscrowd``, ``orig_size``, ``size`` (2,), height and
        width, and if the set has them ``masks`` and ``keypoints``.
    """
    samples = samples_only(delivered, roles)
    objects = objects_of(samples, roles)
    pictures: torch.Tensor = samples.pictures
    if not fixed and objects.sizes:  # the layout rounds up
        height, width = (max(size[side] for size in objects.sizes) for side in range(2))
        pictures = pictures[..., :height, :width]
    objects, boxes = _normalised(objects)
    rows = {"class_labels": objects.labels, "boxes": boxes, "area": objects.area, "iscrowd": objects.iscrowd}
    if objects.keypoints is not None:
        rows["keypoints"] = objects.keypoints
    equal = {
        "image_id": _int64(image_ids(samples, roles), 1),
        "orig_size": _int64(stored_sizes(samples), 2),
        "size": _int64(objects.sizes, 2),
    }
    rows, equal = delivered.device.move((rows, equal))
    columns: dict[str, Any] = {**equal, **{name: objects.split(value) for name, value in rows.items()}}
    masks = masks_of(samples, objects, delivered)
    if masks is not None:
        columns["masks"] = [own[..., : pictures.shape[-2], : pictures.shape[-1]] for own in masks]
    labels = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    mask = delivered.device.run(lambda: _mask(equal["size"], pictures))
    return {"pixel_values": pictures, "pixel_mask": mask, "labels": labels}


def _int64(numbers: Any, width: int) -> torch.Tensor:
    """Return numbers of each sample as (samples, width) int64."""
    return torch.tensor(numbers, dtype=torch.int64, device="cpu").view(-1, width)


def _normalised(objects: Objects) -> tuple[Objects, torch.Tensor]:
    """Return the objects that count, and their boxes relative to their pictures."""
    sides = objects.per_row([(width, height) for height, width in objects.sizes], 2)
    low = objects.boxes[:, :2].clamp(min=0).minimum(sides)
    high = objects.boxes[:, 2:].clamp(min=0).minimum(sides)
    kept = (high > low).all(1) & (objects.iscrowd == 0)
    low, high, sides = low[kept], high[kept], sides[kept]
    return objects.only(kept), torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1)


def _mask(sizes: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    height, width = pictures.shape[-2:]
    rows = torch.arange(height, device=pictures.device) < sizes[:, :1]
    columns = torch.arange(width, device=pictures.device) < sizes[:, 1:]
    return (rows[:, :, None] & columns[:, None]).to(torch.int64)


# ---- ``collate="yolo"`` -----------------------------------------------------------------------------

_RATIO = 4  # of the picture's sides to the mask's
RatioPad: TypeAlias = "tuple[tuple[float, float], tuple[float, float]]"
_MOST_UINT8 = 255  # objects that a map of bytes can tell apart


def for_yolo(delivered: Collated, roles: Roles) -> dict[str, Any]:
    """Return a batch with the keys, shapes and dtypes of Ultralytics' trainers (detect, segment, pose).

    Args:
        delivered: the batch; its pictures are of one size.
        roles: the roles of its fields.

    Returns:
        ``img`` (n, 3, height, width) as the transform leaves it (the trainer wants uint8), RGB; for all
        objects ``cls`` (objects, 1) float32, class indices, ``bboxes`` (objects, 4) float32, relative
        centre, width and height, ``batch_idx`` (objects,) float32, the picture's number, ``keypoints``
        (objects, points, 3), relative to the picture; ``masks`` (n, height / 4, width / 4), with i + 1 for
        the i-th object of a picture, smaller ones over larger, and ``sem_masks``, float32, their classes;
        ``im_file``, ``ori_shape`` and ``resized_shape``, tuples with an entry for each picture, and
        ``ratio_pad``, ((down, across), (left, top)): the scale and shift from stored pixels to those of the
        picture before a flip; None if there are none, as in a mosaic.
        Crowds are left out. With masks, a picture's objects are sorted by area, the largest first.
    """
    samples = samples_only(delivered, roles)
    every = objects_of(samples, roles)
    objects = every.only(every.iscrowd == 0)
    pictures: torch.Tensor = samples.pictures
    rows = delivered.device.move(_rows(objects))
    masks = masks_of(samples, objects, delivered)
    if masks is not None:
        rows = delivered.device.run(lambda: _with_maps(rows, masks, objects.lengths, pictures))
    return {
        "img": pictures,
        **rows,
        "im_file": tuple(delivered.keys(samples.numbers[IDS].tolist())),
        "ori_shape": tuple(stored_sizes(samples)),
        "resized_shape": tuple(objects.sizes),
        "ratio_pad": tuple(_ratio_pad(numbers) for numbers in samples.numbers[VIEW].tolist()),
    }


def _ratio_pad(view: Sequence[float]) -> RatioPad | None:
    """Return the scale and shift from the stored picture to the sample; None: there are none."""
    _, _, across, down, left, top, _, quarters = view
    return ((down, across), (left, top)) if across and not quarters else None


def _rows(objects: Objects) -> dict[str, torch.Tensor]:
    """Return the tensors with a row for each object, on the host."""
    sides = objects.per_row([(width, height) for height, width in objects.sizes], 2)
    low, high = objects.boxes[:, :2], objects.boxes[:, 2:]
    rows = {
        "cls": objects.classes.to(torch.float32).view(-1, 1),
        "bboxes": torch.cat([(low + high) / 2 / sides, (high - low) / sides], 1),
        "batch_idx": objects.per_row([(number,) for number in range(len(objects.sizes))], 1)[:, 0],
    }
    if objects.keypoints is not None:
        points = objects.keypoints.clone()
        points[..., :2] /= sides[:, None]
        rows["keypoints"] = points
    return rows


def _with_maps(
    rows: dict[str, torch.Tensor], masks: list[torch.Tensor], lengths: list[int], pictures: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Sort the objects by area, and add a map per picture of which object is where."""
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
    """Return the pictures and targets of a batch's samples.

    Args:
        delivered: the batch.
        roles: the roles of its fields.
        tv_tensors: boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

    Returns:
        Pictures (channels, height, width), and a dict for each: ``boxes`` (n, 4) float32 left, top, right,
        bottom; ``labels`` (n,) int64 as the source numbers its classes; ``image_id`` an int; ``area`` (n,)
        float32; ``iscrowd`` (n,) int64; if the set has them ``masks`` (n, height, width) uint8 and
        ``keypoints`` (n, points, 3) float32. Keys are those of torchvision's references
        (``references/detection/coco_utils.py``, ``ConvertCocoPolysToMask``).
    """
    samples = samples_only(delivered, roles)
    objects = objects_of(samples, roles)
    rows = {name: getattr(objects, name) for name in ("boxes", "labels", "area", "iscrowd")}
    if objects.keypoints is not None:
        rows["keypoints"] = objects.keypoints
    columns: dict[str, list[Any]] = {
        name: objects.split(value) for name, value in delivered.device.move(rows).items()
    }
    columns["image_id"] = image_ids(samples, roles)
    masks = masks_of(samples, objects, delivered)
    if masks is not None:
        columns["masks"] = masks
    targets = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if tv_tensors:
        for target, size in zip(targets, objects.sizes, strict=True):
            _wrap(target, size)
    return list(samples.pictures), targets


def _wrap(target: dict[str, Any], size: tuple[int, int]) -> None:
    need("torchvision.tv_tensors", "Detection(tv_tensors=True)")
    from torchvision import tv_tensors  # type: ignore[import-not-found,import-untyped,unused-ignore]

    target["boxes"] = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)
    if "masks" in target:
        target["masks"] = tv_tensors.Mask(target["masks"])


# ---- Detection --------------------------------------------------------------------------------------

#: For each form its function, and the ``Sizes.mode`` that it takes, the first one if pictures differ in size.
_FORMS: dict[str, tuple[Callable[..., Any], tuple[Literal["stack", "pad", "list"], ...]]] = {
    "list": (listed, ("list", "stack")),
    "detr": (for_detr, ("pad", "stack")),
    "yolo": (for_yolo, ("stack",)),
}


@dataclass(frozen=True)
class Detection(Names):
    """``DataLoader(collate=Detection("list", ...))``: batches of objects in the form of a trainer
    (``docs/guide/detection.md``). ``collate="list"`` is enough if no names of fields are needed.

    Args:
        form: "list": a list of pictures and a list of dicts, for torchvision's detection models;
            "detr": padded pictures, pixel mask and normalised boxes, for DETR in transformers; "yolo": flat
            rows with the picture's number, for Ultralytics' trainers.
        image, boxes, labels: the names of these fields, if a set has several, or another name for labels.
        masks, keypoints, area, iscrowd, image_id: likewise, but optional. Masks are delivered with
            ``Fields(masks="dense")``, or if ``fields`` names them.
        tv_tensors: with "list": boxes and masks are torchvision's ``BoundingBoxes`` and ``Mask``.

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
        self, schema: Sequence[Field], asked: Wanted, views: Sequence[str], one_size: bool
    ) -> Collation:
        """Return the collation for a loader.

        Args:
            schema: the fields that batches may have.
            asked: what the loader's arguments ask for.
            views: the names of the views that its transform makes of a sample, if it makes several.
            one_size: whether the transform leaves all pictures at one size.

        Raises:
            ValueError: a required field is missing, or an argument does not go with the form.
        """
        if views:
            raise ValueError(
                f"collate={self.form!r} makes targets of one picture per sample. Found: Views of "
                f"{', '.join(views)}. Leave out one of them; a callable takes dicts of any views."
            )
        roles = Roles.of(schema, self)
        if asked.masks != "dense" and (asked.fields is None or roles.masks not in asked.fields):
            roles = roles.without("masks")
        make, legal = _FORMS[self.form]
        pictures = asked.pictures
        if pictures.mode == "stack" and not (one_size and "stack" in legal):
            pictures = Sizes(legal[0])
        if pictures.mode not in legal:
            take = "a list of pictures" if self.form == "list" else "pictures of one size"
            raise ValueError(
                f"collate={self.form!r} takes {take}, which Pad does not make. Found: "
                f"Pad(then={self.form!r}). Pass collate={self.form!r} alone."
            )
        more = {"tv_tensors": True} if self.tv_tensors else {}
        if self.form == "detr" and pictures.most is not None:
            more = {"fixed": True}
        masks = asked.masks if roles.masks is None else "dense"
        wanted = Wanted(list(roles.names), masks, pictures)
        return Collation(partial(_made, make, roles, more), wanted, self, True)


def _made(make: Callable[..., Any], roles: Roles, more: Mapping[str, Any], delivered: Collated) -> Any:
    return make(delivered, roles, **more)
