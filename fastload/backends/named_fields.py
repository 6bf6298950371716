"""Which fields of a dataset the transforms of whole batches take, and whether they may."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from fastload.backends.erasing import batch_parts
from fastload.backends.fields import viewed
from fastload.backends.options import Options
from fastload.backends.shapes import runs_python
from fastload.dataset.mixture import Packed
from fastload.machine.callers import stacklevel
from fastload.sample.fields import PLACES, Image, Label
from fastload.sample.planned import Sizes, chosen
from fastload.sample.schema import Field
from fastload.transfer.augment import check_parts, needs, parts_of
from fastload.transfer.mixing import known
from fastload.transfer.named import Named
from fastload.transforms.batch import (
    ColorJitter,
    CutMix,
    MixUp,
    OfFields,
    RandomChoice,
    RandomErasing,
    TimmMixup,
)
from fastload.transforms.called import calls_v2, is_v2, look
from fastload.transforms.plan import Erasing, Plan

__all__ = ["check_moving", "check_named", "named_of"]


def named_of(dataset: Packed | None, plan: Plan, options: Options) -> Named:
    """The image and the label of batches that are dicts: as was said, else the only ones.

    Args:
        dataset: what is read, if batches have its fields.
        plan: the compiled transform.
        options: the loader's.
    """
    given = options.batch_transform
    said = Named(given.image, given.label) if isinstance(given, OfFields) else Named()
    if dataset is None:
        return said
    fields = viewed(chosen(dataset.schema, options.fields), plan)
    return Named(said.image or _only(fields, Image), said.label or _only(fields, Label))


def _only(fields: list[tuple[str, Field, int]], kind: type) -> str | None:
    names = _names(fields, kind)
    return names[0] if len(names) == 1 else None


def _names(fields: list[tuple[str, Field, int]], *kinds: type) -> list[str]:
    return [name for name, field, _ in fields if isinstance(field.kind, kinds)]


def check_named(dataset: Packed, plan: Plan, options: Options) -> None:
    """Refuse transforms of whole batches that do not go with these fields.

    Args:
        dataset: what is read; its batches are dicts.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: an image or a label that is needed is not there, or it is not known which; or a transform
            would make wrong what is said of the pictures.
    """
    parts = tuple(map(known, batch_parts(plan, options, on_gpu=False, pairs=False)))
    fields = viewed(chosen(dataset.schema, options.fields), plan)
    mixes = [part for part in parts if isinstance(part, (MixUp, CutMix, RandomChoice, TimmMixup))]
    places = _names(fields, *PLACES)
    if mixes and places:
        raise ValueError(
            f"{type(mixes[0]).__name__} mixes images and labels, not what is said of their places. Found: "
            f"{', '.join(places)}. Leave the fields out by fields=[...], or pass a callable that mixes them."
        )
    check_moving("batch_transform", parts_of(options.batch_transform), places)
    images, labels = needs(parts)
    named = named_of(dataset, plan, options)
    for needed, which, kind in ((images, "image", Image), (labels, "label", Label)):
        if needed:
            _check_one(fields, which, getattr(named, which), kind, runs_python(plan, options))
    if images:
        _check_pictures(parts, fields, named.image, options)
        if plan.views and not runs_python(plan, options):  # each of them has a dtype of its own
            view = next(view for name, _, view in fields if name == named.image)
            check_parts(parts_of(options.batch_transform), plan.of_view(view).dtype)


def check_moving(where: str, callables: Iterable[Any], places: Sequence[str]) -> None:
    """Refuse what would move the pictures of a batch and leave what is said of them. Warn of what may.

    Args:
        where: the argument that has them.
        callables: of whole batches.
        places: fields of boxes and their like.

    Raises:
        ValueError: one of torchvision's or its like moves pixels.
    """
    if not places:
        return
    callables, left = list(callables), ", ".join(map(repr, places))
    moving = next((one for one in callables if look(one).moves), None)
    if moving is not None:
        raise ValueError(
            f"{where} gets whole batches, whose fields are no tv_tensors: {moving!r} would move the pictures "
            f"and leave {left}. Put it into transform=, or leave the fields out by fields=[...]."
        )
    for one in callables:
        if calls_v2(one) and not is_v2(one):
            warnings.warn(
                f"{where} gets whole batches, whose fields are no tv_tensors, and {one!r} calls "
                f"torchvision's v2. If that moves the pictures, {left} stay where they are. Put such steps "
                "into transform=, or leave the fields out by fields=[...].",
                stacklevel=stacklevel(),
            )


def _check_one(
    fields: list[tuple[str, Field, int]], which: str, name: str | None, kind: type, changed: bool
) -> None:
    """``changed``: callables may have put other fields into the batch."""
    have = ", ".join(_names(fields, kind)) or "none"
    if name is None:
        raise ValueError(
            f"batch_transform needs one {which} field. Found: {have}. Name it: batch_transform=OfFields(..., "
            f"{which}=NAME), or leave the others out by fields=[...]."
        )
    if not changed and name not in [one for one, _, _ in fields]:
        raise ValueError(f"OfFields.{which}: batches have no field {name!r}. Fields of that kind: {have}.")


def _check_pictures(
    parts: tuple[Any, ...], fields: list[tuple[str, Field, int]], image: str | None, options: Options
) -> None:
    if Sizes.of(options.sizes).mode != "stack":
        raise ValueError(
            f"batch_transform needs pictures of one size. Found: sizes={options.sizes!r}. Let the transform "
            "make them so, and leave sizes out."
        )
    kind = next((field.kind for name, field, _ in fields if name == image), None)
    coloured = [part for part in parts if isinstance(part, (ColorJitter, RandomErasing, Erasing))]
    if coloured and isinstance(kind, Image) and kind != Image():
        raise ValueError(
            f"{type(coloured[0]).__name__} in batch_transform is for RGB pictures of 8 bits. Found: "
            f"{image}={kind}."
        )
    several = _names(fields, Image)
    if len(several) > 1 and any(isinstance(part, ColorJitter) for part in parts):
        raise ValueError(
            "ColorJitter in batch_transform works on pictures before normalisation, and there can be one "
            f"image field then. Found: {', '.join(several)}. Put it into transform, or leave the others out "
            "by fields=[...]."
        )
