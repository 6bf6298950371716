"""Worker processes of torch's iterators: dead ones, their owner after a fork, and the memory they share."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch._C import _remove_worker_pids
from torch._utils import ExceptionWrapper

from fastload.errors import NotDelivered
from fastload.machine.sizes import human_bytes

# ---- Dead workers, and workers after a fork ---------------------------------------------------------

FORKED = (
    "This loader was created before fork() and its threads live in the parent process. "
    "Create the DataLoader in the child."
)
_TORCHS_WORDS = ("DataLoader timed out", "DataLoader worker (pid")
_DYING_SECONDS = 0.5  # from a killed process's closed sockets to its exit status


class Parent:
    """The parent of a worker process, as the worker sees it. Made in the parent.

    Args:
        by_server: whether multiprocessing's fork server forks the processes, which are then its children.
    """

    def __init__(self, by_server: bool) -> None:
        self._by_server = by_server

    @classmethod
    def by(cls, context: Any) -> Parent:
        """Make it for workers started by ``context``: a name, one of multiprocessing's contexts, or None."""
        if not isinstance(context, str):
            context = (context or multiprocessing).get_start_method(allow_none=True)
        return cls((context or multiprocessing.get_all_start_methods()[0]) == "forkserver")

    def is_gone(self) -> bool:
        """Whether the parent has ended. torch's workers compare it with their parent at the start, which may
        have been another process already."""
        parent = multiprocessing.parent_process()
        if parent is None:
            return False
        return not parent.is_alive() or (not self._by_server and os.getppid() != parent.pid)


class WorkerInit:
    """The first function of a worker process: calls ``given``, unless the parent has ended.

    Args:
        parent: the worker's.
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
    """Let forked children disown ``iterator``, so that its workers do not end with their copy."""
    _iterators.add(iterator)


def disown(iterator: Any) -> None:
    """Leave the workers to the parent, in a forked child: torch would end them with the iterator."""
    state = vars(iterator)
    state["_shutdown"] = True
    if state.get("_worker_pids_set"):
        # torch stores them by the iterator's address, which one of the child's iterators may get.
        _remove_worker_pids(id(iterator))
        state["_worker_pids_set"] = False


def _disown_all() -> None:
    for iterator in list(_iterators):
        disown(iterator)


os.register_at_fork(after_in_child=_disown_all)


def raise_if_not_delivered(iterator: Any, error: Exception) -> None:
    """Raise NotDelivered from ``error`` if that means that a batch did not come from torch's workers."""
    lost = _not_delivered(iterator, error)
    try:
        if lost is not None:
            raise lost from error
    finally:
        del lost  # or the error would hold this frame, and this frame the error and the iterator


def _not_delivered(iterator: Any, error: Exception) -> NotDelivered | None:
    """Return the error if a batch did not come from torch's workers; None: the batch itself failed."""
    if isinstance(error, RuntimeError) and str(error).startswith(_TORCHS_WORDS):
        return NotDelivered(str(error))
    try:
        if not isinstance(error, (OSError, EOFError, RuntimeError)) or _is_reraised(error):
            return None
        killed = _killed_worker(iterator)
    except RuntimeError as other:  # from torch's handler of SIGCHLD, which may run at any time
        return NotDelivered(str(other)) if str(other).startswith(_TORCHS_WORDS) else None
    if killed is None:
        return None
    pid, status = killed
    return NotDelivered(
        f"DataLoader worker (pid {pid}) ended with exit status {status} while it handed over a batch."
    )


def has_dead_worker(iterator: Any) -> bool:
    """Whether a worker process of torch's iterator has ended: then even persistent ones are useless."""
    return any(worker.exitcode is not None for worker in getattr(iterator, "_workers", []))


def _is_reraised(error: Exception) -> bool:
    """Whether torch's worker caught the error, and torch raises it again here."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is ExceptionWrapper.reraise.__code__ for frame, _ in frames)


def _killed_worker(iterator: Any) -> tuple[int, int] | None:
    """Return process id and exit status (-9: SIGKILL) of a dead worker of torch's iterator, after an error.

    torch names a dead worker when it waits for a batch, but not when it fetches the batch's memory from it.
    """
    workers = getattr(iterator, "_workers", [])
    until = time.monotonic() + _DYING_SECONDS
    while workers and time.monotonic() < until:
        for worker in workers:
            if worker.exitcode:
                return worker.pid, worker.exitcode
        time.sleep(0.01)
    return None


# ---- Shared memory, by which workers hand over batches ----------------------------------------------
# torch's workers put tensors there, and multiprocessing its semaphores. Both fail without a file's name, and
# if a worker's queue cannot put a tensor there, its batch never comes and the consumer waits for ever. So a
# worker puts tensors there itself, and can report an error.

PLACE = "/dev/shm"
_LACKS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSYS}
_SHARED_MEMORY_WORDS = re.compile(
    r"(shared memory|unable to (open|write|resize|mmap|stat)).*</?torch_.*\((\d+)\)", re.S
)


def no_room_error(number: int) -> OSError:
    """Return the error for a failure to put something there, by the system's error number."""
    size = ""
    if number in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            status = os.statvfs(PLACE)
            total, free = (status.f_frsize * blocks for blocks in (status.f_blocks, status.f_bavail))
            size = f", which has {human_bytes(total)}, {human_bytes(free)} of it free"
        cure = (
            "Give it more (docker run --shm-size=8g; Kubernetes: an emptyDir with medium: Memory, mounted "
            f"there; else mount -o remount,size=8G {PLACE}), or take fewer workers or smaller batches"
        )
    else:
        cure = f"Mount a tmpfs there that this user may write to (mount -t tmpfs -o size=8G tmpfs {PLACE})"
    text = (
        f"worker processes hand over batches in the file system {PLACE}{size}: {os.strerror(number)}. "
        f"{cure}. With num_workers=0 nothing is put there"
    )
    return OSError(number, text, PLACE)


@contextmanager
def named_shortage() -> Iterator[None]:
    """Replace errors of making semaphores and starting workers that name no file.

    Raises:
        OSError: from :func:`no_room_error`.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _LACKS:
            raise no_room_error(error.errno) from error
        raise


def shared_memory_error(error: BaseException) -> OSError | None:
    """Return the clear error for one of torch's about that file system; None: it is about something else."""
    match = _SHARED_MEMORY_WORDS.search(str(error)) if isinstance(error, RuntimeError) else None
    return None if match is None else no_room_error(int(match[3]))


def share(batch: Any) -> None:
    """Put the tensors of a batch into shared memory, as torch would when it sends them.

    Raises:
        RuntimeError: torch's; see :func:`shared_memory_error`.
    """
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.layout is torch.strided and not batch.is_nested:
            batch.share_memory_()  # type: ignore[no-untyped-call]
    elif isinstance(batch, Mapping):
        for value in batch.values():
            share(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            share(value)
    elif is_dataclass(batch) and not isinstance(batch, type):
        for field in fields(batch):
            share(getattr(batch, field.name, None))


class Sharing:
    """A collate function for torch's workers that puts its result into shared memory."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        share(batch)
        return batch
