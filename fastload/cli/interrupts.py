"""What Ctrl-C, SIGTERM and a closed terminal (SIGHUP) do before, during and after a command.

In a command they raise KeyboardInterrupt, so that temporary files go and workers end. Before (imports, the
parser) and after it (interpreter shutdown) the process ends at once: there is nothing to clean up, and an
exception may be swallowed or changed on its way. An extension module's initialisation turns it into an
ImportError, a finalizer into a message.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)  # whose default action ends a process without cleaning up
_ECHO = 1.0  # seconds: timeout(1), for one, sends a signal to the process and then to its group

_arrived: int | None = None  # the first signal that came in a command
_last = 0.0  # when the latest came
_raising: set[int] = set()  # signals that raise KeyboardInterrupt now
_masks: dict[int, set[int]] = {}  # what threads that fork had blocked


def leave() -> None:
    """Let Ctrl-C end the process from now on, and the other signals do what they do by default."""
    _handle(signal.SIGINT, _leave)
    for number in _ENDING:
        _handle(number, signal.SIG_DFL)


def raise_in_command() -> None:
    """Let the signals raise KeyboardInterrupt from now on, and remember the first."""
    for number in (signal.SIGINT, *_ENDING):
        _handle(number, _raise)


def arrived() -> bool:
    """Return whether a signal came in a command; a later error may be a consequence."""
    return _arrived is not None


def report(remark: str = "") -> int:
    """Print that the command was interrupted, and return the exit code: 128 + the signal, as in shells."""
    number = signal.SIGINT if _arrived is None else _arrived
    word = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    sys.stderr.write(f"\n{word}{remark}\n")
    return 128 + number


def _handle(number: int, handler: object) -> None:
    """Replace only Python's handler or ours: a process that ignores a signal (nohup) means to."""
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    if signal.getsignal(number) in (usual, _leave, _raise):
        with contextlib.suppress(ValueError):  # not the main thread, the only one that gets signals
            signal.signal(number, handler)  # type: ignore[arg-type]
            (_raising.add if handler is _raise else _raising.discard)(number)


# A worker that a command forks is ended by SIGTERM, which must do then what it does by default, and may come
# at once: Python forgets what comes before its at-fork callbacks.


def _before_fork() -> None:
    _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _after_fork() -> None:
    if (mask := _masks.pop(threading.get_ident(), None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    for number in _raising.intersection(_ENDING):  # another handler may keep them back now
        signal.signal(number, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    global _arrived, _last
    is_echo = number == _arrived != signal.SIGINT and time.monotonic() < _last + _ECHO
    _last = time.monotonic()
    if not is_echo:  # it would break off what the first one began
        _arrived = _arrived or number
        raise KeyboardInterrupt
