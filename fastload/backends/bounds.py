"""What batches that differ in size have at most: from the sizes in the index and the lengths of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.backends.options import Options
from fastload.cache.tier import Side, bounded_sizes
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Mask, Polygons
from fastload.sample.layout import FieldLayout, SampleLayout
from fastload.sample.planned import chosen
from fastload.transforms.plan import Plan

__all__ = ["most_measured", "whole_picture_bytes"]

Sizes = npt.NDArray[np.int64]


def most_measured(
    dataset: Packed, plan: Plan, layout: SampleLayout, count: int, decoded: Side
) -> list[npt.NDArray[np.int64] | None]:
    """What the core measures for a batch of which no sample could need more memory; nothing is decoded.

    Every sample of it has the longest value of each field and the largest picture. All sizes and lengths are
    read for it.

    Args:
        dataset: what is read.
        plan: the compiled transform; without a tail.
        layout: of a sample.
        count: samples of the batch.
        decoded: ``cache_decoded``.

    Returns:
        For each field what :meth:`SampleLayout.of` wants.

    Raises:
        ValueError: a field's bound is not known before its samples are read.
    """
    return [
        _of_field(dataset, plan.of_view(field.view), field, count, decoded) if field.is_measured else None
        for field in layout.fields
    ]


def whole_picture_bytes(dataset: Packed, plan: Plan, options: Options, threads: int) -> int:
    """Bytes at most for the whole pictures that operations before the crop work on: what each thread has of
    the largest one. 0: there are no such operations.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        threads: that decode, at most.

    Raises:
        ValueError: sizes that the index does not know.
    """
    views = [view for _, one in plan.scheduled or ((0, plan),) for view in one.every]
    if not any(view.source for view in views):
        return 0
    sizes = _picture_sizes(dataset, options.cache_decoded, "operations before the crop")
    copies = 2 + (len(views) > 1)  # the picture and what it becomes, and what several views share
    if any(use.mixes for view in views for use in view.source):
        copies += 5  # where it began, and sums of float32
    masks = [field.kind for field in chosen(dataset.schema, options.fields) if isinstance(field.kind, Mask)]
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
    """Bytes of a field's longest value."""
    name = field.schema_name
    if isinstance(dataset.schema[name].kind, Polygons) and (plan.source or plan.geometry or plan.pixels):
        raise ValueError(
            f"Batches differ in size, by what samples have in {field.name}: outlines are cut to the view, so "
            "memory cannot be planned. Leave the field out by fields=[...] to plan for the others."
        )
    return max((part.columns[name].longest() for part in dataset.parts), default=0)


def _sizes(dataset: Packed, plan: Plan, field: FieldLayout, decoded: Side) -> Sizes:
    """The heights and widths that pictures come in, each once, (n, 2)."""
    if plan.output_size is not None:
        return np.array([plan.output_size], np.int64)
    if any(use.drawn for use in plan.geometry if not use.keeps_size):
        raise ValueError(
            f"Batches differ in size, by the sizes that are drawn for {field.name}: memory cannot be planned."
        )
    found = _picture_sizes(dataset, decoded, field.name)
    spec = plan.geometry_spec()
    return np.array([_seen(spec, width, height) for width, height in found.tolist()], np.int64).reshape(-1, 2)


def _picture_sizes(dataset: Packed, decoded: Side, what: str) -> Sizes:
    """The widths and heights of pictures, each once, (n, 2); ``what`` needs them."""
    found: set[tuple[int, int]] = set()
    for part in dataset.parts:
        records = part.records
        widths, heights = bounded_sizes(records["width"], records["height"], decoded)
        found.update(map(tuple, np.unique(np.stack((widths, heights), 1), axis=0).tolist()))
    unknown = [size for size in found if 0 in size]
    if unknown:
        raise ValueError(
            f"Sizes differ, and the index has no sizes of some pictures, as {what} needs: memory cannot be "
            "planned. Pack them in a format that the core decodes."
        )
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _seen(spec: Any, width: int, height: int) -> tuple[int, int]:
    """Height and width of what a view shows of a picture; nothing of the size is drawn."""
    made = _C.draw_view(spec, width, height, 0, 0, 0).made
    return made[1], made[0]
