"""What a function of the library says while it works, on standard error, if there is one."""

from __future__ import annotations

import contextlib
import sys

from fastload.errors import harmless

__all__ = ["say"]


def say(text: str) -> None:
    """Write a text and a line's end. Where it cannot be written (a closed or full standard error) nobody
    reads it, and the work goes on."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(harmless(text) + "\n")
