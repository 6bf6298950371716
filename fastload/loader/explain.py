"""The answer of ``explain()``: which steps run in the core, and which fields of a sample each moves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload.backends.batch_form import by_threads, delivers_pairs, erases_batches, python_workers
from fastload.backends.fields import Followers, viewed
from fastload.backends.options import Options
from fastload.backends.values import Tokenizers
from fastload.dataset.mixture import Packed
from fastload.dataset.targets import TargetCollate
from fastload.dataset.views import SourceKind, why_not_native
from fastload.errors import SlowPathWarning
from fastload.machine.cpu import ThreadPlan
from fastload.sample.fields import PLACES, Boxes, Image, Keypoints
from fastload.sample.planned import chosen
from fastload.sample.schema import Captions, Field, Schema
from fastload.sampler import Sampler
from fastload.transfer.cuda import goes_to_gpu
from fastload.transforms.compiler import name_of
from fastload.transforms.plan import Plan, Step

# ---- Fields that a transform's steps reach ----------------------------------------------------------

_PLACED: tuple[type, ...] = (Image, *PLACES)  # what moves with a picture


class Reach:
    """The fields of a sample that the steps of a loader's transform reach.

    Args:
        schema: the dataset's.
        plan: the compiled transform.
        options: the loader's.
    """

    def __init__(self, schema: Schema, plan: Plan, options: Options) -> None:
        fields = chosen(schema, options.fields.names)
        self._followers = Followers(schema, options.fields.rows_of, fields)
        self._fields = viewed(fields, plan, self._followers)
        self._has_views = bool(plan.views)

    def of(self, step: Step) -> tuple[str, tuple[str, ...]]:
        """Return what a step does, in words, and the fields that it moves."""
        fields = self._of_view(step.view)
        if step.takes == "image" or (step.view is not None and not step.native and step.takes == "sample"):
            images = _names(fields, Image)
            image_names = [step.field] if step.field is not None else images[:1]
            moved = step.does in ("moves", "unknown")
            words = f"It gets {_listed(image_names)} alone"
            return (words if moved else f"{words}, and moves nothing"), tuple(image_names) if moved else ()
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
        """Return the fields that a step of a view reaches."""
        if view is None or not self._has_views:
            return self._fields
        own = [entry for entry in self._fields if entry[2] == view]
        return [entry for entry in own if entry[0] != entry[1].name or _is_seen(entry[1])]

    def _is_of_objects(self, field: Field) -> bool:
        return isinstance(field.kind, Boxes) or self._followers.is_led(field)


def _is_seen(field: Field) -> bool:
    return isinstance(field.kind, _PLACED)


def _names(fields: Sequence[tuple[str, Field, int]], *kinds: type) -> list[str]:
    return [name for name, field, _ in fields if isinstance(field.kind, kinds)]


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:-1]) + " and " + listed[-1] if len(listed) > 1 else "".join(listed) or "no field"


# ---- The steps of a loader --------------------------------------------------------------------------

_CORE = "core"


@dataclass(frozen=True)
class Explained:
    """One step of a loader."""

    stage: str  # "order", "read", "decode", "field", "transform", "collate", "device", "batch_transform"
    what: str
    where: str  # "core", or in words where else
    why: str = ""
    keep: str = ""  # what would keep it in the core; empty if it is there, or if nothing is known to
    does: str = ""  # what it does to which fields, in words
    moves: tuple[str, ...] = ()  # the fields whose pixels or places it moves

    def __str__(self) -> str:
        keep = f" To keep it in the core: {self.keep}." if self.keep else ""
        why = f" {self.why[0].upper()}{self.why[1:]}." if self.why else ""
        does = f" {self.does}." if self.does else ""
        return f"{self.stage}: {self.what}\n    {self.where}.{why}{does}{keep}"


@dataclass(frozen=True)
class Explanation:
    """All steps in order; ``str()`` gives the text."""

    steps: tuple[Explained, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    __repr__ = __str__

    @property
    def slow(self) -> tuple[Explained, ...]:
        """The transforms that run in Python."""
        return tuple(
            step for step in self.steps if step.stage == "transform" and step.where.startswith("Python")
        )


def explain(
    dataset: Any, kind: SourceKind, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan
) -> Explanation:
    """Explain a loader (:meth:`fastload.DataLoader.explain`)."""
    if kind is not SourceKind.PACKED:
        return Explanation(tuple(_of_torch(dataset, kind, options)))
    return Explanation(tuple(_of_packed(dataset, sampler, plan, options, threads)))


def warn_slow_path(slow: Sequence[Step], stacklevel: int) -> None:
    """Warn about the transforms that run in Python."""
    kept = ". ".join(f"To keep {step.name} there: {step.keep}" for step in slow if step.keep)
    warnings.warn(
        f"Not in the core but in Python, for each sample: {'; '.join(map(_because, slow))}. "
        f"{kept + '. ' if kept else ''}loader.explain() lists all steps; docs/guide/callables.md says more. "
        f"To silence this: warnings.filterwarnings('ignore', category=fastload.errors.SlowPathWarning).",
        SlowPathWarning,
        stacklevel=stacklevel,
    )


def _because(step: Step) -> str:
    return f"{step.name} ({step.why})"


def _of_packed(
    dataset: Packed, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan
) -> Iterator[Explained]:
    drawn = sampler.order.is_drawn
    order = "your sampler's, read only as batches need it" if drawn else "computed from seed and epoch"
    yield Explained("order", order, "Python, once per batch")
    if options.fields.windows is not None:
        why = "which rows stand around each sample; records that several share are decoded once"
        yield Explained("windows", repr(options.fields.windows), "Python, once per batch", why)
    count = f"{threads.threads} thread{'s' if threads.threads > 1 else ''}"
    workers = python_workers(plan, options, threads)
    kind = "threads" if by_threads(options) else "worker processes"
    python = f"Python, in {workers} {kind}" if workers else "Python, in the thread that asks for batches"
    yield Explained("read", "records by byte range", _CORE, "ahead of decoding")
    whole_pictures = any(view.keeps_size for view in plan.every)
    cut = "whole pictures, because no crop or resize comes first" if whole_pictures else "what the crop needs"
    if any(view.source for view in plan.every):
        cut = "what the crop needs, or the whole picture, if an operation before the crop needs it"
    if len(plan.views) > 1:
        cut += " for each view, all of them at once if that is cheaper"
    if options.cache.format != "jpeg":
        when = "" if options.cache.format == "coefficients" else " and where that pays"
        cut += f"; of JPEGs from coefficients, once the node cache has them{when}"
    yield Explained("decode", cut, _CORE, count)
    if not delivers_pairs(dataset, plan, options):
        yield from _fields(chosen(dataset.schema, options.fields.names), plan)
    gpu = goes_to_gpu(options.device.name)
    late = erases_batches(dataset, plan, options, gpu)
    reach = Reach(dataset.schema, plan, options)
    for step in plan.steps:
        where, why = _CORE if step.native else python, step.why
        if step.erases and late:
            where = "on the device" if gpu else "Python, on the host"
            why = "whole batches are erased together, where they are normalised"
        does, moves = reach.of(step)
        yield Explained("transform", step.name, where, why, step.keep, does, moves)
    if isinstance(options.collate_fn, TargetCollate):
        yield Explained("collate", options.collate_fn.in_words, python, "the dataset has a target_transform")
    elif options.collate_fn is not None:
        yield Explained("collate", name_of(options.collate_fn), python, "a collate_fn is given")
    elif plan.tail:
        yield Explained("collate", "torch's default_collate", python, "Python made the samples")
    else:
        yield Explained("collate", "samples are written where they belong in the batch", _CORE)
    yield from _behind(options)


def _fields(fields: Sequence[Field], plan: Plan) -> Iterator[Explained]:
    names = ", ".join(name for name, _ in plan.views)
    view = f"each of the sample's views: {names}" if names else "the sample's view"
    if plan.each != "sample":
        view = f"a view of its own, drawn for each {plan.each}"
    for field in fields:
        if field.storage == "record":
            where, what = _CORE, f"decoded, under {view}"
        elif isinstance(field.kind, (Boxes, Keypoints)):
            where, what = _CORE, f"moved by {view}"
        elif field.storage == "ragged" and not field.kind.has_rows:
            where, what = "core, then Python", "bytes, of which Python makes objects at delivery"
        else:
            where, what = _CORE, "as it was packed"
        yield Explained("field", f"{field}: {what}", where)


def _of_torch(dataset: Any, kind: SourceKind, options: Options) -> Iterator[Explained]:
    stream = kind is SourceKind.STREAM
    order = "the dataset's own" if stream else "computed from seed and epoch"
    yield Explained("order", order, "Python, once per batch")
    workers = options.num_workers or 0
    where = (
        f"torch's {workers} worker processes" if workers else "Python, in the thread that asks for batches"
    )
    name = type(dataset).__qualname__
    why = why_not_native(dataset) or "a torch Dataset runs its own Python code"
    keep = "'fastload pack' the pictures, and pass the folder"
    if why_not_native(dataset):
        keep = "pass the packed dataset itself, or a Subset or ConcatDataset of packed ones"
    for stage in ("read", "decode", "transform"):
        yield Explained(stage, f"what {name} does", where, why, keep)
    collate = name_of(options.collate_fn) if options.collate_fn is not None else "torch's default_collate"
    yield Explained("collate", collate, where)
    yield from _behind(options)


def _behind(options: Options) -> Iterator[Explained]:
    text = options.text or Tokenizers()
    made_of = text.by_field if text.chat is None else {text.chat.turns: text.chat}
    for name, made in made_of.items():
        is_shown = made is text.chat or isinstance(made, Captions)
        what = f"{name}: {made!r}" if is_shown else f"{name}: {name_of(made)}"
        where = f"Python, in {text.threads} separate thread(s)"
        yield Explained("text", what, where, "texts need no decoding: they are made batches ahead")
    if options.collate is not None:
        yield from _behind(replace(options, collate=None, text=None))
        where, name = "Python, in the thread that asks for batches", options.collate
        what = name_of(name) if callable(name) else repr(name)
        yield Explained("collate", what, where, "once per batch, after everything else")
        return
    device = options.device.name
    if device is not None and str(device) != "cpu":
        yield Explained("device", f"to {device}", "a copy on a stream of the loader's own")
    if options.batch_transform is not None:
        where = "on the device" if device is not None and str(device) != "cpu" else "Python, on the host"
        from fastload.transfer.augment import parts_of

        for part in parts_of(options.batch_transform):
            what = repr(part) if "fastload" in type(part).__module__ else name_of(part)
            yield Explained("batch_transform", what, where, "once per batch")
