"""Batches of any fields: which fields a loader delivers, in which form, and how large at most."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.backends.batch_form import Form, batch_parts, output_size, runs_python
from fastload.backends.options import Options
from fastload.backends.values import Groups
from fastload.backends.windows import Draws, pads_of, views_of_draws, with_steps
from fastload.cache.tiers import Side, bounded_sizes
from fastload.dataset.mixture import Packed
from fastload.machine.messages import stacklevel
from fastload.sample.delivery import Delivery
from fastload.sample.fields import (
    PLACES,
    Array,
    Boxes,
    Image,
    Images,
    Keypoints,
    Label,
    Labels,
    Mask,
    Polygons,
)
from fastload.sample.layout import IDS, VIEW, FieldLayout, SampleLayout, Sizes, sizes_name
from fastload.sample.planned import chosen, layout_of, picture_dtype
from fastload.sample.schema import Field, Schema
from fastload.sampler import Sampler
from fastload.sampler.partners import reach
from fastload.transfer.augment import Named, check_parts, needs, parts_of
from fastload.transfer.mixing import known
from fastload.transforms.batch import ColorJitter, CutMix, MixUp, OfFields, RandomChoice, TimmMixup
from fastload.transforms.callables import calls_v2, is_v2, look
from fastload.transforms.operations.output import RandomErasing
from fastload.transforms.plan import Erasing, MosaicUse, Plan

if TYPE_CHECKING:
    from fastload.backends.tail import Adapter

# ---- Bounds for batches that differ in size ---------------------------------------------------------

SizeArray = npt.NDArray[np.int64]


def most_measured(
    dataset: Packed, plan: Plan, layout: SampleLayout, count: int, decoded: Side
) -> list[npt.NDArray[np.int64] | None]:
    """Return what the core would measure for the largest possible batch; nothing is decoded.

    Each of its samples has the longest value of each field and the largest picture. This reads all sizes and
    lengths.

    Args:
        dataset: what is read.
        plan: the compiled transform; without a tail.
        layout: of a sample.
        count: samples in the batch.
        decoded: ``Cache.decoded``.

    Returns:
        For each field what :meth:`SampleLayout.of` takes.

    Raises:
        ValueError: a field's bound is not known before its samples are read.
    """
    return [
        _of_field(dataset, plan.of_view(field.view), field, count, decoded) if field.is_measured else None
        for field in layout.fields
    ]


def whole_picture_bytes(dataset: Packed, plan: Plan, options: Options, threads: int) -> int:
    """Return the most bytes that operations before the crop need for whole pictures, in all threads; 0:
    there are no such operations.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        threads: the most that decode.

    Raises:
        ValueError: the index does not have all sizes.
    """
    views = [view for _, one in plan.scheduled or ((0, plan),) for view in one.every]
    if not any(view.source for view in views):
        return 0
    sizes = _picture_sizes(dataset, options.cache.decoded, "operations before the crop")
    copies = 2 + (len(views) > 1)  # the picture, its result, and what several views share
    if any(use.mixes for view in views for use in view.source):
        copies += 5  # the original, and sums of float32
    masks = [
        field.kind for field in chosen(dataset.schema, options.fields.names) if isinstance(field.kind, Mask)
    ]
    moved = any(use.moves for view in views for use in view.source)
    ids = max((2 * mask.bits // 8 for mask in masks), default=0) if moved else 0
    return threads * (copies * 3 + ids) * int(sizes.prod(1).max(initial=0))


def _of_field(
    dataset: Packed, plan: Plan, field: FieldLayout, count: int, decoded: Side
) -> npt.NDArray[np.int64]:
    if field.form == "masks":
        raise ValueError(
            f"Batches differ in size, by how many objects of {field.name} are drawn: memory cannot be "
            "planned. Leave the field out by fields=[...] to plan for the others."
        )
    if field.form != "picture":
        rows = _longest(dataset, plan, field) // max(1, field.item_bytes)
        return np.arange(count + 1, dtype=np.int64) * rows
    if field.mode == "pad" and field.most is not None:
        return np.zeros((count, 2), np.int64)  # always that size
    sizes = _sizes(dataset, plan, field, decoded)
    largest = sizes.max(0) if field.mode == "pad" else sizes[sizes.prod(1).argmax()]
    return np.tile(largest, (count, 1))


def _longest(dataset: Packed, plan: Plan, field: FieldLayout) -> int:
    """Return the bytes of a field's longest value."""
    name = field.schema_name
    if isinstance(dataset.schema[name].kind, Polygons) and (plan.source or plan.geometry or plan.pixels):
        raise ValueError(
            f"Batches differ in size, by what samples have in {field.name}: outlines are cut to the view, so "
            "memory cannot be planned. Leave the field out by fields=[...] to plan for the others."
        )
    return max((part.columns[name].longest() for part in dataset.parts), default=0)


