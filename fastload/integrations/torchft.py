"""torchft: a loader whose ranks are the replica groups of each step's quorum.

::

    from fastload.integrations.torchft import QuorumLoader

    batches = QuorumLoader(loader, manager)
    while manager.current_step() < 10_000:
        for images, labels in batches:
            optimizer.zero_grad()  # torchft's
            cross_entropy(model(images), labels).backward()
            optimizer.step()

A step's batch is taken when its quorum is known, so that the replica groups that take part divide the global
batch among them. Only a step that was committed has used up its samples. Nothing of torchft is imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fastload.errors import StateError
from fastload.loader.view import viewed
from fastload.machine.messages import stacklevel


class Manager(Protocol):
    """What is used of a ``torchft.Manager``."""

    start_quorum: Callable[..., None]
    should_commit: Callable[..., bool]

    def participating_rank(self) -> int | None:
        """Wait for the quorum; return this replica group's rank in it, None if it takes no part."""

    def num_participants(self) -> int:
        """Wait for the quorum; return how many replica groups take part."""

    def current_step(self) -> int:
        """Return how many steps were committed."""

    def is_participating(self) -> bool:
        """Return whether this replica group's gradients count in the quorum."""

    def register_state_dict_fn(
        self, key: str, load_state_dict: Callable[[Any], None], state_dict: Callable[[], Any]
    ) -> None:
        """Let a replica group that recovers get another one's state of that name."""


class QuorumLoader:
    """The batches of a :class:`fastload.DataLoader` for torchft: each iteration is one pass over an epoch.

    It listens to ``manager.start_quorum()`` and ``manager.should_commit()``, which torchft's optimizer calls
    in ``zero_grad()`` and ``step()``, and gives the manager the loader's state for replica groups that
    recover.

    - The first of ``next()`` and ``start_quorum()`` in a step starts its quorum; ``next()`` waits for it.
      Further batches of the same step belong to the same quorum.
    - If the quorum is another one, the rest of the epoch is divided anew before the batch is taken. A replica
      group of ``n`` ranks counts as ``n``: rank ``replica * n + rank`` of ``replicas * n``.
    - Of a step that was not committed, all samples come again.
    - A replica group that takes no part (a spare, or one that recovers beside the step) gets a batch whose
      gradients torchft multiplies by zero; it is counted by nobody.

    Args:
        loader: divided among the ranks of this replica group, as it is found by itself, and with ``seed``.
            Nobody else iterates over it.
        manager: a ``torchft.Manager``, best made with ``use_async_quorum=False``: the batch waits for the
            quorum anyway, and a replica group that recovers then takes part at once.
        key: the name of the loader's state among those that the manager sends.

    Raises:
        TypeError: ``loader`` is not a :class:`fastload.DataLoader`.
        ValueError: it has no seed, or its ranks do not divide the samples.
    """

    def __init__(self, loader: Any, manager: Manager, key: str = "fastload") -> None:
        view = viewed(loader, "QuorumLoader")
        world, seed = view.place_of_rank()
        if seed is None:
            raise ValueError(
                "QuorumLoader takes a loader with a seed, DataLoader(..., seed=0): replica groups share no "
                "process group in which they could agree on one. Found: seed=None."
            )
        if not view.is_divided:
            raise ValueError(
                "QuorumLoader takes a loader whose ranks divide the samples; this one reads all of its "
                'dataset on each rank. Pass the path of a packed set, DataLoader("packed/train", ...), or '
                "ranks=."
            )
        self.loader = view.loader
        self._manager, self._shard = manager, world
        self._iterator: Any = None
        self._place: dict[str, Any] = self.loader.state_dict()  # after the last committed step
        self._is_behind = False  # the loader is somewhere else, and goes there before the next batch
        self._ranks = (world.rank, world.size)
        self._in_step = self._by_next = self._is_settled = False
        self._step = self._taken = 0  # the manager's step, and its batches
        self._start, manager.start_quorum = manager.start_quorum, self._start_quorum
        self._commit, manager.should_commit = manager.should_commit, self._should_commit
        manager.register_state_dict_fn(key, self.load_state_dict, self.state_dict)

    def __iter__(self) -> QuorumLoader:
        return self

    def __next__(self) -> Any:
        """Return the step's next batch. After StopIteration, the next call begins the next epoch.

        Raises:
            RuntimeError: torchft's, if there is no quorum.
            StateError: the step before was committed by a ``should_commit`` that somebody took from the
                manager before this object was made.
        """
        if self._is_settled and self._manager.current_step() != self._step:
            raise StateError(
                f"A step was committed without this loader's knowledge: the manager is at step "
                f"{self._manager.current_step()}, the loader's batch was for step {self._step}. Call "
                "manager.should_commit() itself, or make the QuorumLoader before what keeps that method."
            )
        if not self._in_step:
            self._start_quorum()
            self._by_next = True
        self._settle()
        return self._take()

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state after the last committed step; the same in all replica groups."""
        return dict(self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from another replica group's state, or from a checkpoint's."""
        self._place, self._is_behind = dict(state), True
        taken, self._taken, self._is_settled = self._taken, 0, False
        if taken:  # recovered beside the step, which the state does not have yet
            self._settle()
            while self._taken < taken:
                self._take_on()

    def _start_quorum(self, *arguments: Any, **options: Any) -> None:
        if self._by_next:  # next() has started this step's
            self._by_next = False
            return
        if self._taken:
            raise StateError(
                "start_quorum() (of torchft's optimizer: zero_grad()) was called again in a step whose batch "
                "was taken and which should_commit() has not ended. To leave a step out, call "
                "manager.report_error(...) and should_commit() (optimizer.step()): its samples come again."
            )
        self._start(*arguments, **options)
        self._in_step, self._is_settled = True, False

    def _should_commit(self, *arguments: Any, **options: Any) -> bool:
        committed = self._commit(*arguments, **options)  # may call load_state_dict()
        if committed:
            self._place = self.loader.state_dict()
        else:
            self._is_behind = True
        self._in_step = self._by_next = self._is_settled = False
        self._taken = 0
        return committed

    def _settle(self) -> None:
        """Take the quorum's rank, and go back to the last committed step if the loader is elsewhere."""
        if self._is_settled:
            return
        rank, size, own = self._manager.participating_rank(), self._manager.num_participants(), self._shard
        if rank is not None and not self._manager.is_participating():
            warnings.warn(
                "torchft multiplies this step's gradients of this replica group by zero, as it takes over "
                "another one's state meanwhile, but its samples count as trained on. Make the Manager with "
                "use_async_quorum=False or init_sync=False.",
                stacklevel=stacklevel(),
            )
        ranks = (rank or 0) * own.size + own.rank, size * own.size
        if self._is_behind or ranks != self._ranks:
            self.loader.reshard(*ranks, state=self._place if self._is_behind else None)
        self._ranks, self._is_behind, self._is_settled = ranks, False, True
        self._step = self._manager.current_step()

    def _take(self) -> Any:
        """Return the next batch of the epoch under way."""
        self._iterator = iter(self.loader) if self._iterator is None else self._iterator
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._iterator = None
            if not self._taken:  # so that a smaller world does not find the left-out end of the epoch again
                self._place = self.loader.state_dict()
            raise
        self._taken += 1
        return batch

    def _take_on(self) -> None:
        """Pass over a batch, also over an epoch's end."""
        try:
            self._take()
        except StopIteration:
            self._take()
