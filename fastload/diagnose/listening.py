"""Listening to ``next()``: torch's iterators and ours, of all loaders of the process, while somebody
listens."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data.dataloader import DataLoader as TorchDataLoader

from fastload.loader.data_loader import DataLoader
from fastload.loader.epochs import EpochIterator


class Pass:
    """One pass over a loader, from its iterator's beginning to its end.

    It holds the loader, which in ``for batch in DataLoader(...)`` nobody else does; but not one with
    persistent workers, which holds its iterator: neither would ever go.
    """

    def __init__(self, loader: Any) -> None:
        self._weak = weakref.ref(loader)
        self._held = None if getattr(loader, "persistent_workers", False) else loader

    @property
    def loader(self) -> Any:
        """Whose; None where it is gone."""
        return self._weak()


class Listener(Protocol):
    """Told of each ``next()``; gives what the loop shall get."""

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """Called in place of ``next(iterator)``, which ``proceed()`` does."""


class _State:
    """Who listens, which classes were changed, and which pass each iterator makes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: tuple[Listener, ...] = ()
        self.pid = 0
        self.changed: list[tuple[type, str, Any, Any]] = []
        self.passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self.inside = threading.local()  # .now: a next() is under way in this thread


_STATE = _State()


def listen(listener: Listener) -> None:
    """From now on ``listener`` is told of each outermost ``next()`` of a loader's iterator."""
    with _STATE.lock:
        if not _STATE.listeners:
            _STATE.pid = os.getpid()
            _change(torch_dataloader._BaseDataLoaderIter, "__init__", _noting_init)
            for kind in _torch_iterators():
                _change_own(kind)
            _change(EpochIterator, "__next__", _heard)
        _STATE.listeners = (*_STATE.listeners, listener)


def stop_listening(listener: Listener) -> None:
    """The opposite; with the last listener the classes are as they were."""
    with _STATE.lock:
        _STATE.listeners = tuple(one for one in _STATE.listeners if one is not listener)
        if _STATE.listeners:
            return
        for kind, name, former, ours in reversed(_STATE.changed):
            if kind.__dict__.get(name) is ours:  # else somebody has put theirs around it, which works on
                setattr(kind, name, former)
        _STATE.changed.clear()
        _STATE.passes.clear()


def _torch_iterators() -> list[type]:
    """torch's class of iterators and all of its subclasses, also other packages'."""
    found: list[type] = [torch_dataloader._BaseDataLoaderIter]
    for kind in found:
        subclasses: list[type] = kind.__subclasses__()
        found += [sub for sub in subclasses if sub not in found]
    return found


def _change_own(kind: type) -> None:
    """Change what of it ``kind`` defines itself."""
    if "__next__" in kind.__dict__:
        _change(kind, "__next__", _heard)
    if "_reset" in kind.__dict__:
        _change(kind, "_reset", _noting_reset)


def _change(kind: type, name: str, make: Callable[[Any], Any]) -> None:
    former = kind.__dict__[name]
    if any(one is kind and called == name for one, called, _, _ in _STATE.changed):
        return
    ours = functools.wraps(former)(make(former))
    setattr(kind, name, ours)
    _STATE.changed.append((kind, name, former, ours))


def _listens() -> bool:
    return bool(_STATE.listeners) and _STATE.pid == os.getpid()


def _noting_init(former: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        if _listens():
            with _STATE.lock:
                for kind in type(self).__mro__:  # of a package that was imported after we began
                    if issubclass(kind, torch_dataloader._BaseDataLoaderIter):
                        _change_own(kind)
            _STATE.passes[self] = Pass(loader)
        former(self, loader, *arguments, **named)

    return __init__


def _noting_reset(former: Callable[..., None]) -> Callable[..., None]:
    """A pass of persistent workers: the iterator is the one before, the pass is not."""

    def _reset(self: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        if _listens():
            _STATE.passes[self] = Pass(loader)
        former(self, loader, *arguments, **named)

    return _reset


def _pass_of(iterator: Any) -> Pass | None:
    found = _STATE.passes.get(iterator)
    if found is None and isinstance(iterator, EpochIterator):
        loader = getattr(iterator._length, "__self__", None)  # the loader's __len__, which is given to it
        if isinstance(loader, DataLoader):
            found = _STATE.passes[iterator] = Pass(loader)
    return found


def _heard(former: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __next__(self: Any) -> Any:
        if not _listens() or getattr(_STATE.inside, "now", False):
            return former(self)
        of = _pass_of(self)
        if of is None:
            return former(self)
        proceed: Callable[[], Any] = functools.partial(former, self)
        for listener in _STATE.listeners:
            proceed = functools.partial(listener.next, self, of, proceed)
        _STATE.inside.now = True
        try:
            return proceed()
        finally:
            _STATE.inside.now = False

    return __next__


def is_torch_s(loader: Any) -> bool:
    """A loader of torch's own (or of a subclass of somebody's), not one of ours."""
    return isinstance(loader, TorchDataLoader) and not isinstance(loader, DataLoader)
