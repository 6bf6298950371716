"""Compiles transforms into a :class:`Plan`: what the core does, and the callables that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from fastload._native import _C
from fastload.transforms import torchvision_objects
from fastload.transforms.specs import (
    SPECS,
    CenterCrop,
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Spec,
    ToDtype,
)

__all__ = ["Plan", "Step", "compile_plan", "name_of"]

ORDER = (
    "[RandomResizedCrop | Resize] -> [CenterCrop | RandomCrop] -> [ToDtype] -> [Normalize] -> [ToDtype], "
    "with one RandomHorizontalFlip anywhere"
)
_SAME = "the core does the same to the same pixels"


@dataclass(frozen=True)
class Step:
    """What became of one item of a transform."""

    name: str
    native: bool  # in the core; else in Python
    why: str
    keep: str = ""  # what would keep it in the core; empty where nothing is known to


@dataclass(frozen=True)
class Plan:
    """What the core does to each picture (the fields of GeometrySpec and StoreSpec), then the ``tail``.

    ``tail`` holds the callables to run, in order: on a PIL picture, if ``picture``, else on a ``(C, H, W)``
    tensor of ``dtype``. ``steps`` says of each item of the transform where it runs, and why.
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
    random_window: bool = False  # the window of center_height and center_width lies anywhere
    flip_probability: float = 0.0
    flip_place: str = "last"  # "last", "before_window", "before_crop"
    dtype: str = "uint8"
    scale: bool = False
    normalize: bool = False
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    tail: tuple[Callable[[Any], Any], ...] = ()
    picture: bool = False
    steps: tuple[Step, ...] = field(default=(), compare=False)

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
            random_window=self.random_window,
            flip_probability=self.flip_probability,
            flip_place=self.flip_place,
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

    The longest prefix of known transforms in an order that the core can do becomes native; from the first
    other callable on, everything is the tail. Pictures are PIL's until a transform makes a tensor of them,
    as in torchvision's chain; only where nothing but specs of ours is there, and no callable, they are
    tensors in any case.

    Raises:
        ValueError: one of fastload's transforms out of order, twice, or behind a foreign callable.
        TypeError: something that is neither a transform nor callable.
    """
    compiler = _Compiler()
    for item in _flatten(transform):
        compiler.add(item)
    return compiler.plan()


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


def name_of(item: Any) -> str:
    """A transform in a word or two: ours with its arguments, a function's name, else the class's."""
    if isinstance(item, SPECS):
        return repr(item)
    kind = type(item)
    return getattr(item, "__qualname__", None) or f"{kind.__module__}.{kind.__qualname__}"


class _Compiler:
    """Takes the items of a transform one by one."""

    def __init__(self) -> None:
        self._native = _Native()
        self._tail: list[Any] = []
        self._steps: list[Step] = []
        self._is_tensor = False
        self._only_ours = True

    def add(self, item: Any) -> None:
        own = isinstance(item, SPECS)
        self._only_ours &= own
        specs = (item,) if own else torchvision_objects.translate(item)
        if self._tail:
            if own:
                raise ValueError(
                    f"{item!r} stands behind {name_of(self._tail[0])}, which runs in Python; fastload's "
                    f"transforms run in the core, before any callable. Move it forward, or use torchvision's "
                    f"of that name."
                )
            first = name_of(self._tail[0])
            keep = f"put it before {first}, if that is the same to you" if specs else ""
            self._leave(item, f"behind {first}", keep)
            return
        if specs is None:
            self._leave(item, torchvision_objects.refusal(item), torchvision_objects.advice(item))
            return
        try:
            self._native = self._native.with_all(specs, strict=not own)
        except _Misplaced as error:
            if own:
                raise ValueError(str(error)) from None
            self._leave(item, str(error), f"the order {ORDER}")
            return
        why = _SAME if specs else "nothing to do: pictures are RGB, and become tensors at the end"
        self._steps.append(Step(name_of(item), True, why))
        self._is_tensor |= isinstance(item, (ToDtype, Normalize)) or torchvision_objects.makes_tensor(item)

    def _leave(self, item: Any, why: str, keep: str) -> None:
        run = torchvision_objects.on_tensor(item) if self._is_tensor else item
        self._tail.append(_callable(run))
        self._steps.append(Step(name_of(item), False, why, keep))

    def plan(self) -> Plan:
        picture = not self._is_tensor and (bool(self._tail) or not self._only_ours)
        tail, steps = tuple(self._tail), tuple(self._steps)
        return replace(self._native.plan, tail=tail, picture=picture, steps=steps)


# The steps of ORDER; a transform may only be followed by one of a higher step, but for the flip.
_WINDOW, _DTYPE, _NORMALIZE, _FINAL_DTYPE = 2, 3, 4, 5
_GEOMETRY_STEPS: dict[type, int] = {RandomResizedCrop: 1, Resize: 1, CenterCrop: _WINDOW, RandomCrop: _WINDOW}


@dataclass(frozen=True)
class _Native:
    """What the core does so far, the step of ORDER reached, and whether a flip was there."""

    plan: Plan = Plan()
    step: int = 0
    flipped: bool = False

    def with_all(self, specs: tuple[Spec, ...], strict: bool) -> _Native:
        """All of ``specs`` more, or :class:`_Misplaced`. ``strict``: only what torchvision means, too."""
        found = self
        for spec in specs:
            found = found._with(spec, strict)
        return found

    def _with(self, spec: Spec, strict: bool) -> _Native:
        if isinstance(spec, RandomHorizontalFlip):
            return self._with_flip(spec)
        if isinstance(spec, ToDtype):
            return replace(self, **_dtype_added(self.plan, self.step, spec))
        if isinstance(spec, Normalize):
            return replace(self, **_normalize_added(self.plan, self.step, spec, strict))
        step = _GEOMETRY_STEPS[type(spec)]
        if step <= self.step:
            raise _misplaced(spec)
        plan = replace(self.plan, **_geometry_fields(spec), **self._flip_moved(spec))
        return replace(self, plan=plan, step=step)

    def _with_flip(self, spec: RandomHorizontalFlip) -> _Native:
        """A flip: the core's is the last thing done to the pixels, which equals one at any place."""
        if self.flipped:
            raise _misplaced(spec)
        return replace(self, plan=replace(self.plan, flip_probability=spec.p), flipped=True)

    def _flip_moved(self, spec: Spec) -> dict[str, Any]:
        """Where the flip was asked for, seen from ``spec``, which follows it."""
        if not self.flipped or isinstance(spec, Resize):
            return {}
        if isinstance(spec, RandomResizedCrop):
            return {"flip_place": "before_crop"}
        return {} if self.plan.flip_place != "last" else {"flip_place": "before_window"}


