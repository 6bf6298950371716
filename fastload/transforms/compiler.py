"""The compiler of transforms into a :class:`Plan`: what the core does, and the callables after it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastload.extras import need
from fastload.transforms import recognised as torchvision_objects
from fastload.transforms.callables import (
    all_parts,
    calls_v2,
    does_in_python,
    is_v2,
    look,
    short_name,
    state_behind,
)
from fastload.transforms.compose import ByEpoch, Compose, DrawEach, ImageOnly, Views, is_ours, refuse_class
from fastload.transforms.operations.operation import ORDER, Draft, Misplaced, Operation
from fastload.transforms.operations.registry import operation_of
from fastload.transforms.plan import Called, Does, ImageState, Plan, Step
from fastload.transforms.recognised import adapted

# ---- Plans of transforms ----------------------------------------------------------------------------

_SAME = "runs in the core with identical results"
_WHOLE = "runs in the core with identical results, on the whole picture, before the crop"


def compile_plan(transform: Any) -> Plan:
    """Return the plan of a transform: a spec, a torchvision object, a callable, a Compose of those, Views of
    those or a mapping that means Views, or None. A plan is returned as it is.

    The longest prefix of known transforms in an order that the core can do runs in the core; everything from
    the first other callable onward is the tail. Pictures are PIL's until a transform makes tensors of them,
    as in torchvision's chain; if there are only fastload's specs and no callable, they are always tensors.

    Callables after Views take the whole sample, a dict.

    Raises:
        ValueError: one of fastload's transforms is out of order, there twice, or after a foreign callable; or
            Views do not come first.
        TypeError: an element is neither a transform nor callable.
    """
    if isinstance(transform, Plan):
        return transform
    if isinstance(transform, ByEpoch):
        return _of_epochs(transform)
    if isinstance(transform, DrawEach):
        return _of_draws(transform)
    if getattr(transform, "is_vision", False):
        step = Step(repr(transform), True, _SAME, does="moves", takes="image")
        return Plan(vision=transform, steps=(step,))
    items = list(flattened(Views(transform) if isinstance(transform, Mapping) else transform))
    if items and isinstance(items[0], Views):
        return _of_views(items[0], items[1:])
    compiler = _Compiler()
    for item in items:
        compiler.add(item)
    return compiler.plan()


def _of_draws(transform: DrawEach) -> Plan:
    """Return the plan of a transform that is drawn for each camera or frame."""
    plan = compile_plan(transform.transform)
    if plan.tail or plan.needs_engine or plan.needs_boxes:
        what = name_of(plan.tail[0]) if plan.tail else "an operation on several samples or on boxes"
        raise ValueError(
            f"DrawEach takes what the core does to each picture. Found: {what}. Leave it out, or draw for "
            "the sample: the transform without DrawEach."
        )
    return replace(plan, each=transform.each)


def _of_epochs(schedule: ByEpoch) -> Plan:
    """Return the plan of a transform that changes with the epoch; its fields are the largest plan's."""
    plans = [(epoch, compile_plan(transform)) for epoch, transform in schedule.transforms.items()]
    for what, of in _SAME_IN_ALL.items():
        by_epoch = {epoch: of(plan) for epoch, plan in plans}
        if len(set(by_epoch.values())) > 1:
            raise ValueError(f"ByEpoch's transforms must have the same {what}. Found, by epoch: {by_epoch}.")
    steps = [
        replace(step, name=f"from epoch {epoch}: {step.name}") for epoch, plan in plans for step in plan.steps
    ]
    largest = max((plan for _, plan in plans), key=_pixels)
    return replace(largest, scheduled=tuple(plans), steps=tuple(steps))


def _pixels(plan: Plan) -> int:
    sizes = [view.output_size or (0, 0) for view in plan.every]
    return sum(height * width for height, width in sizes)


