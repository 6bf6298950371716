"""What Ctrl-C does before, during and after a command.

Before it (imports, the parser) and after it (the interpreter's end) there is nothing to put away, and an
exception may be swallowed or changed on its way: an extension module's initialisation makes an ImportError of
it, a finalizer a message. So the process ends at once then. In a command it is a KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

EXIT_CODE = 130  # 128 + SIGINT, as shells have it

_arrived = False


def leave() -> None:
    """From now on Ctrl-C ends the process."""
    _handle(_leave)


def raise_in_command() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt, which is remembered."""
    _handle(_raise)


def arrived() -> bool:
    """Whether a Ctrl-C has come in a command: an error after it may be what became of it."""
    return _arrived


def report(remark: str = "") -> int:
    """Say that the command was interrupted; the exit code."""
    sys.stderr.write(f"\ninterrupted{remark}\n")
    return EXIT_CODE


def _handle(handler: object) -> None:
    """Only where the handler is Python's or ours: who ignores SIGINT (a shell's background job) means it."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _leave, _raise):
        with contextlib.suppress(ValueError):  # not the main thread, which alone gets the signal
            signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    global _arrived
    _arrived = True
    raise KeyboardInterrupt
