"""The samples' dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    set_field,
)

__all__ = ["OPERATION", "ToDtype"]


@dataclass(frozen=True)
class ToDtype:
    """The samples' dtype: ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"`` (or torch's dtype).

    Args:
        dtype: the dtype; float16 and bfloat16 are rounded to nearest even from float32.
        scale: from uint8 to float, divide by 255.

    Raises:
        ValueError: another dtype.
    """

    dtype: Any
    scale: bool = False

    def __post_init__(self) -> None:
        set_field(self, "dtype", arguments.dtype_name("ToDtype.dtype", self.dtype))


def _add(draft: Draft, spec: ToDtype, strict: bool) -> Draft:
    plan = draft.plan
    if draft.stage < Stage.DTYPE:
        if spec.dtype == "uint8":
            return draft
        return draft.then(Stage.DTYPE, dtype=spec.dtype, scale=spec.scale)
    if spec.dtype == plan.dtype:
        return draft
    if plan.dtype != "float32" or spec.dtype == "uint8":
        raise Misplaced(f"{spec!r} cannot follow {plan.dtype}: only float32 may be converted once more.")
    return draft.then(Stage.FINAL_DTYPE, dtype=spec.dtype)


def _to_float32(item: Any) -> tuple[ToDtype]:
    return (ToDtype("float32", scale=True),)


OPERATION = Operation(
    ToDtype,
    _add,
    {
        "ToTensor": _to_float32,
        "timm.data.transforms.MaybeToTensor": _to_float32,
        "ToDtype": lambda item: (ToDtype(item.dtype, bool(item.scale)),),
        "ConvertImageDtype": lambda item: (ToDtype(item.dtype, scale=True),),
    },
    makes_tensor=True,
)
