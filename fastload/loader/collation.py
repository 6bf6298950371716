"""``collate=`` and ``text=``, fitted to a loader's dataset and transform."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import TYPE_CHECKING, Any

from fastload.backends.fields import check_moving
from fastload.backends.options import Options
from fastload.collate.planned import Collated, Collation, Wanted
from fastload.dataset.views import SourceKind, read_by
from fastload.machine.messages import stacklevel
from fastload.sample.fields import PLACES, Boxes, Image, Images, Keypoints, Text, Texts
from fastload.sample.layout import HOST, IDS, OF_PICTURES, PICTURE_OFFSETS, VIEW
from fastload.sample.planned import chosen
from fastload.sample.schema import Captions, Field
from fastload.sampler import Sampler
from fastload.transforms.callables import calls_v2
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.protocol import Backend
    from fastload.backends.text_stage import Maker
    from fastload.transfer.streams import Gpu
    from fastload.vlm.chat import Chat
    from fastload.vlm.grids import PictureGrids


def of_pictures_and_targets(dataset: Any, options: Options) -> Options:
    """Return the options by which a ``collate_fn`` gets a detection dataset's samples, which are pictures and
    targets; ``dataset``: the loader's argument.
    """
    names, collate_fn = getattr(dataset, "names", None), options.collate_fn
    if names is None or collate_fn is None or options.collate is not None or options.unbatched:
        return options
    return replace(options, collate=_Samples(names, collate_fn), collate_fn=None)


@dataclass(frozen=True)
class _Samples:
    """A value of ``collate`` that passes pictures and targets to a ``collate_fn``."""

    names: Any
    collate_fn: Callable[[list[Any]], Any]

    def planned(
        self, schema: Sequence[Field], asked: Wanted, views: Sequence[str], one_size: bool
    ) -> Collation:
        """Plan it as :meth:`fastload.collate.detection.Detection.planned` does."""
        from fastload.collate.detection import Detection

        fields = {one.name: getattr(self.names, one.name) for one in dataclass_fields(self.names)}
        of_v2 = calls_v2(self.collate_fn)
        points = next((field.name for field in schema if isinstance(field.kind, Keypoints)), None)
        if of_v2 and points is not None:
            raise ValueError(
                f"collate_fn calls torchvision's v2, which would leave {points!r} behind: a target has them "
                "with their visibility. Put those steps into transform=, or leave the field out by "
                "fields=[...]."
            )
        collation = Detection("list", tv_tensors=of_v2, **fields).planned(schema, asked, views, one_size)
        listed = collation.collate

        def collated(delivered: Collated) -> Any:
            return self.collate_fn(list(zip(*listed(delivered), strict=True)))

        return replace(collation, collate=collated)


def planned_collation(options: Options, dataset: Any, kind: SourceKind, plan: Plan) -> Collation:
    """Return a loader's ``collate``, fitted to what the loader reads.

    Args:
        options: the loader's; ``collate`` is a word for objects, or a callable.
        dataset, kind: what is read, and how.
        plan: the compiled transform.

    Raises:
        ValueError: a needed field is missing, or an argument does not go with ``collate``.
    """
    if kind is not SourceKind.PACKED:
        raise ValueError(
            f"collate is for packed datasets; a torch Dataset has its own samples. Found: collate="
            f"{options.collate!r}. Pack it ('fastload pack') to use it, or pass a collate_fn."
        )
    spec = options.collate
    if isinstance(spec, str):
        from fastload.collate.detection import Detection

        spec = Detection(spec)
    if not hasattr(spec, "planned"):
        delivered = chosen(dataset.schema, options.fields.names)
        check_moving("collate", [spec], [one.name for one in delivered if isinstance(one.kind, PLACES)])
        return Collation(lambda delivered: spec(_plain(delivered.batch)))
    plans = [view for _, one in plan.scheduled for view in one.every] if plan.scheduled else plan.every
    views = [name for one in ([one for _, one in plan.scheduled] or [plan]) for name, _ in one.views]
    sizes = {view.output_size for view in plans}
    fields = [_delivered(field, plan) for field in chosen(dataset.schema, options.fields.names)]
    asked = Wanted(options.fields.names, options.fields.masks, options.pictures)
    collation: Collation = spec.planned(fields, asked, views, one_size=len(sizes) == 1 and None not in sizes)
    tails = [one.tail for _, one in plan.scheduled] or [plan.tail]
    wanted = collation.wanted
    if (
        wanted is not None and wanted.pictures.mode == "stack" and not any(tails)
    ):  # a callable may make them of one size
        loose = next((view for view in plans if view.output_size is None and not view.keeps_size), None)
        if loose is not None:
            raise ValueError(
                f"collate={options.collate!r} stacks pictures, and the transform leaves them at different "
                "sizes. Put in T.Letterbox(size), Resize((height, width)), CenterCrop or RandomResizedCrop."
            )
    return collation


def in_pixels(options: Options, collation: Collation, plan: Plan) -> tuple[Plan, Collation]:
    """Return plan and collation so that the collation gets pixels, if it makes the values of the transform's
    ``ToDtype`` and ``Normalize`` by the processor's own arithmetic; else both as they are.

    Args:
        options: the loader's.
        collation: the fitted ``collate``.
        plan: the compiled transform.
    """
    numbers = [*plan.mean, *plan.std]
    normal = plan.dtype in ("float32", "bfloat16") and (plan.scale or plan.normalize)
    alone = not (plan.tail or plan.views or plan.scheduled) and plan.erase is None
    if collation.of_pixels is None or not (normal and alone) or options.batch_transform is not None:
        return plan, collation
    from fastload.transfer.convert import crosses_as
    from fastload.vlm.layouts import values_on
    from fastload.vlm.rules import SigLIP2

    if len(numbers) != 6 or min(plan.std) <= 0:
        return plan, collation
    mean, std = (plan.mean, plan.std) if plan.normalize else ((0.0,) * 3, (1.0,) * 3)
    rule = SigLIP2(mean=mean, std=std, dtype=plan.dtype)  # type: ignore[arg-type]
    return crosses_as(plan), replace(collation, collate=collation.of_pixels(partial(values_on, rule)))


def vision_collation(options: Options, dataset: Any, kind: SourceKind, plan: Plan) -> Collation:
    """Return the collate of pictures as a vision-language model takes them: the processor's names.

    Args:
        options: the loader's.
        dataset, kind: what is read, and how.
        plan: the compiled transform.

    Raises:
        ValueError: not a packed dataset, not one field of pictures, or an argument that does not go with it.
    """
    from fastload.vlm.batches import VisionBatch

    if kind is not SourceKind.PACKED:
        raise ValueError(
            f"transform={plan.vision!r} is for packed datasets; a torch Dataset has its own samples. Pack "
            "it: 'fastload pack'."
        )
    if options.collate_fn is not None:
        raise ValueError(
            f"transform={plan.vision!r} makes batches as its processor does, which a collate_fn does not "
            "get. Leave one of them out."
        )
    own = options.collate if callable(options.collate) and not hasattr(options.collate, "planned") else None
    if own is None and (options.collate is not None or options.pictures.mode != "stack"):
        given = options.collate if options.collate is not None else options.pictures
        raise ValueError(
            f"transform={plan.vision!r} and collate={given} exclude each other: batches are made as the "
            "processor makes them. Leave one out, or pass a callable as collate, which gets that batch."
        )
    if options.unbatched:
        raise ValueError(
            f"transform={plan.vision!r} makes batches. Found: batch_size=None. Pass batch_size=1 for single "
            "samples."
        )
    names = [
        field.name
        for field in chosen(dataset.schema, options.fields.names)
        if isinstance(field.kind, (Image, Images))
    ]
    if len(names) != 1:
        raise ValueError(
            f"transform={plan.vision!r} takes one field of pictures. Found: {', '.join(names) or 'none'}. "
            "Name it and the others that you need: fields=[...]."
        )
    others = {field.name for field in chosen(dataset.schema, options.fields.names)} - set(names)
    taken = sorted(others & {*OF_PICTURES, PICTURE_OFFSETS})
    if taken:
        raise ValueError(
            f"Under {taken[0]!r} a batch has what transform={plan.vision!r} makes, and the set has a field "
            "of that name. Leave it out by fields=[...], or pack the set with another name."
        )
    made = VisionBatch(getattr(plan.vision, "rule", plan.vision), names[0])
    collate = made if own is None else lambda delivered: own(_plain(made(delivered)))
    return Collation(collate, needs_origins=True)


def _delivered(field: Field, plan: Plan) -> Field:
    """Return a field with the format that its boxes have in a batch."""
    formats = [one for view in (plan, *plan.every) for one in (view.tail_format, view.box_format) if one]
    if not isinstance(field.kind, Boxes) or not formats:
        return field
    return replace(field, kind=replace(field.kind, format=formats[0]))


def with_wanted(options: Options, wanted: Wanted | None) -> Options:
    """Return the options by which batches have what a collation wants."""
    if wanted is None:
        return options
    fields = replace(options.fields, names=wanted.fields, masks=wanted.masks)  # type: ignore[arg-type]
    return replace(options, fields=fields, pictures=wanted.pictures)


def planned_text(options: Options, dataset: Any, kind: SourceKind) -> tuple[dict[str, Captions], Options]:
    """Return what is made of texts, by field, and the options without these fields.

    Raises:
        ValueError: there is no such field of texts.
    """
    if kind is not SourceKind.PACKED:
        raise ValueError(
            "text is for packed datasets; a torch Dataset handles its own texts. Pack it "
            "('fastload pack') to use it."
        )
    schema = dataset.schema
    assert options.text is not None
    by_field = options.text.by_field.items()
    texts = {name: made if isinstance(made, Captions) else Captions(made) for name, made in by_field}
    for field in chosen(schema, tuple(texts)):
        if not isinstance(field.kind, (Text, Texts)):
            raise ValueError(f"text is for fields of texts. Found: {field}.")
    rest = [field.name for field in chosen(schema, options.fields.names) if field.name not in texts]
    if not rest:
        raise ValueError(
            "The loader decodes a field besides the texts. Found: "
            f"fields={list(options.fields.names or ())}. Name one more."
        )
    return texts, replace(options, fields=replace(options.fields, names=rest))


@dataclass(frozen=True)
class PlannedChat:
    """A chat, fitted to a loader.

    Args:
        chat: makes the documents.
        grids: of the pictures; None: the loader delivers none.
        tokens: of a pack; None: each document is a row of its own.
        dropped: fields that are read for the documents' sake.
    """

    chat: Chat
    grids: PictureGrids | None
    tokens: int | None
    dropped: frozenset[str]


def planned_chat(
    options: Options, dataset: Any, kind: SourceKind, plan: Plan, order: Any
) -> tuple[PlannedChat, Options]:
    """Return the loader's chat, and the options by which batches have what it does not make.

    Args:
        options: the loader's; ``text`` is a chat.
        dataset, kind: what is read, and how.
        plan: the compiled transform.
        order: the loader's.

    Raises:
        ValueError: not a packed dataset, no such field, pictures without a picture rule or with another
            family's, or an argument that does not go with it.
    """
    from fastload.vlm.documents import KEYS
    from fastload.vlm.grids import PictureGrids, check_fits

    assert options.text is not None
    chat: Chat = options.text.chat
    if kind is not SourceKind.PACKED:
        raise ValueError(
            f"text={chat!r} is for packed datasets; a torch Dataset makes its own tokens. Pack it: 'fastload "
            "pack'."
        )
    if options.collate_fn is not None:
        raise ValueError(
            f"text={chat!r} makes batches of documents, which a collate_fn does not get. Leave one of them "
            "out, or pass a callable as collate, which gets the batch."
        )
    if chat.turns not in dataset.schema.names:
        raise ValueError(
            f"Chat.turns must be the field of the conversations. Found: {chat.turns!r}, and the set has "
            f"{', '.join(dataset.schema.names)}."
        )
    rest = [field for field in chosen(dataset.schema, options.fields.names) if field.name != chat.turns]
    made = {*KEYS, *([chat.frames.types] if chat.frames.types else [])}
    taken = sorted(field.name for field in rest if field.name in made)
    if taken:
        raise ValueError(
            f"Under {taken[0]!r} a batch has what Chat makes, and the set has a field of that name. Leave it "
            "out by fields=[...], or pack the set with another name."
        )
    pictures = [field.name for field in rest if isinstance(field.kind, (Image, Images))]
    if pictures and plan.vision is None:
        raise ValueError(
            f"text={chat!r} needs a rule by which each picture has tokens. Found: pictures in "
            f"{', '.join(pictures)}, without one. Pass transform=fastload.Vision(processor), or leave the "
            "pictures out by fields=[...]."
        )
    if order.in_packs and not chat.frames.apart:
        warnings.warn(
            f"In packs, transformers' models for {type(chat.frames).__name__} let documents see each other: "
            "their masks come from token_type_ids, not from position_ids. Leave out PackingSampler, or give "
            "the model a mask of your own, by cu_seqlens.",
            stacklevel=stacklevel(),
        )
    rule = getattr(plan.vision, "rule", plan.vision)
    if pictures:
        check_fits(chat.frames, rule)
    grids = PictureGrids(pictures[0], rule) if pictures else None
    tokens = order.sampler.tokens if order.in_packs else None
    names = [field.name for field in rest] or [chat.turns]
    planned = PlannedChat(chat, grids, tokens, frozenset() if rest else frozenset({chat.turns}))
    return planned, replace(options, fields=replace(options.fields, names=names))


def after_engine(
    backend: Backend,
    collation: Collation | None,
    text: Mapping[str, Captions] | PlannedChat,
    dataset: Any,
    sampler: Sampler,
    options: Options,
) -> Backend:
    """Wrap a back end in what is done to its batches after everything else.

    Args:
        backend: makes the batches.
        collation: what is made of each batch, or None.
        text: what is made of texts.
        dataset, sampler, options: the loader's.
    """
    from fastload.transfer.cuda import find_gpu

    read, gpu = read_by(dataset, sampler), find_gpu(options.device.name)
    device: dict[str, _OnDevice] = {} if gpu is None else {"device": _OnDevice(gpu)}
    if text:
        from fastload.backends.text_stage import TextStage

        assert options.text is not None
        maker = _maker(text, dataset, read, options.seed)
        ahead, threads = options.prefetch_factor, options.text.threads
        move = None if gpu is None else device["device"].move
        backend = TextStage(backend, read, maker, threads, ahead, move)
    if collation is None and options.origins:
        collation = Collation(lambda delivered: _plain(delivered.batch))
    if collation is None:
        return backend
    from fastload.backends.protocol import CollatedBackend

    collate = collation.collate

    def keys(samples: Sequence[int]) -> list[str]:
        return [dataset.key(sample) for sample in samples]

    def collated(batch: Any) -> Any:
        host = batch.pop(HOST, batch) if isinstance(batch, dict) else {}
        return collate(Collated(batch, host, keys, **device))

    return CollatedBackend(backend, collated)


def _maker(text: Mapping[str, Captions] | PlannedChat, dataset: Any, read: Any, seed: int) -> Maker:
    """Make what makes the texts' part of batches."""
    if isinstance(text, PlannedChat):
        from fastload.vlm.documents import Documents

        return Documents(text.chat, dataset, read, text.grids, text.tokens, text.dropped)
    from fastload.backends.text_stage import Tokenized

    return Tokenized(dataset, text, seed)


def _plain(batch: Any) -> Any:
    """Return a batch without the fields that say where its samples come from."""
    if not isinstance(batch, dict):
        return batch
    return {name: value for name, value in batch.items() if name not in (IDS, VIEW, HOST)}


class _OnDevice:
    """A device for collate functions; see :class:`fastload.collate.planned.Device`."""

    is_host = False

    def __init__(self, gpu: Gpu) -> None:
        from fastload.transfer.nested import Mover

        self.move = Mover(gpu)
        self.run = gpu.run
