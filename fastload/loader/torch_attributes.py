"""The attributes that torch's DataLoader has, on ours: what frameworks read, and rebuild loaders from."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _DatasetKind

from fastload.loader.arrangement import Arrangement
from fastload.loader.rebuilt import CollateGuard

__all__ = ["Found", "set_attributes"]


class Found(int):
    """A number of threads that nobody gave: a loader made from this one's attributes looks for it anew."""


def set_attributes(loader: Any, arranged: Arrangement) -> None:
    """Give ``loader`` every argument as an attribute, under its name, as torch's constructor does.

    Lightning and Fabric call ``type(loader)(**attributes)`` where they want another sampler: what lies here
    must make the same loader.
    """
    given = dict(arranged.given)
    for name in ("sampler", "batch_sampler", "multiprocessing_context"):
        del given[name]
    given["dataset"] = arranged.shown
    given["num_workers"] = _num_workers(arranged)
    given["drop_last"] = bool(given["drop_last"])
    if arranged.given["batch_sampler"] is not None:
        given["batch_size"] = None  # as torch's
    given["collate_fn"] = _collate(arranged, loader)
    if not arranged.packed and given["num_workers"] and given["prefetch_factor"] is None:
        given["prefetch_factor"] = 2  # torch's default
    loader.__dict__.update(given)
    loader.__dict__["sampler"] = loader.sampler  # for who looks at vars(loader)
    context = arranged.given["multiprocessing_context"]
    if arranged.packed:
        loader._DataLoader__multiprocessing_context = context
    else:
        loader.multiprocessing_context = context  # torch's setter checks it
    stream = isinstance(arranged.dataset, IterableDataset)
    loader._dataset_kind = _DatasetKind.Iterable if stream else _DatasetKind.Map
    loader._IterableDataset_len_called = None
    loader._iterator = None
    loader._DataLoader__initialized = True
    if not arranged.packed:
        loader.check_worker_number_rationality()  # torch's warning of too many
        if not arranged.given["in_order"] and given["num_workers"] > 1:
            warnings.warn(
                "With in_order=False a state in the middle of an epoch does not say which samples came: a "
                "resumed run may lose and repeat some. Save states between epochs, or pass in_order=True.",
                stacklevel=3,
            )


def _num_workers(arranged: Arrangement) -> int:
    given = arranged.given["num_workers"]
    if given is not None:
        return int(given)
    return Found(arranged.threads.threads) if arranged.packed else 0


def _collate(arranged: Arrangement, loader: Any) -> Any:
    own = arranged.given["collate_fn"]
    if own is None and arranged.unbatched and not arranged.packed:
        return torch.utils.data.default_convert
    if arranged.packed:
        return CollateGuard(own, loader)
    return torch.utils.data.default_collate if own is None else own
