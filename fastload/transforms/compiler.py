"""Compiles transforms into a :class:`Plan`: what the core does, and the callables that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastload.transforms import torchvision_objects
from fastload.transforms.compose import ByEpoch, Compose, Views, is_ours, refuse_class
from fastload.transforms.operations.operation import ORDER, Draft, Misplaced, Operation
from fastload.transforms.operations.registry import operation_of
from fastload.transforms.plan import Plan, Step

__all__ = ["compile_plan", "flattened", "name_of"]

_SAME = "the core does the same to the same pixels"
_WHOLE = "the core does the same, on the whole picture, before the crop"


def compile_plan(transform: Any) -> Plan:
    """The plan of a transform: a spec, a torchvision object, a callable, a Compose of those, Views of those
    or a mapping that means Views, or None.

    The longest prefix of known transforms in an order that the core can do becomes native; from the first
    other callable on, everything is the tail. Pictures are PIL's until a transform makes a tensor of them,
    as in torchvision's chain; only where nothing but specs of ours is there, and no callable, they are
    tensors in any case.

    What stands behind Views are callables of the whole sample, a dict.

    Raises:
        ValueError: one of fastload's transforms out of order, twice, or behind a foreign callable; Views that
            do not come first.
        TypeError: something that is neither a transform nor callable.
    """
    if isinstance(transform, ByEpoch):
        return _of_epochs(transform)
    items = list(flattened(Views(transform) if isinstance(transform, Mapping) else transform))
    if items and isinstance(items[0], Views):
        return _of_views(items[0], items[1:])
    compiler = _Compiler()
    for item in items:
        compiler.add(item)
    return compiler.plan()


def _of_epochs(given: ByEpoch) -> Plan:
    """The plan of a transform that changes with the epoch: its own fields are those of the largest."""
    plans = [(epoch, compile_plan(transform)) for epoch, transform in given.transforms.items()]
    for what, of in _SAME_IN_ALL.items():
        found = {epoch: of(plan) for epoch, plan in plans}
        if len(set(found.values())) > 1:
            raise ValueError(f"ByEpoch's transforms must have the same {what}. Found, by epoch: {found}.")
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
    "views": lambda plan: tuple(name for name, _ in plan.views),
    "share of callables (all or none has some)": lambda plan: bool(plan.tail),
    "knowledge of their size (all or none has one)": lambda plan: tuple(
        view.output_size is None for view in plan.every
    ),
}


def _of_views(views: Views, behind: Sequence[Any]) -> Plan:
    """The plan of a sample that has several views; ``behind``: what comes after them."""
    from fastload.transforms.view_tail import ViewTail  # few jobs need it

    plans: list[tuple[str, Plan]] = []
    tail: list[Callable[[Any], Any]] = []
    steps: list[Step] = []
    for number, (name, transform) in enumerate(zip(views.names, views.transforms, strict=True)):
        plan = compile_plan(transform)
        if plan.needs_engine:
            raise ValueError(
                f"Mosaic is for samples of one view. Found: in the view {name!r}. Leave it out, or the views."
            )
        plans.append((name, replace(plan, tail=(), picture=plan.picture and bool(plan.tail), steps=())))
        if plan.tail:
            tail.append(ViewTail(name, number, plan.tail, plan.picture))
        steps += [replace(step, name=f"{name}: {step.name}") for step in plan.steps]
    for item in behind:
        if is_ours(item):
            raise ValueError(
                f"{item!r} stands behind Views, where samples are dicts of several pictures. Write it into "
                "each view's own transform."
            )
        tail.append(_callable(item))
        steps.append(Step(name_of(item), False, "behind Views: it gets the sample as a dict"))
    return Plan(views=tuple(plans), tail=tuple(tail), steps=tuple(steps))


def flattened(transform: Any) -> Iterator[Any]:
    """The items of a transform, those of Compose objects (ours and torchvision's) one by one."""
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
        raise TypeError(f"A transform must be one of fastload.transforms or callable. Found: {item!r}.")
    return item  # type: ignore[no-any-return]


def name_of(item: Any) -> str:
    """A transform in a word or two: ours with its arguments, a function's name, else the class's."""
    if operation_of(item) is not None:
        return repr(item)
    kind = type(item)
    return getattr(item, "__qualname__", None) or f"{kind.__module__}.{kind.__qualname__}"


def _operations(specs: tuple[Any, ...]) -> list[tuple[Operation, Any]]:
    found = [(operation_of(spec), spec) for spec in specs]
    return [(operation, spec) for operation, spec in found if operation is not None]


def _pictures_only(spec: Any) -> bool:
    if isinstance(spec, tuple):
        return any(map(_pictures_only, spec))
    operation = operation_of(spec)
    if operation is not None and operation.pictures_only:
        return True
    return any(map(_pictures_only, getattr(spec, "transforms", ())))


def _moves_boxes(before: Plan, plan: Plan) -> bool:
    """Whether a step was added behind which torchvision's v2 cuts boxes off: all but flips and resizes."""
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
    "random_filter",
    "random_resize",
    "random_shortest_size",
    "scale_jitter",
}