def _misplaced(spec: Spec) -> _Misplaced:
    return _Misplaced(f"{spec!r} is out of order or there twice. The core's order is {ORDER}.")


def _geometry_fields(spec: Spec) -> dict[str, Any]:
    assert isinstance(spec, (RandomResizedCrop, Resize, CenterCrop, RandomCrop))
    if isinstance(spec, Resize) and isinstance(spec.size, int):
        size = {"kind": "resize_shorter", "out_width": spec.size, "max_size": spec.max_size or 0}
        return {**size, "filter": spec.interpolation}
    height, width = cast("tuple[int, int]", spec.size)
    if isinstance(spec, (CenterCrop, RandomCrop)):
        window = {"center_height": height, "center_width": width}
        return {**window, "random_window": isinstance(spec, RandomCrop)}
    fields = {"out_height": height, "out_width": width, "filter": spec.interpolation}
    if isinstance(spec, Resize):
        return {"kind": "resize_exact", **fields}
    return {"kind": "random_resized_crop", "crop_scale": spec.scale, "crop_ratio": spec.ratio, **fields}


def _dtype_added(plan: Plan, step: int, spec: ToDtype) -> dict[str, Any]:
    if step < _DTYPE:
        if spec.dtype == "uint8":
            return {}
        return {"plan": replace(plan, dtype=spec.dtype, scale=spec.scale), "step": _DTYPE}
    if spec.dtype == plan.dtype:
        return {}
    if plan.dtype != "float32" or spec.dtype == "uint8":
        raise _Misplaced(f"{spec!r} cannot follow {plan.dtype}: only float32 may be converted once more.")
    return {"plan": replace(plan, dtype=spec.dtype), "step": _FINAL_DTYPE}


def _normalize_added(plan: Plan, step: int, spec: Normalize, strict: bool) -> dict[str, Any]:
    if step >= _NORMALIZE:
        raise _misplaced(spec)
    if strict and plan.dtype != "float32":
        raise _Misplaced("torchvision normalises float tensors, in their own dtype.")
    # After ToDtype without scale x is in [0, 255]: the same line, with mean and std in units of 255.
    unit = 255.0 if step == _DTYPE and not plan.scale else 1.0
    fields: dict[str, Any] = {
        "dtype": plan.dtype if step == _DTYPE else "float32",
        "mean": tuple(value / unit for value in spec.mean),
        "std": tuple(value / unit for value in spec.std),
    }
    return {"plan": replace(plan, scale=True, normalize=True, **fields), "step": _NORMALIZE}
