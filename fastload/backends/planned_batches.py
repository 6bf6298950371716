"""The form of a packed dataset's batches, and the memory that they need, before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastload._native import _C
from fastload.backends.batch_form import Form, delivers_pairs, output_size, slots_for
from fastload.backends.options import Options
from fastload.cache.tiers import bounded_sizes
from fastload.dataset.mixture import Packed
from fastload.prefetch.slots import in_steps
from fastload.sample.delivery import Pairs, image_and_label
from fastload.sample.layout import BatchLayout, Measured
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.tail import Adapter

_UNKNOWN_SIDE = 256  # pixels of a picture whose size the index does not know

# ---- The form ---------------------------------------------------------------------------------------


def batch_form(dataset: Packed, plan: Plan, options: Options) -> Form:
    """Return the form of batches.

    Raises:
        ValueError: see :func:`output_size`.
    """
    if delivers_pairs(dataset, plan, options):
        return _of_pairs(dataset, plan, options)
    from fastload.backends.fields import form_of_fields  # images and labels do not need it

    return form_of_fields(dataset, plan, options)


def _of_pairs(dataset: Packed, plan: Plan, options: Options) -> Form:
    size = output_size(dataset, plan, options)
    blank = _size_of_first(dataset, plan, options) if size is None else (0, 0)
    layout = image_and_label(getattr(torch, plan.dtype), size, blank)

    def adapter() -> Adapter:
        from fastload.backends.tail import PictureAdapter  # without callables there is no need of it

        return PictureAdapter(plan)

    return Form(Pairs(layout, options.unbatched), (None,), lambda _: parts_of_pairs(plan, size), adapter)


def parts_of_pairs(plan: Plan, size: tuple[int, int] | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what ``_C.Engine`` takes for one image and one label: parts, views and fields.

    Args:
        plan: the compiled transform.
        size: height and width of all images; None: they differ.
    """
    height, width = size or (0, 0)
    view = _C.ViewPlan(plan.geometry_spec(), width, height, plan.pixel_spec(), plan.source_spec())
    image = _C.FieldPlan("picture", store=plan.store_spec())
    return [], [view], [image, _C.FieldPlan("label", part=_C.INDEX, width=8)]


def _size_of_first(dataset: Packed, plan: Plan, options: Options) -> tuple[int, int]:
    """Return height and width of what stands where there is no picture: those of the set's first one under
    the transform, as callables must not get a picture without pixels."""
    first = next((part.record(part.first_id) for part in dataset.parts if len(part)), None)
    width = height = 0
    if first is not None:
        width, height = map(int, bounded_sizes(first["width"], first["height"], options.cache.decoded))
    if plan.mosaic is not None:
        width = height = plan.mosaic.size
    view = _C.draw_view(plan.geometry_spec(), width or _UNKNOWN_SIDE, height or _UNKNOWN_SIDE, 0, 0, 0)
    return view.made[::-1]  # type: ignore[no-any-return]


# ---- Memory -----------------------------------------------------------------------------------------


def largest_batch(dataset: Packed, plan: Plan, options: Options) -> BatchLayout:
    """Return the layout of a full batch; if batches differ in size, of the largest possible one.

    Raises:
        ValueError: its size is not known before samples are read.
    """
    layout, count = batch_form(dataset, plan, options).delivery.layout, options.batch_size
    known: Sequence[Measured] = [None] * len(layout.fields)
    if layout.is_measured:
        from fastload.backends.fields import most_measured

        known = most_measured(dataset, plan, layout, count, options.cache.decoded)
    return layout.of(count, known)


def memory_plan(largest: BatchLayout, options: Options, threads: int, workers: int = 0) -> dict[str, int]:
    """Plan the memory (:meth:`fastload.DataLoader.memory_plan`) of batches on the host."""
    nbytes, ahead = largest.nbytes, options.most_prefetch
    if largest.layout.is_measured:
        nbytes = in_steps(nbytes)
        ahead = options.most_ahead(nbytes, threads)
    slots = ahead + 2  # in work, at the consumer, and one it has not released yet
    if workers:
        slots = slots_for(workers, options.prefetch_factor)
    pinned = 0
    if options.pin_memory and not workers and torch.cuda.is_available():
        pinned = slots * (1 << (nbytes - 1).bit_length())  # torch's allocator rounds to powers of two
    return {
        "slots": slots,
        "slot_bytes": nbytes,
        "total": max(slots * nbytes, pinned),
        "pinned_bytes": pinned,
        "device_bytes": 0,
    }
