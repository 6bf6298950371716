"""The GPU operations that a transfer needs: streams, events, copies. CUDA behind a small interface.

``fastload.transfer.cuda`` is the real one. The tests have a simulated one, which runs copies and kernels late
and out of order as far as streams and events allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch

from fastload.errors import DeviceError, FastloadError

FORKED = (
    "This loader was created before fork() and its threads and device memory belong to the parent process. "
    "Create the DataLoader in the child; CUDA needs one that was spawned."
)

CAPTURING = (
    "next() was called while the current stream records a CUDA graph: a batch cannot be part of a graph. "
    "Call next() before capture and before each replay, and copy to the graph's inputs."
)

T = TypeVar("T")


class Gpu(Protocol):
    """One device. Streams and events are opaque; all calls are on the consumer's thread."""

    device: torch.device

    def new_stream(self) -> Any:
        """Create a stream that runs beside the consumer's."""

    def current_stream(self) -> Any:
        """Return the consumer's stream, on which its next kernel would run."""

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Put allocations and kernels in the block on ``stream``."""

    def new_event(self, timed: bool = False) -> Any:
        """Create an event; one that was never recorded counts as passed."""

    def record(self, event: Any, stream: Any) -> None:
        """Let ``event`` pass when all work given to ``stream`` so far is done."""

    def wait(self, stream: Any, event: Any) -> None:
        """Delay all further work of ``stream`` until ``event`` has passed; the host does not wait."""

    def passed(self, event: Any) -> bool:
        """Return whether ``event`` has passed; does not block."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """Return the device time between two timed events that have passed."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Allocate device memory for the current stream, undefined; 4-d tensors are channels_last."""

    def copy(self, to: torch.Tensor, source: torch.Tensor, stream: Any) -> None:
        """Copy contiguous host bytes to the device on ``stream``; asynchronous if they are pinned."""

    def launch(self, kernels: Callable[[], Any]) -> None:
        """Run torch operations that write existing tensors, on the current stream."""

    def run(self, operations: Callable[[], T]) -> T:
        """Run torch operations that return tensors, on the current stream."""

    def upload(self, tensor: torch.Tensor, stream: Any) -> torch.Tensor:
        """Copy a host tensor on ``stream``, for use on the current stream from now on."""

    def use_on_current_stream(self, tensor: torch.Tensor) -> None:
        """Note that the current stream uses another's memory, which is kept until that is done."""

    def seeded(self, seed: int) -> AbstractContextManager[None]:
        """Seed torch's global random numbers, of host and device, in the block."""

    def pin(self, address: int, nbytes: int) -> str | None:
        """Register host memory; return None, or why it was refused."""

    def unpin(self, address: int) -> None:
        """Undo the registration. All copies from it must be done."""

    def capturing(self) -> bool:
        """Return whether the current stream records a CUDA graph."""

    def range(self, stage: str, number: int) -> AbstractContextManager[Any]:
        """Name a range of batch ``number`` for profilers and NVTX tools, if one listens."""


def guarded(what: str, call: Callable[[], T]) -> T:
    """Return ``call()``; an error that the device driver reports becomes a :class:`DeviceError`.

    Running out of device memory stays torch's own error, which frameworks know.
    """
    try:
        return call()
    except RuntimeError as error:
        full = type(error).__name__ == "OutOfMemoryError"  # torch.cuda's until torch 2.5, then torch's own
        if full or isinstance(error, FastloadError) or not re.search("CUDA (driver )?error", str(error)):
            raise
        raise DeviceError(
            f"The device failed while {what}: {error} Its contents are lost; restart the process and resume "
            f"from the last checkpoint ('dmesg' and 'nvidia-smi -q' may say more)."
        ) from error
