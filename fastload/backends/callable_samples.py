"""Samples with boxes, masks, points and further pictures, as Python callables take and return them.

If torchvision's v2 is in the chain, a sample is a dict of ``tv_tensors``, which its steps move together. This
module does what v2 does not: it drops rows along with boxes, swaps paired points in a mirror, and leaves
unlabelled points in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fastload.backends.tail import Steps, as_is
from fastload.backends.values import Groups
from fastload.extras import tv_tensors
from fastload.sample.fields import Boxes, Image, Keypoints, Mask, Polygons
from fastload.sample.layout import SampleLayout
from fastload.sample.schema import Schema
from fastload.transforms.callables import look, parts_of, short_name
from fastload.transforms.compiler import ViewTail, as_picture, takes_generator
from fastload.transforms.plan import Called, Plan
from fastload.transforms.recognised import on_tensor, scale_to_float32

_PROBE = ".mirrored"  # the key of three points that show whether a step mirrors
_ROUNDED = 1e-3  # pixels: what lies no further past the border counts as on it
_CONVERTERS = ("PILToTensor", "ToImage", "ToPureTensor")


@dataclass(frozen=True)
class Part:
    """A field of a sample.

    Args:
        key: its name for callables; ``name``: its name in the batch.
        kind: the schema's kind.
        view: the number of the sample's view.
        dense: whether it has objects' masks instead of outlines.
        format: of boxes as the core delivers them; ``becomes``: as the batch has them.
        leader: the key of the boxes for each of which it has a row; None: there are none.
    """

    key: str
    name: str
    kind: Any
    view: int = 0
    dense: bool = False
    format: str = ""
    becomes: str = ""
    leader: str | None = None

    @property
    def visibility(self) -> str:
        """The key of the points' visibility."""
        return f"{self.key}_visibility"


