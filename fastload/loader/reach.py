"""Which fields of a sample each step of a transform moves, changes, or gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastload.backends.fields import viewed
from fastload.backends.objects import Followers
from fastload.backends.options import Options
from fastload.sample.fields import PLACES, Boxes, Image, Keypoints
from fastload.sample.planned import chosen
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan, Step

__all__ = ["Reach"]

_PLACED: tuple[type, ...] = (Image, *PLACES)  # what moves with a picture


class Reach:
    """What the steps of a loader's transform reach of a sample.

    Args:
        schema: of the dataset.
        plan: the compiled transform.
        options: the loader's.
        pairs: samples are an image and a label.
    """

    def __init__(self, schema: Schema, plan: Plan, options: Options, pairs: bool) -> None:
        fields = schema.fields if pairs else chosen(schema, options.fields)
        self._followers = Followers(schema, None if pairs else options.objects, fields)
        self._fields = viewed(fields, plan, None if pairs else self._followers)
        self._has_views = bool(plan.views)

    def of(self, step: Step) -> tuple[str, tuple[str, ...]]:
        """What a step does, in words, and the fields that it moves."""
        fields = self._of_view(step.view)
        if step.takes == "image" or (step.view is not None and not step.native and step.takes == "sample"):
            images = _names(fields, Image)
            one = [step.field] if step.field is not None else images[:1]
            moved = step.does in ("moves", "unknown")
            words = f"It gets {_listed(one)} alone"
            return (words if moved else f"{words}, and moves nothing"), tuple(one) if moved else ()
        if step.does == "moves":
            names = _names(fields, *_PLACED)
            return f"It moves {_listed(names)}", tuple(names)
        if step.does == "unknown":
            return f"It gets {_listed(name for name, _, _ in fields)}", ()
        changed = {
            "colours": _names(fields, Image),
            "types": _names(fields, Image),
            "boxes": _names(fields, Boxes),
            "points": _names(fields, Keypoints),
            "objects": [name for name, field, _ in fields if self._is_of_objects(field)],
            "nothing": [],
        }[step.does]
        return f"It moves nothing, and changes {_listed(changed)}" if changed else "It moves nothing", ()

    def _of_view(self, view: int | None) -> list[tuple[str, Field, int]]:
        """The fields that a step of a view reaches."""
        if view is None or not self._has_views:
            return self._fields
        return [one for one in self._fields if one[2] == view and (one[0] != one[1].name or _is_seen(one[1]))]

    def _is_of_objects(self, field: Field) -> bool:
        return isinstance(field.kind, Boxes) or self._followers.is_led(field)


def _is_seen(field: Field) -> bool:
    return isinstance(field.kind, _PLACED)


def _names(fields: Sequence[tuple[str, Field, int]], *kinds: type) -> list[str]:
    return [name for name, field, _ in fields if isinstance(field.kind, kinds)]


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:-1]) + " and " + found[-1] if len(found) > 1 else "".join(found) or "no field"
