"""Signals whose Python handlers raise: delayed while their exceptions would be lost, and recognised."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


def _handlers() -> dict[int, Callable[..., Any]]:
    """Return Python's handlers by signal: default_int_handler, and the program's."""
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in found.items() if callable(handler)}


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Delay signals until the block ends, in this process. Only the main thread handles any.

    A handler runs between two bytecodes. After a fork the first bytecodes are those of at-fork callbacks
    (``logging`` has some), whose exceptions Python prints and ignores: a KeyboardInterrupt, or the SystemExit
    of a SIGTERM handler, is lost, along with the rest of the callback, which may release a lock. A
    half-started thread is not among those that the interpreter ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, owner, over = _handlers(), os.getpid(), False
    came: dict[int, FrameType | None] = {}

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner and not over:
            came.setdefault(number, frame)
        else:  # a child keeps it; so does a parent if a handler raised before it was replaced
            before[number](number, frame)

    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        over = True
        try:
            for number, handler in before.items():
                if signal.getsignal(number) is note:  # else the program has set another one meanwhile
                    signal.signal(number, handler)
        finally:
            _handle(came, before)


def _handle(came: dict[int, FrameType | None], handlers: dict[int, Callable[..., Any]]) -> None:
    """Call the handlers of all signals that came, even if one of them raises."""
    if came:
        number = next(iter(came))
        frame = came.pop(number)
        try:
            handlers[number](number, frame)
        finally:
            _handle(came, handlers)


def raised_by_a_handler(error: BaseException) -> bool:
    """Return whether a signal's handler raised the error, which then is not about the interrupted code."""
    codes = {code for code in map(_code, _handlers().values()) if code is not None}
    step = error.__traceback__
    while step is not None and codes:
        if step.tb_frame.f_code in codes:
            return True
        step = step.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return the code of a function, method, partial or callable object; None: it is not Python."""
    handler = getattr(handler, "func", handler)
    for found in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
        code = getattr(found, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
