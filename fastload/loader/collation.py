"""What ``collate=`` comes to for a loader's dataset and transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastload.collate.planned import Collation
from fastload.dataset.kind import Kind
from fastload.dataset.views import read_by
from fastload.prefetch.feeder import BatchKey
from fastload.sample.planned import chosen
from fastload.sampler import Sampler
from fastload.transforms.plan import Plan

__all__ = ["collated_by", "planned_collation"]


def planned_collation(given: Mapping[str, Any], dataset: Any, kind: Kind, plan: Plan) -> Collation:
    """The collate that a loader was given, fitted to what it reads.

    Args:
        given: the loader's arguments; ``collate`` is a word for objects, or a callable.
        dataset, kind: what is read, and how.
        plan: the compiled transform.

    Raises:
        ValueError: a field that is needed is not there, or an argument does not go with it.
    """
    if kind is not Kind.PACKED:
        raise ValueError(
            f"collate is for packed datasets; a torch Dataset has its own samples. Found: collate="
            f"{given['collate']!r}. Pack it ('fastload pack') to use it, or pass a collate_fn."
        )
    spec = given["collate"]
    if isinstance(spec, str):
        from fastload.collate.detection import Detection

        spec = Detection(spec)
    if not hasattr(spec, "planned"):
        return Collation(lambda batch, _: spec(batch))
    plans = [view for _, one in plan.scheduled for view in one.every] if plan.scheduled else plan.every
    views = [name for one in ([one for _, one in plan.scheduled] or [plan]) for name, _ in one.views]
    sizes = {view.output_size for view in plans}
    found: Collation = spec.planned(
        chosen(dataset.schema, given["fields"]), given, views, one_size=len(sizes) == 1 and None not in sizes
    )
    if found.needs_ids and given["on_error"] == "replace":
        raise ValueError(
            "collate takes image ids from the order of samples, because the set has no field 'image_id', and "
            "on_error='replace' puts other samples into their places. Pass on_error='skip', or pack image_id."
        )
    return found


def collated_by(found: Collation, dataset: Any, sampler: Sampler) -> Callable[[Any, BatchKey], Any]:
    """What is made of each batch of a loader."""
    if not found.needs_ids:
        return lambda batch, _: found.collate(batch, list)
    read = read_by(dataset, sampler)

    def made(batch: Any, key: BatchKey) -> Any:
        def ids() -> Sequence[int]:
            found_ids: list[int] = read.batch(key.epoch, key.start, key.step).ids.tolist()
            return found_ids

        return found.collate(batch, ids)

    return made
