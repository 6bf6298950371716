"""Checks of the DataLoader's arguments against its dataset."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import IterDataPipe

from fastload.backends.batch_form import delivers_pairs, runs_python
from fastload.backends.options import Options, Order, warn_ignored
from fastload.backends.planned_batches import batch_form
from fastload.backends.values import Fields
from fastload.dataset.decoding import require_pil
from fastload.dataset.mixture import MixedFiles, Packed
from fastload.dataset.views import SourceKind, why_not_native
from fastload.loader.arguments import Arguments
from fastload.sample.layout import PACK_OFFSETS
from fastload.shard.dataset import PackedFiles
from fastload.transforms.compiler import name_of
from fastload.transforms.plan import Plan

_PACK = "transform. Pack the images ('fastload pack') to use these."


def check_fit(
    dataset: Any, kind: SourceKind, plan: Plan, options: Options, order: Order, arguments: Arguments
) -> None:
    """Check the arguments against the dataset before anything is started.

    Args:
        dataset, kind: the opened dataset, and how it is read.
        plan: the compiled transform.
        options, order, arguments: the loader's.

    Raises:
        TypeError, ValueError: they do not fit the dataset.
        LibraryMissing: DALI is needed for backend="dali", or Pillow for Python callables on pictures.
    """
    if order.in_packs:
        _check_packs(dataset, kind, plan)
    _check_placement(dataset, kind, plan, options)
    _check_fields(dataset if kind is SourceKind.PACKED else None, plan, options)
    if options.device.memory != "fresh":
        _check_reused(dataset, plan, options, order)
    if kind is SourceKind.PACKED:
        slow = [step for step in plan.steps if not step.native]
        if slow:
            from fastload.loader.explain import warn_slow_path

            warn_slow_path(slow, stacklevel=6)
        no_workers = not runs_python(plan, options)
        warn_ignored(
            {
                "worker_init_fn": no_workers and options.worker_init_fn is not None,
                "multiprocessing_context": no_workers and options.multiprocessing_context is not None,
                "in_order": not options.in_order,
                "pin_memory_device": bool(arguments.pin_memory_device),
            }
        )
    elif arguments.transform is not None or options.errors.action != "raise" or options.autotune:
        reason = why_not_native(dataset)
        raise ValueError(
            "transform, on_error and autotune are for packed datasets; a torch Dataset has its own "
            + (f"transform. Torch's workers read this one, because {reason}." if reason else _PACK)
        )
    elif options.cache.mode == "on" or options.cache.disk is not None:
        warnings.warn(
            f"DataLoader ignores {options.cache}: it keeps records of packed datasets, and a "
            "torch Dataset reads what it likes. Pack the images ('fastload pack') to use it.",
            stacklevel=5,
        )
    _check_order(dataset, kind, order)


def _check_order(dataset: Any, kind: SourceKind, order: Order) -> None:
    if kind is SourceKind.STREAM:
        _check_stream(order, dataset)
    elif order.block is not None and (not isinstance(dataset, PackedFiles) or order.is_given):
        raise ValueError("shuffle='block' is for one packed dataset, without a sampler. Pass shuffle=True.")


def _check_packs(dataset: Any, kind: SourceKind, plan: Plan) -> None:
    """Refuse a dataset and a transform that do not go with batches of packs."""
    if kind is not SourceKind.PACKED:
        raise ValueError(
            "PackingSampler is for packed datasets, whose batches say where packs begin. Found: "
            f"{type(dataset).__name__}. Pack it ('fastload pack') to use it."
        )
    if plan.puts_together:
        raise ValueError(
            "PackingSampler and Mosaic exclude each other: a mosaic is of several samples. Leave one out."
        )
    if isinstance(dataset, MixedFiles) and not dataset.is_whole:
        raise ValueError(
            "PackingSampler and the weights of a mix exclude each other: packs have each sample once. Leave "
            "out weights and num_samples."
        )
    if any(field.name == PACK_OFFSETS for field in dataset.schema):
        raise ValueError(
            f"Under {PACK_OFFSETS!r} a batch of PackingSampler says where packs begin. Found: a field of "
            "that name. Leave it out by fields=[...], or pack the set with another name."
        )


def _check_mosaic(plan: Plan, options: Options) -> None:
    """Refuse what does not go with samples of several pictures."""
    if plan.needs_engine and options.cache.decoded is not None:
        raise ValueError(
            "Mosaic and Cache(decoded=...) exclude each other: a mosaic decodes what it shows of each "
            "picture. Leave one out."
        )
    if plan.needs_engine and plan.needs_boxes:
        raise ValueError("RandomIoUCrop draws from the boxes of one picture. Leave it out behind Mosaic.")
    if plan.needs_engine and options.dali is not None:
        raise ValueError("backend='dali' decodes pictures one by one; Mosaic needs backend='native'.")


def _check_vision(plan: Plan, options: Options) -> None:
    """Refuse what keeps or decodes pictures in a way that a vision-language model's rows are not made of."""
    if plan.vision is None:
        return
    kept = {
        f"Cache(decoded={options.cache.decoded!r})": options.cache.decoded is not None,
        'Cache(format="coefficients")': options.cache.format == "coefficients",
        "backend='dali'": options.dali is not None,
    }
    for given, is_given in kept.items():
        if is_given:
            raise ValueError(
                f"{given} and transform={plan.vision!r} exclude each other: its pictures are decoded from "
                "records, each as its rule resizes it. Leave one out."
            )


