"""Ctrl-C while processes fork: Python would lose it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_kept"]


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """A SIGINT that comes inside is handled at the end, in this process.

    A handler runs between two bytecodes, and after a fork the first ones are those of at-fork callbacks
    (``logging`` has some), whose exceptions Python prints and ignores: a KeyboardInterrupt is gone.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    owner = os.getpid()
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            came.append((number, frame))
        else:  # a child has it for good
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
