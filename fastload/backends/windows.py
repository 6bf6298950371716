"""Windows in batches: their places, which draws their pictures share, and what does not go with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.sample.fields import PLACES, Array, Image, Label, Mask, Scalar
from fastload.sample.layout import FieldLayout, SampleLayout
from fastload.sample.planned import chosen
from fastload.sample.schema import Field
from fastload.sample.windows import Windows, pad_name
from fastload.transforms.plan import Plan

# ---- Places -----------------------------------------------------------------------------------------


def with_steps(layout: FieldLayout, windows: Windows) -> FieldLayout:
    """Return the layout of a field with its windows' steps."""
    if layout.name not in windows.offsets:
        return layout
    steps = windows.steps(layout.name)
    if layout.form == "picture":
        return replace(layout, steps=steps)
    return replace(layout, steps=steps, shape=(len(steps), *layout.shape))


def pads_of(fields: Sequence[Field], windows: Windows) -> Iterator[FieldLayout]:
    """Yield the layouts of what says which steps are padding."""
    for field in fields:
        if field.name in windows.offsets:
            steps = windows.steps(field.name)
            name, shape = pad_name(field.name), (len(steps),)
            yield FieldLayout(name, "fixed", torch.bool, shape, of=field.name, steps=steps, is_pad=True)


# ---- Draws ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draws:
    """The core's views, if pictures of a sample do not share their draws: one for each, all alike.

    Args:
        first: the number of each field's first view.
        count: of all views.
        by_step: whether each step has its own.
    """

    first: dict[str, int]
    count: int
    by_step: bool

    def of(self, layout: FieldLayout) -> dict[str, Any]:
        """Return what ``_C.FieldPlan`` takes for a field of pictures."""
        more = {"each_step": True} if self.by_step and layout.steps else {}
        return {"view": self.first[layout.name], **more}


def views_of_draws(plan: Plan, layout: SampleLayout) -> Draws | None:
    """Return the views of a transform that draws for each camera or each frame; None: it draws once."""
    if plan.each == "sample":
        return None
    first: dict[str, int] = {}
    count = 0
    for field in layout.fields:
        if field.form == "picture":
            first[field.name] = count
            count += max(1, len(field.steps)) if plan.each == "frame" else 1
    return Draws(first, count, plan.each == "frame") if first else None


# ---- Checks -----------------------------------------------------------------------------------------

_MOST_VIEWS = 256  # as of Views


def check_windows(dataset: Packed, plan: Plan, options: Options, layout: SampleLayout) -> None:
    """Refuse what does not go with windows, and draws that nothing is there for.

    Args:
        dataset: what is read.
        plan: the compiled transform.
        options: the loader's.
        layout: of a sample.

    Raises:
        ValueError: a field has no windows, or an argument does not go with them.
    """
    fields = chosen(dataset.schema, options.fields.names)
    if plan.each != "sample":
        _check_draws(plan, fields, layout)
    windows = options.fields.windowed
    if windows is None:
        return
    _check_together(plan, options)
    for name in windows.offsets:
        field = next((one for one in fields if one.name == name), None)
        if field is None:
            have = ", ".join(one.name for one in fields)
            raise ValueError(f"windows are of fields that are read. Found: {name!r}; these are {have}.")
        fixed = isinstance(field.kind, Array) and not field.kind.has_rows
        if not fixed and not isinstance(field.kind, (Image, Mask, Label, Scalar)):
            raise ValueError(
                "windows are of pictures, masks, labels, numbers and arrays of a fixed shape. Found: "
                f"{field}. Leave it out of windows: batches have the sample's own."
            )
        if pad_name(name) in [one.name for one in layout.fields if not one.is_pad]:
            raise ValueError(
                f"Under {pad_name(name)!r} a batch says which steps of {name!r} are padding. Found: a field "
                "or a view of that name. Leave it out by fields=[...], or give it another name."
            )
    for field_layout in layout.fields:
        if field_layout.steps and field_layout.form == "picture" and field_layout.mode != "stack":
            raise ValueError(
                f"Windows of pictures need one size. Found: {field_layout.name!r}, whose pictures may differ "
                "in size. Let the transform make them equal: Resize((h, w)), or a crop."
            )


def _check_together(plan: Plan, options: Options) -> None:
    first = next((called for called in plan.called if called.takes == "image"), None)
    collate = options.collate
    keeps = collate is None or (callable(collate) and not hasattr(collate, "planned"))
    refused = (
        (plan.puts_together, "Mosaic", "a mosaic is of several samples"),
        (plan.vision is not None, f"transform={plan.vision!r}", "its rows have no time"),
        (
            first is not None,
            f"{first.name if first is not None else ''} in transform",
            "it takes one picture, and a window has several. Write a callable of the whole sample, a dict "
            "with (steps, channels, height, width) tensors",
        ),
        (not keeps, f"collate={collate!r}", "its targets are of one picture. Pass a callable"),
        (
            _knows_batches(options),
            "batch_transform",
            "fastload's transforms of batches take one picture of each sample. Pass a callable",
        ),
    )
    for is_given, name, reason in refused:
        if is_given:
            raise ValueError(f"windows and {name} exclude each other: {reason}.")


def _knows_batches(options: Options) -> bool:
    """Whether ``batch_transform`` has one of our transforms, or one that we take for ours."""
    if options.batch_transform is None:
        return False
    from fastload.transfer.augment import parts_of
    from fastload.transfer.mixing import known

    parts = map(known, parts_of(options.batch_transform))
    return any(type(part).__module__.startswith("fastload.") for part in parts)


def _check_draws(plan: Plan, fields: Sequence[Field], layout: SampleLayout) -> None:
    places = [field.name for field in fields if isinstance(field.kind, PLACES)]
    if places:
        raise ValueError(
            f"DrawEach gives each picture its own geometry, and {places[0]!r} has places in one of them. "
            "Leave the field out by fields=[...], or DrawEach."
        )
    draws = views_of_draws(plan, layout)
    if draws is not None and draws.count > _MOST_VIEWS:
        raise ValueError(
            f"DrawEach draws for at most {_MOST_VIEWS} pictures of a sample. Found: {draws.count}. Draw for "
            'each camera: DrawEach("camera", ...).'
        )
