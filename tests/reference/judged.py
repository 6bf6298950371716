"""Code that is given hostile input, run in a forked child that may neither grow, nor hang, nor stray.

Each use runs under RLIMIT_AS and a limit of time. What came of it is an :class:`Outcome`, and
:func:`bad` says what is wrong with that: a signal, a hang, an error of a class that a caller does not expect,
one without words, memory past the ceiling, files written or connections made elsewhere.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow

from fastload._native import _C
from fastload.errors import FastloadError

__all__ = [
    "NAMED_PORTS",
    "SECONDS",
    "SMALL_POOLS",
    "Outcome",
    "bad",
    "is_legal",
    "judge",
    "judge_all",
    "place_in_memory",
]

Use = Callable[[], Any]
# Of this machine, to which uses may connect: of the servers that they are about.
NAMED_PORTS: set[int] = set()

SECONDS = 120.0  # of wall clock, on a crowded machine; what hangs, hangs longer
LONGEST = 10_000  # characters of a message that somebody shall read
# Programs whose children have a ceiling start with this. Arrow's readers take their memory from the pool
# that is chosen when Arrow loads, and mimalloc takes a gigabyte of addresses, or all that a ceiling leaves.
SMALL_POOLS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
ARENA_MAX = -8  # M_ARENA_MAX of malloc.h: each further arena takes 64 MiB of addresses, used or not
# Memory past the ceiling, whatever it is called.
MEMORY = re.compile(r"MemoryError|bad_alloc|malloc of size|[Cc]annot allocate memory")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate")
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")


@dataclass
class Outcome:
    """What came of one use."""

    ended: str  # "returned", "raised", "hangs", "signal 11", or "exit 1"
    error: str = ""  # the class that was raised
    legal: bool = False  # whether callers may expect that class
    words: str = ""
    value: Any = None  # what was returned, as JSON has it
    peak: int = 0  # bytes of addresses above what the child had when it began, the most so far
    strayed: list[str] = field(default_factory=list)  # files, connections and programs that nobody named


def bad(outcome: Outcome) -> str:
    """What is wrong with it, or nothing."""
    if outcome.ended not in ("returned", "raised"):
        return f"{outcome.ended}: {outcome.words}"
    if outcome.strayed:
        return f"strayed: {'; '.join(outcome.strayed)}"
    if outcome.ended == "raised":
        if not outcome.legal:
            return f"{outcome.error}: {outcome.words}"
        if MEMORY.search(outcome.words):
            return f"{outcome.error}, which asked for memory: {outcome.words:.1000}"
        if len(outcome.words.split()) < 3 or len(outcome.words) > LONGEST:
            return f"{outcome.error} with {len(outcome.words)} characters: {outcome.words[:200]!r}"
    return ""


def judge(use: Use, folder: Path, **limits: Any) -> Outcome:
    """What becomes of one use. See :func:`judge_all`."""
    [outcome] = judge_all([use], folder, **limits)
    return outcome


def judge_all(
    uses: Sequence[Use],
    folder: Path,
    *,
    ceiling: int | None = None,
    seconds: float = SECONDS,
    prepare: Use | None = None,
) -> list[Outcome]:
    """What becomes of each use, one after the other in one child as long as it lives; then in another.

    Args:
        folder: where they may write, and the child's working directory.
        ceiling: bytes of addresses that the child may have above those when it begins; None: any.
        seconds: for each use.
        prepare: what the child does first, without limits; its value, if it is not None, is the only use.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(uses):
        left = uses[len(outcomes) :]
        found = list(_one_child(left, folder, ceiling, seconds, prepare))
        outcomes += found
    return outcomes