def _beyond_dali(plan: Plan) -> list[str]:
    """Return the names of the steps for which DALI has no operation."""
    # A centre crop's border is black, as DALI's windows beyond a picture are.
    filled = [use for use in plan.geometry if use.fill is not None and use.name != "center_crop"]
    boxed = plan.geometry if plan.needs_boxes else ()
    operations = [use.name for use in (*plan.source, *plan.pixels)]
    turned = [use for use in plan.geometry if use.name in ("quarter_turn", "vertical_flip")]
    return operations + [use.name for use in (*filled, *boxed, *turned)]


def _check_dali_filter(plan: Plan) -> None:
    if any(use.name == "random_filter" for use in plan.geometry):
        raise ValueError(
            "backend='dali' resizes by one filter. Found: interpolation='random'. Say 'bilinear' or "
            "'bicubic', or use backend='native'."
        )
    if plan.filter == "lanczos":
        raise ValueError(
            "backend='dali' resizes as Pillow does with interpolation 'bilinear' or 'bicubic'. "
            "Found: 'lanczos'. Say one of these, or use backend='native'."
        )


def _check_kept(kind: SourceKind, options: Options) -> None:
    """Check what the node cache is to keep."""
    if kind is SourceKind.PACKED:
        return
    if options.cache.decoded is not None:
        raise ValueError("Cache(decoded=...) is for packed datasets; a torch Dataset decodes by itself.")
    if options.cache.format == "coefficients":
        raise ValueError(
            'Cache(format="coefficients") is for packed datasets; torch Datasets decode by themselves.'
        )


def _check_placement(dataset: Any, kind: SourceKind, plan: Plan, options: Options) -> None:
    if kind is SourceKind.PACKED and any(view.picture for view in plan.every) and runs_python(plan, options):
        require_pil(f"{name_of(plan.tail[0])} in transform" if plan.tail else "collate_fn")
    native = kind is SourceKind.PACKED and not runs_python(plan, options)
    _check_mosaic(plan, options)
    _check_vision(plan, options)
    if options.dali is not None:
        if not native:
            raise ValueError(
                "backend='dali' is for a packed dataset, without callables in transform and without a "
                "collate_fn. Leave them out (batch_transform takes callables on whole batches), or use "
                "backend='native'."
            )
        if any(any(part.shown) for part in dataset.parts):
            raise ValueError(
                "backend='dali' decodes pictures as they are stored. Found: a set whose pictures are turned "
                "as EXIF says, or put on white. Use backend='native'."
            )
        operations = _beyond_dali(plan)
        if operations:
            raise ValueError(
                f"backend='dali' crops, resizes and mirrors; {operations[0]} in transform is an "
                "operation of the native decoder's. Leave it out, or use backend='native'."
            )
        _check_dali_filter(plan)
        from fastload.backends.dali.graph import find_dali

        find_dali()
    erases = any(view.erase is not None for view in plan.every)
    if options.device.memory != "fresh" and erases:
        raise ValueError(
            f"Device(memory={options.device.memory!r}) and RandomErasing in transform exclude each other: it "
            "makes its own tensors."
        )
    if options.device.memory != "fresh" and not native:
        raise ValueError(
            f"Device(memory={options.device.memory!r}) is for batches that the core alone makes: a packed "
            f"dataset, and neither callables in transform nor a collate_fn."
        )
    _check_kept(kind, options)
    if options.batch_transform is None:
        return
    from fastload.transfer.augment import check_parts, parts_of
    from fastload.transforms.batch import ColorJitter
    from fastload.transforms.operations.output import RandomErasing

    parts = parts_of(options.batch_transform)
    check_parts(parts, plan.dtype if native and not plan.views else None)
    if erases and any(isinstance(part, RandomErasing) for part in parts):
        raise ValueError(
            "RandomErasing stands in transform and in batch_transform: both would draw the same rectangles. "
            "Leave one out."
        )
    if not native and any(isinstance(part, ColorJitter) for part in parts):
        raise ValueError(
            "ColorJitter works on pictures before normalisation, which only the core's transforms leave "
            "to the device: it needs a packed dataset, and neither callables in transform nor a collate_fn."
        )
    if kind is SourceKind.STREAM:
        raise ValueError("batch_transform needs to know the samples of a batch; an IterableDataset has none.")


