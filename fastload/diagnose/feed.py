"""A loop is fed the same batch again and again, which shows what its step can do alone."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fastload.diagnose import step as device
from fastload.diagnose.facts import Stage
from fastload.diagnose.usage import cpu_delay

TIMES = 4  # the samples of a larger batch
_LEAST_LARGER = 3  # steps


def copied(value: Any, of_tensor: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
    """Copy a batch; ``of_tensor`` copies each tensor (None: clones it, pinned if the original is pinned).

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
    """Return all tensors of a batch that :func:`copied` would find."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


def _is_of(tensor: torch.Tensor, samples: int) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == samples


def repeated(value: Any, samples: int) -> Any:
    """Return a batch that has its samples :data:`TIMES` times."""
    if isinstance(value, torch.Tensor):
        return torch.cat([value] * TIMES) if _is_of(value, samples) else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(repeated(part, samples) for part in value))
    if type(value) is dict:
        return {name: repeated(part, samples) for name, part in value.items()}
    if type(value) in (list, tuple):
        if len(value) == samples and not tensors_of(value):
            return value * TIMES
        return type(value)(repeated(part, samples) for part in value)
    return value


class Feed:
    """A source of the same batch again and again, unchanged, that times the steps.

    A loop may change its batch in place. torch counts that, and the next batch is then a fresh copy. Copies
    are made inside ``next()``, outside the step. The first step does not count: other ranks may still wait.

    Args:
        batch: the loader's last batch.
        batch_size: its samples.
        at_rest: whether the loader's threads have nothing more to do.
        clock: returns seconds.
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
        self._delay = self._began_delay = 0.0
        self._began: float | None = None
        self._stage: Stage | None = None
        self.larger_steps: list[float] = []
        self._larger: Any = None
        self._is_larger = False

    def asked(self) -> None:
        """Note that the loop asks for a batch, so that its step with the previous one is over."""
        if self._arrived is None:
            return
        if self._is_larger:
            device.synchronise()
            self.larger_steps.append(self._clock() - self._arrived)
            return
        if self._began is None:  # the first step
            device.synchronise()
            self._began = self._clock()
            return
        self.steps.append(self._clock() - self._arrived)
        self._cpu += time.process_time() - self._began_cpu
        self._delay += cpu_delay() - self._began_delay

    @property
    def seconds(self) -> float:
        """Total time of the steps that count."""
        return sum(self.steps)

    def give(self) -> Any:
        """Return the batch as the loader delivered it."""
        if self._given is None or self._versions is None or self._versions != _versions(self._given):
            self._given = copied(self._kept)
            self._versions = _versions(self._given)
        # New objects with the same memory, so that marks which a loop sets (requires_grad) do not stay.
        batch = copied(self._given, torch.Tensor.detach)
        self._began_cpu, self._began_delay = time.process_time(), cpu_delay()
        self._arrived = self._clock()
        return batch

    @property
    def can_be_larger(self) -> bool:
        """Whether the batch has tensors whose first dimension is the samples."""
        return any(_is_of(tensor, self._batch_size) for tensor in tensors_of(self._kept))

    def give_larger(self) -> Any:
        """Return a batch with the same samples several times."""
        if self._larger is None:
            self._larger = repeated(self._kept, self._batch_size)
        batch = copied(self._larger)
        self._is_larger = True
        self._arrived = self._clock()
        return batch

    def larger_notes(self) -> dict[str, object]:
        """Return the share of a step that does not depend on its samples, and the rate in larger batches."""
        if len(self.larger_steps) < _LEAST_LARGER or not self.steps:
            return {}
        small, large = statistics.median(self.steps), statistics.median(self.larger_steps[1:])
        slope = (large - small) / (TIMES - 1)  # seconds of as many samples as the loop's batches have
        fixed = min(1.0, max(0.0, 1 - slope / small)) if small > 0 else 0.0
        both = [sorted(self.steps), sorted(self.larger_steps[1:])]
        (least, most), (least_large, most_large) = (
            (each[len(each) // 4], each[-1 - len(each) // 4]) for each in both
        )
        return {
            "fixed_share": fixed,
            "larger_step_rate": TIMES * self._batch_size / large,
            "larger_step_gains": (TIMES * least / most_large - 1, TIMES * most / least_large - 1),
        }

    def stage(self) -> Stage | None:
        """Return what was measured until the first call; None without a step that counts."""
        if self._stage is None and self.steps and self._began is not None:
            self._stage = self._measured(self._began)
        return self._stage

    def _measured(self, began: float) -> Stage:
        seconds = self.seconds
        if device.is_in_use():  # a step only queues work, which ends after the last step
            device.synchronise()
            seconds = self._clock() - began
        samples = len(self.steps) * self._batch_size
        return Stage(
            "step",
            samples / seconds if seconds > 0 else float("inf"),
            self._cpu / samples,
            f"{len(self.steps)} steps of {self._batch_size} samples on a batch that was already loaded: "
            f"{seconds / len(self.steps):.4g} s each"
            + (", the loader at rest." if self._at_rest else ", while the loader still prepared batches."),
            self._delay / samples,
        )


def _versions(batch: Any) -> list[int] | None:
    """Return how often each tensor was changed in place; None if torch does not count it."""
    tensors = tensors_of(batch)
    if not tensors or any(tensor.is_inference() for tensor in tensors):
        return None
    return [tensor._version for tensor in tensors]
