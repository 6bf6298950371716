"""Batches of any fields: which fields a loader delivers, how, and the engine that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload._native import _C
from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Boxes, Image, Keypoints, Label, Mask, Polygons
from fastload.sample.layout import SampleLayout
from fastload.sample.planned import Sizes, chosen, layout_of, picture_dtype
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan

__all__ = ["Streams", "delivers_pairs", "field_plans", "fields_layout", "of_channels", "record_streams"]


def delivers_pairs(dataset: Packed, fields: Sequence[str] | None, sizes: Any) -> bool:
    """Whether batches are (images, labels): of a set of these, where no fields are named.

    Args:
        dataset: what is read.
        fields, sizes: the DataLoader's.
    """
    return fields is None and sizes == "stack" and dataset.schema.is_plain


def record_streams(dataset: Packed, fields: Sequence[str] | None) -> tuple[str | None, ...]:
    """The records that a loader of these fields reads: None, the index's, and names of further pictures."""
    schema = dataset.schema
    wanted = chosen(schema, fields)
    first: tuple[str | None, ...] = (None,) if schema.index_field in wanted else ()
    return first + Streams.of(schema, wanted).pictures


def fields_layout(
    dataset: Packed, plan: Plan, options: Options, size: tuple[int, int] | None
) -> SampleLayout:
    """What a batch holds of each sample.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        size: height and width of all pictures; None: they differ, and callables see to it.
    """
    sizes = Sizes.of(options.sizes)
    if size is None and sizes.mode == "stack":
        sizes = Sizes("list")
    return layout_of(chosen(dataset.schema, options.fields), plan.dtype, size, sizes)


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
    return [_field_plan(schema, field.name, streams, plan) for field in layout.fields]


def _field_plan(schema: Schema, name: str, streams: Streams, plan: Plan) -> Any:
    field = schema[name]
    kind: Any = field.kind
    if isinstance(kind, (Image, Mask)):
        return _picture_plan(field, streams, plan)
    in_index = field == schema.label_field
    part = _C.INDEX if in_index else streams.columns.index(field.name)
    if isinstance(kind, Label):
        return _C.FieldPlan("label", part=part, width=8)
    if isinstance(kind, Boxes):
        return _C.FieldPlan(
            "points", part=part, width=field.item_bytes, points=kind.format, relative=kind.relative
        )
    if isinstance(kind, Keypoints):
        points = "xyv" if kind.visibility else "xy"
        return _C.FieldPlan("points", part=part, width=field.item_bytes, points=points)
    if isinstance(kind, Polygons):
        return _C.FieldPlan("points", part=part, width=1, points=kind.format)
    form = "ragged" if field.storage == "ragged" else "fixed"
    return _C.FieldPlan(form, part=part, width=field.item_bytes)


def _picture_plan(field: Field, streams: Streams, plan: Plan) -> Any:
    part = 1 + streams.pictures.index(field.name) if field.name in streams.pictures else 0
    kind: Any = field.kind
    if isinstance(kind, Mask):
        store = _C.StoreSpec(dtype="uint8" if kind.bits == 8 else "int32")
        ids = 1, kind.bits, True
        return _C.FieldPlan("picture", part=part, store=store, format=ids, nearest=True, fill=kind.ignore)
    store = _store_of(kind, plan)
    return _C.FieldPlan("picture", part=part, store=store, format=(kind.channels, kind.bits, False))


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
