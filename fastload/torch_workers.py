"""The back end for any torch Dataset: its Python code runs in torch's own workers, the rest is ours.

Order, ranks, epochs and state are the same as for a packed dataset, so that changing the import is safe.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from torch._utils import ExceptionWrapper

# By its module: a program may put our DataLoader into torch.utils.data.
from torch.utils.data.dataloader import DataLoader as TorchDataLoader

from fastload.errors import NotDelivered
from fastload.prefetch import BatchKey
from fastload.sampler import Sampler

__all__ = ["StreamBackend", "TorchBackend", "torch_arguments"]

_TORCHS_WORDS = ("DataLoader timed out", "DataLoader worker (pid")
_DYING_SECONDS = 0.5  # from a killed process's closed sockets to its exit status


def torch_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of our DataLoader that torch's own takes over for a torch Dataset."""
    names = ("collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator")
    passed = {name: arguments[name] for name in names}
    passed["num_workers"] = arguments["num_workers"] or 0
    if passed["num_workers"]:
        passed["prefetch_factor"] = arguments["prefetch_factor"]
        passed["persistent_workers"] = arguments["persistent_workers"]
    if not arguments["in_order"]:
        passed["in_order"] = False
    return passed


class _Steps:
    """A batch sampler for torch: the ids of the steps of one epoch, from ``start`` on."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.first = BatchKey(0, 0, 0)

    def __iter__(self) -> Iterator[list[int]]:
        epoch, start, step = self.first
        while step < self._sampler.num_batches(epoch, start):
            yield self._sampler.batch(epoch, start, step).ids.tolist()
            step += 1

    def __len__(self) -> int:
        return self._sampler.num_batches(self.first.epoch, self.first.start)


class _Epochs:
    """Steps through a torch DataLoader's iterator; a new one when the wanted batch is not its next."""

    def __init__(self) -> None:
        self._iterator: Iterator[Any] | None = None
        self._next: BatchKey | None = None

    def take(self, key: BatchKey, begin: Any) -> Any:
        if self._iterator is None or self._next != key:
            self.cancel()
            self._iterator = begin(key)
        try:
            batch = next(self._iterator)
        except StopIteration:
            self.cancel()
            raise
        except Exception as error:
            lost = _not_delivered(self._iterator, error)
            if lost is not None:
                raise lost from error
            self._next = key._replace(step=key.step + 1)  # of the batch: torch goes on behind it
            raise
        self._next = key._replace(step=key.step + 1)
        return batch

    def cancel(self) -> None:
        self._iterator = None  # torch ends its workers when the iterator is gone


def _not_delivered(iterator: Any, error: Exception) -> NotDelivered | None:
    """The error of a batch that did not come from torch's workers; None: the batch itself is an error."""
    if isinstance(error, RuntimeError) and str(error).startswith(_TORCHS_WORDS):
        return NotDelivered(str(error))
    if not isinstance(error, (OSError, EOFError, RuntimeError)) or _is_reraised(error):
        return None
    killed = _killed_worker(iterator)
    if killed is None:
        return None
    pid, status = killed
    return NotDelivered(
        f"DataLoader worker (pid {pid}) ended with exit status {status} while it handed over a batch."
    )


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


class TorchBackend:
    """Batches of a map-style torch Dataset."""

    errors: tuple[Any, ...] = ()

    def __init__(self, dataset: Any, sampler: Sampler, arguments: dict[str, Any]) -> None:
        self._steps = _Steps(sampler)
        self._loader = TorchDataLoader(dataset, batch_sampler=self._steps, **arguments)
        self._epochs = _Epochs()

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``, as torch's collate function makes it."""
        return self._epochs.take(key, self._begin)

    def _begin(self, key: BatchKey) -> Iterator[Any]:
        self._steps.first = key
        return iter(self._loader)

    def cancel(self) -> None:
        """End the epoch's iterator and, unless they persist, its workers."""
        self._epochs.cancel()

    close = cancel

    def thread_stats(self) -> list[dict[str, Any]]:
        """Nothing is known about torch's workers."""
        return []

    def read_ahead_stats(self) -> dict[str, int]:
        """What was read ahead of decoding; empty where no engine decodes."""
        return {}

    def cache_stats(self) -> dict[str, Any]:
        """What the node cache did; empty where there is none for the dataset."""
        return {}


class StreamBackend:
    """Batches of an IterableDataset: torch's order, and resuming skips what was consumed."""

    errors: tuple[Any, ...] = ()

    def __init__(self, dataset: Any, arguments: dict[str, Any]) -> None:
        self.dataset = dataset
        self._loader = TorchDataLoader(dataset, **arguments)
        self._epochs = _Epochs()

    def __len__(self) -> int:
        return len(self._loader)

    def batch(self, key: BatchKey) -> Any:
        """The next batch; raises StopIteration at the stream's end."""
        return self._epochs.take(key, self._begin)

    def _begin(self, key: BatchKey) -> Iterator[Any]:
        setter = getattr(self.dataset, "set_epoch", None)
        if setter is not None:
            setter(key.epoch)
        iterator = iter(self._loader)
        for _ in range(key.start + key.step):
            next(iterator)
        return iterator

    def cancel(self) -> None:
        """End the epoch's iterator and its workers."""
        self._epochs.cancel()

    close = cancel

    def thread_stats(self) -> list[dict[str, Any]]:
        """Nothing is known about torch's workers."""
        return []

    def read_ahead_stats(self) -> dict[str, int]:
        """What was read ahead of decoding; empty where no engine decodes."""
        return {}

    def cache_stats(self) -> dict[str, Any]:
        """What the node cache did; empty where there is none for the dataset."""
        return {}
