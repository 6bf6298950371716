"""Whether a loader delivers pairs of an image and a label, which need nothing of what fields need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastload.dataset.mixture import Packed
from fastload.transforms.plan import Plan

__all__ = ["delivers_pairs", "record_streams"]


def delivers_pairs(dataset: Packed, fields: Sequence[str] | None, sizes: Any, plan: Plan) -> bool:
    """Whether batches are (images, labels): of a set of these, where no fields and views are named.

    Args:
        dataset: what is read.
        fields, sizes: the DataLoader's.
        plan: the compiled transform.
    """
    return fields is None and sizes == "stack" and dataset.is_plain and not plan.views


def record_streams(dataset: Packed, fields: Sequence[str] | None) -> tuple[str | None, ...]:
    """The records that a loader of these fields reads: None, the index's, and names of further pictures."""
    if fields is None and dataset.is_plain:
        return (None,)
    from fastload.backends.fields import Streams
    from fastload.sample.planned import chosen

    schema = dataset.schema
    wanted = chosen(schema, fields)
    first: tuple[str | None, ...] = (None,) if schema.index_field in wanted else ()
    return first + Streams.of(schema, wanted).pictures
