"""A loop fed with a batch that is there already: what its step can do when it never waits."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch

from fastload.diagnose import device
from fastload.diagnose.facts import Stage

__all__ = ["Feed", "copied"]


def copied(value: Any, of_tensor: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
    """A batch with tensors of its own; ``of_tensor`` makes each (None: clones, pinned where theirs are).

    What cannot be copied is shared.
    """
    make = of_tensor or _cloned
    if isinstance(value, torch.Tensor):
        return make(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(part, make) for part in value))
    if type(value) in (list, tuple):
        return type(value)(copied(part, make) for part in value)
    if type(value) is dict:
        return {name: copied(part, make) for name, part in value.items()}
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    clone = tensor.detach().clone()
    return clone.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else clone


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors of a batch, as far as :func:`copied` looks."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


class Feed:
    """Gives the same batch again and again, as it was at first, and times the steps.

    A loop may change its batch in place; torch counts that, and the next one is a fresh copy then. Copies
    are made inside ``next()``, which is not of the step. The first step is apart: other ranks may still wait.

    Args:
        batch: the loader's last one.
        batch_size: its samples.
        at_rest: whether the loader's threads have nothing more to do.
        clock: seconds.
    """

    def __init__(
        self,
        batch: Any,
        batch_size: int,
        at_rest: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.steps: list[float] = []
        self._kept = copied(batch)
        self._given: Any = None
        self._versions: list[int] | None = None
        self._batch_size = batch_size
        self._at_rest = at_rest
        self._clock = clock
        self._arrived: float | None = None
        self._cpu = self._began_cpu = 0.0
        self._began: float | None = None
        self._stage: Stage | None = None

    def asked(self) -> None:
        """The loop asks for a batch: its step with the one before is over."""
        if self._arrived is None:
            return
        if self._began is None:  # the first one
            device.synchronise()
            self._began = self._clock()
            return
        self.steps.append(self._clock() - self._arrived)
        self._cpu += time.process_time() - self._began_cpu

    @property
    def seconds(self) -> float:
        """Of all steps that count."""
        return sum(self.steps)

    def give(self) -> Any:
        """The batch, as the loader gave it."""
        if self._given is None or self._versions is None or self._versions != _versions(self._given):
            self._given = copied(self._kept)
            self._versions = _versions(self._given)
        # Other objects with the same memory: marks that a loop sets (requires_grad) do not come back.
        batch = copied(self._given, torch.Tensor.detach)
        self._began_cpu = time.process_time()
        self._arrived = self._clock()
        return batch

    def stage(self) -> Stage | None:
        """What was measured until this is first asked for; None without a step that counts."""
        if self._stage is None and self.steps and self._began is not None:
            self._stage = self._measured(self._began)
        return self._stage

    def _measured(self, began: float) -> Stage:
        seconds = self.seconds
        if device.is_in_use():  # a step only gives the device work; what it does ends with the last of it
            device.synchronise()
            seconds = self._clock() - began
        samples = len(self.steps) * self._batch_size
        return Stage(
            "step",
            samples / seconds if seconds > 0 else float("inf"),
            self._cpu / samples,
            f"{len(self.steps)} steps of {self._batch_size} samples on a batch that was there already: "
            f"{seconds / len(self.steps):.4g} s each"
            + (", the loader at rest." if self._at_rest else ", while the loader still prepared batches."),
        )


def _versions(batch: Any) -> list[int] | None:
    """How often each tensor was changed in place; None where nobody counts."""
    tensors = tensors_of(batch)
    if not tensors or any(tensor.is_inference() for tensor in tensors):
        return None
    return [tensor._version for tensor in tensors]
