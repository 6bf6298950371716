"""Where a transform's erasing happens: in the core behind its store, or on whole batches where they are
normalised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastload.backends.options import Options
from fastload.backends.shapes import runs_python
from fastload.transforms.plan import Plan

__all__ = ["batch_parts", "erases_batches", "of_core"]


def erases_batches(plan: Plan, options: Options, on_gpu: bool, pairs: bool) -> bool:
    """Whether whole batches are erased of, by torch's operations, because the core's pixels are not the final
    ones.

    Args:
        plan: the compiled transform.
        options: the loader's.
        on_gpu: batches go to a device.
        pairs: batches are images and labels.
    """
    if plan.erase is None:
        return False
    from fastload.transforms.batch import ColorJitter

    converted = on_gpu and pairs and not options.unbatched and not runs_python(plan, options)
    jitters = any(isinstance(part, ColorJitter) for part in _parts(options))
    return converted or jitters or options.backend == "dali"


def _parts(options: Options) -> tuple[Any, ...]:
    if options.batch_transform is None:
        return ()
    from fastload.transfer.augment import parts_of

    return parts_of(options.batch_transform)


def batch_parts(plan: Plan, options: Options, on_gpu: bool, pairs: bool) -> tuple[Any, ...]:
    """What is done to whole batches: ``batch_transform``, behind the transform's own erasing, if that is
    done there."""
    parts = _parts(options)
    return (plan.erase, *parts) if erases_batches(plan, options, on_gpu, pairs) else parts


def of_core(plan: Plan, options: Options, on_gpu: bool, pairs: bool) -> Plan:
    """The plan without what is done to whole batches."""
    return replace(plan, erase=None) if erases_batches(plan, options, on_gpu, pairs) else plan
