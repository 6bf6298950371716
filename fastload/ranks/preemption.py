"""SIGTERM, by which schedulers announce the end: noted when it arrives, acted on between two batches.

A signal handler may run in the middle of an optimiser's step. So the handler only notes the signal (and
passes it on to the handler that was there before); callbacks run when the next batch is asked for, when all
batches received so far have been trained on.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, ClassVar

Handler = Callable[[int, FrameType | None], Any] | int | None


class SignalNote:
    """Notes signals from :meth:`watch` until :meth:`restore`; handlers that were there before run, too.

    The default action (to end the process) and Python's KeyboardInterrupt are held back the first time; a
    second signal ends the process as if nobody had watched.

    Args:
        signals: their numbers.
        wanted: whether anybody still waits for them; otherwise the first one, too, has its usual effect.
    """

    def __init__(
        self, signals: Iterable[int] = (signal.SIGTERM,), wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._signals = tuple(signals)
        self._wanted = wanted
        self._before: dict[int, Handler] = {}
        self.received: int | None = None  # the first signal that arrived

    def watch(self) -> None:
        """Install the handlers. Idempotent.

        Raises:
            RuntimeError: not in the main thread, the only one in which Python can.
        """
        if self._before:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Signal handlers can be installed in the main thread only. Call this there.")
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Put the former handlers back, where nobody has replaced ours meanwhile."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def end_process(self) -> None:
        """Do what the first signal would have done, unless a handler was there, which has run already."""
        number = self.received
        if number is None:
            return
        handler = self._before.get(number, signal.SIG_DFL)
        self.restore()
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handler)  # also where a later handler passed the signal on to ours
            os.kill(os.getpid(), number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        held = self.received is None and self._wanted()
        self.received = self.received or number
        handler = self._before.get(number)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(number, frame)
        elif not held and handler != signal.SIG_IGN:
            self.received = number
            self.end_process()


class Callbacks:
    """One loader's callbacks. The signal is noted while there are any, in the whole process.

    They run once, at the next batch that any loader of the process is asked for.
    """

    _registered: ClassVar[weakref.WeakSet[Callbacks]] = weakref.WeakSet()
    _note = SignalNote(wanted=lambda: any(True for _ in Callbacks._registered))

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], Any]] = []

    def add(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` before the next batch after a SIGTERM, then end the process by the signal.

        Raises:
            RuntimeError: not in the main thread.
        """
        self._note.watch()
        self._callbacks.append(callback)
        self._registered.add(self)
        weakref.finalize(self, Callbacks._forget).atexit = False

    def clear(self) -> None:
        """Forget this loader's callbacks."""
        self._callbacks.clear()
        self._registered.discard(self)
        self._forget()

    @classmethod
    def run_if_signalled(cls) -> None:
        """Between two batches: run the callbacks if the signal has come. Cheap otherwise."""
        if cls._note.received is None or threading.current_thread() is not threading.main_thread():
            return
        pending = [callback for owner in list(cls._registered) for callback in owner._callbacks]
        for owner in list(cls._registered):
            owner._callbacks.clear()
        for callback in pending:
            callback()
        cls._note.end_process()
        cls._reset()

    @classmethod
    def _forget(cls) -> None:
        """The last loader with callbacks is gone: a signal that came meanwhile takes its course."""
        if any(True for _ in cls._registered) or threading.current_thread() is not threading.main_thread():
            return
        cls._note.end_process()
        cls._reset()

    @classmethod
    def _reset(cls) -> None:
        cls._note.restore()
        cls._note.received = None