_SAME_IN_ALL: dict[str, Callable[[Plan], Any]] = {
    "dtype": lambda plan: tuple(view.dtype for view in plan.every),
    "format of boxes": lambda plan: tuple(view.tail_format or view.box_format for view in plan.every),
    "dtype of masks": lambda plan: tuple(view.mask_dtype for view in plan.every),
    "views": lambda plan: tuple(name for name, _ in plan.views),
    "draws": lambda plan: plan.each,
    "share of callables (all or none has some)": lambda plan: bool(plan.tail),
    "knowledge of their size (all or none has one)": lambda plan: tuple(
        view.output_size is None for view in plan.every
    ),
}


def _of_views(views: Views, behind: Sequence[Any]) -> Plan:
    """Return the plan of a sample with several views; ``behind``: the items after them."""
    plans: list[tuple[str, Plan]] = []
    tail: list[Callable[[Any], Any]] = []
    steps: list[Step] = []
    called: list[Called] = []
    for number, (name, transform) in enumerate(zip(views.names, views.transforms, strict=True)):
        plan = compile_plan(transform)
        if plan.each != "sample":
            raise ValueError(f"DrawEach must be the whole transform. Found: in the view {name!r}.")
        if plan.needs_engine:
            raise ValueError(
                f"Mosaic is for samples of one view. Found: in the view {name!r}. Leave it out, or the views."
            )
        plans.append((name, replace(plan, tail=(), picture=plan.picture and bool(plan.tail), steps=())))
        if plan.tail:
            of_view: Any = ViewTail(number, plan.tail)
            tail.append(of_view)
            called.append(Called(of_view, "sample", name=f"the view {name!r}"))
        steps += [replace(step, name=f"{name}: {step.name}", view=number) for step in plan.steps]
    for item in behind:
        if is_ours(item):
            raise ValueError(
                f"{item!r} comes after Views, where samples are dicts of several pictures. Put it into each "
                "view's own transform."
            )
        known = replace(look(item), state="image" if calls_v2(item) else "tensor", name=name_of(item))
        tail.append(_callable(known.function if isinstance(item, ImageOnly) else item))
        called.append(known)
        why = "after Views: it gets the sample as a dict"
        step = Step(name_of(item), False, why, does=does_in_python(known))
        steps.append(replace(step, takes=known.takes, field=known.field))
    v2 = any(plan.is_v2 for _, plan in plans) or any(
        each.takes != "image" and calls_v2(each.function) for each in called
    )
    return Plan(views=tuple(plans), tail=tuple(tail), steps=tuple(steps), called=tuple(called), is_v2=v2)


def flattened(transform: Any) -> Iterator[Any]:
    """Yield the items of a transform, those of Compose objects (fastload's and torchvision's) one by one."""
    if transform is None:
        return
    own = isinstance(transform, Compose)
    parts = transform.transforms if own else torchvision_objects.composed(transform)
    if parts is None:
        refuse_class(transform)
        yield transform
        return
    for part in parts:
        yield from flattened(part)


def _callable(item: Any) -> Callable[[Any], Any]:
    if not callable(item):
        chain = " Put a list into Compose([...])." if isinstance(item, list | tuple) else ""
        raise TypeError(
            f"A transform must be one of fastload.transforms or callable. Found: {item!r}.{chain}"
        )
    return item  # type: ignore[no-any-return]


def name_of(item: Any) -> str:
    """Return a short name: a fastload transform with its arguments, a function's name, or the class's."""
    if operation_of(item) is not None:
        return repr(item)
    kind = type(item)
    return getattr(item, "__qualname__", None) or f"{kind.__module__}.{kind.__qualname__}"


def _operations(specs: tuple[Any, ...]) -> list[tuple[Operation, Any]]:
    pairs = [(operation_of(spec), spec) for spec in specs]
    return [(operation, spec) for operation, spec in pairs if operation is not None]


def _not_of_tensors(spec: Any, of_v2: bool) -> bool:
    """Return whether torchvision gives other pixels for a tensor than the core. Its v1 resizes tensors as
    floats, which bicubic filters drive beyond black and white between the two passes. Neither of its versions
    has Lanczos for tensors."""
    if isinstance(spec, tuple):
        return any(_not_of_tensors(each, of_v2) for each in spec)
    operation = operation_of(spec)
    if operation is not None and operation.pictures_only and not operation.knows_tensors:
        return True
    filter = getattr(spec, "interpolation", None)
    if filter == "lanczos" or (not of_v2 and filter == "bicubic"):
        return True
    return any(_not_of_tensors(each, of_v2) for each in getattr(spec, "transforms", ()))


