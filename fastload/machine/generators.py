"""The process's global random generators, and named ranges for profilers."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.profiler import record_function

# ---- Global random generators ----
# Torch's for the CPU, ``random``'s and NumPy's legacy one. Python callables draw from them. They belong to
# the whole process: they are set in worker processes, or in the consumer's thread while it waits for its
# batch, and put back. A thread beside the consumer's has its own (``fastload.machine.thread_generators``).

_lock = threading.RLock()  # loaders in two threads of a process take turns


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)  # the lock's holder may be a thread of the parent


@dataclass(frozen=True)
class Generators:
    """One generator of each of the three kinds."""

    torch: torch.Generator
    random: random.Random
    numpy: np.random.RandomState


class _Own(threading.local):
    """The current thread's own generators, from ``fastload.machine.thread_generators``; None: it has those of
    the process."""

    now: Generators | None = None


own = _Own()


def set_generators(words: Sequence[int]) -> None:
    """Set all three generators from four random 32-bit words: the thread's own, or those of the process.
    Takes about 15 us."""
    first, second, third, fourth = (int(word) for word in words)
    if (mine := own.now) is not None:
        mine.torch.manual_seed(first << 31 | second >> 1)
        mine.random.seed(third << 32 | first)
        mine.numpy.seed(fourth)
        return
    # Not torch.manual_seed: it also sets the generators of all devices.
    torch.default_generator.manual_seed(first << 31 | second >> 1)
    random.seed(third << 32 | first)
    np.random.seed(fourth)


@contextmanager
def kept() -> Iterator[None]:
    """Restore the state of all three generators on exit."""
    with _lock:
        states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            torch.default_generator.set_state(states[0])
            random.setstate(states[1])
            np.random.set_state(states[2])


# ---- Ranges for profilers ----
# ``torch.autograd.profiler.record_function`` costs microseconds even when no profiler runs; asking whether
# one does costs a twentieth of one.


def profiled(name: str, number: int | None = None) -> AbstractContextManager[Any]:
    """Return a range in the traces of torch.profiler (and, under ``emit_nvtx``, of NVTX tools).

    Args:
        name: the range's name.
        number: the batch's number, appended as ``#number``.
    """
    if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return nullcontext()
    return record_function(name if number is None else f"{name}#{number}")