class _Compiler:
    """Takes the items of a transform one by one."""

    def __init__(self) -> None:
        self._draft = Draft()
        self._tail: list[Any] = []
        self._steps: list[Step] = []
        self._on_pixels: list[int] = []  # steps
        self._is_tensor = False
        self._only_ours = True

    def add(self, item: Any) -> None:
        if isinstance(item, ByEpoch):
            raise ValueError(
                "ByEpoch must be the whole transform: write what stands around it into each part."
            )
        if isinstance(item, Views):
            raise ValueError(
                "Views must come first in a transform: each view has its own chain, from the whole picture "
                "on. Write what stands before it into each view's transform."
            )
        own = operation_of(item) is not None
        self._only_ours &= own
        specs = (item,) if own else torchvision_objects.translate(item)
        found = _operations(specs or ())
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
        if not own and self._is_tensor and any(map(_pictures_only, specs)):
            why = "torchvision's of a tensor gives other pixels than Pillow's of a picture, as the core's"
            self._leave(item, why, "put it before what makes tensors")
            return
        before, draft = self._draft.plan, self._draft
        try:
            for operation, spec in found:
                draft = operation.add(draft, spec, not own)
            self._draft = draft
        except Misplaced as error:
            if own:
                raise ValueError(str(error)) from None
            self._leave(item, str(error), f"the order {ORDER}")
            return
        if torchvision_objects.cuts_boxes(item) and _moves_boxes(before, draft.plan):
            self._draft = replace(draft, plan=replace(draft.plan, clips=True))
        if draft.plan.source != before.source:  # a step of the geometry came behind them
            self._say_whole()
        elif draft.plan.pixels != before.pixels:
            self._on_pixels.append(len(self._steps))
        why = _SAME if specs else "nothing to do: pictures are RGB, and become tensors at the end"
        self._steps.append(Step(name_of(item), True, why, erases=draft.plan.erase is not before.erase))
        made = any(operation.makes_tensor for operation, _ in found)
        self._is_tensor |= made or torchvision_objects.makes_tensor(item)

    def _say_whole(self) -> None:
        for number in self._on_pixels:
            self._steps[number] = replace(self._steps[number], why=_WHOLE)

    def _leave(self, item: Any, why: str, keep: str) -> None:
        from fastload.transforms.other_objects import adapted

        run = torchvision_objects.on_tensor(item) if self._is_tensor else adapted(item)
        self._tail.append(_callable(run))
        self._steps.append(Step(name_of(item), False, why, keep))

    def plan(self) -> Plan:
        picture = not self._is_tensor and (bool(self._tail) or not self._only_ours)
        tail, steps = tuple(self._tail), tuple(self._steps)
        return replace(self._draft.plan, tail=tail, picture=picture, steps=steps)
