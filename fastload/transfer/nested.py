"""Moving batches of any nesting to the device, as torch Datasets and users' collate functions return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fastload.errors import StateError
from fastload.transfer.streams import CAPTURING, Gpu


class Mover:
    """A mover that copies on its own stream, so that copies overlap the steps in progress.

    The tensors are memory of the copy stream that the consumer's stream uses; torch's allocator is told so
    (``record_stream``), which makes them safe for as long as the user keeps them. torch's pinned allocator,
    which the sources come from, holds them until the copy is done.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._stream = gpu.new_stream()
        self._count = 0
        self._bytes = 0
        self._tensors = 0

    def __call__(self, batch: Any) -> Any:
        """Return the same nesting with every tensor on the device, for use on the current stream."""
        if self._gpu.capturing():
            raise StateError(CAPTURING)
        self._count += 1
        with self._gpu.range("fastload.transfer.copy", self._count):
            moved = self._move(batch)
        copied = self._gpu.new_event()
        self._gpu.record(copied, self._stream)
        self._gpu.wait(self._gpu.current_stream(), copied)
        return moved

    def _move(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return self._tensor(item)
        if isinstance(item, (str, bytes)):
            return item
        if isinstance(item, Mapping):
            return self._mapping(item)
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(self._move(part) for part in item))
        if type(item) in (list, tuple):
            return type(item)([self._move(part) for part in item])
        if callable(getattr(item, "to", None)):  # PackedSequence and the like: on the current stream
            return self._gpu.run(lambda: item.to(self._gpu.device, non_blocking=True))
        return item

    def _mapping(self, item: Mapping[Any, Any]) -> Any:
        moved = {key: self._move(value) for key, value in item.items()}
        if type(item) is dict:
            return moved
        try:
            return type(item)(moved)  # type: ignore[call-arg]
        except TypeError:  # takes other arguments
            return moved

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return self._gpu.run(lambda: tensor.to(self._gpu.device, non_blocking=True))
        moved = self._gpu.upload(tensor, self._stream)
        self._gpu.use_on_current_stream(moved)
        self._bytes += tensor.nbytes
        self._tensors += 1
        return moved

    def stats(self) -> dict[str, Any]:
        """Return what was moved. torch pins a tensor by a copy; from pageable memory the driver copies."""
        return {"count": self._count, "bytes": self._bytes, "host_copies": self._tensors}
