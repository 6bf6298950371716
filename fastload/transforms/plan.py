"""Compiles transforms into a :class:`Plan`: what the core does, and the callables that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from fastload._native import _C
from fastload.transforms import torchvision_objects
from fastload.transforms.specs import (
    SPECS,
    CenterCrop,
    Compose,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Spec,
    ToDtype,
)

__all__ = ["Plan", "compile_plan"]

ORDER = (
    "[RandomResizedCrop | Resize] -> [CenterCrop] -> [RandomHorizontalFlip] -> "
    "[ToDtype] -> [Normalize] -> [ToDtype]"
)


@dataclass(frozen=True)
class Plan:
    """What the core does to each picture (the fields of GeometrySpec and StoreSpec), then the ``tail``.

    ``tail`` holds the callables to run, in order, on each decoded ``(C, H, W)`` tensor of ``dtype``.
    """

    kind: str = "none"  # "none", "random_resized_crop", "resize_shorter", "resize_exact"
    out_height: int = 0
    out_width: int = 0
    max_size: int = 0
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: str = "bilinear"
    center_height: int = 0
    center_width: int = 0
    flip_probability: float = 0.0
    dtype: str = "uint8"
    scale: bool = False
    normalize: bool = False
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    tail: tuple[Callable[[Any], Any], ...] = ()

    @property
    def output_size(self) -> tuple[int, int] | None:
        """``(height, width)`` of every sample in pixels, or None where it depends on the picture."""
        if self.center_height:
            return self.center_height, self.center_width
        if self.kind in ("random_resized_crop", "resize_exact"):
            return self.out_height, self.out_width
        return None

    def geometry_spec(self) -> _C.GeometrySpec:
        """The core's description of crop, resize, window and flip."""
        return _C.GeometrySpec(
            kind=self.kind,
            out_height=self.out_height,
            out_width=self.out_width,
            max_size=self.max_size,
            scale=self.crop_scale,
            ratio=self.crop_ratio,
            filter=self.filter,
            center_height=self.center_height,
            center_width=self.center_width,
            flip_probability=self.flip_probability,
        )

    def store_spec(self, channels_last: bool = True) -> _C.StoreSpec:
        """The core's description of dtype, scaling and layout (``channels_last``: HWC in memory, else CHW).

        Raises:
            ValueError: a mean or std that float32 cannot hold.
        """
        return _C.StoreSpec(
            dtype=self.dtype,
            channels_last=channels_last,
            scale=self.scale,
            normalize=self.normalize,
            mean=self.mean,
            std=self.std,
        )


class _Misplaced(ValueError):
    """A spec that cannot follow what came before it; the message says why."""


def compile_plan(transform: Any) -> Plan:
    """The plan of a transform: a spec, a torchvision object, a callable, a Compose of those, or None.

    The longest prefix of known transforms in the core's order becomes native; from the first other
    callable on, everything is the tail.

    Raises:
        ValueError: one of fastload's transforms out of order, twice, or behind a foreign callable.
        TypeError: something that is neither a transform nor callable.
    """
    plan, step = Plan(), 0
    tail: list[Callable[[Any], Any]] = []
    for item in _flatten(transform):
        own = isinstance(item, SPECS)
        if own and tail:
            raise ValueError(
                f"{item!r} stands behind {_name(tail[0])}, which runs in Python; fastload's transforms run "
                f"in the core, before any callable. Move it forward, or use torchvision's of that name."
            )
        specs = (item,) if own else torchvision_objects.translate(item)
        if specs is None or tail:
            tail.append(_callable(torchvision_objects.on_tensor(item)))
            continue
        try:
            for spec in specs:
                plan, step = _add(plan, step, spec, strict=not own)
        except _Misplaced as error:
            if own:
                raise ValueError(str(error)) from None
            tail.append(_callable(torchvision_objects.on_tensor(item)))
    return replace(plan, tail=tuple(tail))


