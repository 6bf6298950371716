"""A loader's iterations as Accelerate's ``GradientState`` sees them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from fastload.loader.epochs import EpochIterator
from fastload.prefetch.feeder import BatchKey

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["Companion", "Watched"]


class Companion:
    """What Accelerate's wrapper would know of one loader.

    Args:
        loader: whose iterations are announced.
        gradient_state: Accelerate's.
        device: where batches go; None: they stay where the loader puts them.
        non_blocking: how they go there.
    """

    def __init__(
        self, loader: DataLoader[Any], gradient_state: Any, device: torch.device | None, non_blocking: bool
    ) -> None:
        self._sampler = loader._sampler
        self._arranged = loader._arranged
        self.gradient_state = gradient_state
        self._device = device
        self._non_blocking = non_blocking

    def watch(self, iterator: EpochIterator) -> Watched:
        """``iterator``, announced."""
        return Watched(iterator, self)

    def place(self, epoch: int, position: int) -> tuple[int, int]:
        """The place to save: behind an epoch's last batch the next epoch, as with Accelerate's own."""
        core = self._sampler.core
        is_end = position > 0 and not core.num_batches(epoch, position)
        return (epoch + 1, 0) if is_end else (epoch, position)

    def left(self, key: BatchKey) -> int:
        """Batches from ``key`` to the epoch's end that have something for this rank."""
        core = self._sampler.core
        steps = int(core.num_batches(key.epoch, key.start))
        if core.partition.padding == "drop" and steps:
            # even_batches=False: nothing of the last, partial batch may be this rank's.
            steps -= len(core.batch(key.epoch, key.start, steps - 1).ids) == 0
        return steps - key.step

    def remainder(self, epoch: int) -> int:
        """Rows of the epoch's last batch over all ranks that are samples of their own; 0: all of them."""
        return int(self._sampler.core.remainder(epoch))

    def placed(self, batch: Any) -> Any:
        """The batch on Accelerate's device, if the loader's own transfer does not bring it there."""
        if self._device is None or self._arranged.options.device is not None:
            return batch
        send = sys.modules["accelerate.utils"].send_to_device  # it is there: it made this object
        return send(batch, self._device, non_blocking=self._non_blocking)


class Pass:
    """What ``GradientState`` knows, and some versions hold, of one pass over a prepared loader."""

    def __init__(self) -> None:
        self.end_of_dataloader = False  # whether the epoch's last batch has been handed out
        self.remainder = -1  # rows of the last batch over all ranks that are samples of their own; 0: all


class Watched(Iterator[Any]):
    """One pass over a prepared loader, announced to Accelerate."""

    def __init__(self, iterator: EpochIterator, companion: Companion) -> None:
        self._iterator = iterator
        self._companion = companion
        self._pass = Pass()
        self._is_announced = False

    def __next__(self) -> Any:
        if self._pass.end_of_dataloader:
            self._exhaust()
        if not self._is_announced:
            self._companion.gradient_state._add_dataloader(self._pass)
            self._is_announced = True
        try:
            batch = next(self._iterator)
            key = self._iterator.key
            assert key is not None
            self._pass.remainder = self._companion.remainder(key.epoch)
            left = self._companion.left(key)
            if left < 0:  # nothing of the last batch is this rank's, and there was no other
                self._exhaust()
            self._pass.end_of_dataloader = left == 0
            return self._companion.placed(batch)
        except BaseException:
            self._forget()
            raise

    def _exhaust(self) -> None:
        """Let the loader's iteration end; raises StopIteration."""
        try:
            while True:
                next(self._iterator)
        finally:
            self._forget()

    def _forget(self) -> None:
        if self._is_announced:
            self._is_announced = False
            self._companion.gradient_state._remove_dataloader(self._pass)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a pass that is left must not hide the one around it
            self._forget()

    def __len__(self) -> int:
        return len(self._iterator)
