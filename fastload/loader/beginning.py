"""What is only known when iteration begins: rank and world size, and a seed that nobody gave."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fastload.errors import WorldError
from fastload.machine.callers import stacklevel
from fastload.ranks.handshake import Handshake
from fastload.ranks.mesh import forget
from fastload.ranks.world import World, check_given, find_processes, find_world, local_ranks

__all__ = ["Beginning"]

_FALLBACK_SEED = 0  # of torch's DistributedSampler


class Beginning:
    """Rank, world size and seed of one loader: looked up until its first iteration begins, then fixed.

    A loader may be made before the process group is: by a script that a framework starts again on each rank,
    or in the parent of ``torch.multiprocessing.spawn``.

    Args:
        rank, world_size, group: as given to the loader; see :func:`fastload.ranks.world.find_world`.
        seed: as given, or None: drawn from torch's generator as torch's own DataLoader draws its seed.
        generator: where from; None: torch's default one.
        is_divided: the ranks divide the samples among them; else each reads what its dataset and sampler
            give, as with torch's loader, and this loader is the only one of its world.

    Raises:
        TypeError, WorldError: rank and world size cannot be what they are.
    """

    def __init__(
        self,
        rank: int | None,
        world_size: int | None,
        group: Any,
        seed: int | None,
        generator: torch.Generator | None,
        is_divided: bool,
    ) -> None:
        check_given(rank, world_size, group)
        self.is_divided = is_divided
        self._rank = rank
        self._world_size = world_size
        self._group = group
        self._generator = generator
        self._fixed: World | None = None
        self._began: World | None = None  # the processes that there were then
        self._other: tuple[Beginning, Callable[[], Any]] | None = None
        #: The handshake with the other ranks, once they are fixed.
        self.meeting: Handshake | None = None
        #: The seed, if it is known.
        self.seed = seed

    @property
    def world(self) -> World:
        """Rank and world size: those of the first iteration, if that has begun."""
        return self._fixed or self._find()

    def _find(self) -> World:
        if not self.is_divided:
            return World(0, 1, *local_ranks())
        return find_world(self._rank, self._world_size, group=self._group)

    @property
    def processes(self) -> World:
        """Rank and world size of this process, whether or not its ranks divide the samples among them."""
        if self._rank is not None:
            return self.world
        try:
            return find_processes()
        except WorldError:  # variables that are half set, and nobody needs them
            return self.world

    def draw_from(self, generator: torch.Generator | None) -> None:
        """Draw the seed from another generator."""
        self._generator = generator

    def in_words(self) -> str:
        """Rank and world size, as far as they are known."""
        try:
            world = self.world
        except WorldError:
            return "rank not known yet"
        return f"rank {world.rank} of {world.size}"

    def go_with(self, other: Beginning, begin: Callable[[], Any]) -> None:
        """Begin when ``other`` does, with its seed. ``begin`` lets that one begin."""
        self._other = other, begin

    @property
    def has_begun(self) -> bool:
        """Whether rank, world size and seed are fixed."""
        return self._fixed is not None

    def check(self) -> None:
        """Before each iteration but the first.

        Raises:
            WorldError: this process has another rank or world size than when the loader began.
        """
        began, now = self._began, self.processes
        if self.is_divided and began is not None and (now.rank, now.size) != (began.rank, began.size):
            raise WorldError(
                f"This loader began as rank {began.rank} of {began.size}, now the process is rank {now.rank} "
                f"of {now.size}: its share of the samples would be wrong. Begin to iterate after the process "
                "group is made; after a change of the world make a new loader and call load_state_dict()."
            )

    def fix(self, handshake: Callable[[World], Handshake], is_random: bool) -> Handshake:
        """Fix rank, world size and seed, and return the handshake with the other ranks.

        Args:
            handshake: makes it.
            is_random: whether order or augmentation depend on the seed.

        Raises:
            WorldError: rank and world size are half set, the ranks cannot agree on a seed, or were given
                different ones.
        """
        if self._other is not None:
            other, begin = self._other
            if self.seed is not None:  # of a loaded state
                other.seed = self.seed
            begin()
            self.seed = other.seed
        forget()
        world = self._find()
        meeting = handshake(world)
        self.seed = self._agreed(meeting, world, is_random)
        # At once, also for a signal's handler that raises: who has begun has met.
        self.meeting, self._fixed, self._began = meeting, world, self.processes
        return meeting

    def _drawn(self) -> int:
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self._generator).item())

    def _agreed(self, meeting: Handshake, world: World, is_random: bool) -> int:
        if self.seed is None and not is_random and not meeting.is_alone:
            self._drawn()  # torch's loader draws one, too
            return _FALLBACK_SEED  # nothing depends on it: no rank has to wait for another
        agreed = meeting.agree(self.seed, self._drawn)
        if agreed is not None:
            return agreed
        warnings.warn(
            f"Rank {world.rank} of {world.size} has no process group in which to agree on a seed, or "
            f'handshake="off", so the seed is {_FALLBACK_SEED}, as that of torch\'s DistributedSampler. Pass '
            "seed=, or make the process group before the first batch.",
            stacklevel=stacklevel(),
        )
        return _FALLBACK_SEED
