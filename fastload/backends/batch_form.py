"""The form of a packed dataset's batches, and the memory that they need, before anything is decoded."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastload.backends.options import Options
from fastload.cache.tiers import bounded_sizes
from fastload.dataset.mixture import Packed
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.slots import SlotShape, in_steps
from fastload.sample.delivery import Delivery
from fastload.sample.layout import BatchLayout, Measured, Sizes
from fastload.transforms.plan import Plan

# ---- Pairs of an image and a label, or fields -------------------------------------------------------


def delivers_pairs(dataset: Packed, fields: Sequence[str] | None, pictures: Sizes, plan: Plan) -> bool:
    """Whether batches are (images, labels): the set has these alone, and no fields or views are named.

    Args:
        dataset: what is read.
        fields, pictures: names of fields, and the treatment of sizes; the loader's.
        plan: the compiled transform.
    """
    return fields is None and pictures.mode == "stack" and dataset.is_plain and not plan.views


def record_streams(dataset: Packed, fields: Sequence[str] | None) -> tuple[str | None, ...]:
    """Return which records a loader reads: None for the index's, and the names of further pictures."""
    if fields is None and dataset.is_plain:
        return (None,)
    from fastload.backends.fields import Streams
    from fastload.sample.planned import chosen

    schema = dataset.schema
    wanted = chosen(schema, fields)
    first: tuple[str | None, ...] = (None,) if schema.index_field in wanted else ()
    return first + Streams.of(schema, wanted).pictures


# ---- Worker processes for Python callables ----------------------------------------------------------


def batches_each(workers: int, prefetch: int) -> int:
    """Return the batches per worker process: at least two, so that it goes on while one waits its turn."""
    return max(2, -(-prefetch // workers))


def slots_for(workers: int, prefetch: int) -> int:
    """Return the shared slots: the workers', one next, one being decoded, and one just delivered."""
    return workers * batches_each(workers, prefetch) + 3


def workers_for(options: Options, threads: int) -> int:
    """Return the number of worker processes for Python callables; 0: the consumer's thread runs them.

    It equals the decoding threads. It is 0 for ``num_workers=0``, and within somebody's worker process, which
    may have no children.
    """
    if options.num_workers == 0 or multiprocessing.current_process().daemon:
        return 0
    return threads


# ---- Shapes and memory ------------------------------------------------------------------------------


def output_size(dataset: Packed, plan: Plan, options: Options) -> tuple[int, int] | None:
    """Return (height, width) of all samples, or None if they may differ and Python callables handle that.

    Raises:
        ValueError: samples differ in size, and nothing in the transform makes them equal.
    """
    if plan.output_size is not None:
        return plan.output_size
    if plan.tail or options.unbatched or (options.collate_fn and not _same_sizes(dataset, plan)):
        return None
    firsts = [part.record(0) for part in dataset.parts]
    bounds = [bounded_sizes(first["width"], first["height"], options.cache.decoded) for first in firsts]
    sizes = {(int(height), int(width)) for width, height in bounds}
    size = sizes.pop()
    if not plan.keeps_size or 0 in size or sizes:
        raise ValueError(
            "The transform leaves pictures of different sizes, which cannot be stacked: Resize(int) keeps "
            "the aspect ratio. Add CenterCrop(size), or use RandomResizedCrop(size) or Resize((h, w)), "
            "or pass collate='pad', collate='ragged', or a collate_fn that makes a list of them."
        )
    return size


def _same_sizes(dataset: Packed, plan: Plan) -> bool:
    """Whether all pictures have one size, which the transform keeps."""
    if not plan.keeps_size:
        return False
    for name in ("width", "height"):
        sizes = [part.records[name] for part in dataset.parts]
        extremes = {int(extreme) for size in sizes for extreme in (size.min(), size.max())}
        if len(extremes) != 1 or 0 in extremes:
            return False
    return True


def runs_python(plan: Plan, options: Options) -> bool:
    """Whether Python callables make a part of each batch."""
    return bool(plan.tail) or options.collate_fn is not None


@dataclass(frozen=True)
class Form:
    """The form of batches.

    Args:
        delivery: which fields, and how the consumer gets them.
        shape: the shape, for pairs of an image and a label.
    """

    delivery: Delivery
    shape: SlotShape | None = None

    @classmethod
    def of_pairs(cls, shape: SlotShape, parameters: int = 0) -> Form:
        """Return the form of pairs; ``parameters``: numbers per sample for augmentation on a device."""
        return cls(Delivery(shape.layout(parameters), True), shape)


def batch_form(dataset: Packed, plan: Plan, options: Options) -> Form | None:
    """Return the form of batches; None if images of pairs may differ in size, and callables collate them.

    Raises:
        ValueError: see :func:`output_size`.
    """
    if delivers_pairs(dataset, options.fields.names, options.pictures, plan):
        size = output_size(dataset, plan, options)
        if size is None:
            return None
        return Form.of_pairs(SlotShape(options.batch_size, *size, getattr(torch, plan.dtype)))
    from fastload.backends.fields import fields_layout
    from fastload.sample.planned import chosen

    fields = chosen(dataset.schema, options.fields.names)
    has_pictures = any(field.storage == "record" for field in fields)
    stacked = has_pictures and options.pictures.mode == "stack"
    views = [replace(view, tail=plan.tail) for view in plan.every]
    sizes = [output_size(dataset, view, options) if stacked else None for view in views]
    return Form(Delivery(fields_layout(dataset, plan, options, sizes), False))


def planned_form(dataset: Packed, plan: Plan, options: Options) -> Form:
    """Return the form of batches.

    Raises:
        ValueError: it is not known before samples are decoded.
    """
    form = batch_form(dataset, plan, options)
    if form is None:
        raise ValueError(
            "Samples differ in size until a Python callable has seen them: memory cannot be planned."
        )
    return form


def planned_shape(dataset: Packed, plan: Plan, options: Options) -> SlotShape:
    """Return the shape of batches of pairs.

    Raises:
        ValueError: see :func:`planned_form`.
    """
    shape = planned_form(dataset, plan, options).shape
    assert shape is not None
    return shape


def largest_batch(dataset: Packed, plan: Plan, options: Options) -> BatchLayout:
    """Return the layout of a full batch; if batches differ in size, of the largest possible one.

    Raises:
        ValueError: its size is not known before samples are read.
    """
    layout, count = planned_form(dataset, plan, options).delivery.layout, options.batch_size
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


def python_workers(plan: Plan, options: Options, threads: ThreadPlan) -> int:
    """Return the number of processes for Python callables; 0: none, or the consumer's thread runs them."""
    return workers_for(options, threads.threads) if runs_python(plan, options) else 0
