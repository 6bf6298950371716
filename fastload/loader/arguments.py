"""The DataLoader's arguments as given: what can be said of them before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import IterDataPipe

__all__ = ["check_arguments", "check_stream"]


def check_arguments(given: Mapping[str, Any]) -> None:
    """Refuse what no loader can do.

    Args:
        given: the DataLoader's arguments by name.

    Raises:
        TypeError: arguments of the wrong type.
        ValueError: values out of range, or arguments that exclude each other.
    """
    _check_types(given)
    _check_batching(given)


def _check_types(given: Mapping[str, Any]) -> None:
    if given["shuffle"] not in (None, True, False, "block"):
        raise ValueError(f"shuffle must be True, False or 'block'. Found: {given['shuffle']!r}.")
    for name in ("drop_last", "drop_padding", "pin_memory", "persistent_workers", "autotune", "in_order"):
        if given[name] not in (True, False):
            raise TypeError(f"{name} must be True or False. Found: {given[name]!r}.")
    for name in ("sampler", "batch_sampler"):
        value = given[name]
        if value is not None and not any(hasattr(value, way) for way in ("__iter__", "__getitem__", "order")):
            raise TypeError(
                f"{name} must be an iterable of {'lists of ' if name != 'sampler' else ''}sample ids. "
                f"Found: {value!r}."
            )
    for name in ("collate_fn", "worker_init_fn"):
        if given[name] is not None and not callable(given[name]):
            raise TypeError(f"{name} must be callable. Found: {given[name]!r}.")
    if given["generator"] is not None and not isinstance(given["generator"], torch.Generator):
        raise TypeError(f"generator must be a torch.Generator. Found: {given['generator']!r}.")
    dataset = given["dataset"]
    if not isinstance(dataset, str) and not any(hasattr(dataset, way) for way in _WAYS):
        raise TypeError(
            "dataset must be a folder made by 'fastload pack', a fastload.PackedDataset or a torch Dataset. "
            f"Found: {dataset!r}."
        )


_WAYS = ("__fspath__", "__getitem__", "__getitems__", "__iter__")  # of getting at a dataset's samples


def _check_batching(given: Mapping[str, Any]) -> None:
    if given["batch_sampler"] is not None and (
        given["batch_size"] not in (None, 1)
        or given["shuffle"]
        or given["sampler"] is not None
        or given["drop_last"]
    ):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
    if given["batch_sampler"] is not None and given["drop_padding"]:
        raise ValueError(
            "batch_sampler excludes drop_padding: whole batches are divided among the ranks, and where their "
            "number does not divide, the first ones come again. Let it draw as many as the ranks can share."
        )
    if given["batch_size"] is None and given["batch_sampler"] is None:
        for name in ("drop_last", "batch_transform"):
            if given[name]:
                raise ValueError(
                    f"batch_size=None option disables auto-batching and is mutually exclusive with {name}."
                )
    if given["sampler"] is not None and given["shuffle"]:
        raise ValueError("shuffle=True and a sampler exclude each other: the sampler gives the order.")


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
