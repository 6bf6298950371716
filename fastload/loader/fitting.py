"""What of the DataLoader's arguments fits its dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterDataPipe

from fastload.backends.fields import delivers_pairs, of_channels
from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.sample.fields import Image
from fastload.sample.planned import chosen
from fastload.transforms.plan import Plan

__all__ = ["check_fields", "check_stream"]


def check_stream(given: Mapping[str, Any], dataset: Any) -> None:
    """Refuse an order for a dataset that decides its own.

    Raises:
        ValueError: shuffle, sampler or batch_sampler for an IterableDataset.
    """
    names = ("sampler", "batch_sampler")  # of a DataPipe, torch sets the shuffling
    for name in names if isinstance(dataset, IterDataPipe) else ("shuffle", *names):
        if given[name] is not None and given[name] is not False:
            raise ValueError(
                f"An IterableDataset decides its own order: {name} is for map-style datasets. "
                f"Found: {name}={given[name]!r}."
            )


def check_fields(dataset: Packed | None, plan: Plan, options: Options) -> None:
    """Refuse what is for pairs of an image and a label, where batches are dicts.

    Args:
        dataset: a packed one; None: a torch Dataset, which has no fields.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: the dataset lacks a field, or an argument does not go with dicts.
    """
    if dataset is None:
        _check_no_fields(options)
        return
    fields = chosen(dataset.schema, options.fields)
    if delivers_pairs(dataset, options.fields, options.sizes):
        return
    why = "batches are dicts here: the dataset has other fields, or fields= or sizes= was passed"
    if options.backend == "dali":
        raise ValueError(
            f"backend='dali' makes pairs of an image and a label, and {why}. Use backend='native'."
        )
    if options.batch_transform is not None:
        raise ValueError(
            f"batch_transform takes pairs of images and labels, and {why}. Transform batches in the training "
            "loop, or pass a collate_fn."
        )
    if options.device_memory != "fresh":
        raise ValueError(
            f"device_memory={options.device_memory!r} is for pairs of images and labels, and {why}. "
            "Leave it out."
        )
    for field in fields:
        if isinstance(field.kind, Image) and plan.normalize:
            of_channels(plan.mean, field.kind.channels)
            of_channels(plan.std, field.kind.channels)
    odd = [field for field in fields if isinstance(field.kind, Image) and field.kind != Image()]
    if plan.pixels and odd:
        raise ValueError(
            f"The transform changes colours, which is for RGB pictures of 8 bits. Found: {odd[0]}. Leave the "
            "field out by fields=[...], or the operation."
        )


def _check_no_fields(options: Options) -> None:
    for name, default in (("fields", None), ("sizes", "stack")):
        given = getattr(options, name)
        if given != default:
            raise ValueError(
                f"{name} is for packed datasets; a torch Dataset has its own samples. Found: "
                f"{name}={given!r}. Pack it ('fastload pack') to use it."
            )
