"""What the handshake compares: the parts of a loader that must be equal on all ranks."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from typing import Any

import numpy as np

from fastload._version import __version__
from fastload.backends.options import Options, Order
from fastload.ranks.world import World
from fastload.sampler import Sampler, whole_order
from fastload.transforms.plan import Plan

_LOOKED_AT = 64  # positions of the order that are compared


def compared(
    dataset: Any,
    length: int,
    sampler: Sampler,
    plan: Plan,
    options: Options,
    order: Order,
    world: World,
    epoch: int,
) -> dict[str, Any]:
    """Return what must be equal on all ranks: dataset id, options, order and version. JSON-able, about 1 kB.

    It leaves out threads, prefetching and folders, which may differ between ranks.
    """
    own = getattr(dataset, "id", None)
    return {
        "dataset": own if isinstance(own, str) else f"{type(dataset).__module__}.{_name(type(dataset))}",
        "samples": length,
        "world_size": world.size,
        "batch_size": options.batch_size,
        "shuffle": order.in_words,
        "seed": options.seed,
        "drop_last": order.drop_last,
        "padding": order.padding,
        "on_error": options.errors.action,
        "OnError.max_pixels": options.errors.max_pixels,
        "Cache.decoded": options.cache.decoded,
        "sampler": type(whole_order(sampler.order)).__name__,
        "packs (a hash)": getattr(sampler.order, "agreed", ""),
        "the mix's beginning in the run": _start(sampler.order),
        "order (a hash)": _order(sampler, epoch) if sampler.partition.world_size == world.size else "",
        **{f"transform's {part.name}": _written(getattr(plan, part.name)) for part in fields(plan)},
        "transform's tail": ", ".join(map(_name, plan.tail)),
        "fields": "all" if options.fields.names is None else ", ".join(options.fields.names),
        "pictures of different sizes": str(options.pictures),
        "text": _text(options),
        "Fields.masks": options.fields.masks,
        "Fields.rows_of": str(options.fields.rows_of),
        "Fields.windows": str(options.fields.windows),
        "collate": _collate(options.collate),
        "batch_transform": _batch_transform(options.batch_transform),
        "fastload": __version__,
    }


def _start(order: Any) -> str:
    """Say where a mix began to count; "": with the run."""
    start = getattr(order, "start", None)
    return (
        ""
        if start is None
        else f"sample {start.given}, counts {list(start.counts)}, walks {list(start.walks)}"
    )


def _order(sampler: Sampler, epoch: int) -> str:
    """Hash some sample ids of the epoch: a user's sampler may draw different ones on each rank."""
    total = sampler.pool(epoch)
    if total == 0:
        return ""
    positions = np.unique(np.linspace(0, total - 1, _LOOKED_AT).astype(np.int64))
    ids = sampler.order.ids(positions, epoch)
    return hashlib.sha256(f"{total} {ids.tolist()}".encode()).hexdigest()[:16]


def _text(options: Options) -> str:
    """Name what is made of texts; a chat also by a digest of its tokenizer and template."""
    if options.text is None:
        return ""
    if options.text.chat is not None:
        return f"{options.text.chat!r} {options.text.chat.digest()}"
    return str({name: _collate(tokenizer) for name, tokenizer in options.text.by_field.items()})


def _collate(given: Any) -> str:
    """Return a callable's name, or a word or spec as written."""
    return _name(given) if callable(given) else _written(given)


def _batch_transform(given: Any) -> str:
    """Describe fastload's steps with their arguments, others by name."""
    steps = given if isinstance(given, (list, tuple)) else [given]
    own = (type(step).__module__.startswith("fastload.") for step in steps)
    return ", ".join(
        _written(step) if is_own else _name(step) for step, is_own in zip(steps, own, strict=True)
    )


def _written(value: Any) -> str:
    """Return the repr without addresses of callables."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _name(value: Any) -> str:
    """Return a callable's name; what it holds (a device, a folder) may differ between ranks."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))
