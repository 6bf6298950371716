"""The process's global random generators: torch's for the CPU, ``random``'s and NumPy's legacy one.

Python callables draw from them. They belong to the whole process, so no thread can have them for itself:
they are set in worker processes, or in the consumer's thread while it waits for its batch, and put back.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["kept", "set_generators"]

_lock = threading.RLock()  # two loaders of one process, in two threads, take turns


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)  # the thread that holds it may be the parent's


def set_generators(words: Sequence[int]) -> None:
    """Set all three from four random 32-bit words. About 15 us."""
    first, second, third, fourth = (int(word) for word in words)
    # Not torch.manual_seed: it sets the generators of all devices, too.
    torch.default_generator.manual_seed(first << 31 | second >> 1)
    random.seed(third << 32 | first)
    np.random.seed(fourth)


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is drawn inside, all three go on afterwards as if nothing had been."""
    with _lock:
        states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            torch.default_generator.set_state(states[0])
            random.setstate(states[1])
            np.random.set_state(states[2])
