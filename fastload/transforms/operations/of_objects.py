"""What operations on a sample's objects share: how they come into a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastload.transforms.operations.operation import Draft, misplaced
from fastload.transforms.plan import ObjectsUse

__all__ = ["with_objects"]


def with_objects(draft: Draft, spec: Any, **changes: Any) -> Draft:
    """The draft with other settings of what becomes of objects; see :class:`ObjectsUse`.

    Raises:
        Misplaced: within a group, of which a part of the samples gets nothing.
    """
    if draft.in_group:
        raise misplaced(spec)
    objects = replace(draft.plan.objects or ObjectsUse(), **changes)
    return replace(draft, plan=replace(draft.plan, objects=objects))
