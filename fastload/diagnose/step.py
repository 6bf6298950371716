"""What a loop's step does: facts from hooks during one step, and from CUDA."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

# ---- CUDA, if the user's script has initialised it --------------------------------------------------

_COPIES = 5


def is_in_use() -> bool:
    """Whether this process has initialised CUDA."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronise() -> None:
    """Wait until the device in use, if any, has done its work."""
    if is_in_use():
        torch.cuda.synchronize()


def copy_seconds(nbytes: int, pinned: bool) -> float | None:
    """Measure the seconds in which ``nbytes`` are copied from host to device: the median of five copies.

    None: no device is in use, or there is no memory for them (or none that may be pinned).
    """
    if not is_in_use() or nbytes <= 0:
        return None
    try:
        source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=pinned).fill_(1)
        target = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    except RuntimeError:  # torch's error for both
        return None
    times = []
    for _ in range(_COPIES + 1):  # the first one to warm up
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


class SyncWatch:
    """A watch, from :meth:`begin` to :meth:`end`, for lines that make the CPU wait for the device.

    torch's debug mode warns of ``.item()``, ``.cpu()``, ``nonzero()`` and the like, but not of
    ``torch.cuda.synchronize()``. Other warnings are shown afterwards.
    """

    def __init__(self) -> None:
        self._catching: Any = None
        self._caught: list[warnings.WarningMessage] = []
        self._former = 0

    def begin(self) -> None:
        """Start watching, if CUDA is in use."""
        if not is_in_use():
            return
        self._former = torch.cuda.get_sync_debug_mode()
        self._catching = warnings.catch_warnings(record=True)
        self._caught = self._catching.__enter__()
        warnings.filterwarnings("always", message=_SYNCHRONISES)
        warnings.filterwarnings("ignore", message=_OF_THE_MODE)  # the user may have made warnings errors
        torch.cuda.set_sync_debug_mode("warn")

    def end(self) -> list[str] | None:
        """Stop watching; return each file and line once, in order; None without CUDA."""
        if self._catching is None:
            return None
        torch.cuda.set_sync_debug_mode(self._former)
        self._catching.__exit__(None, None, None)
        self._catching = None
        lines: dict[str, None] = {}
        for each in self._caught:
            if _SYNCHRONISES in str(each.message):
                lines[f"{os.path.basename(each.filename)}:{each.lineno}"] = None
            else:
                warnings.showwarning(each.message, each.category, each.filename, each.lineno)
        return list(lines)


_SYNCHRONISES = "called a synchronizing CUDA operation"
_OF_THE_MODE = "Synchronization debug mode is a prototype feature"  # torch's warning at switching it on


# ---- Hooks during one step --------------------------------------------------------------------------
# torch's hooks for all modules of the process; removed after the step. If anything was compiled
# (``torch.compile``) there are none, because they would make torch compile it again.


class OptimizerSteps:
    """A counter of all optimisers' steps, from :meth:`begin` to :meth:`end`."""

    def __init__(self) -> None:
        self.count = 0
        self._handle: Any = None

    def begin(self) -> None:
        """Start counting; idempotent."""
        if self._handle is None:
            self._handle = register_optimizer_step_post_hook(self._stepped)

    def end(self) -> None:
        """Stop counting; idempotent."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, *arguments: Any) -> None:
        self.count += 1


class StepFacts:
    """Facts about one step, from :meth:`begin` to :meth:`end`, in the thread that calls :meth:`begin`."""

    def __init__(self) -> None:
        self.notes: dict[str, object] = {}
        self._handle: Any = None
        self._thread = 0
        self._syncs: SyncWatch | None = None

    def begin(self) -> None:
        """Begin, when the loop is about to get its batch."""
        self._thread = threading.get_ident()
        self._syncs = SyncWatch()
        self._syncs.begin()
        if is_compiled():
            self.notes["compiled"] = True
            return
        self._handle = register_module_forward_pre_hook(self._called)

    def end(self) -> None:
        """End, when the step is over; idempotent."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if self._syncs is not None:
            lines = self._syncs.end()
            self._syncs = None
            if lines is not None:
                self.notes["synchronises"] = lines

    def _called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note facts of a called module; the outermost one is called first."""
        if threading.get_ident() != self._thread:
            return
        name = type(module).__name__
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            self.notes.setdefault("parallel", name)
        if "module" not in self.notes:
            self.notes |= {"module": name, "training": module.training, **_of_parameters(module)}
        if isinstance(module, nn.Conv2d):
            _note_convolution(self.notes, module, arguments)


def _of_parameters(module: nn.Module) -> dict[str, object]:
    """Return a module's device, its parameters' dtype, and whether autocast is on there."""
    first = next(module.parameters(), None)
    if first is None:
        return {}
    kind = first.device.type
    return {
        "device": kind,
        "parameter_dtype": str(first.dtype).removeprefix("torch."),
        "autocast": _autocast(kind),
    }


def _autocast(device: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before torch 2.4
        of_cpu = getattr(torch, "is_autocast_cpu_enabled", torch.is_autocast_enabled)
        return bool(of_cpu() if device == "cpu" else torch.is_autocast_enabled())


def _note_convolution(notes: dict[str, object], module: nn.Conv2d, arguments: tuple[Any, ...]) -> None:
    """Note whether a convolution works on channels_last: its pictures or its weights have that format."""
    for tensor in (module.weight, arguments[0] if arguments else None):
        if isinstance(tensor, torch.Tensor) and tensor.dim() == 4 and not tensor.is_contiguous():
            last = tensor.is_contiguous(memory_format=torch.channels_last)
            notes["channels_last"] = bool(notes.get("channels_last", False)) or last
    notes.setdefault("channels_last", False)


def is_compiled() -> bool:
    """Whether ``torch.compile`` was used in this process."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    holders = (frames, getattr(frames, "guarded_backend_cache", None))  # the second one until torch 2.2
    known = [getattr(holder, "cached_backends", None) or {} for holder in holders]
    return any(backend is not None for backends in known for backend in backends.values())
