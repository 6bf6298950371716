"""What options ask of batches: pairs or fields, their size, what Python does, what whole batches get."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastload.backends.options import Options
from fastload.cache.tiers import bounded_sizes
from fastload.dataset.mixture import Packed
from fastload.machine.cpu import ThreadPlan
from fastload.machine.threads import run_at_once
from fastload.sample.delivery import Delivery
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.tail import Adapter

# ---- Workers for Python callables: processes, or threads --------------------------------------------


def batches_each(workers: int, prefetch: int) -> int:
    """Return the batches per worker: at least two, so that it goes on while one waits its turn."""
    return max(2, -(-prefetch // workers))


def slots_for(workers: int, prefetch: int) -> int:
    """Return the shared slots: the workers', one next, one being decoded, and one just delivered."""
    return workers * batches_each(workers, prefetch) + 3


def python_workers(plan: Plan, options: Options, threads: ThreadPlan) -> int:
    """Return the number of workers for Python callables, as many as decoding threads; 0: there are no
    callables, or the consumer's thread runs them.

    That is so for ``num_workers=0``, and within somebody's worker process, which may have no children.
    """
    alone = options.num_workers == 0 or multiprocessing.current_process().daemon
    return threads.threads if runs_python(plan, options) and not alone else 0


def by_threads(options: Options) -> bool:
    """Whether threads of this process run Python callables instead of worker processes: Python threads run at
    once, and the loader asks for nothing that is about processes."""
    asks = options.multiprocessing_context is not None or options.worker_init_fn is not None
    return run_at_once() and not asks


# ---- What batches hold ------------------------------------------------------------------------------


def delivers_pairs(dataset: Packed, plan: Plan, options: Options) -> bool:
    """Whether batches are (images, labels): the set has these alone, without fields=, windows or views."""
    fields = options.fields
    asked = fields.names is None and fields.windows is None and options.pictures.mode == "stack"
    return asked and dataset.is_plain and not plan.views


@dataclass(frozen=True)
class Form:
    """The form of batches.

    Args:
        delivery: which fields, and how the consumer gets them.
        streams: which records are read: None for the index's, and the names of further pictures.
        parts_of: returns, for the dataset read through its caches, the parts, views and fields that
            ``_C.Engine`` takes.
        adapter: returns what passes samples to Python callables.
    """

    delivery: Delivery
    streams: tuple[str | None, ...]
    parts_of: Callable[[Packed], tuple[list[Any], list[Any], list[Any]]]
    adapter: Callable[[], Adapter]


def output_size(dataset: Packed, plan: Plan, options: Options) -> tuple[int, int] | None:
    """Return (height, width) of all samples, or None if they may differ and Python callables handle that.

    Raises:
        ValueError: samples differ in size, and nothing in the transform makes them equal.
    """
    if plan.output_size is not None:
        return plan.output_size
    takes_lists = options.collate_fn is not None or options.collates_freely
    if plan.tail or options.unbatched or (takes_lists and not _same_sizes(dataset, plan)):
        return None
    firsts = [part.record(part.first_id) for part in dataset.parts]
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


# ---- Erasing: in the core, or on whole batches ------------------------------------------------------


def erases_batches(dataset: Packed, plan: Plan, options: Options, on_gpu: bool) -> bool:
    """Whether torch erases in whole batches, because the core's pixels are not the final ones.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        on_gpu: whether batches go to a device.
    """
    if plan.erase is None:
        return False
    from fastload.transforms.batch import ColorJitter

    alone = not options.unbatched and not runs_python(plan, options)
    converted = on_gpu and alone and delivers_pairs(dataset, plan, options)
    jitters = any(isinstance(part, ColorJitter) for part in _parts(options))
    return converted or jitters or options.dali is not None


def _parts(options: Options) -> tuple[Any, ...]:
    if options.batch_transform is None:
        return ()
    from fastload.transfer.augment import parts_of

    return parts_of(options.batch_transform)


def batch_parts(dataset: Packed, plan: Plan, options: Options, on_gpu: bool) -> tuple[Any, ...]:
    """Return what is done to whole batches: the transform's erasing, if it is, and ``batch_transform``."""
    parts = _parts(options)
    return (plan.erase, *parts) if erases_batches(dataset, plan, options, on_gpu) else parts


def of_core(dataset: Packed, plan: Plan, options: Options, on_gpu: bool) -> Plan:
    """Return the plan without what is done to whole batches."""
    return replace(plan, erase=None) if erases_batches(dataset, plan, options, on_gpu) else plan
