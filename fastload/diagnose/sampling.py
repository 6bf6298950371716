"""A sampling profiler: what the main process and torch's workers do while a script runs.

Each process has a clock (``_C.Ticks``) that has Python look at its main thread fifty times a second,
between two bytecodes. The other threads are seen at the same moments, or by a thread of Python while the
main one waits. What was seen is counted by place, and sent twice a second to the process that asked, by a
datagram socket without a file. Like py-spy it needs no change of the script, and unlike it no right to look
into processes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fastload._native import _C
from fastload.diagnose.spots import Spot, container_of, frames_of, picture_of, spot_of

_EVERY = 0.02  # seconds between two ticks
_THREADS = 3  # ticks between two looks at the other threads
_WATCH = 0.06  # seconds between two looks at them while the main one waits
_FLUSH = 0.5  # seconds between two messages
_LATE = 0.1  # seconds in which messages of workers still count
_PATIENCE = 10.0  # seconds for the receiver to read them, on a crowded machine
_ROWS = 100  # in a message, whose size is limited
_ROOM = 4 << 20  # bytes of the receiver's buffer, as far as the system allows
_MOST_PICTURES = 64  # files that are remembered

RUNNING, FAULT = -1, -3  # in place of a system call's number: at work, or waiting for a page of memory
_OF_THREADS = ("MainThread", "fastload", "fl-")  # names of threads that are not looked at by name


@dataclass
class Seen:
    """What one process did during some time.

    Args:
        process: "main", or a worker's process id.
        begin, end: seconds of ``time.monotonic()``, which all processes share.
        ticks: count by thread ("" is the main one), spot and the system call that it waited in.
        pictures: count by format, width, height and file name of what Pillow decoded.
        containers: how arrays are stored, as :func:`~fastload.diagnose.spots.container_of` says.
    """

    process: str
    begin: float
    end: float
    ticks: Counter[tuple[str, Spot, int]] = field(default_factory=Counter)
    pictures: Counter[tuple[str, int, int, str]] = field(default_factory=Counter)
    containers: Counter[str] = field(default_factory=Counter)


class Sampler:
    """The profiler of one process.

    Args:
        process: its name.
        deliver: called about twice a second with what was seen since.
        is_worker: whether it is a worker of a torch loader.
    """

    def __init__(self, process: str, deliver: Callable[[Seen], None], is_worker: bool) -> None:
        now = time.monotonic()
        self._deliver = deliver
        self._is_worker = is_worker
        self._seen = Seen(process, now, now)
        self._known: dict[Any, Spot] = {}
        self._looked = now
        self._unseen = 0  # ticks since the other threads were looked at
        self._taken: Counter[int] = Counter()  # the main thread's own, by state, that no place has yet
        self._lock = threading.Lock()  # never waited for in the main thread
        self._is_stopped = False
        self._is_over = False  # nothing is looked at any more; no Event, whose lock the main thread may hold
        self._signal = _free_signal()
        self._clock = _C.Ticks(self._signal, _EVERY)
        signal.signal(self._signal, self._look)
        signal.siginterrupt(self._signal, False)  # system calls are restarted
        self._clock.start()
        self._watcher = threading.Thread(target=self._watch, name="fl-watcher", daemon=True)
        self._watcher.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop, and deliver the rest; idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = self._is_over = True
        self._clock.stop()
        if signal.getsignal(self._signal) == self._look:  # else the program has set its own meanwhile
            # The clock's last signal may still come, and the default is to end the process.
            signal.signal(self._signal, _ignored)
        self._flush(time.monotonic())
        atexit.unregister(self.stop)

    def _look(self, _: int, frame: FrameType | None) -> None:
        """Count where the main thread is; called in it. Nothing may be raised into the user's code."""
        self._taken.update(self._clock.take())
        if self._is_over or not self._lock.acquire(blocking=False):  # what was taken counts the next time
            return
        try:
            states, self._taken = self._taken, Counter()
            self._looked = now = time.monotonic()
            self._count("", frame, states)
            self._unseen += sum(states.values())
            if self._unseen >= _THREADS:  # the other threads are looked at less often
                self._look_at_threads(self._unseen)
                self._unseen = 0
            if now - self._seen.begin > _FLUSH:
                self._flush(now)
        except Exception:
            self._is_over = True
        finally:
            self._lock.release()

    def _count(self, thread: str, frame: FrameType | None, states: Mapping[int, int]) -> None:
        key = _place_of(frame, thread)
        spot = self._known.get(key)
        if spot is None:
            frames = frames_of(frame)
            spot = self._known[key] = spot_of(frames, self._is_worker, thread)
            if spot.kind == "reading" and (stored := container_of(frames)):
                self._seen.containers[stored] += 1
        if thread and spot.kind == "idle":
            return
        for state, count in states.items():
            self._seen.ticks[thread, spot, state] += count
        if spot.kind == "decode" and (picture := picture_of(frames_of(frame))) is not None:
            if len(self._seen.pictures) >= _MOST_PICTURES:
                picture = (*picture[:3], "")
            self._seen.pictures[picture] += sum(states.values())

    def _look_at_threads(self, ticks: int) -> None:
        main = threading.main_thread().ident
        frames = sys._current_frames()
        # The main thread may hold the lock of enumerate() at the moment.
        for thread in list(threading._active.values()):  # type: ignore[attr-defined]
            if thread.ident == main or thread.name.startswith(_OF_THREADS) or thread.ident not in frames:
                continue
            state = _state_of(thread.native_id)
            self._count(thread.name, frames[thread.ident], {state: ticks})

    def _watch(self) -> None:
        """Look at the other threads while the main one waits for long, and so is not interrupted."""
        while not self._is_over:
            time.sleep(_WATCH)
            now = time.monotonic()
            if now - self._looked < 2 * _WATCH or len(threading._active) < 3:  # type: ignore[attr-defined]
                continue
            if self._lock.acquire(blocking=False):
                try:
                    self._look_at_threads(round(_WATCH / _EVERY))
                    if now - self._seen.begin > _FLUSH:
                        self._flush(now)
                finally:
                    self._lock.release()

    def _flush(self, now: float) -> None:
        seen, self._seen = self._seen, Seen(self._seen.process, now, now)
        seen.end = now
        if not seen.ticks:
            return
        try:
            self._deliver(seen)
        except OSError:  # nobody listens any more
            self._is_over = True
            self._clock.stop()


