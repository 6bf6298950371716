"""Ctrl-C and the scheduler's SIGTERM: finish the step, save, leave. A second one leaves at once."""

from __future__ import annotations

import signal

import torch

from fastload.ranks.preemption import SignalNote
from training.world import World, sum_over_ranks

__all__ = ["StopSignal"]

AGREE_EVERY = 8  # updates


class StopSignal:
    """Notes SIGINT and SIGTERM from its construction on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._note = SignalNote((signal.SIGINT, signal.SIGTERM))
        self._note.watch()

    def is_agreed(self, updates: int) -> bool:
        """Whether to stop after this update. Ranks decide together, at every eighth update: were one to leave
        alone, the others would wait for its gradients.
        """
        wanted = self._note.received is not None
        if self._world.size == 1:
            return wanted
        if updates % AGREE_EVERY != 0:
            return False
        wishes = torch.tensor(float(wanted), device=self._world.device)
        return bool(sum_over_ranks(self._world, wishes) > 0)