def _one_child(
    uses: Sequence[Use],
    folder: Path,
    ceiling: int | None,
    seconds: float,
    prepare: Use | None,
) -> Iterator[Outcome]:
    """Outcomes until the child ends or one hangs, which is the last of them."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _be_child(uses, folder, ceiling, prepare, writing, said.fileno())
        os.close(writing)
        try:
            count = 0
            for line in _lines(reading, seconds):
                if line is None:
                    yield Outcome("hangs", words=_stopped(pid, said))
                    return
                count += 1
                yield Outcome(**json.loads(line))
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            pid = 0
            if count < len(uses):
                ended = f"signal {-status}" if status < 0 else f"exit {status}"
                yield Outcome(ended, words=_text(said))
        finally:
            os.close(reading)
            if pid:
                _end(pid)


def _lines(reading: int, seconds: float) -> Iterator[bytes | None]:
    """Lines of a pipe; None where one takes longer."""
    data, until = b"", time.monotonic() + seconds
    while True:
        wait = until - time.monotonic()
        if wait <= 0 or not select.select([reading], [], [], wait)[0]:
            yield None
            return
        piece = os.read(reading, 1 << 16)
        if not piece:
            return
        data += piece
        *whole, data = data.split(b"\n")
        for line in whole:
            until = time.monotonic() + seconds
            yield line


def _stopped(pid: int, said: Any) -> str:
    """End a child that hangs; where it was."""
    os.kill(pid, signal.SIGUSR1)  # faulthandler writes the stacks of Python
    time.sleep(0.5)
    return _text(said)


def _end(pid: int) -> None:
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except ChildProcessError:
        return


def _text(said: Any) -> str:
    said.seek(0)
    return str(said.read()[-3000:].decode("utf-8", "replace"))


# ---- the child ----------------------------------------------------------------------------------


def addresses(name: str = "VmSize") -> int:
    """Bytes of addresses that this process has (or had at most: VmPeak)."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition(f"{name}:")[2].split()[0])


class _Watch:
    """Notes what is opened, connected and started beside what was named."""

    def __init__(self, folder: Path) -> None:
        self.found: list[str] = []
        self.folder = os.path.realpath(folder)
        self.active = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open" and isinstance(given[2], int) and given[2] & WRITES:
            self._look_at(event, given[0])
        elif event in CHANGES:
            for path in given[:2] if event in ("os.rename", "os.link") else given[:1]:
                self._look_at(event, path)
        elif event == "socket.connect":
            self._look_at_address(given[1])
        elif event in STARTS or event == "pickle.find_class":
            self.found.append(f"{event} {given[:2]!r:.200}")

    def _look_at(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.path.dirname(os.path.abspath(os.fsdecode(path))))
        if real != self.folder and not real.startswith((self.folder + "/", "/dev", "/proc/")):
            self.found.append(f"{event} {os.fsdecode(path)!r:.200}")

    def _look_at_address(self, address: Any) -> None:
        if isinstance(address, tuple) and address[1] not in NAMED_PORTS:
            self.found.append(f"socket.connect {address!r:.200}")


def _be_child(
    uses: Sequence[Use],
    folder: Path,
    ceiling: int | None,
    prepare: Use | None,
    writing: int,
    said: int,
) -> None:
    """Run them, and never come back."""
    status = 1
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        faulthandler.enable(file=said)
        faulthandler.register(signal.SIGUSR1, file=said)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # others keep a gigabyte of addresses
        warnings.simplefilter("ignore")
        os.fsync = lambda descriptor: None  # type: ignore[assignment]  # says nothing here, and takes most of the time
        watch = _Watch(folder)
        made = prepare() if prepare is not None else None
        first = addresses()
        if ceiling is not None:
            resource.setrlimit(resource.RLIMIT_AS, (first + ceiling, resource.RLIM_INFINITY))
        for use in uses if made is None else [made]:
            outcome = _used(use, watch)
            outcome.peak = addresses("VmPeak") - first
            os.write(writing, json.dumps(asdict(outcome)).encode() + b"\n")
        status = 0
    except BaseException as error:
        os.write(said, f"{type(error).__name__}: {error!s:.2000}".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _used(use: Use, watch: _Watch) -> Outcome:
    watch.found.clear()
    watch.active = True
    try:
        outcome = Outcome("returned", value=use())
    except Exception as error:
        outcome = _raised(error)
    finally:
        watch.active = False
    outcome.strayed = list(watch.found)
    return outcome


def is_legal(error: Exception) -> bool:
    """Whether callers may expect this class of error of bad input."""
    plain = type(error).__module__ == "builtins" and isinstance(error, OSError)
    return isinstance(error, FastloadError) or type(error) is ValueError or plain


def _raised(error: Exception) -> Outcome:
    legal = is_legal(error)
    trace, where = error.__traceback__, ""
    while trace is not None and not legal:  # where it came from, for what has to be repaired
        where = f" [{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}]"
        trace = trace.tb_next
    words = f"{error!s:.{LONGEST + 1}}"
    words = words.encode("utf-8", "backslashreplace").decode()
    return Outcome("raised", type(error).__name__, legal, words + where)


def place_in_memory(folder: str | None) -> str | None:
    """This folder if it is in memory, where caches can lie; else /dev/shm, if there is one."""
    if folder and _C.file_system(folder)["in_memory"]:
        return folder
    return "/dev/shm" if Path("/dev/shm").is_dir() else folder
