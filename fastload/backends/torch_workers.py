"""The back end for any torch Dataset: its Python code runs in torch's own workers, the rest is fastload's.

Order, ranks, epochs and state are the same as for a packed dataset, so that changing the import is safe.
A dataset's own state (``state_dict``, ``load_state_dict``) is in the worker processes; torchdata's
StatefulDataLoader, if it is installed, brings it here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from torch.utils.data._utils.collate import default_convert
from torch.utils.data.datapipes.datapipe import IterDataPipe

from fastload.backends.options import Options
from fastload.backends.state import has_state, stateful_loader
from fastload.backends.stats import Counts
from fastload.backends.worker_processes import (
    FORKED,
    Parent,
    Sharing,
    WorkerInit,
    disown_after_fork,
    has_dead_worker,
    named_shortage,
    raise_if_not_delivered,
    shared_memory_error,
)
from fastload.dataset.views import TorchDataLoader
from fastload.errors import NotDelivered, StateError
from fastload.extras import words
from fastload.machine.interrupts import interrupts_kept
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Sampler


def torch_arguments(options: Options) -> dict[str, Any]:
    """Return the arguments that torch's loader gets for a torch Dataset."""
    passed: dict[str, Any] = {
        "collate_fn": options.collate_fn,
        "pin_memory": options.pin_memory,
        "timeout": options.timeout,
        "worker_init_fn": options.worker_init_fn,
        "multiprocessing_context": options.multiprocessing_context,
        "generator": options.generator,
        "num_workers": options.num_workers or 0,
    }
    if options.num_workers:
        passed["prefetch_factor"] = None if options.ahead_bytes else options.prefetch_factor
        passed["persistent_workers"] = options.persistent_workers
        parent = Parent.by(options.multiprocessing_context)
        passed["worker_init_fn"] = WorkerInit(parent, options.worker_init_fn)
    if not options.in_order:
        passed["in_order"] = False
    return passed


class _Steps:
    """A sampler for torch: what it is to fetch in the steps of one epoch, from ``first`` on.

    Args:
        sampler: which samples each batch has.
        single: whether a step is one sample instead of a list (``batch_size=None``).
    """

    def __init__(self, sampler: Sampler, single: bool) -> None:
        self.sampler = sampler
        self.single = single
        self.first = BatchKey(0, 0, 0)

    def __iter__(self) -> Iterator[Any]:
        return _Walk(self)

    def __len__(self) -> int:
        return self.sampler.num_batches(self.first.epoch, self.first.start)


class _Walk:
    """One pass over :class:`_Steps`. It has a state because torchdata's loader asks a little ahead."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._key = steps.first

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> Any:
        key, sampler = self._key, self._steps.sampler
        if not sampler.has_batch(*key):
            raise StopIteration
        self._key = key._replace(step=key.step + 1)
        keys = sampler.keys(*key)
        return keys[0] if self._steps.single else keys

    def state_dict(self) -> dict[str, int]:
        return self._key._asdict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._key = BatchKey(**state)


class _Passes:
    """Passes over a torch DataLoader: a new iterator if the wanted batch is not the current one's next."""

    def __init__(self) -> None:
        self._iterator: Iterator[Any] | None = None
        self._next: BatchKey | None = None

    def take(self, key: BatchKey, begin: Any) -> Any:
        if self._iterator is None or self._next != key:
            self.cancel()
            self._iterator = begin(key)
        self._next = key
        try:
            batch = next(self._iterator)
        except StopIteration:
            self.cancel()
            raise
        except Exception as error:
            try:
                raise_if_not_delivered(self._iterator, error)
            except NotDelivered:
                if has_dead_worker(self._iterator):  # torch would leave out the batch that it worked on
                    self.cancel()
                raise
            self._next = key._replace(step=key.step + 1)  # an error of the batch: torch goes on after it
            lack = shared_memory_error(error)
            if lack is not None:
                raise lack from error
            raise
        self._next = key._replace(step=key.step + 1)
        return batch

    def cancel(self) -> None:
        self._iterator = None  # torch ends its workers when the iterator is gone


