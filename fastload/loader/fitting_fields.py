"""Checks of a loader's arguments and callables for batches of fields: none leaves boxes or masks behind."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fastload.backends.fields import Followers, check_objects, of_channels, viewed, warn_of_objects
from fastload.backends.options import Options
from fastload.backends.planned_batches import batch_form
from fastload.dataset.mixture import Packed
from fastload.machine.messages import stacklevel
from fastload.sample.fields import PLACES, Boxes, Image, Keypoints, Mask, Polygons
from fastload.sample.planned import chosen
from fastload.sample.schema import Field
from fastload.shard.index import RECORD
from fastload.transforms.callables import all_parts, short_name
from fastload.transforms.compiler import ViewTail
from fastload.transforms.plan import Called, ObjectsUse, Plan

# ---- Callables --------------------------------------------------------------------------------------

_BORDERS = ("pad_border", "pad_border_to")


def check_callables(dataset: Packed, plan: Plan, options: Options) -> None:
    """Refuse a transform that would move a picture and leave its boxes, masks, points or outlines behind.

    Args:
        dataset: a packed one, whose samples are dicts.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: it would; the message names field, step and cure.
        ImportError: steps are torchvision's v2, and this torchvision has no tv_tensors.
    """
    fields = chosen(dataset.schema, options.fields.names)
    for view in plan.every:
        _check_fills(view, fields, options.fields.masks == "dense")
    if not plan.tail:
        return
    if plan.is_v2:
        from fastload.extras import tv_tensors

        has_points = hasattr(tv_tensors(), "KeyPoints")
    else:
        has_points = True
    followers = Followers(dataset.schema, options.fields.rows_of, fields)
    whole_sample = _Checked(fields, plan, followers, options.fields.masks == "dense", has_points)
    for called, function in zip(plan.called, plan.tail, strict=True):
        if isinstance(function, ViewTail):
            view = plan.of_view(function.number)
            checked = replace(whole_sample, plan=view, view=plan.views[function.number][0])
            for inner in view.called:
                checked.check(inner)
        else:
            whole_sample.check(called)


def _check_fills(plan: Plan, fields: Sequence[Field], dense: bool) -> None:
    """Refuse steps of the core that some field cannot follow."""
    mask = next((field for field in fields if isinstance(field.kind, Mask)), None)
    fills = set(plan.mask_fills)
    if mask is not None and len(fills) > 1:
        numbers = ", ".join("its ignored id" if one is None else str(one) for one in plan.mask_fills)
        raise ValueError(
            f"The steps of the transform fill masks with different numbers, {numbers}, and the core has one "
            f"for all of {mask.name!r}. Give the steps one fill, or leave the field out by fields=[...]."
        )
    if not any(use.name in _BORDERS for use in plan.geometry):
        return
    for field in fields:
        if isinstance(field.kind, (Boxes, Keypoints)) or (_is_outline(field) and not dense):
            raise ValueError(
                "A padding_mode other than 'constant' mirrors or repeats what the picture shows, and not "
                f"what {field.name!r} ({field.kind.name}) says of it; torchvision refuses that, too. Pad by "
                "fill, or leave the field out by fields=[...]."
            )


def _is_outline(field: Field) -> bool:
    return isinstance(field.kind, Polygons)


@dataclass(frozen=True)
class _Checked:
    """What callables are checked against.

    Args:
        fields: the delivered fields.
        plan: the plan that has the callables: the loader's, or a view's.
        followers: which fields follow boxes.
        dense: whether outlines are drawn as masks.
        has_points: whether torchvision has KeyPoints.
        view: the name of the view; None: the callables get all of the sample.
    """

    fields: Sequence[Field]
    plan: Plan
    followers: Followers
    dense: bool
    has_points: bool
    view: str | None = None

    def check(self, called: Called) -> None:
        """Check one callable of the tail."""
        if called.takes == "image" or (self.view is not None and called.takes == "sample"):
            self._check_image(called, called.name)
            return
        for part in all_parts(called):
            name = called.name if part.function is called.function else f"{_name(part)} in {called.name}"
            if part.takes == "image":
                self._check_image(part, name)
            elif part.takes == "v2":
                self._check_v2(part, name)

    def _check_image(self, called: Called, name: str) -> None:
        images = self._images()
        if called.field is not None and called.field not in images:
            have = ", ".join(images) or "none"
            raise ValueError(
                f"ImageOnly(image={called.field!r}) needs a field of that name. Fields of pictures that are "
                f"delivered: {have}."
            )
        unknown = self.view is not None and called.takes == "sample"
        places = [field for field in self.fields if isinstance(field.kind, PLACES)]
        others = images[1:] if called.field is None or called.moves or unknown else []
        moved = places if called.moves or unknown else []
        left = [*(field.name for field in moved), *others]
        if not left:
            return
        what = f"the picture of the view {self.view!r}" if self.view is not None else "a picture"
        more = ""
        if self.view is not None:
            more = " A callable behind the views gets the whole sample."
        elif called.moves and _of_v1(called):
            more = " torchvision.transforms.v2 has it for all fields."
        if left == others:
            raise ValueError(
                f"{name} takes one picture, and samples have several. Found: {', '.join(images)}. Say which, "
                f"fastload.transforms.ImageOnly(..., image={images[0]!r}), or leave the others out by "
                f"fields=[...].{more}"
            )
        raise ValueError(
            f"{name} gets {what} alone, so {places[0].name!r} ({places[0].kind.name}) would be left behind "
            "if it moves pixels. If it moves none, say so: fastload.transforms.ImageOnly(...). Else leave "
            f"{', '.join(map(repr, left))} out by fields=[...].{more}"
        )

    def _images(self) -> list[str]:
        """Return the pictures that the callables may get, as ImageOnly names them."""
        if self.view is not None or not self.plan.views:
            return [field.name for field in self._of(Image)]
        return [name for name, field, _ in viewed(self.fields, self.plan) if isinstance(field.kind, Image)]

    def _check_v2(self, called: Called, name: str) -> None:
        short = short_name(called.function)
        if self.view is None and self.plan.views and short in ("RandomIoUCrop", "SanitizeBoundingBoxes"):
            raise ValueError(
                f"{name} stands behind Views, where samples have boxes of several pictures. Write it into "
                "each view's own transform."
            )
        if called.refuses == "samples":
            raise ValueError(
                f"{name} mixes the samples of a batch, and a transform gets them one by one. Put it into "
                "collate_fn, or pass batch_transform=."
            )
        moved = [field for field in self.fields if self._is_moved(field)]
        if called.refuses and moved:
            raise ValueError(
                f"{name} takes pictures without {moved[0].name!r} ({moved[0].kind.name}): torchvision "
                "refuses it. Leave it out, or the field by fields=[...]."
            )
        self._check_objects(called, name, short)
        if not called.moves:
            return
        for field in self.fields:
            why = self._why_left(field)
            if why:
                raise ValueError(
                    f"{name} would leave {field.name!r} behind: {why}. Leave the field out by fields=[...], "
                    "or the step."
                )
        self._check_filling(called, name, short)

    def _is_moved(self, field: Field) -> bool:
        return isinstance(field.kind, (Mask, Boxes, Keypoints)) or (self.dense and _is_outline(field))

    def _why_left(self, field: Field) -> str:
        """Return why v2 cannot move a field; empty: it can."""
        if _is_outline(field) and not self.dense:
            return f"torchvision's v2 knows no {field.kind.format}; Fields(masks='dense') draws them"  # type: ignore[attr-defined]
        if isinstance(field.kind, Keypoints) and not self.has_points:
            return "this torchvision has no tv_tensors.KeyPoints; newer ones have"
        if isinstance(field.kind, (Boxes, Keypoints)) and not self._of(Image, Mask):
            return "no picture is delivered that says how large the canvas is"
        return ""

    def _check_objects(self, called: Called, name: str, short: str) -> None:
        if short in ("RandomIoUCrop", "SanitizeBoundingBoxes"):
            use = ObjectsUse(drop=short == "SanitizeBoundingBoxes", draws=True, needed=True)
            plan = replace(self.plan, objects=use, clips=False)
            leader = self.followers.leader(plan)
            if leader is not None and leader not in self.fields:
                raise ValueError(f"{name} works on boxes, and {leader.name!r} is not among fields=.")
            self.followers.check(plan)
        if short == "SanitizeKeyPoints":
            points = self._of(Keypoints)
            bound = [field for field in points if self.followers.is_led(field)]
            seen = [field for field in points if field.kind.visibility]  # type: ignore[attr-defined]
            if bound or seen or not points:
                found = f"{bound[0].name!r} has a row for each of the boxes" if bound else "no keypoints"
                if seen and not bound:
                    found = f"{seen[0].name!r} says of each point whether it is visible, too"
                raise ValueError(
                    f"{name} drops keypoints alone. Found: {found}. Leave it out; SanitizeBoundingBoxes "
                    "drops boxes with all that is of them."
                )
        if short == "ConvertBoundingBoxFormat":
            given = getattr(called.function.format, "value", called.function.format)
            if str(given).lower() not in ("xyxy", "xywh", "cxcywh") and self._of(Boxes):
                raise ValueError(
                    f"{name} makes rotated boxes, and boxes have four numbers. Found: {given!r}."
                )

    def _check_filling(self, called: Called, name: str, short: str) -> None:
        """Refuse here what torchvision would refuse when it runs."""
        mode = getattr(called.function, "padding_mode", "constant")
        pads = short == "Pad" or getattr(called.function, "padding", None) is not None
        pads = pads or bool(getattr(called.function, "pad_if_needed", False))
        points = self._of(Boxes, Keypoints)
        if mode != "constant" and pads and points:
            raise ValueError(
                f"{name} pads by padding_mode={mode!r}, which torchvision refuses for {points[0].name!r} "
                f"({points[0].kind.name}). Pad by fill, or leave the field out by fields=[...]."
            )
        masks = [field for field in self.fields if isinstance(field.kind, Mask) or self._drawn(field)]
        if masks and _is_colour(getattr(called.function, "fill", None)):
            raise ValueError(
                f"{name} has a fill of several numbers, and masks, {masks[0].name!r}, have one. Give it by "
                'type: fill={tv_tensors.Image: (123, 117, 104), "others": 0}.'
            )

    def _drawn(self, field: Field) -> bool:
        return self.dense and _is_outline(field)

    def _of(self, *kinds: type) -> list[Field]:
        return [field for field in self.fields if isinstance(field.kind, kinds)]


def _is_colour(fill: Any) -> bool:
    """Whether masks would get several numbers from this fill."""
    if isinstance(fill, Mapping):
        by_name = {getattr(key, "__name__", key): value for key, value in fill.items()}
        fill = by_name.get("Mask", by_name.get("others"))
    return isinstance(fill, Sequence) and not isinstance(fill, str) and len(fill) > 1


def _of_v1(called: Called) -> bool:
    return bool(short_name(called.function))


def _name(called: Called) -> str:
    kind = type(called.function)
    return getattr(called.function, "__qualname__", None) or kind.__qualname__


# ---- Arguments, if batches are dicts ----------------------------------------------------------------


def check_fields(dataset: Packed, plan: Plan, options: Options) -> None:
    """Refuse what is only for pairs of an image and a label.

    Args:
        dataset: the packed dataset.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: the dataset lacks a field, or an argument does not go with dicts.
    """
    fields = chosen(dataset.schema, options.fields.names)
    viewed(fields, plan, Followers(dataset.schema, options.fields.rows_of, fields))
    _check_rows(dataset, fields, options)
    check_objects(dataset.schema, options.fields.rows_of, fields, plan)
    check_callables(dataset, plan, options)
    if options.fields.windows is not None or plan.each != "sample":
        from fastload.backends.windows import check_windows

        check_windows(dataset, plan, options, batch_form(dataset, plan, options).delivery.layout)
    why = "batches are dicts here: the dataset has other fields, or fields=, collate= or Views was passed"
    if options.dali is not None:
        raise ValueError(
            f"backend='dali' makes pairs of an image and a label, and {why}. Use backend='native'."
        )
    if options.batch_transform is not None:
        from fastload.backends.fields import check_named

        check_named(dataset, plan, options)
    images = [field for field in fields if isinstance(field.kind, Image)]
    for field, view in product(images, plan.every):
        if view.normalize:
            channels = field.kind.channels  # type: ignore[attr-defined]
            of_channels(view.mean, channels)
            of_channels(view.std, channels)
    odd = [field for field in images if field.kind != Image()]
    if odd and any(view.source or view.pixels or view.erase is not None for view in plan.every):
        raise ValueError(
            "The transform changes colours or erases, which is for RGB pictures of 8 bits. Found: "
            f"{odd[0]}. Leave the field out by fields=[...], or the operation."
        )


def warn_of_fields(dataset: Packed, plan: Plan, options: Options) -> None:
    """Warn once per loader of what a model would learn wrongly from these fields."""
    fields = chosen(dataset.schema, options.fields.names)
    warn_of_objects(dataset.schema, options.fields.rows_of, fields, plan)
    images = [field for field in fields if isinstance(field.kind, Image)]
    cameras = options.fields.windows is not None or plan.each != "sample"
    if cameras and len(images) > 1 and not all(map(_takes_all, plan.every)):
        _warn_of_shapes(dataset, images)


def _takes_all(plan: Plan) -> bool:
    """Whether a transform resizes whole pictures of any shape to one size."""
    return any(use.name == "resize_exact" for use in plan.geometry) and all(
        use.name in _WHOLE for use in plan.geometry
    )


_WHOLE = ("resize_exact", "horizontal_flip", "vertical_flip")


def _warn_of_shapes(dataset: Packed, images: Sequence[Field]) -> None:
    """Warn of pictures that are stretched, because the views of a sample are drawn on its first picture."""
    for part in dataset.parts:
        if not len(part):
            continue
        first, *others = (_size_of(part, field) for field in images)
        for field, (width, height) in zip(images[1:], others, strict=True):
            if 0 in (*first, width, height) or abs(first[0] * height - first[1] * width) <= width + height:
                continue
            warnings.warn(
                f"Pictures of {field.name!r} are stretched: all pictures of a sample have one view, drawn on "
                f"{images[0].name!r}. Found: {width} x {height} pixels (width x height), and {first[0]} x "
                f"{first[1]} there, another shape. Resize((height, width)) first, or read the fields by two "
                "loaders.",
                stacklevel=stacklevel(),
            )
            return


def _size_of(part: Any, field: Field) -> tuple[int, int]:
    """Return width and height of a field's first picture, as the index has them; 0: unknown."""
    sample = part.first_id
    if field == part.schema.index_field:
        found = part.record(sample)
    else:
        found = np.frombuffer(part.columns[field.name].record(sample), RECORD)[0]
    return int(found["width"]), int(found["height"])


def _check_rows(dataset: Packed, fields: Sequence[Field], options: Options) -> None:
    """Refuse the forms of fields that do not exist."""
    if options.fields.masks == "dense" and not any(isinstance(field.kind, Polygons) for field in fields):
        have = ", ".join(map(str, fields))
        raise ValueError(
            f"Fields(masks='dense') draws outlines and run lengths, and batches have none. Found: {have}."
        )
    for leader, followers in (options.fields.rows_of or {}).items():
        chosen(dataset.schema, (leader, *followers))
