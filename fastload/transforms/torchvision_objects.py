"""Recognises torchvision's transforms (v1 and v2) by name and attributes, without importing torchvision.

An object whose parameters mean exactly what a spec of ours means becomes that spec; any other stays a
callable of the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastload.transforms.specs import (
    CenterCrop,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Spec,
    ToDtype,
)

__all__ = ["composed", "on_tensor", "translate"]


def _class_name(item: Any) -> str:
    """The class name of a torchvision transform, else an empty string."""
    kind = type(item)
    module = kind.__module__ or ""
    inside = module == "torchvision.transforms" or module.startswith("torchvision.transforms.")
    return kind.__name__ if inside else ""


def composed(item: Any) -> list[Any] | None:
    """The parts of a torchvision ``Compose``, else None."""
    return list(item.transforms) if _class_name(item) == "Compose" else None


def translate(item: Any) -> tuple[Spec, ...] | None:
    """The specs that equal a torchvision transform: none for a no-op on RGB uint8 tensors.

    None for what we do not equal (another filter, ``antialias=False``, per-type dtypes, other classes).
    """
    name = _class_name(item)
    if name in ("PILToTensor", "ToImage"):
        return ()
    if name == "ToTensor":
        return (ToDtype("float32", scale=True),)
    make = _MAKERS.get(name)
    if make is None:
        return None
    try:
        return (make(item),)
    except (AttributeError, TypeError, ValueError):
        return None  # parameters that our spec does not take


def on_tensor(item: Any) -> Any:
    """``item`` for use on a decoded tensor: torchvision's converters refuse tensors, so are replaced."""
    name = _class_name(item)
    if name == "ToTensor":
        return scale_to_float32
    if name == "PILToTensor":
        return unchanged
    return item


def scale_to_float32(tensor: Any) -> Any:
    """torchvision's ``ToTensor`` for a uint8 tensor: float32 in [0, 1]; float tensors stay."""
    return tensor if tensor.is_floating_point() else tensor.float().div(255)


def unchanged(tensor: Any) -> Any:
    """torchvision's ``PILToTensor`` for what already is a tensor."""
    return tensor


def _antialias(item: Any) -> bool:
    # None and "warn" were the defaults of older releases, where pictures were antialiased anyway.
    return getattr(item, "antialias", True) in (True, None, "warn")


def _random_resized_crop(item: Any) -> Spec:
    return RandomResizedCrop(item.size, item.scale, item.ratio, item.interpolation, _antialias(item))


def _resize(item: Any) -> Spec:
    return Resize(item.size, item.interpolation, item.max_size, _antialias(item))


def _to_dtype(item: Any) -> Spec:
    return ToDtype(item.dtype, bool(item.scale))


_MAKERS: dict[str, Callable[[Any], Spec]] = {
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "CenterCrop": lambda item: CenterCrop(item.size),
    "RandomHorizontalFlip": lambda item: RandomHorizontalFlip(item.p),
    "Normalize": lambda item: Normalize(item.mean, item.std),
    "ToDtype": _to_dtype,
    "ConvertImageDtype": lambda item: ToDtype(item.dtype, scale=True),
}
