"""Hooks on ``next()`` of torch's and our loaders' iterators, in place while there is a listener."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from torch.utils.data import dataloader as torch_dataloader

from fastload.dataset.views import TorchDataLoader
from fastload.loader.epochs import EpochIterator
from fastload.loader.view import view_of


class Pass:
    """One pass over a loader.

    It holds the loader, because in ``for batch in DataLoader(...)`` nothing else does. A loader with
    persistent workers is not held: it holds its iterator, and neither would ever be freed.
    """

    def __init__(self, loader: Any) -> None:
        self._weak = weakref.ref(loader)
        self._held = None if getattr(loader, "persistent_workers", False) else loader

    @property
    def loader(self) -> Any:
        """The loader; None if it no longer exists."""
        return self._weak()


class Listener(Protocol):
    """An object that is called for each ``next()`` of a loop, and returns what the loop gets."""

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """Replace ``next(iterator)``; ``proceed()`` calls the original."""


class _State:
    """The listeners, the changed classes, and the pass of each iterator."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: tuple[Listener, ...] = ()
        self.pid = 0
        self.changed: list[tuple[type, str, Any, Any]] = []
        self.passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self.inside = threading.local()  # .now: this thread is inside a next()


_STATE = _State()


def listen(listener: Listener) -> None:
    """Call ``listener`` for each outermost ``next()`` of a loader's iterator from now on."""
    with _STATE.lock:
        if not _STATE.listeners:
            _STATE.pid = os.getpid()
            _change(torch_dataloader._BaseDataLoaderIter, "__init__", _noting_init)
            for kind in _torch_iterators():
                _change_own(kind)
            _change(EpochIterator, "__next__", _heard)
        _STATE.listeners = (*_STATE.listeners, listener)


def stop_listening(listener: Listener) -> None:
    """Undo :func:`listen`; after the last listener the classes are as they were."""
    with _STATE.lock:
        _STATE.listeners = tuple(each for each in _STATE.listeners if each is not listener)
        if _STATE.listeners:
            return
        for kind, name, former, ours in reversed(_STATE.changed):
            if kind.__dict__.get(name) is ours:  # else another wrapper is around it, which still works
                setattr(kind, name, former)
        _STATE.changed.clear()
        _STATE.passes.clear()


def _torch_iterators() -> list[type]:
    """Return torch's iterator class and all its subclasses, including those of other packages."""
    kinds: list[type] = [torch_dataloader._BaseDataLoaderIter]
    for kind in kinds:
        subclasses: list[type] = kind.__subclasses__()
        kinds += [sub for sub in subclasses if sub not in kinds]
    return kinds


def _change_own(kind: type) -> None:
    """Change the methods that ``kind`` itself defines."""
    if "__next__" in kind.__dict__:
        _change(kind, "__next__", _heard)
    if "_reset" in kind.__dict__:
        _change(kind, "_reset", _noting_reset)


def _change(kind: type, name: str, make: Callable[[Any], Any]) -> None:
    former = kind.__dict__[name]
    if any(changed is kind and called == name for changed, called, _, _ in _STATE.changed):
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
                for kind in type(self).__mro__:  # a package may have been imported after listen()
                    if issubclass(kind, torch_dataloader._BaseDataLoaderIter):
                        _change_own(kind)
            _STATE.passes[self] = Pass(loader)
        former(self, loader, *arguments, **named)

    return __init__


def _noting_reset(former: Callable[..., None]) -> Callable[..., None]:
    """Note a new pass of persistent workers, which keep their iterator."""

    def _reset(self: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        if _listens():
            _STATE.passes[self] = Pass(loader)
        former(self, loader, *arguments, **named)

    return _reset


def _pass_of(iterator: Any) -> Pass | None:
    known = _STATE.passes.get(iterator)
    if known is None and isinstance(iterator, EpochIterator):
        known = _STATE.passes[iterator] = Pass(iterator.loader)
    return known


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
    """Whether a loader is torch's (or a subclass of it), and not ours."""
    return isinstance(loader, TorchDataLoader) and view_of(loader) is None


def ready_batches(iterator: Any) -> int | None:
    """Return how many batches are ready; None: not known."""
    if hasattr(iterator, "_worker_result_queue"):
        with suppress(NotImplementedError, OSError, ValueError):  # ended workers close their queue
            waiting = int(iterator._worker_result_queue.qsize())
            queue = iterator._data_queue
            waiting += int(queue.qsize()) if queue is not iterator._worker_result_queue else 0
            return waiting + sum(len(task) == 2 for task in iterator._task_info.values())
    view = view_of(getattr(iterator, "loader", None))
    feeder = getattr(view.backends[0], "feeder", None) if view is not None and view.backends else None
    return None if feeder is None else int(feeder.complete)
