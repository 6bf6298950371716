"""The attributes of torch's DataLoader on ours, and answers to frameworks."""

from __future__ import annotations

import sys
import warnings
import weakref
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _DatasetKind

from fastload.loader.assembly import LoaderPlan
from fastload.loader.epochs import Epochs
from fastload.loader.rebuilt import CollateGuard

# ---- Attributes of torch's DataLoader ---------------------------------------------------------------


class AutoWorkers(int):
    """A number of threads chosen by fastload: a loader made from these attributes chooses again."""


def set_attributes(loader: Any, arranged: LoaderPlan) -> None:
    """Give ``loader`` every argument as an attribute of the same name, as torch's constructor does.

    Lightning and Fabric call ``type(loader)(**attributes)`` to change the sampler: the attributes must make
    the same loader.
    """
    arguments = arranged.arguments
    shown = arguments.as_keywords()
    for name in ("sampler", "batch_sampler", "multiprocessing_context"):
        del shown[name]
    workers = _num_workers(arranged)
    shown |= {"dataset": arranged.shown, "num_workers": workers, "collate_fn": _collate(arranged, loader)}
    shown["drop_last"] = bool(arguments.drop_last)
    if arguments.batch_sampler is not None:
        shown["batch_size"] = None  # as torch's
    if not arranged.packed and workers and arguments.prefetch_factor is None:
        shown["prefetch_factor"] = 2  # torch's default
    loader.__dict__.update(shown)
    loader.__dict__["sampler"] = loader.sampler  # for those who look at vars(loader)
    context = arguments.multiprocessing_context
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
        if not arguments.in_order and workers > 1:
            warnings.warn(
                "With in_order=False a state in the middle of an epoch does not say which samples came: a "
                "resumed run may lose and repeat some. Save states between epochs, or pass in_order=True.",
                stacklevel=3,
            )


def _num_workers(arranged: LoaderPlan) -> int:
    given = arranged.arguments.num_workers
    if given is not None:
        return int(given)
    return AutoWorkers(arranged.threads.threads) if arranged.packed else 0


def _collate(arranged: LoaderPlan, loader: Any) -> Any:
    own = arranged.arguments.collate_fn
    if own is None and arranged.unbatched and not arranged.packed:
        return torch.utils.data.default_convert
    if arranged.packed:
        return CollateGuard(own, loader)
    return torch.utils.data.default_collate if own is None else own


# ---- Answers to frameworks; imports ``fastload.integrations`` only then -----------------------------


def accelerate_asks(loader: Any) -> bool:
    """Return ``loader._is_accelerate_prepared``; see :mod:`fastload.integrations.accelerate`."""
    return bool(import_module("fastload.integrations.accelerate").is_prepared(loader))


def look_for_accelerate(loader: Any) -> None:
    """Warn if Accelerate runs several ranks and has not been given ``loader``."""
    if "accelerate.state" in sys.modules:
        import_module("fastload.integrations.accelerate").warn_unprepared(loader)


def let_skip() -> None:
    """Prepare for Accelerate's ``skip_first_batches``, which may be what asks for the batch sampler."""
    if "accelerate.data_loader" in sys.modules:
        import_module("fastload.integrations.accelerate").let_skip()


def lightning_made(loader: Any) -> None:
    """Name the constructor's arguments if Lightning has noted them, to call it again."""
    if "__pl_saved_args" in loader.__dict__:
        import_module("fastload.integrations.lightning").name_arguments(loader)


def epoch_meant(epochs: weakref.ref[Epochs], epoch: int) -> int:
    """Return the epoch that somebody means by ``set_epoch(epoch)``."""
    alive = epochs()
    if alive is None or alive.resumed is None or "lightning.fabric.wrappers" not in sys.modules:
        return epoch
    lightning = import_module("fastload.integrations.lightning")
    return int(lightning.epoch_of_fabric(epoch, alive.resumed))