def _sizes(dataset: Packed, plan: Plan, field: FieldLayout, decoded: Side) -> SizeArray:
    """Return the distinct heights and widths of delivered pictures, (n, 2)."""
    if plan.output_size is not None:
        return np.array([plan.output_size], np.int64)
    if any(use.drawn for use in plan.geometry if not use.keeps_size):
        raise ValueError(
            f"Batches differ in size, by the sizes that are drawn for {field.name}: memory cannot be planned."
        )
    sizes = _picture_sizes(dataset, decoded, field.name)
    spec = plan.geometry_spec()
    return np.array([_seen(spec, width, height) for width, height in sizes.tolist()], np.int64).reshape(-1, 2)


def _picture_sizes(dataset: Packed, decoded: Side, what: str) -> SizeArray:
    """Return the distinct widths and heights of pictures, (n, 2), which ``what`` needs."""
    pairs: set[tuple[int, int]] = set()
    for part in dataset.parts:
        records = part.records
        widths, heights = bounded_sizes(records["width"], records["height"], decoded)
        pairs.update(map(tuple, np.unique(np.stack((widths, heights), 1), axis=0).tolist()))
    unknown = [size for size in pairs if 0 in size]
    if unknown:
        raise ValueError(
            f"Sizes differ, and the index has no sizes of some pictures, as {what} needs: memory cannot be "
            "planned. Pack them in a format that the core decodes."
        )
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _seen(spec: Any, width: int, height: int) -> tuple[int, int]:
    """Return height and width of what a view, whose size is not random, shows of a picture."""
    made = _C.draw_view(spec, width, height, 0, 0, 0).made
    return made[1], made[0]


# ---- Memory of mosaics ------------------------------------------------------------------------------

#: The most bytes of pictures that one loader keeps in memory for later mosaics.
MOST_KEPT = 512 << 20