class _TorchsLoader:
    """The common part for both kinds of datasets: torch's loader, or torchdata's, and its iterators.

    Args:
        dataset: any torch Dataset.
        stateful: whether the dataset, or an iterator of it, may know its own place.
        every: torchdata's ``snapshot_every_n_steps``.
        arguments: of torch's DataLoader.
    """

    errors: tuple[Any, ...] = ()

    def __init__(self, dataset: Any, stateful: bool, every: int | None, arguments: dict[str, Any]) -> None:
        self.dataset = dataset
        kind = stateful_loader() if stateful else None
        self._is_stateful = kind is not None
        is_single = arguments.get("batch_size", 1) is None and "batch_sampler" not in arguments
        # torch's own loader applies its default collate function itself.
        collate = arguments["collate_fn"] or (default_convert if is_single else None)
        if arguments["num_workers"] and collate is not None:
            arguments = {**arguments, "collate_fn": Sharing(collate)}
        if kind is not None:
            self._loader = kind(dataset, snapshot_every_n_steps=1 if every is None else every, **arguments)
        else:
            self._loader = TorchDataLoader(dataset, **arguments)
        self._passes = _Passes()
        self._owner = 0  # the process that worker processes belong to; 0: there have been none
        self._prepared: BatchKey | None = None  # torchdata's loader has an iterator for it, or a state
        self._loses_state = has_state(dataset) and not self._is_stateful

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``, as torch's collate function makes it; StopIteration after the last.

        Raises:
            StateError: after fork(), if the parent has worker processes.
        """
        if self._owner not in (0, os.getpid()):
            raise StateError(FORKED)
        return self._passes.take(key, self._begin)

    def _begin(self, key: BatchKey) -> Iterator[Any]:
        if self._prepared is not None and key != self._prepared:
            self._loader.load_state_dict({})  # the place has changed after all
            self._prepared = None
        self._aim(key)
        self._forget_dead()
        iterator = self._begun()
        if self._prepared is None:
            self._skip(iterator, key)
        self._prepared = None
        return iterator

    def _begun(self) -> Iterator[Any]:
        """Return torch's iterator. Signals are held back while it forks workers, which does not block."""
        forks = self._loader.num_workers and not self._is_stateful and self._loader._iterator is None
        try:
            with interrupts_kept() if forks else nullcontext(), named_shortage():
                iterator: Iterator[Any] = iter(self._loader)
        except BaseException:
            # Persistent workers have been told of an epoch; their answers would be mistaken for batches.
            self._loader._iterator = None
            raise
        if self._loader.num_workers:
            self._owner = os.getpid()
            disown_after_fork(iterator)
        return iterator

    def _aim(self, key: BatchKey) -> None:
        """Let the next iterator of torch's loader begin at ``key``."""

    def _skip(self, iterator: Iterator[Any], key: BatchKey) -> None:
        """Consume what comes before ``key``, if it cannot be left out."""

    def place_state(self, key: BatchKey) -> dict[str, Any]:
        """Return what dataset and workers know of their place before the batch ``key``: torchdata's state.

        It is empty if none of them has a state. Starts the workers if needed.
        """
        if not self._is_stateful:
            return self._no_state()
        if self._loader._iterator is None and self._prepared is None:
            if key.start + key.step:
                return {}  # a place without a state: what comes before will be skipped
            self._aim(key)
            self._prepared = key
        state: dict[str, Any] = self._loader.state_dict()
        return state

    def _no_state(self) -> dict[str, Any]:
        return {}

    def load_place_state(self, key: BatchKey, state: dict[str, Any]) -> None:
        """Go on at ``key`` with a state of :meth:`place_state`."""
        self._passes.cancel()
        self._aim(key)
        self._loader.load_state_dict(state)
        self._prepared = key

    def cancel(self) -> None:
        """End the epoch's iterator and, unless they persist, its workers."""
        self._passes.cancel()
        self._forget_dead()

    def _forget_dead(self) -> None:
        if has_dead_worker(self._loader._iterator):
            self._loader._iterator = None

    def close(self) -> None:
        """End the workers."""
        self._passes.cancel()
        self._loader._iterator = None

    def counts(self) -> Counts:
        """Return no counts: nothing is known about torch's workers."""
        return Counts()


class TorchBackend(_TorchsLoader):
    """Batches of a map-style torch Dataset.

    Args:
        dataset: any map-style dataset.
        sampler: which samples each batch has.
        arguments: of torch's DataLoader.
        single: whether to deliver samples instead of batches (``batch_size=None``).
        every: torchdata's ``snapshot_every_n_steps``.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        arguments: dict[str, Any],
        single: bool = False,
        every: int | None = None,
    ) -> None:
        self._steps = _Steps(sampler, single)
        order = {"batch_size": None, "sampler": self._steps} if single else {"batch_sampler": self._steps}
        super().__init__(dataset, has_state(dataset), every, {**arguments, **order})

    def _aim(self, key: BatchKey) -> None:
        self._steps.first = key

    def _no_state(self) -> dict[str, Any]:
        if self._loses_state:
            raise StateError(
                f"{type(self.dataset).__name__} has its own state_dict, which torch's loader does not ask "
                f"for: a resumed run would differ. {words('torchdata', 'Keeping it')}."
            )
        return {}


class StreamBackend(_TorchsLoader):
    """Batches of an IterableDataset: torch's order; resuming skips what was consumed, or loads a state."""

    def __init__(
        self, dataset: Any, arguments: dict[str, Any], shuffle: Any = None, every: int | None = None
    ) -> None:
        if isinstance(dataset, IterDataPipe):
            arguments = {**arguments, "shuffle": shuffle}
        super().__init__(dataset, True, every, arguments)
        if self._loses_state and not isinstance(dataset, IterDataPipe):
            warnings.warn(
                f"{type(dataset).__name__} has its own state_dict, which torch's loader does not ask "
                "for: resuming will read and skip what was consumed. "
                f"{words('torchdata', 'Keeping the state')}.",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self._loader)

    def _aim(self, key: BatchKey) -> None:
        setter = getattr(self.dataset, "set_epoch", None)
        if setter is not None:
            setter(key.epoch)

    def _skip(self, iterator: Iterator[Any], key: BatchKey) -> None:
        for _ in range(key.start + key.step):
            next(iterator)
