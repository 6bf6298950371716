"""The device memory that ``next()`` hands out: fresh every time, or reused by request.

Fresh memory comes from torch's caching allocator on the consumer's own stream, and is written there. So it is
an ordinary tensor: freed, its block goes to later work of that stream, in order; no ``record_stream`` is
needed, and no block waits for an event of another stream before it can be used again. It costs no pass over
memory, because the conversion from the device slot has to write its result somewhere.
"""

from __future__ import annotations

from typing import Any

import torch

from fastload.prefetch.slots import SlotShape
from fastload.transfer.streams import Gpu

__all__ = ["Outputs"]

_BUFFERS = {"fresh": 0, "reuse": 1, "poison": 2}
_POISON_LABEL = -(2**62)


class Outputs:
    """Images and labels for the consumer.

    * ``fresh``: safe for as long as the user keeps them.
    * ``reuse``: always the same memory, valid until the next ``next()``: its addresses can be a CUDA graph's
      inputs.
    * ``poison``: as ``reuse``, with two buffers in turn; the one that is no longer valid is filled with NaN
      (255 for uint8) and impossible labels, so that a program that keeps tensors fails in its tests.

    Args:
        gpu: the device.
        shape: of the images; its dtype is the batch's.
        mode: one of the three.
    """

    def __init__(self, gpu: Gpu, shape: SlotShape, mode: str) -> None:
        self._gpu = gpu
        self._shape = shape
        self._mode = mode
        self._turn = 0
        self._stream: Any = None  # which the consumer's work on the last batch went to
        with torch.inference_mode(False):  # or they could not be written outside of it
            self._buffers = [self._allocate(shape.batch_size) for _ in range(_BUFFERS[mode])]

    @staticmethod
    def planned_bytes(shape: SlotShape, mode: str) -> int:
        """Bytes that are held for the loader's whole life."""
        return _BUFFERS[mode] * (shape.nbytes + 8 * shape.batch_size)

    def _allocate(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self._shape
        images = self._gpu.empty((size, 3, shape.height, shape.width), shape.dtype)
        return images, self._gpu.empty((size,), torch.int64)

    def take(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(size, 3, h, w) images and (size,) int64 labels to write on the current stream."""
        if self._mode == "fresh":
            return self._allocate(size)
        self._follow(self._gpu.current_stream())
        if self._mode == "poison":
            self._poison(*self._buffers[self._turn])
            self._turn = 1 - self._turn
        images, labels = self._buffers[self._turn]
        return images[:size], labels[:size]

    def _follow(self, stream: Any) -> None:
        """The consumer changed streams: its work on the last batch comes before our writing on this one."""
        if self._stream is not None and self._stream != stream:
            event = self._gpu.new_event()
            self._gpu.record(event, self._stream)
            self._gpu.wait(stream, event)
        self._stream = stream

    def _poison(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        def kernels() -> None:
            images.fill_(float("nan") if images.dtype.is_floating_point else 255)
            labels.fill_(_POISON_LABEL)

        self._gpu.launch(kernels)