def _moves_boxes(before: Plan, plan: Plan) -> bool:
    """Return whether a step was added after which torchvision v2 clips boxes: all but flips and resizes."""
    steps = [use for use in plan.geometry if use not in before.geometry]
    if any(use.name not in _WHOLE_BOXES for use in steps):
        return True
    pixels = [use for use in plan.pixels if use not in before.pixels]
    return any(use.moves and use.name not in _WHOLE_BOXES for use in pixels)


_WHOLE_BOXES = {
    "horizontal_flip",
    "vertical_flip",
    "resize_exact",
    "resize_shorter",
    "across_first",
    "random_filter",
    "random_resize",
    "random_shortest_size",
    "scale_jitter",
}


def _does(before: Plan, plan: Plan) -> Does:
    """Return what a native step does, by what it changed in the plan."""
    if any(use.name not in _OF_BOXES for use in plan.geometry[len(before.geometry) :]):
        return "moves"
    pixels = [use for use in (*plan.source, *plan.pixels) if use not in (*before.source, *before.pixels)]
    if any(use.moves for use in pixels):
        return "moves"
    if plan.mosaic != before.mosaic:
        return "moves"
    if pixels or plan.erase is not before.erase:
        return "colours"
    if plan.objects != before.objects:
        drops = plan.objects is not None and (plan.objects.drop or plan.objects.without is not None)
        return "objects" if drops else "boxes"
    if plan.box_format != before.box_format:
        return "boxes"
    same = all(getattr(plan, name) == getattr(before, name) for name in _OF_TYPES)
    return "nothing" if same else "types"


_OF_BOXES = ("clamp_boxes", "judge_boxes")
_OF_TYPES = ("dtype", "scale", "normalize", "mean", "std", "mask_dtype")


