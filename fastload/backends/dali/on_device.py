"""Batches on the device: DALI's uint8 pixels, and rows of our own decoder, converted for the consumer.

As for the native back end, one kernel on the consumer's stream writes into memory of the consumer's, so every
dtype and every ``device_memory`` is possible. DALI's memory, which its own pool hands out again as soon as it
is let go, and pinned rows that are being copied are kept until the event behind that kernel has passed.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.backends.dali.on_host import runs
from fastload.backends.dali.queue import Work
from fastload.backends.options import Options
from fastload.errors import StateError
from fastload.prefetch.slots import SlotShape
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import Converter
from fastload.transfer.outputs import Outputs
from fastload.transfer.streams import CAPTURING, Gpu
from fastload.transforms.plan import Plan

__all__ = ["DeviceAssembly"]

_CLOSING_SECONDS = 10.0  # for work of the consumer's that is still under way


def _copy_runs(rows: torch.Tensor, pixels: torch.Tensor, positions: npt.NDArray[np.int64]) -> None:
    for position, first, count in runs(positions):
        rows[position : position + count].copy_(pixels[first : first + count])


class DeviceAssembly:
    """Puts a batch together on the device.

    Args:
        gpu: the device.
        plan: what the images become.
        options: the loader's.
        augmenter: augmentation of whole batches, or None.
        shape: of the uint8 batches.
        labels: of every sample.
    """

    def __init__(
        self,
        gpu: Gpu,
        plan: Plan,
        options: Options,
        augmenter: Augmenter | None,
        shape: SlotShape,
        labels: npt.NDArray[np.int64],
    ) -> None:
        self._gpu = gpu
        self._augmenter = augmenter
        self._shape = shape
        self._labels = labels
        self._converter = Converter(plan, gpu.device, from_unit=augmenter is not None and augmenter.jitters)
        self._outputs = Outputs(gpu, replace(shape, dtype=self._converter.dtype), options.device_memory)
        self._kept: deque[tuple[Any, Any]] = deque()

    def finish(self, work: Work, pixels: torch.Tensor | None) -> Any:
        """The batch, for use on the current stream; what ``batch_transform`` made of it.

        Args:
            work: its native parts are complete.
            pixels: DALI's part, (k, h, w, 3) uint8 on the device; None if it has none.

        Raises:
            StateError: the current stream records a CUDA graph.
        """
        if self._gpu.capturing():
            raise StateError(CAPTURING)
        while self._kept and self._gpu.passed(self._kept[0][0]):
            self._kept.popleft()
        gpu, stream = self._gpu, self._gpu.current_stream()
        labels = self._host_labels(work, pixels)
        parameters = self._parameters(work, stream)
        whole = self._whole(work, pixels, stream)
        out = self._outputs.take(len(work.batch.ids))

        def deliver() -> None:
            augmenter, source = self._augmenter, whole
            if augmenter is not None and augmenter.jitters:
                source = augmenter.jitter(source, parameters)
            self._converter(source, out[0])

        gpu.launch(deliver)
        gpu.copy(out[1], labels, stream)
        event = gpu.new_event()
        gpu.record(event, stream)
        self._kept.append((event, (pixels, whole, work.slot, labels)))
        if self._augmenter is None:
            return out
        augment = self._augmenter
        return gpu.run(lambda: augment(out, parameters, work.key))

    def _whole(self, work: Work, pixels: torch.Tensor | None, stream: Any) -> torch.Tensor:
        """(n, 3, h, w) uint8."""
        slot, gpu = work.slot, self._gpu
        if slot is None:
            assert pixels is not None
            return pixels.permute(0, 3, 1, 2)
        size = len(work.batch.ids)
        whole = gpu.empty((size, 3, self._shape.height, self._shape.width), torch.uint8)
        rows = whole.permute(0, 2, 3, 1)  # contiguous, as DALI's pixels and the slot's are
        positions = np.arange(0) if pixels is None else work.records.positions
        if pixels is not None:
            gpu.launch(lambda: _copy_runs(rows, pixels, positions))
        host = slot.images.permute(0, 2, 3, 1)
        for position, _, count in runs(np.setdiff1d(np.arange(size), positions)):
            gpu.copy(rows[position : position + count], host[position : position + count], stream)
        return whole

    def _host_labels(self, work: Work, pixels: torch.Tensor | None) -> torch.Tensor:
        if work.slot is None:
            return torch.from_numpy(self._labels[work.batch.ids])
        if pixels is not None:
            work.slot.labels.numpy()[work.records.positions] = self._labels[work.dali_ids()]
        return work.slot.labels

    def _parameters(self, work: Work, stream: Any) -> torch.Tensor:
        if self._augmenter is None or not self._augmenter.parameters:
            return torch.empty(len(work.batch.ids), 0, device=self._gpu.device)
        shape = self._shape
        drawn = self._augmenter.draw(work.key.epoch, work.batch, shape.height, shape.width)
        return self._gpu.upload(torch.from_numpy(drawn), stream)

    def close(self) -> None:
        """Wait for the consumer's kernels that read DALI's memory. Idempotent."""
        limit = time.monotonic() + _CLOSING_SECONDS
        with suppress(RuntimeError):  # a lost device
            while self._kept and time.monotonic() < limit:
                if self._gpu.passed(self._kept[0][0]):
                    self._kept.popleft()
                else:
                    time.sleep(1e-3)
        self._kept.clear()
