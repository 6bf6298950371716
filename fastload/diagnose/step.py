"""What a loop's step does: hooks during one step, and what CUDA says of it."""

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

# ---- device -----------------------------------------------------------------------------------------
# What the doctor asks of CUDA, where the user's script has begun to use it; it never begins by itself.

_COPIES = 5


def is_in_use() -> bool:
    """Whether this process has initialised CUDA."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronise() -> None:
    """Wait until the device has done what it was given, if there is one in use."""
    if is_in_use():
        torch.cuda.synchronize()


def copy_seconds(nbytes: int, pinned: bool) -> float | None:
    """Seconds in which so many bytes come from the host to the device in use, the median of five copies.

    None where no device is in use, or where there is no room for them (or none that may be pinned).
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
    """Which lines make the CPU wait for the device, from :meth:`begin` to :meth:`end`.

    By torch's own debug mode, which warns of ``.item()``, ``.cpu()``, ``nonzero()`` and their like; of
    ``torch.cuda.synchronize()`` it does not. Warnings of others are given on afterwards. Without CUDA there
    is nothing to wait for.
    """

    def __init__(self) -> None:
        self._catching: Any = None
        self._caught: list[warnings.WarningMessage] = []
        self._former = 0

    def begin(self) -> None:
        """Where CUDA is in use."""
        if not is_in_use():
            return
        self._former = torch.cuda.get_sync_debug_mode()
        self._catching = warnings.catch_warnings(record=True)
        self._caught = self._catching.__enter__()
        warnings.filterwarnings("always", message=_SYNCHRONISES)
        warnings.filterwarnings("ignore", message=_OF_THE_MODE)  # an error to who makes warnings errors
        torch.cuda.set_sync_debug_mode("warn")

    def end(self) -> list[str] | None:
        """File and line of each, in order and once; None where nobody looked."""
        if self._catching is None:
            return None
        torch.cuda.set_sync_debug_mode(self._former)
        self._catching.__exit__(None, None, None)
        self._catching = None
        found: dict[str, None] = {}
        for one in self._caught:
            if _SYNCHRONISES in str(one.message):
                found[f"{os.path.basename(one.filename)}:{one.lineno}"] = None
            else:
                warnings.showwarning(one.message, one.category, one.filename, one.lineno)
        return list(found)


_SYNCHRONISES = "called a synchronizing CUDA operation"
_OF_THE_MODE = "Synchronization debug mode is a prototype feature"  # what torch says when it is switched on


# ---- What a loop's step does, as far as it is seen cheaply ------------------------------------------
# By hooks during one step, and optimisers counted.
#
# The hooks are torch's own, for all modules of the process, and are gone after the step. Where something
# was compiled (``torch.compile``) there are none, because they would have it compiled again.


class OptimizerSteps:
    """Counts the steps of all optimisers, from :meth:`begin` to :meth:`end`."""

    def __init__(self) -> None:
        self.count = 0
        self._handle: Any = None

    def begin(self) -> None:
        """Count from now on; idempotent."""
        if self._handle is None:
            self._handle = register_optimizer_step_post_hook(self._stepped)

    def end(self) -> None:
        """No more; idempotent."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, *arguments: Any) -> None:
        self.count += 1


class StepFacts:
    """One step's facts, from :meth:`begin` to :meth:`end`, in the thread that begins."""

    def __init__(self) -> None:
        self.notes: dict[str, object] = {}
        self._handle: Any = None
        self._thread = 0
        self._syncs: SyncWatch | None = None

    def begin(self) -> None:
        """The step begins: the loop is about to have its batch."""
        self._thread = threading.get_ident()
        self._syncs = SyncWatch()
        self._syncs.begin()
        if is_compiled():
            self.notes["compiled"] = True
            return
        self._handle = register_module_forward_pre_hook(self._called)

    def end(self) -> None:
        """The step is over; idempotent."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if self._syncs is not None:
            found = self._syncs.end()
            self._syncs = None
            if found is not None:
                self.notes["synchronises"] = found

    def _called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """A module is called: the outermost one first."""
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
    """Where a module is, in which type, and whether autocast is on there."""
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
    """Whether convolutions work on channels_last; it is theirs if pictures or weights are."""
    weight, given = module.weight, arguments[0] if arguments else None
    for tensor in (weight, given):
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
