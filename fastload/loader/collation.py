"""What ``collate=`` comes to for a loader's dataset and transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastload.collate.planned import Collation
from fastload.dataset.detection import stored_size
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
    if found.needs and given["on_error"] == "replace":
        raise ValueError(
            f"collate={given['collate']!r} finds {found.needs} by the order of samples, and "
            "on_error='replace' puts other samples into their places. Pass on_error='skip'"
            + (", or pack image_id." if found.needs == "image ids" else ".")
        )
    return found


class _Origins:
    """Where the samples of one batch come from; see :class:`fastload.collate.planned.Origins`."""

    def __init__(self, dataset: Any, sampler: Sampler, key: BatchKey) -> None:
        self._dataset, self._sampler, self._key = dataset, sampler, key
        self._ids: list[int] | None = None

    def ids(self) -> list[int]:
        if self._ids is None:
            self._ids = self._sampler.batch(*self._key).ids.tolist()
        return self._ids

    def keys(self) -> list[str]:
        return ["" if sample < 0 else self._dataset.key(sample) for sample in self.ids()]

    def sizes(self, image: str) -> list[tuple[int, int]]:
        return [stored_size(self._dataset, sample, image) for sample in self.ids()]


def collated_by(found: Collation, dataset: Any, sampler: Sampler) -> Callable[[Any, BatchKey], Any]:
    """What is made of each batch of a loader."""
    read = read_by(dataset, sampler)
    return lambda batch, key: found.collate(batch, _Origins(dataset, read, key))
