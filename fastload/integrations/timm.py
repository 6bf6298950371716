"""timm: ``create_loader`` with fastload's engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import fastload
from fastload.extras import need
from fastload.integrations.torch_loader import from_torch
from fastload.transforms.compiler import compile_plan


def create_loader(
    dataset: Any, *arguments: Any, engine: Mapping[str, Any] | None = None, **named: Any
) -> Any:
    """Make ``timm.data.create_loader``'s loader on packed data: the same transform, sampler and collate_fn.

    timm makes its loader first; the torch DataLoader in it is then replaced by ours. The part of timm's
    transform that is plain torchvision (or wrapped by timm) runs in the core, the rest in Python after it.

    Args:
        dataset: a folder made by ``fastload pack``, or an open ``PackedDataset``, whose ``transform`` is set,
            as timm does.
        arguments, named: timm's.
        engine: options of :class:`fastload.DataLoader`, such as ``seed`` and ``cache``.

    Returns:
        With ``use_prefetcher=True`` timm's ``PrefetchLoader`` around our loader, which gives normalised float
        batches on ``device``; else our loader. The PrefetchLoader is one batch ahead of its consumer: for a
        state in mid-epoch use ``use_prefetcher=False`` (and ``engine={"device": ...}``).

    Raises:
        LibraryMissing: timm is not installed.
        TypeError: ``dataset`` is not packed data.
        ValueError: options exclude each other.
    """
    timm_data = _timm()
    if isinstance(dataset, (str, os.PathLike)):
        dataset = fastload.PackedDataset(dataset)
    if not isinstance(dataset, fastload.PackedDataset):
        raise TypeError(
            f"create_loader takes a folder made by 'fastload pack' or a PackedDataset. Found: "
            f"{type(dataset).__name__}. Use timm.data.create_loader for it."
        )
    named.pop("use_multi_epochs_loader", None)  # it keeps worker processes, of which there are none
    outer = timm_data.create_loader(dataset, *arguments, **named)
    inner = outer.loader if isinstance(outer, timm_data.loader.PrefetchLoader) else outer
    if inner.dataset is not dataset:
        raise ValueError(
            "create_loader cannot take over input_size_choices: timm draws a size for each batch and wraps "
            "the dataset. Leave it out, or use timm.data.create_loader."
        )
    options = dict(engine or {})
    if inner.collate_fn is timm_data.loader.fast_collate:  # it stacks uint8 pictures, as the engine does
        native = _stacked_natively(dataset.transform)
        if native is not None:
            dataset.transform = native
            options.setdefault("collate_fn", None)
    ours = from_torch(inner, **options)
    if inner is outer:
        return ours
    outer.loader = ours
    return outer


def _timm() -> Any:
    need("timm.data.loader", "fastload.integrations.timm")
    import timm.data

    return timm.data


def _stacked_natively(transform: Any) -> Any | None:
    """Return a transform that gives uint8 tensors and runs wholly in the core, or None if there is none.

    Older releases of timm end theirs with ``ToNumpy``, which gives the same bytes as an array.
    """
    from torchvision.transforms import Compose, PILToTensor

    steps = list(getattr(transform, "transforms", [transform]))
    if type(steps[-1]).__name__ == "ToNumpy":
        steps[-1] = PILToTensor()
    plan = compile_plan(Compose(steps))
    return None if plan.tail or plan.dtype != "uint8" else Compose(steps)
