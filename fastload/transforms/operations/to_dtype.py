"""The samples' dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    """Convert pictures to ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"`` (or torch's dtype).

    Args:
        dtype: the dtype of pictures; float16 and bfloat16 are rounded to nearest even from float32. None: as
            they are.
        scale: from uint8 to float, divide by 255.
        masks: ``"int64"``: the dtype of masks, as losses want it; None: as they are stored.

    Raises:
        ValueError: another dtype.
    """

    dtype: Any
    scale: bool = False
    masks: Any = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            set_field(self, "dtype", arguments.dtype_name("ToDtype.dtype", self.dtype))
        if self.masks is not None:
            name = str(self.masks).removeprefix("torch.")
            if name != "int64":
                raise ValueError(f"ToDtype.masks must be 'int64', or None. Found: {self.masks!r}.")
            set_field(self, "masks", name)


def _add(draft: Draft, spec: ToDtype, strict: bool) -> Draft:
    if spec.masks is not None:
        draft = replace(draft, plan=replace(draft.plan, mask_dtype=spec.masks))
    if spec.dtype is None:
        return draft
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


_NO_IMAGES = ("BoundingBoxes", "KeyPoints")


def _of_torchvision(item: Any) -> tuple[ToDtype]:
    given = item.dtype
    if not isinstance(given, Mapping):
        return (ToDtype(given, bool(item.scale)),)
    by_name = {getattr(key, "__name__", key): dtype for key, dtype in given.items()}
    others = by_name.get("others")
    images = {by_name[name] for name in ("Image", "Tensor") if name in by_name} or {others}
    if len(images) > 1:
        raise ValueError("it names dtypes of tensors and of images, which are others")
    if any(by_name.get(name, others) is not None for name in _NO_IMAGES):
        raise ValueError("it converts boxes or points")
    masks = by_name.get("Mask", others)
    return (ToDtype(images.pop(), bool(item.scale), masks),)


def _to_float32(item: Any) -> tuple[ToDtype]:
    return (ToDtype("float32", scale=True),)


OPERATION = Operation(
    ToDtype,
    _add,
    {
        "ToTensor": _to_float32,
        "timm.data.transforms.MaybeToTensor": _to_float32,
        "ToDtype": _of_torchvision,
        "ConvertImageDtype": lambda item: (ToDtype(item.dtype, scale=True),),
    },
    makes_tensor=True,
)
