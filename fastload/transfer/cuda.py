"""CUDA behind the interface of ``streams.py``; only this module and ``kernels.py`` use torch.cuda."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from fastload.machine.generators import profiled

if TYPE_CHECKING:
    from fastload.transfer.streams import Gpu


T = TypeVar("T")
_PORTABLE = 1  # cudaHostRegisterPortable: pinned for every context of the process
# Nsight and other NVTX tools set these variables; FASTLOAD_NVTX=1 requests ranges without a tool.
_NVTX = any(
    os.environ.get(name) for name in ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "FASTLOAD_NVTX")
)
_warned: set[str] = set()


def check_device(device: str | torch.device | None) -> torch.device:
    """Return ``device`` as torch's; None means the CPU.

    Raises:
        ValueError: another kind of device.
    """
    wanted = "cpu" if device is None else device
    try:
        result = torch.device(wanted)
    except (RuntimeError, TypeError):
        result = None
    if result is None or result.type not in ("cpu", "cuda"):
        raise ValueError(f'device must be None, "cpu" or "cuda[:index]". Found: {str(wanted)!r}.')
    return result


def goes_to_gpu(device: str | torch.device | None) -> bool:
    """Return whether batches for ``device`` leave the CPU: False, with a warning, if there is no CUDA.

    Makes no CUDA context.
    """
    wanted = check_device(device)
    if wanted.type == "cpu":
        return False
    if not torch.cuda.is_available():
        _warn_once("no CUDA", f'device="{wanted}", but CUDA finds no device here: batches stay on the CPU.')
        return False
    return True


def find_gpu(device: str | torch.device | None) -> Gpu | None:
    """Return the GPU that ``device`` names, by default the current one; None if batches stay on the CPU.

    Raises:
        ValueError: another kind of device, or an index that this machine lacks.
    """
    if not goes_to_gpu(device):
        return None
    wanted = check_device(device)
    index = torch.cuda.current_device() if wanted.index is None else wanted.index
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"device must have an index below {torch.cuda.device_count()}, the number of CUDA devices that "
            f"are visible. Found: {str(wanted)!r}."
        )
    return CudaGpu(torch.device("cuda", index))


def _warn_once(topic: str, text: str) -> None:
    if topic not in _warned:
        _warned.add(topic)
        warnings.warn(text, stacklevel=3)


class CudaGpu:
    """A CUDA device through torch; :class:`fastload.transfer.streams.Gpu` documents the methods."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def new_stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def on_stream(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def new_event(self, timed: bool = False) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]

    def record(self, event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
        event.record(stream)

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        stream.wait_event(event)

    def passed(self, event: torch.cuda.Event) -> bool:
        return bool(event.query())  # type: ignore[no-untyped-call]

    def seconds_between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        return float(first.elapsed_time(last)) * 1e-3

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
        return torch.empty(shape, dtype=dtype, device=self.device, memory_format=layout)

    def copy(self, to: torch.Tensor, source: torch.Tensor, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)

    def launch(self, kernels: Callable[[], Any]) -> None:
        kernels()

    def run(self, operations: Callable[[], T]) -> T:
        return operations()

    def upload(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
        with torch.cuda.stream(stream):
            return tensor.to(self.device, non_blocking=True)

    def use_on_current_stream(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(self.current_stream())

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        with torch.random.fork_rng(devices=[self.device.index]), torch.cuda.device(self.device):
            torch.default_generator.manual_seed(seed)
            torch.cuda.manual_seed(seed)
            yield

    def pin(self, address: int, nbytes: int) -> str | None:
        with torch.cuda.device(self.device):
            torch.cuda.init()  # type: ignore[no-untyped-call]
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            code = runtime.cudaHostRegister(address, nbytes, _PORTABLE)
            if int(code) == 0:
                return None
            self._forget_error()
        return f"CUDA error: {torch.cuda.CudaError(int(code))}"

    def unpin(self, address: int) -> None:
        with torch.cuda.device(self.device):
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            if int(runtime.cudaHostUnregister(address)) != 0:
                self._forget_error()

    def _forget_error(self) -> None:
        """Clear the error of a refused call, which the next launch would report as its own."""
        with suppress(RuntimeError):
            torch.ones(1, device=self.device)  # launching a kernel clears the error

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def range(self, stage: str, number: int) -> AbstractContextManager[Any]:
        return torch.cuda.nvtx.range(f"{stage}#{number}") if _NVTX else profiled(stage, number)
