"""Ctrl-C and the scheduler's SIGTERM: finish the step, save, leave. A second Ctrl-C leaves at once."""

from __future__ import annotations

import signal
from types import FrameType

import torch

from training.world import World, sum_over_ranks

__all__ = ["StopSignal"]

AGREE_EVERY = 8  # updates


class StopSignal:
    """Notes SIGINT and SIGTERM from its construction on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanted = False
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._wanted:
            raise KeyboardInterrupt
        self._wanted = True

    def is_agreed(self, updates: int) -> bool:
        """Whether to stop after this update. Ranks decide together, at every eighth update: were one to leave
        alone, the others would wait for its gradients.
        """
        if self._world.size == 1:
            return self._wanted
        if updates % AGREE_EVERY != 0:
            return False
        wanted = torch.tensor(float(self._wanted), device=self._world.device)
        return bool(sum_over_ranks(self._world, wanted) > 0)
