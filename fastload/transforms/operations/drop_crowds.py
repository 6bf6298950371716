"""Objects dropped that stand for a crowd."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms.operations.of_objects import with_objects
from fastload.transforms.operations.operation import Draft, Operation

__all__ = ["OPERATION", "DropCrowds"]


@dataclass(frozen=True)
class DropCrowds:
    """Drop the objects that ``field`` marks, an array of bools with a row for each box: COCO's crowds, which
    nobody trains on.

    Args:
        field: its name.

    Raises:
        TypeError: no name.
    """

    field: str = "iscrowd"

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise TypeError(f"DropCrowds.field must be the name of a field. Found: {self.field!r}.")


def _add(draft: Draft, spec: DropCrowds, strict: bool) -> Draft:
    return with_objects(draft, spec, without=spec.field, needed=True)


OPERATION = Operation(DropCrowds, _add, {})