def kept_bytes(streams: int, use: MosaicUse, sampler: Sampler) -> int:
    """Return the bytes of pictures kept for a rank's mosaics, three quarters of a square for each.

    Args:
        streams: the number of pictures of a sample, masks among them, that are read.
        use: the mosaics.
        sampler: the order of samples.
    """
    return min(MOST_KEPT, reach(sampler) * use.size**2 * (2 + streams) * 3 // 4)


def mosaic_bytes(streams: int, plan: Plan, sampler: Sampler, threads: int) -> int:
    """Return the most bytes for making mosaics: pictures that are kept, and each thread's canvases.

    Args:
        streams, sampler: see :func:`kept_bytes`.
        plan: the compiled transform.
        threads: the most that decode.
    """
    uses = [one.mosaic for _, one in plan.scheduled or ((0, plan),)]
    return max((_bytes_of(streams, use, sampler, threads) for use in uses if use is not None), default=0)


def _bytes_of(streams: int, use: MosaicUse, sampler: Sampler, threads: int) -> int:
    # A canvas of two by two squares, its one or two results, and a picture that is to be kept.
    squares = 4 + (2 if use.mixup else 1) + 1
    return kept_bytes(streams, use, sampler) + threads * squares * 3 * use.size**2


# ---- Objects of a sample: the boxes that lead them, and fields with a row for each ------------------

_OF_OBJECTS = (Keypoints, Labels, Polygons)


class Followers:
    """The relation of a loader's fields: which ones follow boxes, and what views do to them.

    Args:
        schema: the dataset's.
        groups: ``Fields.rows_of`` of the DataLoader.
        fields: what is delivered.
    """

    def __init__(self, schema: Schema, groups: Groups, fields: Sequence[Field]) -> None:
        self._schema = schema
        self._fields = tuple(fields)
        self._told = set(groups or {})
        self._leader_of = {field.name: field.of for field in schema.fields if field.of is not None}
        for leader, names in (groups or {}).items():
            self._leader_of.update(dict.fromkeys(names, leader))

    def leader(self, plan: Plan) -> Field | None:
        """Return the field of boxes that a view's plan works on; None: it has nothing to do.

        Raises:
            ValueError: it is not known which field that is.
        """
        use = plan.of_objects
        if use is None:
            return None
        leaders = self._leaders()
        if use.boxes is not None:
            leaders = [field for field in leaders if field.name == use.boxes]
        if not leaders and not use.needed and use.boxes is None:
            return None
        if use.implied:
            leaders = self._delivered()
            if len(leaders) != 1:
                return None  # warn_of_objects warns of it
        have = ", ".join(map(str, self._schema.fields))
        if len(leaders) != 1:
            names = " or ".join(repr(field.name) for field in leaders)
            found = f"two fields of boxes, {names}: name one, boxes=NAME" if leaders else f"none: {have}"
            raise ValueError(f"The transform works on the boxes of objects. Found: {found}.")
        return leaders[0] if use.draws or self.names(plan, leaders[0]) else None

    def names(self, plan: Plan, leader: Field) -> list[str]:
        """Return the boxes and, if the plan drops some, the delivered fields that follow them."""
        use = plan.of_objects
        assert use is not None
        return [
            field.name
            for field in self._fields
            if field.name == leader.name or (use.drops and self._leader_of.get(field.name) == leader.name)
        ]

    def is_led(self, field: Field) -> bool:
        """Whether a field has a row for each of some boxes."""
        return field.name in self._leader_of

    def led_in_tail(self, plan: Plan) -> list[str]:
        """Return the delivered fields, boxes included, of which a view's callables may drop rows."""
        leaders = self._delivered() if plan.tail_drops else []
        return [field.name for leader in leaders for field in self._fields if self._is_of(field, leader)]

    def _is_of(self, field: Field, leader: Field) -> bool:
        return field == leader or self._leader_of.get(field.name) == leader.name

    def check(self, plan: Plan) -> None:
        """Check that all fields can follow the boxes that a view drops.

        Raises:
            ValueError: a field that follows cannot, it is not known which fields follow, or one is missing.
        """
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None or not use.drops:
            return
        led = [name for name, of in self._leader_of.items() if of == leader.name]
        if use.without is not None and use.without not in led:
            raise ValueError(
                f"DropCrowds({use.without!r}) needs a field of that name with a bool for each of "
                f"{leader.name!r}. Found: {', '.join(led) or 'no fields of it'}."
            )
        kept = [
            field
            for field in self._fields
            if field.name in led and not (_has_rows(field) or isinstance(field.kind, Boxes))
        ]
        if kept:
            raise ValueError(
                "The transform drops objects, and what is said of them in this kind of field cannot be "
                f"dropped with them. Found: {kept[0]}. Leave it out, fields=[...], or drop nothing: "
                "ClampBoundingBoxes."
            )
        alone = [field.name for field in self._fields if _has_rows(field) and field.name != leader.name]
        alone = [name for name in alone if name not in self._leader_of]
        if alone and not led and leader.name not in self._told:
            raise ValueError(
                "The transform drops objects, and nothing says which fields have a row for each of "
                f"{leader.name!r}. Found: {', '.join(alone)}. Name those that do, "
                f"fields=Fields(rows_of={{{leader.name!r}: [{alone[0]!r}]}}), or leave them out by "
                f"fields=[...]. A set packed with fields of the kind '... of {leader.name}' says it itself."
            )

    def is_left(self, plan: Plan) -> bool:
        """Whether boxes stay whole here, because they are in several fields, but not with torchvision."""
        use = plan.of_objects
        return use is not None and use.implied and self.leader(plan) is None and len(self._delivered()) > 1

    def _leaders(self) -> list[Field]:
        boxes = [field for field in self._schema.fields if isinstance(field.kind, Boxes)]
        return [field for field in boxes if field.name not in self._leader_of]

    def _delivered(self) -> list[Field]:
        return [field for field in self._leaders() if field in self._fields]

    def columns(self, plan: Plan) -> list[str]:
        """Return the fields that a view's plan reads, delivered or not."""
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None:
            return []
        return [leader.name] if use.without is None else [leader.name, use.without]

    def plan(self, plan: Plan, columns: Sequence[str]) -> Any:
        """Return a view's ``_C.ObjectsPlan``, or None; ``columns``: the engine's, in order."""
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None:
            return None
        kind: Any = leader.kind
        return _C.ObjectsPlan(
            columns.index(leader.name),
            format=kind.format,
            relative=kind.relative,
            clip=use.clip,
            clamp=use.clamp,
            inside=use.inside,
            drop=use.drop,
            min_size=use.min_size,
            min_area=use.min_area,
            without=None if use.without is None else columns.index(use.without),
        )


def _has_rows(field: Field) -> bool:
    return isinstance(field.kind, _OF_OBJECTS) or (isinstance(field.kind, Array) and field.kind.has_rows)


def check_objects(schema: Schema, groups: Groups, fields: Sequence[Field], plan: Plan) -> None:
    """Refuse transforms of objects that do not go with these fields.

    Raises:
        ValueError: see :meth:`Followers.check`.
    """
    followers = Followers(schema, groups, fields)
    for view in plan.every:
        followers.check(view)


def warn_of_objects(schema: Schema, groups: Groups, fields: Sequence[Field], plan: Plan) -> None:
    """Warn once of what a model would learn wrongly without any error."""
    plans = [view for one in [one for _, one in plan.scheduled] or [plan] for view in one.every]
    mirrors = any(view.mirrors for view in plans)
    for field in fields:
        kind = field.kind
        if mirrors and isinstance(kind, Keypoints) and kind.points > 1 and not kind.pairs:
            warnings.warn(_NO_PAIRS.format(field=field.name, points=kind.points), stacklevel=6)
    followers = Followers(schema, groups, fields)
    if any(followers.is_left(view) for view in plans):
        names = ", ".join(field.name for field in fields if isinstance(field.kind, Boxes))
        warnings.warn(_NOT_CUT_OFF.format(names=names), stacklevel=6)


_NO_PAIRS = (
    "The transform mirrors pictures, and nothing says which of the {points} points of {field!r} are left and "
    "right of each other: a left eye stays the left one, on the other side. Pack them as "
    "Keypoints({points}, pairs=((1, 2), ...)), with the numbers of points that change places."
)
_NOT_CUT_OFF = (
    "torchvision's v2 would cut boxes off where the picture ends, and the loader does that for one field of "
    "boxes: {names} stay whole. Leave all but one out, fields=[...]."
)


# ---- Fields of a batch ------------------------------------------------------------------------------

#: Numbers of each picture beside its rows: rows, grid's height and width, tokens, stored height and width.
VISION_FACTS = 6
_SEEN: tuple[type, ...] = (Image, *PLACES)  # what a view changes


def form_of_fields(dataset: Packed, plan: Plan, options: Options) -> Form:
    """Return the form of batches that are dicts by field.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: see :func:`viewed` and :func:`fastload.backends.batch_form.output_size`.
    """
    schema = dataset.schema
    fields = chosen(schema, options.fields.names)
    _check_lists(schema, fields, plan)
    has_pictures = any(field.storage == "record" for field in fields)
    stacked = plan.vision is None and has_pictures and options.pictures.mode == "stack"
    views = [replace(view, tail=plan.tail) for view in plan.every]
    sizes = [output_size(dataset, view, options) if stacked else None for view in views]
    layout = _layout(dataset, plan, options, sizes)
    first: tuple[str | None, ...] = (None,) if schema.index_field in fields else ()
    lists = tuple(field.name for field in fields if isinstance(field.kind, Images))
    streams = first + Streams.of(schema, fields).pictures + lists
    groups = options.fields.rows_of

    def adapter() -> Adapter:
        from fastload.backends.callable_samples import HandOver  # without callables there is no need of it

        return HandOver(schema, layout, plan, groups, calls_v2(options.collate_fn))

    delivery = Delivery(layout, options.unbatched)
    return Form(delivery, streams, lambda read: _engine_parts(read, layout, plan, groups), adapter)


def _check_lists(schema: Schema, fields: Sequence[Field], plan: Plan) -> None:
    """Refuse lists of pictures without a rule for them, and a rule beside what it would not move.

    Raises:
        ValueError: see there.
    """
    lists = [field.name for field in fields if isinstance(field.kind, Images)]
    if lists and plan.vision is None:
        others = [field.name for field in schema if not isinstance(field.kind, Images)]
        raise ValueError(
            f"The field {lists[0]!r} holds lists of pictures, of which batches are made by transform="
            f"fastload.Vision(...). Read the others, fields={others}, or take single samples: dataset[i] has "
            "all pictures."
        )
    places = [field.name for field in fields if isinstance(field.kind, PLACES)]
    if places and plan.vision is not None:
        raise ValueError(
            f"{plan.vision!r} makes rows of patches or tiles of pictures, and {places[0]!r} says where "
            "things are in them. Leave the field out by fields=[...]."
        )


def _vision_layouts(field: Field, vision: Any) -> list[FieldLayout]:
    """Return the layouts of a field's pictures as rows, and of what is known of each picture."""
    family, numbers = vision.core()
    dtype = vision.dtype
    shape = tuple(_C.VisionRule(family, **numbers).row_shape(dtype))
    rows = FieldLayout(field.name, "rows", getattr(torch, dtype), shape)
    facts = FieldLayout(sizes_name(field.name), "rows", torch.int64, (VISION_FACTS,), of=field.name)
    return [rows, facts]


def _layout(
    dataset: Packed, plan: Plan, options: Options, sizes: Sequence[tuple[int, int] | None]
) -> SampleLayout:
    """Return the layout of what a batch holds of each sample.

    Args:
        sizes: for each view height and width of all pictures; None: they differ, and callables handle it.
    """
    planned = []
    fields = chosen(dataset.schema, options.fields.names)
    for name, field, number in viewed(
        fields, plan, Followers(dataset.schema, options.fields.rows_of, fields)
    ):
        if plan.vision is not None and isinstance(field.kind, (Image, Images)):
            planned += _vision_layouts(field, plan.vision)
            continue
        size, wanted = sizes[number], options.pictures
        asked = wanted.mode
        if size is None and asked == "stack":
            wanted = Sizes("list")
        dense = options.fields.masks == "dense"
        (one,) = layout_of((field,), plan.of_view(number).dtype, size, wanted, dense).fields
        if any(use.name == "bucket_cover" for use in plan.of_view(number).geometry):
            one = replace(one, multiple=1)  # a batch of one bucket has one size: its own, not a larger one
        if one.form in ("picture", "masks") and asked != one.mode:
            one = replace(one, behind=asked)
        if one.form in ("picture", "masks") and not isinstance(field.kind, Image):
            wanted_dtype = plan.of_view(number).mask_dtype
            one = replace(one, delivered=None if wanted_dtype is None else getattr(torch, wanted_dtype))
        if options.fields.windowed is not None:
            one = with_steps(one, options.fields.windowed)
        planned.append(one if name == field.name else replace(one, name=name, view=number, of=field.name))
    if options.fields.windowed is not None:
        planned += pads_of(fields, options.fields.windowed)
    if options.origins:
        planned.append(FieldLayout(IDS, "fixed", torch.int64, blank=-1))
        if plan.vision is None:
            planned.append(FieldLayout(VIEW, "fixed", torch.float64, (8,)))
    return SampleLayout(tuple(planned))


def viewed(
    fields: Sequence[Field], plan: Plan, followers: Followers | None = None
) -> list[tuple[str, Field, int]]:
    """Return a batch's fields: name in the batch, the dataset's field, number of the view.

    If a sample has several views, the first image has the view's name, and all else that a view changes is
    called ``view_field``. What no view changes comes once; a view that drops boxes also changes the rows that
    follow them.

    Args:
        fields: what is delivered.
        plan: the compiled transform.
        followers: which fields follow boxes; None: none do.

    Raises:
        ValueError: two views or fields would have the same name.
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
    """The sources of a loader's fields.

    Args:
        pictures: the fields whose records are read besides the index's, in the order of their streams.
        columns: the fields whose values are read.
        lists: the fields whose pictures are read as a vision-language model takes them.
    """

    pictures: tuple[str, ...]
    columns: tuple[str, ...]
    lists: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, schema: Schema, fields: Sequence[Field], looked_at: Sequence[str] = (), as_rows: bool = False
    ) -> Streams:
        """Return the sources of these fields, and of those that views of objects look at; ``as_rows``:
        pictures are read as a vision-language model takes them."""
        own = [field for _, field in schema.columns if field in fields or field.name in looked_at]
        columns = tuple(field.name for field in own if field.storage not in ("record", "records"))
        if as_rows:
            pictures = (field.name for field in fields if isinstance(field.kind, (Image, Images)))
            return cls((), columns, tuple(dict.fromkeys(pictures)))
        return cls(tuple(field.name for field in own if field.storage == "record"), columns)

    def parts(self, dataset: Packed) -> list[tuple[list[Any], list[Any], list[Any]]]:
        """Return for each source of the engine the readers of further records, the columns, and the lists of
        pictures."""
        return [
            (
                [part.record_reader(name) for name in self.pictures],
                [part.columns[name] for name in self.columns],
                [_list_of(part, name) for name in self.lists],
            )
            for part in dataset.parts
        ]


def _list_of(part: Any, name: str) -> tuple[Any, Any]:
    """Return what reads the pictures of a field, and the records of its lists; None: each sample has one."""
    field = part.schema[name]
    if field == part.schema.index_field:
        return part.reader, None
    reader = part.record_reader(name)
    return reader, part.list_table(name) if field.storage == "records" else None


def _engine_parts(
    dataset: Packed, layout: SampleLayout, plan: Plan, objects: Groups
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what the engine of a layout takes: parts, views and fields; ``objects``: ``Fields.rows_of``."""
    schema = dataset.schema
    of_core = [field for field in layout.fields if field.is_of_core]
    fields = [schema[field.schema_name] for field in of_core if not field.is_origin and not field.is_pad]
    followers = Followers(schema, objects, fields)
    looked_at = [name for view in plan.every for name in followers.columns(view)]
    streams = Streams.of(schema, fields, looked_at, plan.vision is not None)
    views = []
    for number, view in enumerate(plan.every):
        height, width = layout.picture_size(number)
        objects_plan = followers.plan(view, streams.columns)
        spec = view.geometry_spec(), width, height, view.pixel_spec(), view.source_spec(), objects_plan
        views.append(_C.ViewPlan(*spec))
    drawn = views_of_draws(plan, layout)
    plans = [_field_plan(schema, field, streams, plan, followers, drawn) for field in of_core]
    return streams.parts(dataset), views * drawn.count if drawn else views, plans


def _field_plan(
    schema: Schema,
    layout: FieldLayout,
    streams: Streams,
    plan: Plan,
    followers: Followers,
    drawn: Draws | None,
) -> Any:
    if layout.is_origin:
        return _C.FieldPlan("id" if layout.name == IDS else "view")
    if layout.is_pad:
        return _C.FieldPlan("pad", steps=list(layout.steps))
    field, view = schema[layout.schema_name], layout.view
    if plan.vision is not None and field.name in streams.lists:
        family, numbers = plan.vision.core()
        what = {"vision": _C.VisionRule(family, **numbers), "dtype": plan.vision.dtype, "name": field.name}
        form = "vision" if layout.name == field.name else "vision_sizes"
        part = streams.lists.index(field.name)
        return _C.FieldPlan(form, part=part, width=layout.item_bytes, **what)
    plan = plan.of_view(view)
    kind: Any = field.kind
    steps: dict[str, Any] = {"steps": list(layout.steps)} if layout.steps else {}
    if isinstance(kind, (Image, Mask)):
        steps |= {"view": view} if drawn is None else drawn.of(layout)
        return _picture_plan(field, streams, plan, steps)
    in_index = field == schema.label_field
    part = _C.INDEX if in_index else streams.columns.index(field.name)
    if isinstance(kind, Label):
        return _C.FieldPlan("label", part=part, width=8, **steps)
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
    return _C.FieldPlan("ragged" if field.storage == "ragged" else "fixed", **more, **steps)


def _picture_plan(field: Field, streams: Streams, plan: Plan, more: dict[str, Any]) -> Any:
    """Return the plan of pictures; ``more``: their view, and the steps of windows."""
    part = 1 + streams.pictures.index(field.name) if field.name in streams.pictures else 0
    kind: Any = field.kind
    if isinstance(kind, Mask):
        store = _C.StoreSpec(dtype="uint8" if kind.bits == 8 else "int32")
        ids = 1, kind.bits, True
        ids_of: dict[str, Any] = {"store": store, "format": ids, "nearest": True, "fill": kind.ignore}
        return _C.FieldPlan("picture", part=part, **ids_of, **more)
    pixels = kind.channels, kind.bits, False
    return _C.FieldPlan("picture", part=part, store=_store_of(kind, plan), format=pixels, **more)


def _store_of(kind: Image, plan: Plan) -> Any:
    """Return how an image's pixels become numbers; 16 bits stay as they are by default."""
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
    """Convert a transform's numbers for three channels to another number of channels.

    Raises:
        ValueError: the numbers differ, so it is not known which channel each is for.
    """
    if channels == len(values):
        return tuple(values)
    if len(set(values)) > 1:
        raise ValueError(
            f"Normalize has numbers for red, green and blue, {tuple(values)}, and a picture has {channels} "
            "channels. Pass one number for all, or leave the field out by fields=[...]."
        )
    return (values[0],) * channels


# ---- Fields for transforms of whole batches ---------------------------------------------------------


def named_of(dataset: Packed | None, plan: Plan, options: Options) -> Named:
    """Return the names of image and label in batches that are dicts: as given, else the only ones.

    Args:
        dataset: what is read, if batches have its fields.
        plan: the compiled transform.
        options: the loader's.
    """
    given = options.batch_transform
    named = Named(given.image, given.label) if isinstance(given, OfFields) else Named()
    if dataset is None:
        return named
    fields = viewed(chosen(dataset.schema, options.fields.names), plan)
    return Named(named.image or _only(fields, Image), named.label or _only(fields, Label))


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
        ValueError: a needed image or label is missing or ambiguous, or a transform would make other fields
            wrong for the pictures.
    """
    parts = tuple(map(known, batch_parts(dataset, plan, options, on_gpu=False)))
    fields = viewed(chosen(dataset.schema, options.fields.names), plan)
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
        if plan.views and not runs_python(plan, options):  # each view has its own dtype
            view = next(view for name, _, view in fields if name == named.image)
            check_parts(parts_of(options.batch_transform), plan.of_view(view).dtype)


def check_moving(where: str, callables: Iterable[Any], places: Sequence[str]) -> None:
    """Refuse callables that would move a batch's pictures but not their boxes; warn of those that may.

    Args:
        where: the argument that has the callables.
        callables: on whole batches.
        places: fields of boxes, masks, points and outlines.

    Raises:
        ValueError: a callable is known to move pixels.
    """
    if not places:
        return
    callables, left = list(callables), ", ".join(map(repr, places))
    moving = next((function for function in callables if look(function).moves), None)
    if moving is not None:
        raise ValueError(
            f"{where} gets whole batches, whose fields are no tv_tensors: {moving!r} would move the pictures "
            f"and leave {left}. Put it into transform=, or leave the fields out by fields=[...]."
        )
    for function in callables:
        if calls_v2(function) and not is_v2(function):
            warnings.warn(
                f"{where} gets whole batches, whose fields are no tv_tensors, and {function!r} calls "
                f"torchvision's v2. If that moves the pictures, {left} stay where they are. Put such steps "
                "into transform=, or leave the fields out by fields=[...].",
                stacklevel=stacklevel(),
            )


def _check_one(
    fields: list[tuple[str, Field, int]], which: str, name: str | None, kind: type, changed: bool
) -> None:
    """Check an image or label field; ``changed``: callables may have put other fields into the batch."""
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
    if options.pictures.mode != "stack":
        raise ValueError(
            f"batch_transform needs pictures of one size. Found: collate={options.pictures}. Let the "
            "transform make them so, and leave collate out."
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
