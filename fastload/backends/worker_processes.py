"""Worker processes of torch's iterators: which have died, and whose they are after a fork."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from torch._C import _remove_worker_pids
from torch._utils import ExceptionWrapper

from fastload.errors import NotDelivered

__all__ = [
    "FORKED",
    "Beginning",
    "Parent",
    "disown",
    "disown_after_fork",
    "has_dead_worker",
    "raise_if_not_delivered",
]

FORKED = (
    "This loader was created before fork() and its threads live in the parent process. "
    "Create the DataLoader in the child."
)
_TORCHS_WORDS = ("DataLoader timed out", "DataLoader worker (pid")
_DYING_SECONDS = 0.5  # from a killed process's closed sockets to its exit status


class Parent:
    """The parent of a worker process, as that sees it. Made in the parent.

    Args:
        by_server: processes are forked by multiprocessing's fork server, whose children they are.
    """

    def __init__(self, by_server: bool) -> None:
        self._by_server = by_server

    @classmethod
    def by(cls, context: Any) -> Parent:
        """For workers that are started by ``context``: a name, one of multiprocessing's, or None."""
        if not isinstance(context, str):
            context = (context or multiprocessing).get_start_method(allow_none=True)
        return cls((context or multiprocessing.get_all_start_methods()[0]) == "forkserver")

    def is_gone(self) -> bool:
        """Whether it has ended. torch's workers compare their parent with the one that they began with, which
        may not be theirs any more."""
        parent = multiprocessing.parent_process()
        if parent is None:
            return False
        return not parent.is_alive() or (not self._by_server and os.getppid() != parent.pid)


class Beginning:
    """What a worker process does first: ``given``, if it has a parent that could want anything.

    Args:
        parent: of the worker.
        given: torch's ``worker_init_fn``.
    """

    def __init__(self, parent: Parent, given: Callable[[int], Any] | None) -> None:
        self._parent, self._given = parent, given

    def __call__(self, worker: int) -> None:
        if self._parent.is_gone():
            os._exit(1)
        if self._given is not None:
            self._given(worker)


_iterators: weakref.WeakSet[Any] = weakref.WeakSet()


def disown_after_fork(iterator: Any) -> None:
    """In forked children ``iterator`` is not the one whose worker processes end with it."""
    _iterators.add(iterator)


def disown(iterator: Any) -> None:
    """In a forked child: the workers are the parent's, and go on. torch would end them with the iterator."""
    state = vars(iterator)
    state["_shutdown"] = True
    if state.get("_worker_pids_set"):
        # Torch keeps them by the iterator's address, which an iterator of the child's may get.
        _remove_worker_pids(id(iterator))
        state["_worker_pids_set"] = False


def _disown_all() -> None:
    for iterator in list(_iterators):
        disown(iterator)


os.register_at_fork(after_in_child=_disown_all)


def raise_if_not_delivered(iterator: Any, error: Exception) -> None:
    """Raise NotDelivered from ``error`` where that means that a batch did not come from torch's workers."""
    lost = _not_delivered(iterator, error)
    try:
        if lost is not None:
            raise lost from error
    finally:
        del lost  # or the error would hold this frame, and this frame the error and the iterator


def _not_delivered(iterator: Any, error: Exception) -> NotDelivered | None:
    """The error of a batch that did not come from torch's workers; None: the batch itself is an error."""
    if isinstance(error, RuntimeError) and str(error).startswith(_TORCHS_WORDS):
        return NotDelivered(str(error))
    if not isinstance(error, (OSError, EOFError, RuntimeError)) or _is_reraised(error):
        return None
    try:
        killed = _killed_worker(iterator)
    except RuntimeError as other:  # of torch's handler of SIGCHLD, which comes when it likes
        return NotDelivered(str(other)) if str(other).startswith(_TORCHS_WORDS) else None
    if killed is None:
        return None
    pid, status = killed
    return NotDelivered(
        f"DataLoader worker (pid {pid}) ended with exit status {status} while it handed over a batch."
    )


def has_dead_worker(iterator: Any) -> bool:
    """Whether a worker process of torch's iterator has ended: also persistent ones are of no use then."""
    return any(worker.exitcode is not None for worker in getattr(iterator, "_workers", []))


def _is_reraised(error: Exception) -> bool:
    """Whether torch's worker caught the error, and torch raises it again here."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is ExceptionWrapper.reraise.__code__ for frame, _ in frames)


def _killed_worker(iterator: Any) -> tuple[int, int] | None:
    """Process id and exit status (-9: SIGKILL) of a dead worker of torch's iterator, after an error.

    torch names a dead worker where it waits for a batch, but not where it fetches the batch's memory from it.
    """
    workers = getattr(iterator, "_workers", [])
    until = time.monotonic() + _DYING_SECONDS
    while workers and time.monotonic() < until:
        for worker in workers:
            if worker.exitcode:
                return worker.pid, worker.exitcode
        time.sleep(0.01)
    return None