class Scope:
    """The part of a sample that callables get: all of it, or one of its views.

    Args:
        parts: the fields.
        rich: whether callables get ``tv_tensors``.
    """

    def __init__(self, parts: Sequence[Part], rich: bool) -> None:
        first = [part for part in parts if isinstance(part.kind, Image)]
        self.parts = (*first, *(part for part in parts if part not in first))  # v2 takes the first tensor
        self.rich = rich
        self.images = [part.key for part in first]
        self.pictures = [part.key for part in parts if isinstance(part.kind, (Image, Mask))]

    # ---- From the core's tensors and back ------------------------------------------------------

    def given(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample as callables get it."""
        fields: dict[str, Any] = {}
        canvas: dict[int, tuple[int, int]] = {}
        tv = tv_tensors() if self.rich else None
        for part in self.parts:
            if part.name not in sample:
                continue
            value = sample[part.name]
            if isinstance(part.kind, (Image, Mask)) and isinstance(value, torch.Tensor):
                canvas.setdefault(part.view, (int(value.shape[-2]), int(value.shape[-1])))
            fields[part.key] = value if tv is None else self._wrapped(tv, part, value, canvas, fields)
        names = {part.name for part in self.parts}
        return {**fields, **{name: value for name, value in sample.items() if name not in names}}

    def _wrapped(self, tv: Any, part: Part, value: Any, canvas: dict[int, Any], found: dict[str, Any]) -> Any:
        kind = part.kind
        if isinstance(kind, Image):
            return tv.Image(value)
        if isinstance(kind, Mask) or part.dense:
            return tv.Mask(value)
        if isinstance(kind, (Boxes, Keypoints)) and part.view not in canvas:
            return value  # no picture is delivered
        if isinstance(kind, Boxes):
            height, width = size = canvas[part.view]
            if kind.relative:
                value = value * torch.tensor([width, height, width, height], dtype=value.dtype, device="cpu")
            return tv.BoundingBoxes(value, format=part.format.upper(), canvas_size=size)
        if isinstance(kind, Keypoints):
            if kind.visibility:
                found[part.visibility] = value[..., 2].clone()
            return tv.KeyPoints(value[..., :2].clone(), canvas_size=canvas[part.view])
        return value

    def tensors(self, sample: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sample with PIL's pictures as tensors."""
        tensors: dict[str, Any] = {}
        for part in self.parts:
            value = sample.get(part.key)
            if isinstance(part.kind, (Image, Mask)) and value is not None:
                value = _as_tensor(part, value)
                if self.rich and isinstance(value, np.ndarray):  # v2 would not move it
                    value = _of_array(part, value)
                rich = self.rich and type(value) is torch.Tensor
                kind = type(part.kind).__name__
                tensors[part.key] = getattr(tv_tensors(), kind)(value) if rich else value
        return {**sample, **tensors} if tensors else sample

    def taken(self, sample: Any, given: Mapping[str, Any]) -> Any:
        """Return the sample as batches are made from it, with its fields in their original order."""
        if not isinstance(sample, Mapping):
            return sample
        found = self._taken(sample)
        names = [name for name in given if name in found]
        return {name: found[name] for name in (*names, *(name for name in found if name not in given))}

    def _taken(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(sample)
        for part in self.parts:
            if part.key not in found:
                continue
            value = found.pop(part.key)
            found[part.name] = self._unwrapped(part, value, found) if self.rich else _as_tensor(part, value)
        return found

    def _unwrapped(self, part: Part, value: Any, found: dict[str, Any]) -> Any:
        kind = part.kind
        if isinstance(kind, Keypoints) and kind.visibility:
            seen = found.pop(part.visibility, None)
            if isinstance(value, torch.Tensor) and value.shape[-1] == 2 and seen is not None:
                value = torch.cat([plain(value), seen.unsqueeze(-1).to(value.dtype)], -1)
        elif isinstance(kind, Boxes) and type(value).__name__ == "BoundingBoxes":
            value = self._boxes(part, value)
        return _as_tensor(part, plain(value))

    @staticmethod
    def _boxes(part: Part, value: Any) -> torch.Tensor:
        if value.format.value.lower() not in (part.becomes, part.format):
            raise ValueError(
                f"The transform's callables leave {part.key!r} as {value.format.value}, and batches have "
                f"them as {part.becomes.upper()}. Convert them back there, or write "
                "ConvertBoundingBoxFormat into the chain as a separate step, which says what batches have."
            )
        if value.format.value != part.becomes.upper():
            from torchvision.transforms.v2 import functional

            value = functional.convert_bounding_box_format(value, new_format=part.becomes.upper())
        (height, width) = value.canvas_size
        rows: torch.Tensor = plain(value)
        if part.kind.relative:
            rows = rows / torch.tensor([width, height, width, height], dtype=rows.dtype, device="cpu")
        return rows

    def pure(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample with plain tensors in place of ``tv_tensors``."""
        return {key: plain(value) for key, value in sample.items()}

    def like(self, made: Any, before: Mapping[str, Any]) -> Any:
        """Return what a callable made of ``before``, with ``tv_tensors`` in place of plain tensors."""
        if not isinstance(made, Mapping):
            return made
        sample = {**made, **self.tensors({key: made[key] for key in self.pictures if key in made})}
        canvas = self._canvas(sample)
        for part in self.parts:
            value, old = sample.get(part.key), before.get(part.key)
            is_plain = type(value) is torch.Tensor
            if is_plain and old is not None and hasattr(old, "canvas_size"):
                size = canvas.get(part.view, old.canvas_size)
                sample[part.key] = tv_tensors().wrap(value, like=old, canvas_size=size)
            elif is_plain and isinstance(old, torch.Tensor) and type(old) is not torch.Tensor:
                sample[part.key] = tv_tensors().wrap(value, like=old)
        return sample

    def _canvas(self, sample: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        """Return height and width of each view's picture, or else mask."""
        sizes: dict[int, tuple[int, int]] = {}
        for part in self.parts:
            value = sample.get(part.key)
            if part.key in self.pictures and isinstance(value, torch.Tensor) and value.dim() >= 2:
                sizes.setdefault(part.view, (int(value.shape[-2]), int(value.shape[-1])))
        return sizes

    def on_canvas(self, made: Any) -> Any:
        """Give empty boxes and points the picture's canvas: v2's rotations leave them the previous one."""
        if not isinstance(made, Mapping):
            return made
        sample = dict(made)
        canvas = self._canvas(sample)
        for part in self.parts:
            value = sample.get(part.key)
            if isinstance(value, torch.Tensor) and hasattr(value, "canvas_size") and not len(value):
                size = canvas.get(part.view, value.canvas_size)
                sample[part.key] = tv_tensors().wrap(plain(value), like=value, canvas_size=size)
        return sample

    # ---- What follows boxes ----------------------------------------------------------------------

    def leaders(self) -> list[Part]:
        """Return the boxes that other fields may follow."""
        return [part for part in self.parts if isinstance(part.kind, Boxes) and part.leader is None]

    def followers(self, leader: str) -> Iterator[str]:
        """Yield the keys of fields that have a row for each of these boxes."""
        for part in self.parts:
            if part.leader == leader:
                yield part.key
                if isinstance(part.kind, Keypoints) and part.kind.visibility:
                    yield part.visibility

    def check_rows(self, sample: Any, before: Mapping[str, int], name: str) -> None:
        """Check that a callable dropped the rows of dropped boxes, too.

        Raises:
            ValueError: a field that follows boxes has another number of rows.
        """
        if not isinstance(sample, Mapping):
            return
        for part in self.leaders():
            count = _count(sample.get(part.key))
            if count is None or count == before.get(part.key):
                continue
            for key in self.followers(part.key):
                rows = _count(sample.get(key))
                if rows is not None and rows != count and before.get(key) == before.get(part.key):
                    raise ValueError(
                        f"{name} left {count} of {before.get(part.key)} rows of {part.key!r}, and {rows} of "
                        f"{key!r}, which has a row for each of them. Drop the same rows of both, or leave "
                        f"{key!r} out by fields=[...]."
                    )

    def counts(self, sample: Any) -> dict[str, int]:
        """Return the number of rows of each field that has rows."""
        if not isinstance(sample, Mapping):
            return {}
        counts = {key: _count(value) for key, value in sample.items()}
        return {key: count for key, count in counts.items() if count is not None}


def _at_border(boxes: Any) -> Any:
    """Return corners of boxes, clamped where float32 rounded them past the border on the way from centres or
    fractions of a side: v2 drops boxes that reach past it."""
    from torchvision.transforms.v2 import functional

    corners = functional.convert_bounding_box_format(boxes, new_format="XYXY")
    if not corners.is_floating_point() or not len(corners):
        return corners
    inside = functional.clamp_bounding_boxes(corners)
    near = (plain(corners) - plain(inside)).abs() < _ROUNDED
    return tv_tensors().wrap(torch.where(near, plain(inside), plain(corners)), like=corners)


def plain(value: Any) -> Any:
    """Return a tensor of a subclass as a plain one; anything else as it is."""
    if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor:
        return value.as_subclass(torch.Tensor)
    return value


def _count(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return int(value.shape[0]) if value.dim() else None
    return len(value) if isinstance(value, list) else None


def _as_tensor(part: Part, value: Any) -> Any:
    """Return a PIL picture as a (C, H, W) tensor, a mask as (H, W); anything else as it is."""
    if not isinstance(part.kind, (Image, Mask)) or not hasattr(value, "getbands"):
        return value
    return _of_array(part, np.array(value))


def _of_array(part: Part, value: Any) -> Any:
    """Return a picture (H, W, C), as Albumentations leaves it, as (C, H, W), and a mask as it is."""
    tensor = torch.from_numpy(np.require(value, requirements=["C", "W"]))
    if isinstance(part.kind, Mask):
        return tensor
    return tensor.permute(2, 0, 1) if tensor.dim() == 3 else tensor.unsqueeze(0)


class Step:
    """A callable of the tail, on samples of a scope.

    Args:
        scope: what it gets.
        called: what is known about it.
        run: the callable, for PIL's pictures or tensors.
        behind_image: whether it follows a callable on pictures alone, whose results it gets unchanged.
    """

    def __init__(
        self, scope: Scope, called: Called, run: Callable[..., Any], behind_image: bool = False
    ) -> None:
        self._scope = scope
        self._as_made = behind_image
        self.takes = called.takes
        self._called = called
        self._draws = takes_generator(run)
        self._name = called.name
        if called.takes == "image":
            self._run = self._on_image(called, run)
        elif called.takes == "v2":
            self._run = self._of_v2(called.function, called)
        else:
            self._run = self._of_user(run, called)
        pairs = [part for part in scope.parts if isinstance(part.kind, Keypoints) and scope.rich]
        self._points = pairs if called.takes == "v2" and called.moves else []

    def __call__(self, sample: Any, generator: Any = None) -> Any:
        more = {"generator": generator} if self._draws else {}
        if self.takes != "image" and isinstance(sample, Mapping):
            sample = self._scope.tensors(sample)
        before = self._scope.counts(sample)
        if self._points and isinstance(sample, Mapping):
            made = self._with_points(sample, more)
        else:
            made = self._run(sample, **more)
        if self._called.moves and self._scope.rich and self.takes == "v2":
            made = self._scope.on_canvas(made)
        self._scope.check_rows(made, before, self._name)
        return made

    # ---- What each kind of callable gets ---------------------------------------------------------

    def _of_user(self, run: Callable[..., Any], called: Called) -> Callable[..., Any]:
        scope = self._scope

        def user(sample: Any, **more: Any) -> Any:
            if not isinstance(sample, Mapping) or not scope.rich:
                return run(sample, **more)
            given = scope.pure(sample) if called.pure else dict(sample)
            if called.state == "tensor":
                given = {key: plain(value) if key in scope.images else value for key, value in given.items()}
            return scope.like(run(given, **more), sample)

        return user

    def _on_image(self, called: Called, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs the callable on one picture of a sample, and nothing else of it."""
        scope = self._scope
        key = scope.images[0] if called.field is None and scope.images else called.field
        part = next((one for one in scope.parts if one.name == key or one.key == key), None)

        def on_image(sample: Any, **more: Any) -> Any:
            if not isinstance(sample, Mapping) or part is None or part.key not in sample:
                return sample
            value = sample[part.key]
            if called.state == "pil" and isinstance(value, torch.Tensor) and not self._as_made:
                value = as_picture(plain(value))
            elif called.state == "tensor":
                value = plain(value)
            return {**sample, part.key: run(value, **more)}

        return on_image

    def _of_v2(self, item: Any, called: Called) -> Callable[..., Any]:
        """Return a function that runs it on all of a sample, as torchvision's v2 does."""
        name, parts = short_name(item), parts_of(item)
        if parts is not None:
            inner = [self._inner(part, called) for part in parts]
            if not name:
                return lambda sample: _in_turn(inner, sample)
            own = copy.copy(item)
            own.__dict__ = {**item.__dict__, "transforms": inner}  # which may be a ModuleList
            return own  # type: ignore[no-any-return]
        if name in _CONVERTERS:
            return lambda sample: sample
        if name == "ToTensor":
            return self._scaled
        if name == "SanitizeBoundingBoxes":
            return lambda sample: self._sanitized(item, sample)
        if name == "RandomIoUCrop":
            return lambda sample: item(sample) if self._has_boxes(sample) else sample
        if called.state != "tensor" or len(self._scope.images) != 1:
            return item  # type: ignore[no-any-return]
        return lambda sample: self._as_tensor(item, sample)

    def _inner(self, part: Any, called: Called) -> Callable[..., Any]:
        """Return the function for one of a container's callables, which get what the container gets."""
        known = replace(look(part), state=called.state, pure=called.pure)
        if known.takes == "image":
            run = on_tensor(known.function) if called.state != "pil" else known.function
            on_image = self._on_image(known, run)
            return lambda sample: self._scope.tensors(on_image(sample))
        if known.takes == "v2":
            return self._of_v2(known.function, known)
        return self._of_user(known.function, known)

    def _as_tensor(self, item: Any, sample: Any) -> Any:
        """Run ``item`` with the picture as a plain tensor: v2 takes the first one as the picture."""
        if not isinstance(sample, Mapping):
            return item(sample)
        (key,) = self._scope.images
        given = {**sample, key: plain(sample[key])} if key in sample else sample
        return self._scope.like(item(given), sample)

    def _scaled(self, sample: Any) -> Any:
        if not isinstance(sample, Mapping):
            return sample
        images = {key: scale_to_float32(sample[key]) for key in self._scope.images if key in sample}
        return self._scope.like({**sample, **images}, sample)

    # ---- Objects ------------------------------------------------------------------------------------

    def _has_boxes(self, sample: Any) -> bool:
        """Whether there are boxes: without any, torchvision's RandomIoUCrop may loop for ever."""
        leaders = self._scope.leaders()
        return not isinstance(sample, Mapping) or any(len(sample.get(one.key, ())) for one in leaders)

    def _sanitized(self, item: Any, sample: Any) -> Any:
        """Drop boxes together with the fields that follow them, and with those that labels_getter names."""
        if not isinstance(sample, Mapping):
            return item(sample)
        (leader,) = self._scope.leaders()
        boxes = sample[leader.key]
        numbers = {"min_size": item.min_size}
        if hasattr(item, "min_area"):
            numbers["min_area"] = item.min_area
        rows = type(item)(**numbers, labels_getter=lambda one: one["rows"])
        is_rounded = leader.kind.relative or boxes.format.value != "XYXY"
        looked_at = {
            "boxes": _at_border(boxes) if is_rounded else boxes,
            "rows": torch.arange(len(boxes), device="cpu"),
        }
        kept = rows(looked_at)["rows"]
        chosen = {*self._scope.followers(leader.key)} | set(_named_by(item.labels_getter, sample))
        found = {**sample, leader.key: tv_tensors().wrap(plain(boxes)[kept], like=boxes)}
        for key in chosen & set(sample):
            found[key] = _rows_of(sample[key], kept)
        return found

    def _with_points(self, sample: Mapping[str, Any], more: dict[str, Any]) -> Any:
        """Run the callable, swap paired points if it mirrors, and leave unlabelled points at (0, 0)."""
        tv = tv_tensors()
        first = next((sample[part.key] for part in self._points if part.key in sample), None)
        if first is None:
            return self._run(sample, **more)
        height, width = first.canvas_size
        corners = torch.tensor([[0.0, 0.0], [width, 0.0], [0.0, height]], device="cpu")
        probe = tv.KeyPoints(corners, canvas_size=(height, width))
        made = self._run({**sample, _PROBE: probe}, **more)
        if not isinstance(made, Mapping):
            return made
        found = dict(made)
        moved = found.pop(_PROBE, None)
        mirrors = moved is not None and _is_mirrored(plain(moved))
        for part in self._points:
            old, new = sample.get(part.key), found.get(part.key)
            if type(new) is type(old) and new is not None:
                found.update(_seen_to(part, sample, found, mirrors))
        return found


def _named_by(getter: Any, sample: Mapping[str, Any]) -> list[str]:
    """Return the keys of what SanitizeBoundingBoxes' ``labels_getter`` returns."""
    if not callable(getter):
        return []
    named = getter(sample)
    named = named if isinstance(named, (tuple, list)) else [named]
    return [key for key, value in sample.items() if any(value is one for one in named)]


def _rows_of(value: Any, rows: torch.Tensor) -> Any:
    if isinstance(value, list):
        return [value[row] for row in rows.tolist()]
    if type(value) is torch.Tensor:
        return value[rows]
    return tv_tensors().wrap(plain(value)[rows], like=value)


def _is_mirrored(points: torch.Tensor) -> bool:
    """Whether the corners of a picture have changed their orientation."""
    (x0, y0), (x1, y1), (x2, y2) = points.tolist()
    return bool((x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0) < 0)


def _seen_to(
    part: Part, before: Mapping[str, Any], after: Mapping[str, Any], mirrors: bool
) -> dict[str, Any]:
    """Return points after a step, and their visibility."""
    new = after[part.key]
    rows, seen = plain(new).clone(), after.get(part.visibility)
    if seen is not None:
        old = plain(before[part.key])
        same = len(old) == len(rows)
        unknown = (seen == 0) & ((old == 0).all(-1) if same else torch.ones_like(seen, dtype=torch.bool))
        rows[unknown] = 0
    found: dict[str, Any] = {}
    if mirrors and part.kind.pairs:
        order = list(range(part.kind.points))
        for one, other in part.kind.pairs:
            order[one], order[other] = other, one
        rows = rows[:, order]
        if seen is not None:
            found[part.visibility] = seen[:, order]
    return {**found, part.key: tv_tensors().wrap(rows, like=new)}


def _in_scope(
    scope: Scope, callables: Sequence[tuple[Called, Callable[..., Any]]], number: int
) -> Callable[..., Any]:
    """Return a function that calls callables in turn; ``number``: of the view, which has its own draws."""
    steps: list[Step] = []
    for called, function in callables:
        behind = bool(steps) and steps[-1].takes == "image"
        steps.append(Step(scope, called, function, behind))

    def run(sample: Any, generator: torch.Generator) -> Any:
        seed = generator.initial_seed()
        given = made = scope.given(sample)
        for step in steps:
            generator.manual_seed((generator.initial_seed() + number) % 2**63 if number else seed)
            made = step(made, generator)
        if made is given and not scope.rich:
            return sample
        return scope.taken(made, sample)

    return run


def _in_turn(parts: Sequence[Callable[[Any], Any]], sample: Any) -> Any:
    for part in parts:
        sample = part(sample)
    return sample


class HandOver:
    """An adapter that lets the callables of a loader's tail take samples that are dicts.

    Args:
        schema: the dataset's.
        layout: of a sample.
        plan: the compiled transform.
        groups: ``Fields.rows_of`` of the DataLoader.
        collates_v2: whether ``collate_fn`` calls torchvision's v2.
    """

    def __init__(
        self, schema: Schema, layout: SampleLayout, plan: Plan, groups: Groups, collates_v2: bool = False
    ) -> None:
        self._plan = plan
        self._collates_v2 = collates_v2
        self._leader_of = {field.name: field.of for field in schema.fields if field.of is not None}
        for leader, names in (groups or {}).items():
            self._leader_of.update(dict.fromkeys(names, leader))
        self._fields = [
            (field, schema[field.schema_name])
            for field in layout.fields
            if not field.is_origin and not field.is_pad
        ]

    def steps(self) -> Steps:
        """Return what is done to a sample; the callables share one function."""
        functions = [(self._ready(), True)] if self._plan.tail else []
        return Steps(as_is, functions, self._as_v2 if self._collates_v2 else as_is)

    def _ready(self) -> Callable[..., Any]:
        """Return a function that calls the callables on a sample, each with its own ``torch.Generator``."""
        runs: list[Callable[..., Any]] = []
        whole: list[tuple[Called, Callable[..., Any]]] = []
        for called, function in zip(self._plan.called, self._plan.tail, strict=True):
            if isinstance(function, ViewTail):
                runs.append(self._of_view_tail(function))
            else:
                whole.append((called, function))
        if whole:
            runs.append(_in_scope(self._whole(), whole, 0))

        def run(sample: Any, generator: torch.Generator) -> Any:
            seed = generator.initial_seed()
            for one in runs:
                generator.manual_seed(seed)
                sample = one(sample, generator)
            return sample

        return run

    def _as_v2(self, sample: Any) -> Any:
        """Return a finished sample as torchvision's v2 takes it, for a ``collate_fn`` that calls it."""
        if not isinstance(sample, Mapping):
            return sample
        parts = [self._part(field, kind, None) for field, kind in self._fields]
        return Scope([replace(part, format=part.becomes) for part in parts], True).given(sample)

    def _of_view_tail(self, tail: ViewTail) -> Callable[..., Any]:
        called = [
            # A view's own callables get its picture alone.
            replace(one, takes="image") if one.takes == "sample" else one
            for one in self._plan.of_view(tail.number).called
        ]
        pairs = list(zip(called, tail.functions, strict=True))
        return _in_scope(self._of_view(tail.number), pairs, tail.number)

    def _whole(self) -> Scope:
        """Return the scope of all of a sample."""
        return Scope([self._part(field, kind, None) for field, kind in self._fields], self._plan.is_v2)

    def _of_view(self, number: int) -> Scope:
        """Return the scope of one view, with the names of the set's fields."""
        found = []
        for field, kind in self._fields:
            seen = bool(field.of) or field.view == number
            if (field.of and field.view == number) or not field.of:
                found.append(self._part(field, kind, number if seen else None))
        return Scope(found, self._plan.of_view(number).is_v2)

    def _part(self, field: Any, kind: Any, view: int | None) -> Part:
        plan = self._plan.of_view(field.view)
        key = field.name if view is None else field.schema_name
        leader = self._leader_of.get(field.schema_name)
        if view is None and leader is not None:  # of the boxes of its view
            named = [one.name for one, _ in self._fields if one.schema_name == leader]
            same = [
                one.name for one, _ in self._fields if one.schema_name == leader and one.view == field.view
            ]
            leader = next(iter(same or named), None)
        formats = {}
        if isinstance(kind.kind, Boxes):
            stored = plan.box_format or kind.kind.format
            formats = {"format": stored, "becomes": plan.tail_format or self._plan.tail_format or stored}
        dense = isinstance(kind.kind, Polygons) and field.form == "masks"
        return Part(key, field.name, kind.kind, field.view, dense, leader=leader, **formats)
