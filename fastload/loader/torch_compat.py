"""torch's DataLoader as frameworks see it on ours: its attributes, and loaders that they rebuild from
them."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _DatasetKind

from fastload.errors import StateError
from fastload.loader.assembly import LoaderPlan
from fastload.loader.epochs import Epochs
from fastload.loader.rank_sampler import RankBatches, RankSampler
from fastload.shard.tickets import Delivered

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader


# ---- What keeps a loader right that a framework rebuilds from the attributes of ours ----------------
# ``torch.utils.data.DataLoader(loader.dataset, batch_sampler=..., collate_fn=loader.collate_fn)`` asks the
# dataset for lists of our sample ids, which leads to :class:`LoaderSource`, and hands what comes to the
# collate function, which is :class:`CollateGuard`: what the engine did not make is an error, because the
# transform would be missing from it.


class CollateGuard:
    """``loader.collate_fn`` of a packed dataset: hands on the engine's batches, and refuses anything else.

    It looks like the user's function, if there is one: attributes are read and written there, and its class
    is that function's, because training loops switch things on it (timm's ``mixup_enabled``).
    """

    def __init__(self, function: Callable[[list[Any]], Any] | None, owner: Any = None) -> None:
        object.__setattr__(self, "__wrapped__", function)
        object.__setattr__(self, "__owner__", None if owner is None else weakref.ref(owner))

    def __call__(self, samples: Any) -> Any:
        if isinstance(samples, Delivered):
            return samples.batch
        raise StateError(
            "A loader that was rebuilt from the attributes of a fastload.DataLoader got samples that did "
            "not come through it: its transform is missing from them. Use the fastload.DataLoader itself, or "
            "rebuild with loader.batch_sampler."
        )

    def __getattribute__(self, name: str) -> Any:
        function = object.__getattribute__(self, "__wrapped__")
        if name == "__class__":
            return type(function) if function is not None else CollateGuard
        if name in ("__wrapped__", "__call__", "__reduce__", "__reduce_ex__") or function is None:
            return object.__getattribute__(self, name)
        return getattr(function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "__wrapped__"), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return CollateGuard, (object.__getattribute__(self, "__wrapped__"),)


def owner_of(collate_fn: Any) -> Any:
    """The loader whose guard this is; None: it is no guard, or the loader is gone."""
    known = object.__getattribute__(collate_fn, "__owner__") if type(collate_fn) is CollateGuard else None
    return None if known is None else known()


def own_collate(given: Any) -> Any:
    """The user's collate function, or None, if ``given`` is another loader's guard; else ``given``."""
    return object.__getattribute__(given, "__wrapped__") if type(given) is CollateGuard else given


def wraps_ours(batch_sampler: Any, collate_fn: Any) -> bool:
    """Whether these are somebody's batch sampler around a packed set's loader, and that loader's guard.

    ignite's DeterministicEngine calls ``type(loader)(batch_sampler=..., **attributes)`` with them and goes on
    to talk to its batch sampler. It gets torch's loader: the ids lead to the first loader, and its engine.
    """
    return (
        type(collate_fn) is CollateGuard
        and isinstance(getattr(batch_sampler, "sampler", None), RankSampler)
        and type(batch_sampler) is not RankBatches
    )


class LoaderSource:
    """A loader as its sample ids know it. Pickled it is its arguments: a torch worker opens it again.

    Args:
        number: tells loaders apart, in all processes.
        fetch: the loader's; gives the batch of a key.
        arguments: with which the same batches are made in another process.
        open_again: makes a loader of them, and gives its ``fetch``.
    """

    def __init__(
        self,
        number: str,
        fetch: Callable[[Any], Any],
        arguments: Callable[[], Mapping[str, Any]],
        open_again: Callable[[Mapping[str, Any]], Callable[[Any], Any]],
    ) -> None:
        self._number = number
        self._fetch = fetch
        self._arguments = arguments
        self._open_again = open_again

    def fetch(self, key: Any) -> Any:
        """The batch ``key``."""
        return self._fetch(key)

    def __reduce__(self) -> Any:
        return _opened_again, (self._number, dict(self._arguments()), self._open_again)


_opened: dict[str, LoaderSource] = {}


def _opened_again(number: str, arguments: dict[str, Any], open_again: Any) -> LoaderSource:
    """One loader a process for each that sent its ids here."""
    if number not in _opened:
        _opened.clear()
        fetch = open_again(arguments)
        _opened[number] = LoaderSource(number, fetch, lambda: arguments, open_again)
    return _opened[number]


def source_of(owner: weakref.ref[DataLoader[Any]]) -> LoaderSource | None:
    """What a loader's sample ids lead to."""
    loader = owner()
    if loader is None:
        return None
    return LoaderSource(loader._number, loader._fetch, loader._loader_plan.arguments_here, _open_again)


def _open_again(arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The same loader in a worker process of torch's; its ``fetch``."""
    from fastload.loader.data_loader import DataLoader

    return DataLoader(**arguments)._fetch


# ---- The attributes that torch's DataLoader has, on ours --------------------------------------------
# What frameworks read, and rebuild loaders from.


class AutoWorkers(int):
    """A number of threads that nobody gave: a loader made from this one's attributes looks for it anew."""


def set_attributes(loader: Any, arranged: LoaderPlan) -> None:
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


def _num_workers(arranged: LoaderPlan) -> int:
    given = arranged.given["num_workers"]
    if given is not None:
        return int(given)
    return AutoWorkers(arranged.threads.threads) if arranged.packed else 0


def _collate(arranged: LoaderPlan, loader: Any) -> Any:
    own = arranged.given["collate_fn"]
    if own is None and arranged.unbatched and not arranged.packed:
        return torch.utils.data.default_convert
    if arranged.packed:
        return CollateGuard(own, loader)
    return torch.utils.data.default_collate if own is None else own


# ---- What the loader answers a framework that asks --------------------------------------------------
# ``fastload.integrations`` is imported then, not before.


def _integration(name: str) -> Any:
    return import_module(f"fastload.integrations.{name}")


def accelerate_asks(loader: Any) -> bool:
    """The value of ``loader._is_accelerate_prepared``; see :mod:`fastload.integrations.accelerate`."""
    return bool(_integration("accelerate").is_prepared(loader))


def look_for_accelerate(loader: Any) -> None:
    """Warn where Accelerate runs several ranks and has not been given ``loader``."""
    if "accelerate.state" in sys.modules:
        _integration("accelerate").warn_unprepared(loader)


def let_skip() -> None:
    """Before somebody takes ``loader.batch_sampler``: it may be Accelerate's ``skip_first_batches``."""
    if "accelerate.data_loader" in sys.modules:
        _integration("skipping").let_skip()


def lightning_made(loader: Any) -> None:
    """At the end of the constructor: Lightning may have noted its arguments, to call it again."""
    if "__pl_saved_args" in loader.__dict__:
        _integration("lightning").name_arguments(loader)


def epoch_meant(epochs: weakref.ref[Epochs], epoch: int) -> int:
    """The epoch that somebody means by ``set_epoch(epoch)``."""
    found = epochs()
    if found is None or found.resumed is None or "lightning.fabric.wrappers" not in sys.modules:
        return epoch
    return int(_integration("lightning").epoch_of_fabric(epoch, found.resumed))
