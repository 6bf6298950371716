"""Standard output and error of a command: harmless to a terminal, and a failed write does not end the work.

Names of classes, files and columns, and a server's messages, come from elsewhere, and a terminal obeys some
characters (title, clipboard, cursor and colours). So everything that a command writes passes through here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from fastload.errors import harmless


def fill() -> None:
    """Open /dev/null as each of the descriptors 0 to 2 that this process was started without: files opened
    later would get their numbers, and what libraries write to standard error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


class Stream(io.TextIOBase):
    """A text stream that makes what is written harmless. It drops text that cannot be written, and ``failed``
    says why; but it raises BrokenPipeError if nobody reads any more."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream
        self.failed: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def write(self, text: str) -> int:
        shown = harmless(text)
        try:
            shown.encode(self.raw.encoding or "utf-8")
        except UnicodeEncodeError:
            shown = shown.encode(self.raw.encoding, "backslashreplace").decode(self.raw.encoding)
        self._try(lambda: self.raw.write(shown))
        return len(text)

    def flush(self) -> None:
        self._try(self.raw.flush)

    def _try(self, work: Any) -> None:
        if self.failed is not None:
            return
        try:
            work()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.failed = error if isinstance(error, OSError) else OSError(str(error))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:  # the interpreter writes what is left in its buffer once more when it exits
                os.dup2(nowhere, self.raw.fileno())
            except (OSError, ValueError):
                return  # it is not a file
            finally:
                os.close(nowhere)

    def fileno(self) -> int:
        return self.raw.fileno()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def writable(self) -> bool:
        return True


def raw(stream: TextIO) -> TextIO:
    """Return the bare stream, for a progress bar that writes control characters and escapes all else."""
    return stream.raw if isinstance(stream, Stream) else stream


def guard() -> None:
    """Let ``sys.stdout`` and ``sys.stderr`` pass through a :class:`Stream` from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Stream):
            setattr(sys, name, Stream(stream))


@contextmanager
def guarded() -> Iterator[Stream]:
    """Apply :func:`guard` inside the context; yield the Stream of standard output."""
    before = sys.stdout, sys.stderr
    guard()
    try:
        yield cast(Stream, sys.stdout)
    finally:
        sys.stdout, sys.stderr = before
