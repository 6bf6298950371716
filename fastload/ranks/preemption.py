"""SIGTERM, by which schedulers announce the end: noted when it arrives, acted on between two batches.

A signal handler may run in the middle of an optimiser's step. So the handler only notes the signal (and
passes it on to the previous handler); callbacks run when the next batch is requested: by then all batches
received so far have been trained on.
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
    """A note of the signals between :meth:`watch` and :meth:`restore`; previous handlers run, too.

    The default action (to end the process) and Python's KeyboardInterrupt are held back the first time; a
    second signal ends the process as if nobody had watched.

    Args:
        signals: their numbers.
        wanted: whether anybody still waits for them; if not, the first one has its usual effect, too.
    """

    def __init__(
        self, signals: Iterable[int] = (signal.SIGTERM,), wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._signals = tuple(signals)
        self._wanted = wanted
        self._before: dict[int, Handler] = {}
        self.received: int | None = None  # the first signal that arrived, and was not forgotten
        self.count = 0  # of signals that have arrived
        self._last = 0  # the latest one's number

    def watch(self) -> None:
        """Install the handlers. Idempotent.

        Raises:
            RuntimeError: called outside the main thread, where Python cannot install them.
        """
        if self._before:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Signal handlers can be installed in the main thread only. Call this there.")
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Put the previous handlers back, unless ours were replaced meanwhile."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def forget(self, count: int) -> None:
        """Forget all but those that have arrived since there were ``count``."""
        self.received = None  # before the look: the next one is noted, or seen here
        if self.count > count:
            self.received = self._last

    @property
    def ends(self) -> bool:
        """Whether :meth:`end_process` ends it."""
        handler = self._before.get(self.received or 0, signal.SIG_DFL)
        return handler in (signal.SIG_DFL, signal.default_int_handler)

    def end_process(self) -> None:
        """Do what the first signal would have done, unless it had a handler, which has run already."""
        number = self.received
        if number is None:
            return
        handler = self._before.get(number, signal.SIG_DFL)
        self.restore()
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handler)  # also if a later handler passed the signal on to ours
            os.kill(os.getpid(), number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        held = self.received is None and self._wanted()
        self.count, self._last = self.count + 1, number
        self.received = self.received or number
        handler = self._before.get(number)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(number, frame)
        elif not held and handler != signal.SIG_IGN:
            self.received = number
            self.end_process()


class Callbacks:
    """One loader's callbacks. The signal is noted as long as any loader of the process has some.

    They run once, when the next batch is requested from any loader of the process.
    """

    _registered: ClassVar[weakref.WeakSet[Callbacks]] = weakref.WeakSet()
    _note = SignalNote(wanted=lambda: any(True for _ in Callbacks._registered))
    _are_running: ClassVar[bool] = False

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], Any]] = []

    def add(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` before the next batch after a SIGTERM, then end the process by the signal.

        Raises:
            RuntimeError: called outside the main thread.
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
        """Run the callbacks if the signal has come; for between two batches, cheap otherwise.

        A callback may take batches, close loaders, and register another one for the next signal.
        """
        if cls._note.received is None or threading.current_thread() is not threading.main_thread():
            return
        if cls._are_running:
            return
        pending = [callback for owner in list(cls._registered) for callback in owner._callbacks]
        for owner in list(cls._registered):
            owner._callbacks.clear()
        count, cls._are_running = cls._note.count, True
        try:
            for callback in pending:
                callback()
        finally:
            cls._are_running = False
        for owner in list(cls._registered):
            if not owner._callbacks:
                cls._registered.discard(owner)
        if any(True for _ in cls._registered) and not cls._note.ends:
            cls._note.forget(count)
        else:
            cls._note.end_process()
            cls._reset()

    @classmethod
    def _forget(cls) -> None:
        """Let a noted signal take its course once the last loader with callbacks is gone."""
        if any(True for _ in cls._registered) or threading.current_thread() is not threading.main_thread():
            return
        if cls._are_running:
            return
        cls._note.end_process()
        cls._reset()

    @classmethod
    def _reset(cls) -> None:
        cls._note.restore()
        cls._note.received = None
