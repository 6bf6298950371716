"""Batches of any fields: which fields a loader delivers, how, and the engine that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload._native import _C
from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Boxes, Image, Keypoints, Label, Mask, Polygons
from fastload.sample.layout import SampleLayout, sizes_name
from fastload.sample.planned import Sizes, chosen, layout_of, picture_dtype
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan

__all__ = [
    "Streams",
    "field_plans",
    "fields_layout",
    "of_channels",
    "viewed",
]

_SEEN = (Image, Mask, Boxes, Keypoints, Polygons)  # what a view changes


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
    for name, field, number in viewed(chosen(dataset.schema, options.fields), plan):
        size, wanted = sizes[number], Sizes.of(options.sizes)
        if size is None and wanted.mode == "stack":
            wanted = Sizes("list")
        (one,) = layout_of((field,), plan.of_view(number).dtype, size, wanted).fields
        planned.append(one if name == field.name else replace(one, name=name, view=number, of=field.name))
    return SampleLayout(tuple(planned))


def viewed(fields: Sequence[Field], plan: Plan) -> list[tuple[str, Field, int]]:
    """The fields of a batch: their names, what they are of, and which of the sample's views.

    Where a sample has several views, the first image is called by the view's name alone, and all else that a
    view changes ``view_field``. What no view changes is there once.

    Raises:
        ValueError: a view and a field, or two of them, come to the same name.
    """
    if not plan.views:
        return [(field.name, field, 0) for field in fields]
    image = next((field for field in fields if isinstance(field.kind, Image)), None)
    found = []
    for field in fields:
        if isinstance(field.kind, _SEEN):
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
    def of(cls, schema: Schema, fields: Sequence[Field]) -> Streams:
        """Of these fields of a schema, and of no others."""
        own = [field for _, field in schema.columns if field in fields]
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


def field_plans(schema: Schema, layout: SampleLayout, streams: Streams, plan: Plan) -> list[Any]:
    """``_C.FieldPlan`` of each field of a layout."""
    return [
        _field_plan(schema, field.schema_name, streams, plan.of_view(field.view), field.view)
        for field in layout.fields
    ]


def _field_plan(schema: Schema, name: str, streams: Streams, plan: Plan, view: int) -> Any:
    field = schema[name]
    kind: Any = field.kind
    if isinstance(kind, (Image, Mask)):
        return _picture_plan(field, streams, plan, view)
    in_index = field == schema.label_field
    part = _C.INDEX if in_index else streams.columns.index(field.name)
    if isinstance(kind, Label):
        return _C.FieldPlan("label", part=part, width=8)
    if isinstance(kind, Boxes):
        return _C.FieldPlan(
            "points", view=view, part=part, width=field.item_bytes, points=kind.format, relative=kind.relative
        )
    if isinstance(kind, Keypoints):
        points = "xyv" if kind.visibility else "xy"
        return _C.FieldPlan("points", view=view, part=part, width=field.item_bytes, points=points)
    if isinstance(kind, Polygons):
        return _C.FieldPlan("points", view=view, part=part, width=1, points=kind.format)
    form = "ragged" if field.storage == "ragged" else "fixed"
    return _C.FieldPlan(form, part=part, width=field.item_bytes)


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
