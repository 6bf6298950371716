"""Loaders that frameworks rebuild from the attributes of ours.

``torch.utils.data.DataLoader(loader.dataset, batch_sampler=..., collate_fn=loader.collate_fn)`` asks the
dataset for lists of our sample ids, which leads to :class:`LoaderSource`, and passes the result to the
collate function, :class:`CollateGuard`. That raises unless the engine made the batch, because the
transform would be missing from it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fastload.errors import StateError
from fastload.loader.arguments import Arguments
from fastload.loader.rank_sampler import RankBatches, RankSampler
from fastload.shard.tickets import Delivered


class CollateGuard:
    """``loader.collate_fn`` of a packed dataset, which passes on the engine's batches and refuses all else.

    It looks like the user's function, if there is one: attributes are read and written there, and its class
    is that function's, because training loops set flags on it (timm's ``mixup_enabled``).
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
    """Return the loader whose guard this is; None: it is no guard, or the loader is gone."""
    known = object.__getattribute__(collate_fn, "__owner__") if type(collate_fn) is CollateGuard else None
    return None if known is None else known()


def own_collate(given: Any) -> Any:
    """Return the user's function (or None) within another loader's guard; else ``given`` itself."""
    return object.__getattribute__(given, "__wrapped__") if type(given) is CollateGuard else given


def wraps_ours(batch_sampler: Any, collate_fn: Any) -> bool:
    """Whether these are somebody's batch sampler around a packed set's loader, and that loader's guard.

    ignite's DeterministicEngine calls ``type(loader)(batch_sampler=..., **attributes)`` with them and keeps
    using its batch sampler. It gets torch's loader, whose ids lead to the first loader and its engine.
    """
    return (
        type(collate_fn) is CollateGuard
        and isinstance(getattr(batch_sampler, "sampler", None), RankSampler)
        and type(batch_sampler) is not RankBatches
    )


class LoaderSource:
    """A loader as its sample ids know it. It is pickled as its arguments: a torch worker opens it again.

    Args:
        number: tells loaders apart, in all processes.
        fetch: the loader's; returns the batch of a key.
        arguments: returns the arguments that make the same batches in another process.
        kind: the class that makes a loader from them.
    """

    def __init__(
        self, number: str, fetch: Callable[[Any], Any], arguments: Callable[[], Arguments], kind: Any
    ) -> None:
        self._number = number
        self._fetch = fetch
        self._arguments = arguments
        self._kind = kind

    def fetch(self, key: Any) -> Any:
        """Return the batch ``key``."""
        return self._fetch(key)

    def __reduce__(self) -> Any:
        return _opened_again, (self._number, self._arguments(), self._kind)


_opened: dict[str, LoaderSource] = {}


def _opened_again(number: str, arguments: Arguments, kind: Any) -> LoaderSource:
    """Open the loader that sent its ids to this process, unless it is open; closes the one before."""
    if number not in _opened:
        _opened.clear()
        fetch = kind(**arguments.as_keywords())._fetch
        _opened[number] = LoaderSource(number, fetch, lambda: arguments, kind)
    return _opened[number]


def source_of(owner: weakref.ref[Any], kind: Any) -> LoaderSource | None:
    """Return what a loader's sample ids lead to; None once it is gone. ``kind``: makes it again."""
    loader = owner()
    if loader is None:
        return None
    return LoaderSource(loader._number, loader._fetch, loader._loader_plan.arguments_here, kind)
