"""Objects of a sample: which field's boxes lead them, which fields have a row for each, and what a view does
to them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fastload._native import _C
from fastload.sample.fields import Array, Boxes, Keypoints, Labels, Polygons
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan

__all__ = ["Followers", "Groups", "check_objects", "warn_of_objects"]

Groups = Mapping[str, Sequence[str]] | None

_OF_OBJECTS = (Keypoints, Labels, Polygons)


class Followers:
    """Which of a loader's fields follow the boxes that lead, and by which plan.

    Args:
        schema: of the dataset.
        groups: ``objects=`` of the DataLoader.
        fields: what is delivered.
    """

    def __init__(self, schema: Schema, groups: Groups, fields: Sequence[Field]) -> None:
        self._schema = schema
        self._fields = tuple(fields)
        self._told = set(groups or {})
        self._leader_of = {field.name: field.of for field in schema.fields if field.of is not None}
        for leader, names in (groups or {}).items():
            self._leader_of.update(dict.fromkeys(names, leader))

    def leader(self, plan: Plan) -> Field | None:
        """The field of boxes that a view's plan works on; None: there is nothing for it to do.

        Raises:
            ValueError: it is not known which field that is.
        """
        use = plan.of_objects
        if use is None:
            return None
        leaders = self._leaders()
        if use.boxes is not None:
            leaders = [field for field in leaders if field.name == use.boxes]
        if not leaders and not use.needed and use.boxes is None:
            return None
        if use.implied:
            leaders = self._delivered()
            if len(leaders) != 1:
                return None  # said by warn_of_objects
        have = ", ".join(map(str, self._schema.fields))
        if len(leaders) != 1:
            names = " or ".join(repr(field.name) for field in leaders)
            found = f"two fields of boxes, {names}: name one, boxes=NAME" if leaders else f"none: {have}"
            raise ValueError(f"The transform works on the boxes of objects. Found: {found}.")
        return leaders[0] if use.draws or self.names(plan, leaders[0]) else None

    def names(self, plan: Plan, leader: Field) -> list[str]:
        """The delivered fields that follow: with a plan that drops nothing the boxes alone."""
        use = plan.of_objects
        assert use is not None
        return [
            field.name
            for field in self._fields
            if field.name == leader.name or (use.drops and self._leader_of.get(field.name) == leader.name)
        ]

    def is_led(self, field: Field) -> bool:
        """Whether it has a row for each of some boxes."""
        return field.name in self._leader_of

    def led_in_tail(self, plan: Plan) -> list[str]:
        """The delivered fields of which a view's callables may drop rows, the boxes among them."""
        leaders = self._delivered() if plan.tail_drops else []
        return [field.name for leader in leaders for field in self._fields if self._is_of(field, leader)]

    def _is_of(self, field: Field, leader: Field) -> bool:
        return field == leader or self._leader_of.get(field.name) == leader.name

    def check(self, plan: Plan) -> None:
        """Refuse a view that would drop boxes and leave what is of them, or rows that may be, or that names
        what there is not.

        Raises:
            ValueError: it does.
        """
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None or not use.drops:
            return
        led = [name for name, of in self._leader_of.items() if of == leader.name]
        if use.without is not None and use.without not in led:
            raise ValueError(
                f"DropCrowds({use.without!r}) needs a field of that name with a bool for each of "
                f"{leader.name!r}. Found: {', '.join(led) or 'no fields of it'}."
            )
        kept = [
            field
            for field in self._fields
            if field.name in led and not (_has_rows(field) or isinstance(field.kind, Boxes))
        ]
        if kept:
            raise ValueError(
                "The transform drops objects, and what is said of them in this kind of field cannot be "
                f"dropped with them. Found: {kept[0]}. Leave it out, fields=[...], or drop nothing: "
                "ClampBoundingBoxes."
            )
        alone = [field.name for field in self._fields if _has_rows(field) and field.name != leader.name]
        alone = [name for name in alone if name not in self._leader_of]
        if alone and not led and leader.name not in self._told:
            raise ValueError(
                "The transform drops objects, and nothing says which fields have a row for each of "
                f"{leader.name!r}. Found: {', '.join(alone)}. Name those that do, "
                f"objects={{{leader.name!r}: [{alone[0]!r}]}}, or leave them out by fields=[...]. A dataset "
                f"that is packed with fields of the kind '... of {leader.name}' says it itself."
            )

    def is_left(self, plan: Plan) -> bool:
        """Whether torchvision would cut boxes off that are left whole here, as they are of several fields."""
        use = plan.of_objects
        return use is not None and use.implied and self.leader(plan) is None and len(self._delivered()) > 1

    def _leaders(self) -> list[Field]:
        found = [field for field in self._schema.fields if isinstance(field.kind, Boxes)]
        return [field for field in found if field.name not in self._leader_of]

    def _delivered(self) -> list[Field]:
        return [field for field in self._leaders() if field in self._fields]

    def columns(self, plan: Plan) -> list[str]:
        """The fields that a view's plan looks at, delivered or not."""
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None:
            return []
        return [leader.name] if use.without is None else [leader.name, use.without]

    def plan(self, plan: Plan, columns: Sequence[str]) -> Any:
        """``_C.ObjectsPlan`` of a view, or None; ``columns``: names in the order of the engine's."""
        leader, use = self.leader(plan), plan.of_objects
        if leader is None or use is None:
            return None
        kind: Any = leader.kind
        return _C.ObjectsPlan(
            columns.index(leader.name),
            format=kind.format,
            relative=kind.relative,
            clip=use.clip,
            clamp=use.clamp,
            inside=use.inside,
            drop=use.drop,
            min_size=use.min_size,
            min_area=use.min_area,
            without=None if use.without is None else columns.index(use.without),
        )


def _has_rows(field: Field) -> bool:
    return isinstance(field.kind, _OF_OBJECTS) or (isinstance(field.kind, Array) and field.kind.has_rows)


def check_objects(schema: Schema, groups: Groups, fields: Sequence[Field], plan: Plan) -> None:
    """Refuse transforms of objects that do not go with these fields.

    Raises:
        ValueError: see :meth:`Followers.check`.
    """
    followers = Followers(schema, groups, fields)
    for view in plan.every:
        followers.check(view)


def warn_of_objects(schema: Schema, groups: Groups, fields: Sequence[Field], plan: Plan) -> None:
    """Say once what a model would learn wrongly and no error shows."""
    plans = [view for one in [one for _, one in plan.scheduled] or [plan] for view in one.every]
    mirrors = any(view.mirrors for view in plans)
    for field in fields:
        kind = field.kind
        if mirrors and isinstance(kind, Keypoints) and kind.points > 1 and not kind.pairs:
            warnings.warn(_NO_PAIRS.format(field=field.name, points=kind.points), stacklevel=6)
    followers = Followers(schema, groups, fields)
    if any(followers.is_left(view) for view in plans):
        names = ", ".join(field.name for field in fields if isinstance(field.kind, Boxes))
        warnings.warn(_NOT_CUT_OFF.format(names=names), stacklevel=6)


_NO_PAIRS = (
    "The transform mirrors pictures, and nothing says which of the {points} points of {field!r} are left and "
    "right of each other: a left eye stays the left one, on the other side. Pack them as "
    "Keypoints({points}, pairs=((1, 2), ...)), with the numbers of points that change places."
)
_NOT_CUT_OFF = (
    "torchvision's v2 would cut boxes off where the picture ends, and the loader does that for one field of "
    "boxes: {names} stay whole. Leave all but one out, fields=[...]."
)