def _flatten(transform: Any) -> Iterator[Any]:
    if transform is None:
        return
    own = isinstance(transform, Compose)
    parts = transform.transforms if own else torchvision_objects.composed(transform)
    if parts is None:
        yield transform
        return
    for part in parts:
        yield from _flatten(part)


def _callable(item: Any) -> Callable[[Any], Any]:
    if not callable(item):
        raise TypeError(f"A transform must be one of fastload.transforms or callable. Found: {item!r}.")
    return item  # type: ignore[no-any-return]


def _name(item: Any) -> str:
    return getattr(item, "__qualname__", None) or repr(item)


# The steps of ORDER; a transform may only be followed by one of a higher step.
_DTYPE, _NORMALIZE, _FINAL_DTYPE = 4, 5, 6
_GEOMETRY_STEPS: dict[type, int] = {RandomResizedCrop: 1, Resize: 1, CenterCrop: 2, RandomHorizontalFlip: 3}


def _add(plan: Plan, step: int, spec: Spec, strict: bool) -> tuple[Plan, int]:
    """The plan with one more spec, and the step reached. ``strict``: only what torchvision means too."""
    if isinstance(spec, ToDtype):
        return _add_dtype(plan, step, spec)
    if isinstance(spec, Normalize):
        return _add_normalize(plan, step, spec, strict)
    new_step = _GEOMETRY_STEPS[type(spec)]
    if new_step <= step:
        raise _Misplaced(f"{spec!r} is out of order or there twice. The core's order is {ORDER}.")
    return replace(plan, **_geometry_fields(spec)), new_step


def _geometry_fields(spec: Spec) -> dict[str, Any]:
    if isinstance(spec, RandomHorizontalFlip):
        return {"flip_probability": spec.p}
    assert isinstance(spec, (RandomResizedCrop, Resize, CenterCrop))
    if isinstance(spec, Resize) and isinstance(spec.size, int):
        size = {"kind": "resize_shorter", "out_width": spec.size, "max_size": spec.max_size or 0}
        return {**size, "filter": spec.interpolation}
    height, width = cast("tuple[int, int]", spec.size)
    if isinstance(spec, CenterCrop):
        return {"center_height": height, "center_width": width}
    fields = {"out_height": height, "out_width": width, "filter": spec.interpolation}
    if isinstance(spec, Resize):
        return {"kind": "resize_exact", **fields}
    return {"kind": "random_resized_crop", "crop_scale": spec.scale, "crop_ratio": spec.ratio, **fields}


def _add_dtype(plan: Plan, step: int, spec: ToDtype) -> tuple[Plan, int]:
    if step < _DTYPE:
        if spec.dtype == "uint8":
            return plan, step
        return replace(plan, dtype=spec.dtype, scale=spec.scale), _DTYPE
    if spec.dtype == plan.dtype:
        return plan, step
    if plan.dtype != "float32" or spec.dtype == "uint8":
        raise _Misplaced(f"{spec!r} cannot follow {plan.dtype}: only float32 may be converted once more.")
    return replace(plan, dtype=spec.dtype), _FINAL_DTYPE


def _add_normalize(plan: Plan, step: int, spec: Normalize, strict: bool) -> tuple[Plan, int]:
    if step >= _NORMALIZE:
        raise _Misplaced(f"{spec!r} is out of order or there twice. The core's order is {ORDER}.")
    if strict and plan.dtype != "float32":
        raise _Misplaced("torchvision normalises float tensors, in their own dtype.")
    # After ToDtype without scale x is in [0, 255]: the same line, with mean and std in units of 255.
    unit = 255.0 if step == _DTYPE and not plan.scale else 1.0
    fields: dict[str, Any] = {
        "dtype": plan.dtype if step == _DTYPE else "float32",
        "mean": tuple(value / unit for value in spec.mean),
        "std": tuple(value / unit for value in spec.std),
    }
    return replace(plan, scale=True, normalize=True, **fields), _NORMALIZE
