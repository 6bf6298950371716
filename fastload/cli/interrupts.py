"""What Ctrl-C does before, during and after a command.

In a command it raises KeyboardInterrupt. Before (imports, the parser) and after it (interpreter shutdown) the
process ends at once: there is nothing to clean up, and an exception may be swallowed or changed on its way.
An extension module's initialisation turns it into an ImportError, a finalizer into a message.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

EXIT_CODE = 130  # 128 + SIGINT, as in shells

_arrived = False


def leave() -> None:
    """Let Ctrl-C end the process from now on."""
    _handle(_leave)


def raise_in_command() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, and remember it."""
    _handle(_raise)


def arrived() -> bool:
    """Return whether Ctrl-C was pressed in a command; a later error may be a consequence."""
    return _arrived


def report(remark: str = "") -> int:
    """Print that the command was interrupted, and return the exit code."""
    sys.stderr.write(f"\ninterrupted{remark}\n")
    return EXIT_CODE


def _handle(handler: object) -> None:
    """Replace only Python's handler or ours: a process that ignores SIGINT (a background job) means to."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _leave, _raise):
        with contextlib.suppress(ValueError):  # not the main thread, the only one that gets the signal
            signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(EXIT_CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    global _arrived
    _arrived = True
    raise KeyboardInterrupt
