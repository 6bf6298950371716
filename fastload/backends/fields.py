"""Batches of any fields: which fields a loader delivers, how, and the engine that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fastload._native import _C
from fastload.backends.objects import Followers, Groups
from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.sample.fields import PLACES, Boxes, Image, Keypoints, Label, Mask, Polygons
from fastload.sample.layout import IDS, VIEW, FieldLayout, SampleLayout, sizes_name
from fastload.sample.planned import Sizes, chosen, layout_of, picture_dtype
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan

__all__ = [
    "Streams",
    "engine_parts",
    "fields_layout",
    "of_channels",
    "viewed",
]

_SEEN: tuple[type, ...] = (Image, *PLACES)  # what a view changes


def fields_layout(
    dataset: Packed, plan: Plan, options: Options, sizes: Sequence[tuple[int, int] | None]
) -> SampleLayout:
    """What a batch holds of each sample.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        sizes: for each view height and width of all pictures; None: they differ, and callables see to it.

    Raises:
        ValueError: see :func:`viewed`.
    """
    planned = []
    fields = chosen(dataset.schema, options.fields)
    for name, field, number in viewed(fields, plan, Followers(dataset.schema, options.objects, fields)):
        size, wanted = sizes[number], Sizes.of(options.sizes)
        asked = wanted.mode
        if size is None and asked == "stack":
            wanted = Sizes("list")
        dense = options.masks == "dense"
        (one,) = layout_of((field,), plan.of_view(number).dtype, size, wanted, dense).fields
        if any(use.name == "bucket_cover" for use in plan.of_view(number).geometry):
            one = replace(one, multiple=1)  # a batch of one bucket has one size: its own, not a larger one
        if one.form in ("picture", "masks") and asked != one.mode:
            one = replace(one, behind=asked)
        if one.form in ("picture", "masks") and not isinstance(field.kind, Image):
            wanted_dtype = plan.of_view(number).mask_dtype
            one = replace(one, delivered=None if wanted_dtype is None else getattr(torch, wanted_dtype))
        planned.append(one if name == field.name else replace(one, name=name, view=number, of=field.name))
    if options.origins:
        planned.append(FieldLayout(IDS, "fixed", torch.int64, blank=-1))
        planned.append(FieldLayout(VIEW, "fixed", torch.float64, (8,)))
    return SampleLayout(tuple(planned))


def viewed(
    fields: Sequence[Field], plan: Plan, followers: Followers | None = None
) -> list[tuple[str, Field, int]]:
    """The fields of a batch: their names, what they are of, and which of the sample's views.

    Where a sample has several views, the first image is called by the view's name alone, and all else that a
    view changes ``view_field``. What no view changes is there once; rows that follow the boxes of a view that
    drops some are changed.

    Args:
        fields: what is delivered.
        plan: the compiled transform.
        followers: which of them follow; None: none do.

    Raises:
        ValueError: a view and a field, or two of them, come to the same name.
    """
    if not plan.views:
        return [(field.name, field, 0) for field in fields]
    image = next((field for field in fields if isinstance(field.kind, Image)), None)
    found = []
    dropped = {
        name
        for _, view in plan.views
        if followers is not None and (leader := followers.leader(view)) is not None
        for name in followers.names(view, leader)
    }
    if followers is not None:
        dropped |= {name for _, view in plan.views for name in followers.led_in_tail(view)}
    for field in fields:
        if isinstance(field.kind, _SEEN) or field.name in dropped:
            names = [view if field is image else f"{view}_{field.name}" for view, _ in plan.views]
            found += [(name, field, number) for number, name in enumerate(names)]
        else:
            found.append((field.name, field, 0))
    taken = [name for name, _, _ in found]
    taken += [sizes_name(name) for name, field, _ in found if field.storage == "record"]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"A batch would have two fields {twice!r}: of views {', '.join(name for name, _ in plan.views)} "
            f"and of fields {', '.join(field.name for field in fields)}. Give the view another name."
        )
    return found


@dataclass(frozen=True)
class Streams:
    """Where the fields of a loader come from.

    Args:
        pictures: the fields whose records are read besides the index's, in the order of their streams.
        columns: the fields whose values are read.
    """

    pictures: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, fields: Sequence[Field], looked_at: Sequence[str] = ()) -> Streams:
        """Of these fields of a schema, and of those that the views' objects are looked at by."""
        own = [field for _, field in schema.columns if field in fields or field.name in looked_at]
        pictures = tuple(field.name for field in own if field.storage == "record")
        return cls(pictures, tuple(field.name for field in own if field.storage != "record"))

    def parts(self, dataset: Packed) -> list[tuple[list[Any], list[Any]]]:
        """For each source of the engine the readers of further records, and columns."""
        return [
            (
                [part.record_reader(name) for name in self.pictures],
                [part.columns[name] for name in self.columns],
            )
            for part in dataset.parts
        ]


