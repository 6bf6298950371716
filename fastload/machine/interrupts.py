"""Signals whose Python handlers raise: kept back while that would be lost, and told from other errors."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


def _handlers() -> dict[int, Callable[..., Any]]:
    """Python's handlers by signal: default_int_handler, and those of the program."""
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in found.items() if callable(handler)}


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Signals that come inside are handled at the end, in this process. Only the main thread handles any.

    A handler runs between two bytecodes. After a fork the first ones are those of at-fork callbacks
    (``logging`` has some), whose exceptions Python prints and ignores: a KeyboardInterrupt, or the SystemExit
    of a handler of SIGTERM, is gone, and with it what the callback had left to do, say to release a lock. A
    thread that is half started is not on the list of those that the interpreter ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, owner, over = _handlers(), os.getpid(), False
    came: dict[int, FrameType | None] = {}

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner and not over:
            came.setdefault(number, frame)
        else:  # a child has it for good; and a handler that raised kept us from putting this one back
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
    """Call the handlers of what came; where one raises, the rest are called all the same."""
    if came:
        number = next(iter(came))
        frame = came.pop(number)
        try:
            handlers[number](number, frame)
        finally:
            _handle(came, handlers)


def raised_by_a_handler(error: BaseException) -> bool:
    """Whether a signal's handler has raised it: such an error says nothing about what it interrupted."""
    codes = {code for code in map(_code, _handlers().values()) if code is not None}
    step = error.__traceback__
    while step is not None and codes:
        if step.tb_frame.f_code in codes:
            return True
        step = step.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """That of a function, a method, a partial or an object that can be called; None: it is not Python's."""
    handler = getattr(handler, "func", handler)
    for found in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
        code = getattr(found, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
