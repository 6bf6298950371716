"""The DataLoader's arguments, checked before anything is opened: each by itself, and against each other.

What depends on the dataset is checked when that is known, in :mod:`fastload.loader.fitting`.
"""

from __future__ import annotations

from typing import Any

import torch

from fastload.backends.options import AHEAD_BYTES, Options, Order
from fastload.backends.values import (
    Block,
    Dali,
    Device,
    Fields,
    OnError,
    Pad,
    Ranks,
    Tokenizers,
    at_least,
    cache_setting,
    check_collate,
    integer,
    one_of,
)
from fastload.loader.arguments import Arguments
from fastload.sample.layout import Sizes
from fastload.transforms.compiler import compile_plan

_FLAGS = ("drop_last", "pin_memory", "persistent_workers", "autotune", "in_order")
_WAYS = ("__fspath__", "__getitem__", "__getitems__", "__iter__")  # of getting at a dataset's samples


def resolve(arguments: Arguments) -> tuple[Options, Order]:
    """Check the arguments, and return what they mean.

    Seed, ranks on the node and batches in work ahead are not known yet: the options have their defaults.

    Raises:
        TypeError: arguments of the wrong type.
        ValueError: values out of range, or arguments that exclude each other.
        WorldError: rank and world size contradict each other.
    """
    _check_types(arguments)
    _check_numbers(arguments)
    order = _order(arguments)
    _check_batching(arguments, order)
    options = _options(arguments)
    _check_together(arguments, options)
    if order.in_packs:
        _check_packs(options)
    _check_transforms(arguments)
    return options, order


def _order(given: Arguments) -> Order:
    shuffle = given.shuffle
    if not isinstance(shuffle, Block) and shuffle not in (None, True, False, "block"):
        raise ValueError(f"shuffle must be True, False, 'block' or fastload.Block(...). Found: {shuffle!r}.")
    if given.padding is not None:
        one_of("padding", given.padding, ("mark", "repeat", "end", "drop"))
    block = shuffle if isinstance(shuffle, Block) else Block() if shuffle == "block" else None
    return Order(
        shuffle=None if shuffle is None else bool(shuffle),
        block=block,
        sampler=given.sampler,
        batch_sampler=given.batch_sampler,
        drop_last=bool(given.drop_last),
        padding=given.padding or ("repeat" if shuffle else "mark"),
    )


def _options(given: Arguments) -> Options:
    pictures, collate = _collate(given.collate)
    return Options(
        batch_size=1 if given.batch_size is None else given.batch_size,
        unbatched=given.batch_size is None and given.batch_sampler is None,
        num_workers=given.num_workers,
        prefetch_factor=2 if given.prefetch_factor is None else given.prefetch_factor,
        ahead_bytes=AHEAD_BYTES if given.prefetch_factor is None else 0,
        collate_fn=given.collate_fn,
        pin_memory=given.pin_memory,
        timeout=given.timeout,
        persistent_workers=given.persistent_workers,
        worker_init_fn=given.worker_init_fn,
        multiprocessing_context=given.multiprocessing_context,
        generator=given.generator,
        in_order=given.in_order,
        snapshot_every_n_steps=given.snapshot_every_n_steps,
        ranks=Ranks.of(given.ranks),
        errors=OnError.of(given.on_error),
        device=Device.of(given.device),
        batch_transform=given.batch_transform,
        autotune=given.autotune,
        cache=cache_setting(given.cache),
        dali=Dali.of(given.backend),
        fields=Fields.of(given.fields),
        pictures=pictures,
        collate=collate,
        text=Tokenizers.of(given.text),
    )


def _collate(given: Any) -> tuple[Sizes, Any]:
    """Return the treatment of pictures of different sizes, and what is made of each batch after that."""
    check_collate("collate", given)
    if isinstance(given, Pad):
        most = None if given.height is None or given.width is None else (given.height, given.width)
        return Sizes("pad", most), given.then
    if given == "pad":
        return Sizes("pad"), None
    if given == "ragged":
        return Sizes("list"), None
    return Sizes(), None if isinstance(given, str) and given == "stack" else given


# ---- Checks -----------------------------------------------------------------------------------------