def engine_parts(
    dataset: Packed, layout: SampleLayout, plan: Plan, objects: Groups = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """What the engine of a layout takes: parts, views and fields.

    Args:
        dataset: what is read.
        layout: of a sample.
        plan: the compiled transform.
        objects: the DataLoader's.
    """
    schema = dataset.schema
    fields = [schema[field.schema_name] for field in layout.fields if not field.is_origin]
    followers = Followers(schema, objects, fields)
    looked_at = [name for view in plan.every for name in followers.columns(view)]
    streams = Streams.of(schema, fields, looked_at)
    views = []
    for number, view in enumerate(plan.every):
        height, width = layout.picture_size(number)
        objects_plan = followers.plan(view, streams.columns)
        spec = view.geometry_spec(), width, height, view.pixel_spec(), view.source_spec(), objects_plan
        views.append(_C.ViewPlan(*spec))
    plans = [_field_plan(schema, field, streams, plan, followers) for field in layout.fields]
    return streams.parts(dataset), views, plans


def _field_plan(
    schema: Schema, layout: FieldLayout, streams: Streams, plan: Plan, followers: Followers
) -> Any:
    if layout.is_origin:
        return _C.FieldPlan("id" if layout.name == IDS else "view")
    field, view = schema[layout.schema_name], layout.view
    plan = plan.of_view(view)
    kind: Any = field.kind
    if isinstance(kind, (Image, Mask)):
        return _picture_plan(field, streams, plan, view)
    in_index = field == schema.label_field
    part = _C.INDEX if in_index else streams.columns.index(field.name)
    if isinstance(kind, Label):
        return _C.FieldPlan("label", part=part, width=8)
    leader = followers.leader(plan)
    more: dict[str, Any] = {"view": view, "part": part, "width": field.item_bytes}
    more["follows"] = leader is not None and field.name in followers.names(plan, leader)
    if isinstance(kind, Boxes):
        becomes = plan.box_format
        return _C.FieldPlan("points", points=kind.format, relative=kind.relative, becomes=becomes, **more)
    if isinstance(kind, Keypoints):
        return _C.FieldPlan("points", points="xyv" if kind.visibility else "xy", pairs=kind.pairs, **more)
    if isinstance(kind, Polygons) and layout.form == "masks":
        more["width"] = layout.item_bytes if layout.has_offsets else 0
        return _C.FieldPlan("masks", points=kind.format, **more)
    if isinstance(kind, Polygons):
        return _C.FieldPlan("points", points=kind.format, **more)
    return _C.FieldPlan("ragged" if field.storage == "ragged" else "fixed", **more)


def _picture_plan(field: Field, streams: Streams, plan: Plan, view: int) -> Any:
    part = 1 + streams.pictures.index(field.name) if field.name in streams.pictures else 0
    kind: Any = field.kind
    if isinstance(kind, Mask):
        store = _C.StoreSpec(dtype="uint8" if kind.bits == 8 else "int32")
        ids = 1, kind.bits, True
        return _C.FieldPlan(
            "picture", view=view, part=part, store=store, format=ids, nearest=True, fill=kind.ignore
        )
    pixels = kind.channels, kind.bits, False
    return _C.FieldPlan("picture", view=view, part=part, store=_store_of(kind, plan), format=pixels)


def _store_of(kind: Image, plan: Plan) -> Any:
    """How an image's pixels become numbers: of 16 bits, where nothing is asked for, as they are."""
    if kind == Image():
        return plan.store_spec()
    return _C.StoreSpec(
        dtype=picture_dtype(kind, plan.dtype),
        scale=plan.scale,
        normalize=plan.normalize,
        mean=of_channels(plan.mean, kind.channels),
        std=of_channels(plan.std, kind.channels),
    )


def of_channels(values: Sequence[float], channels: int) -> tuple[float, ...]:
    """A transform's numbers for three channels as those of another number of channels.

    Raises:
        ValueError: they differ, so that it is not known which is whose.
    """
    if channels == len(values):
        return tuple(values)
    if len(set(values)) > 1:
        raise ValueError(
            f"Normalize has numbers for red, green and blue, {tuple(values)}, and a picture has {channels} "
            "channels. Pass one number for all, or leave the field out by fields=[...]."
        )
    return (values[0],) * channels