def _place_of(frame: FrameType | None, thread: str) -> tuple[Any, ...]:
    """Return what tells a stack from others: each frame's code, and the place in it."""
    key: list[Any] = [thread]
    while frame is not None:
        key += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


def _ignored(_: int, __: FrameType | None) -> None:
    """Do nothing."""


def _free_signal() -> int:
    """Return a signal that nobody handles."""
    for number in range(signal.SIGRTMAX, signal.SIGRTMIN, -1):
        if signal.getsignal(number) in (signal.SIG_DFL, _ignored):
            return number
    raise OSError("All real-time signals have handlers.")


def _state_of(thread: int | None) -> int:
    try:
        with open(f"/proc/self/task/{thread}/syscall", encoding="ascii") as file:
            word = file.read(24).split()[0]
    except (OSError, IndexError):
        return RUNNING
    if not word.lstrip("-").isdigit():
        return RUNNING
    return int(word) if int(word) >= 0 else FAULT


# ---- Between processes ------------------------------------------------------------------------------


def packed(seen: Seen) -> list[bytes]:
    """Return messages that :func:`unpacked` reads."""
    rows = [[thread, *spot, state, count] for (thread, spot, state), count in seen.ticks.items()]
    head = {"process": seen.process, "begin": seen.begin, "end": seen.end}
    messages = []
    for at in range(0, max(1, len(rows)), _ROWS):
        message: dict[str, Any] = {**head, "rows": rows[at : at + _ROWS]}
        if at == 0:
            message["pictures"] = [[*picture, count] for picture, count in seen.pictures.items()]
            message["containers"] = list(seen.containers.items())
        messages.append(json.dumps(message).encode())
    return messages


def unpacked(message: bytes) -> Seen:
    """Read a message of :func:`packed`."""
    given: dict[str, Any] = json.loads(message)
    seen = Seen(given["process"], given["begin"], given["end"])
    for thread, *spot, state, count in given["rows"]:
        seen.ticks[thread, Spot(*spot), state] += count
    for *picture, count in given.get("pictures", ()):
        kind, width, height, name = picture
        seen.pictures[kind, width, height, name] += count
    for stored, count in given.get("containers", ()):
        seen.containers[stored] += count
    return seen


class WatchedWorker:
    """Torch's ``_worker_loop`` with a profiler beside it; picklable, for workers that are spawned.

    Args:
        address: of the socket of the process that asked.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedWorker, (self._address,)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the worker."""
        from torch.utils.data._utils import worker

        loop = worker._worker_loop
        loop = getattr(loop, "__wrapped__", loop)  # a forked worker has the parent's change
        sampler = None
        with contextlib.suppress(Exception):  # without a profiler rather than without a worker
            line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            line.setblocking(False)
            sampler = Sampler(str(os.getpid()), functools.partial(_send, line, self._address), True)
        try:
            loop(*arguments, **named)
        finally:
            if sampler is not None:
                sampler.stop()


def _send(line: socket.socket, address: str, seen: Seen) -> None:
    for message in packed(seen):
        with contextlib.suppress(BlockingIOError):  # the receiver's buffer is full
            line.sendto(message, address)


class Profile:
    """A profiler of this process and of torch's workers that start while it runs.

    What was seen is in :attr:`seen`, as far as it has come.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.began = self.ended = time.monotonic()
        self._line: socket.socket | None = None
        self._receiver: threading.Thread | None = None
        self._sampler: Sampler | None = None
        self._former: Any = None

    def start(self) -> None:
        """Begin; does nothing in a thread, or if another one runs in this process."""
        from torch.utils.data._utils import worker

        in_main = threading.current_thread() is threading.main_thread()
        if hasattr(worker._worker_loop, "__wrapped__") or not in_main:
            return
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        self._line.bind(f"\0fastload-doctor-{os.getpid()}-{os.urandom(4).hex()}")
        self._receiver = threading.Thread(
            target=self._receive, args=(self._line,), name="fl-receiver", daemon=True
        )
        self._receiver.start()
        self._former = worker._worker_loop
        watched: Any = WatchedWorker(self._line.getsockname())
        watched.__wrapped__ = self._former
        worker._worker_loop = watched
        self.began = time.monotonic()
        self._sampler = Sampler("main", self.seen.append, False)

    def stop(self) -> None:
        """End; idempotent. Workers that still run go on to send into nothing."""
        from torch.utils.data._utils import worker

        if self._former is not None:
            worker._worker_loop = self._former
            self._former = None
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None
            self.ended = time.monotonic()
            time.sleep(_LATE)
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)  # wakes the receiver, once it has read what has come
            if self._receiver is not None:
                self._receiver.join(_PATIENCE)
            self._line.close()
            self._line = self._receiver = None

    def _receive(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := line.recv(1 << 18):
                with contextlib.suppress(ValueError, TypeError, KeyError):  # not one of ours
                    self.seen.append(unpacked(message))