def _check_types(given: Arguments) -> None:
    for name in _FLAGS:
        value = getattr(given, name)
        if value not in (True, False):
            raise TypeError(f"{name} must be True or False. Found: {value!r}.")
    for name, order in (("sampler", given.sampler), ("batch_sampler", given.batch_sampler)):
        if order is not None and not any(hasattr(order, way) for way in ("__iter__", "__getitem__", "order")):
            raise TypeError(
                f"{name} must be an iterable of {'lists of ' if name != 'sampler' else ''}sample ids. "
                f"Found: {order!r}."
            )
    for name, function in (("collate_fn", given.collate_fn), ("worker_init_fn", given.worker_init_fn)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable. Found: {function!r}.")
    if given.generator is not None and not isinstance(given.generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator. Found: {given.generator!r}.")
    dataset = given.dataset
    if not isinstance(dataset, str) and not any(hasattr(dataset, way) for way in _WAYS):
        raise TypeError(
            "dataset must be a folder made by 'fastload pack', a fastload.PackedDataset or a torch Dataset. "
            f"Found: {dataset!r}."
        )


def _check_batching(given: Arguments, order: Order) -> None:
    batches = order.batch_sampler is not None
    if batches and (
        given.batch_size not in (None, 1) or order.shuffle or order.sampler is not None or order.drop_last
    ):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
    if batches and order.padding == "drop":
        raise ValueError(
            "batch_sampler excludes padding='drop': whole batches are divided among the ranks, and where "
            "their number does not divide, the first ones come again. Let it draw as many as the ranks can "
            "share."
        )
    if given.batch_size is None and not batches:
        for name, value in (("drop_last", given.drop_last), ("batch_transform", given.batch_transform)):
            if value:
                raise ValueError(
                    f"batch_size=None option disables auto-batching and is mutually exclusive with {name}."
                )
    if order.sampler is not None and order.shuffle:
        raise ValueError("shuffle=True and a sampler exclude each other: the sampler gives the order.")


def _check_numbers(given: Arguments) -> None:
    counts = (
        ("batch_size", given.batch_size, 1),
        ("prefetch_factor", given.prefetch_factor, 1),
        ("num_workers", given.num_workers, 0),
    )
    for name, value, least in counts:
        if value is not None:
            integer(name, value, least)
    at_least("timeout", given.timeout, 0)
    if given.seed is not None:
        integer("seed", given.seed)
        if not 0 <= given.seed < 2**64:
            raise ValueError(f"seed must be in [0, 2**64). Found: {given.seed}.")


def _check_together(given: Arguments, options: Options) -> None:
    """Check options that exclude each other."""
    memory, cache = options.device.memory, options.cache
    if memory != "fresh" and options.batch_transform is not None:
        raise ValueError(
            f"Device(memory={memory!r}) and batch_transform exclude each other: transforms of batches "
            "allocate their own memory."
        )
    if options.dali is not None and cache.format == "coefficients":
        raise ValueError("Cache(format=\"coefficients\") is for backend='native': DALI decodes JPEGs.")
    if options.dali is not None and cache.decoded is not None:
        raise ValueError("Cache(decoded=...) is for backend='native': DALI decodes records as they are.")
    if options.dali is not None and options.autotune:
        raise ValueError(
            "autotune moves the threads of backend='native'; DALI's number is fixed. With DALI use "
            "Dali(decode_share='auto')."
        )
    if given.collate is not None and options.collate_fn is not None:
        raise ValueError("collate takes whole batches, collate_fn lists of samples: they exclude each other.")
    if given.collate is not None and options.unbatched:
        raise ValueError("batch_size=None gives samples one by one, of which collate makes no batch.")
    if options.text is not None:
        _check_text(given, options)


def _check_packs(options: Options) -> None:
    """Check what goes with batches of packs, which differ in size."""
    collate = options.collate
    keeps = collate is None or callable(collate) or getattr(collate, "keeps_fields", False)
    refused = (
        (options.unbatched, "batch_size=None", "it gives samples one by one; batch_size counts packs"),
        (options.dali is not None, "backend='dali'", "DALI's batches have one size. Use backend='native'"),
        (
            options.collate_fn is not None,
            "collate_fn",
            "it gets samples, without where packs begin. Pass a callable as collate, which gets batches",
        ),
        (not keeps, f"collate={collate!r}", "its targets have no packs. Pass a callable, 'pad' or 'ragged'"),
        (
            options.errors.action == "replace",
            "on_error='replace'",
            "another sample has another length. Use 'skip', which leaves a row that fastload.valid() drops",
        ),
    )
    for is_given, name, reason in refused:
        if is_given:
            raise ValueError(f"PackingSampler and {name} exclude each other: {reason}.")


def _check_text(given: Arguments, options: Options) -> None:
    assert options.text is not None
    collate = options.collate
    if collate is not None and not callable(collate) and not getattr(collate, "keeps_fields", False):
        raise ValueError(
            f"collate={given.collate!r} makes targets of objects, which have no texts. Found: text for "
            f"{', '.join(options.text.names)}. Leave one of them out, or pass a callable as collate."
        )
    if options.unbatched:
        raise ValueError("text takes the texts of batches, and batch_size=None gives samples one by one.")


def _check_transforms(given: Arguments) -> None:
    """Check the order of the transforms, whatever the dataset; they are compiled again once it is known."""
    if given.transform is not None:
        compile_plan(given.transform)
    if given.batch_transform is not None:
        from fastload.transfer.augment import check_parts, parts_of

        check_parts(parts_of(given.batch_transform), None)