def _check_reused(dataset: Packed, plan: Plan, options: Options, order: Order) -> None:
    """Refuse batches that do not all fit into the same memory.

    Raises:
        ValueError: what differs, by name.
    """
    this = f"Device(memory={options.device.memory!r})"
    if options.origins or options.text is not None:
        given = f"collate={options.collate!r}" if options.text is None else f"text={options.text!r}"
        raise ValueError(f"{this} and {given} exclude each other: it makes its own tensors.")
    if options.unbatched or order.batch_sampler is not None or order.in_packs:
        given = "batch_size=None" if options.unbatched else "batch_sampler"
        given = "PackingSampler" if order.in_packs else given
        raise ValueError(f"{this} needs batches of one size. Found: {given}. Pass batch_size.")
    why = {
        "picture": "pictures that differ in size",
        "rows": "any number of rows",
        "masks": "any number of masks",
    }
    varying = [
        f"{field.name} ({why[field.form]})"
        for field in batch_form(dataset, plan, options).delivery.layout.fields
        if not field.has_one_size and field.form != "objects"  # those stay on the host
    ]
    if varying:
        raise ValueError(
            f"{this} needs batches of one size. Found: {', '.join(varying)}. Leave fields out by "
            "fields=[...], pad pictures to a size by collate=Pad(height, width), or leave memory out."
        )


def _check_stream(order: Order, dataset: Any) -> None:
    """Refuse an order for a dataset that decides its own.

    Raises:
        ValueError: shuffle, sampler or batch_sampler for an IterableDataset.
    """
    shuffle = None if isinstance(dataset, IterDataPipe) else order.in_words or None  # torch shuffles those
    given = {"shuffle": shuffle, "sampler": order.sampler, "batch_sampler": order.batch_sampler}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"An IterableDataset decides its own order: {name} is for map-style datasets. "
                f"Found: {name}={value!r}."
            )


def _check_fields(dataset: Packed | None, plan: Plan, options: Options) -> None:
    """Refuse what is only for pairs of an image and a label, if batches are dicts.

    Args:
        dataset: the packed dataset; None: a torch Dataset, which has no fields.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: the dataset lacks a field, or an argument does not go with dicts.
    """
    if dataset is None:
        _check_no_fields(options)
        return
    if delivers_pairs(dataset, plan, options):
        _check_pairs(plan, options)
        return
    from fastload.loader.fitting_fields import check_fields

    check_fields(dataset, plan, options)


def _check_pairs(plan: Plan, options: Options) -> None:
    if options.batch_transform is not None and not runs_python(plan, options):
        from fastload.transforms.batch import OfFields

        if isinstance(options.batch_transform, OfFields):
            raise ValueError(
                f"OfFields is for batches that are dicts; these are (images, labels). Found: "
                f"{options.batch_transform!r}. Pass its transforms alone."
            )
    if options.fields != Fields():
        raise ValueError(
            f"fields={options.fields!r} is for sets of other fields than an image and a label; this one has "
            "those."
        )


def _check_no_fields(options: Options) -> None:
    collate = options.collate or (None if options.pictures.mode == "stack" else options.pictures)
    fields = None if options.fields == Fields() else options.fields
    for name, value in (("collate", collate), ("fields", fields)):
        if value is not None:
            raise ValueError(
                f"{name} is for packed datasets; a torch Dataset has its own samples. Found: "
                f"{name}={value}. Pack it ('fastload pack') to use it."
            )