class _Compiler:
    """The plan in the making, to which items of a transform are added one by one."""

    def __init__(self) -> None:
        self._draft = Draft()
        self._tail: list[Any] = []
        self._called: list[Called] = []
        self._steps: list[Step] = []
        self._on_pixels: list[int] = []  # numbers of steps
        self._state: ImageState = "pil"  # after the items so far
        self._begins: ImageState = "pil"  # where the tail begins
        self._pure = False
        self._only_ours = True
        self._is_v2 = False
        self._v1_cuts = False  # a step in the core after which v2, in Python, clips boxes
        self._v2_cuts = False  # a step of v2's in the core that clips boxes
        self._tail_format: str | None = None

    def add(self, item: Any) -> None:
        if isinstance(item, ByEpoch):
            raise ValueError(
                "ByEpoch must be the whole transform: put the transforms around it into each part."
            )
        if isinstance(item, DrawEach):
            raise ValueError("DrawEach must be the whole transform: put the transforms around it into it.")
        if isinstance(item, Views):
            raise ValueError(
                "Views must come first in a transform: each view has its own chain, from the whole picture "
                "on. Put the transforms before it into each view's transform."
            )
        own = operation_of(item) is not None
        self._only_ours &= own
        self._is_v2 |= is_v2(item)
        specs = (item,) if own else torchvision_objects.translate(item, self._state)
        operations = _operations(specs or ())
        self._put(item, own, specs, operations)
        if own and any(operation.makes_tensor for operation, _ in operations):
            self._state = "tensor"
        self._state = state_behind(item, self._state)
        self._pure |= short_name(item) == "ToPureTensor"
        if not self._tail:
            self._begins = self._state

    def _put(self, item: Any, own: bool, specs: Any, operations: list[tuple[Operation, Any]]) -> None:
        """Put an item into the core, or into the tail."""
        if self._tail:
            if own:
                raise ValueError(
                    f"{item!r} comes after {name_of(self._tail[0])}, which runs in Python; fastload's "
                    f"transforms run in the core, before any callable. Move it forward, or use torchvision's "
                    f"of that name."
                )
            first = name_of(self._tail[0])
            keep = f"put it before {first}, if the order does not matter to you" if specs else ""
            self._leave(item, f"after {first}", keep)
            return
        if specs is None:
            why = torchvision_objects.refusal(item, self._state)
            self._leave(item, why, torchvision_objects.advice(item))
            return
        on_tensors = not own and self._state != "pil"
        if on_tensors and _not_of_tensors(tuple(specs), is_v2(item)):
            why = "torchvision gives other pixels for tensors than for pictures, which the core equals"
            self._leave(item, why, "put it before the transform that makes tensors")
            return
        before = self._draft.plan
        draft = replace(self._draft, of_v2=is_v2(item), tensors=on_tensors)
        try:
            for operation, spec in operations:
                draft = operation.add(draft, spec, not own)
            self._draft = draft
        except Misplaced as error:
            if own:
                raise ValueError(str(error)) from None
            self._leave(item, str(error), f"the order {ORDER}")
            return
        self._native(item, specs, before, draft)

    def _native(self, item: Any, specs: Any, before: Plan, draft: Draft) -> None:
        if operation_of(item) is None and _moves_boxes(before, draft.plan):
            self._v2_cuts |= is_v2(item)
            self._v1_cuts = True
        if draft.plan.source != before.source:  # a step of the geometry came after them
            self._say_whole()
        elif draft.plan.pixels != before.pixels:
            self._on_pixels.append(len(self._steps))
        why = _SAME if specs else "nothing to do: pictures are RGB, and become tensors at the end"
        erases = draft.plan.erase is not before.erase
        self._steps.append(Step(name_of(item), True, why, does=_does(before, draft.plan), erases=erases))

    def _say_whole(self) -> None:
        for number in self._on_pixels:
            self._steps[number] = replace(self._steps[number], why=_WHOLE)

    def _leave(self, item: Any, why: str, keep: str) -> None:
        called = look(item)
        self._is_v2 |= called.takes != "image" and calls_v2(item)
        run = called.function if isinstance(item, ImageOnly) else item
        run = adapted(run) if self._state == "pil" else torchvision_objects.on_tensor(run)
        self._tail.append(_callable(run))
        for part in all_parts(called):
            if short_name(part.function) == "ConvertBoundingBoxFormat":
                form = part.function.format
                self._tail_format = str(getattr(form, "value", form)).lower()
        name = name_of(item)
        self._called.append(replace(called, state=self._state, pure=self._pure, name=name))
        step = Step(name, False, why, keep, does_in_python(called), called.takes, called.field)
        self._steps.append(step)

    def plan(self) -> Plan:
        picture = self._begins == "pil" and (bool(self._tail) or not self._only_ours)
        tail, steps = tuple(self._tail), tuple(self._steps)
        return replace(
            self._draft.plan,
            tail=tail,
            picture=picture,
            steps=steps,
            called=tuple(self._called),
            state=self._begins,
            is_v2=self._is_v2,
            clips=self._v2_cuts or (self._v1_cuts and any(each.takes == "v2" for each in self._called)),
            tail_format=self._tail_format,
            tail_drops=any(
                short_name(part.function) == "SanitizeBoundingBoxes"
                for each in self._called
                for part in all_parts(each)
            ),
        )


# ---- Arguments of Python callables ------------------------------------------------------------------


def takes_generator(function: Callable[..., Any]) -> bool:
    """Return whether a callable has a parameter ``generator``."""
    try:
        parameter = inspect.signature(function).parameters.get("generator")
    except (TypeError, ValueError):
        return False
    return parameter is not None


def as_picture(image: Any) -> Any:
    """Return a uint8 (channels, height, width) tensor of 3 channels or 1 as a PIL picture, others as is."""
    if image is not None and (image.shape[0] not in (1, 3) or "uint8" not in str(image.dtype)):
        return image
    need("PIL.Image", "a callable in transform (it gets PIL pictures)")
    from PIL import Image

    pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


@dataclass(frozen=True)
class ViewTail:
    """The callables of one view, in place of a callable of the whole sample.

    Args:
        number: the view's number, which makes its generator differ from those of other views.
        functions: the callables, in order, as in the view's ``Plan.called``.
    """

    number: int
    functions: tuple[Callable[..., Any], ...]
