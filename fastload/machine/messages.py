"""Messages to the user: which line of the program a warning is about, and words on standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from fastload.errors import harmless

# ---- Who called the package -------------------------------------------------------------------------
# The line of the user's program that a warning is about.


def stacklevel() -> int:
    """For ``warnings.warn`` in the caller: the nearest frame outside of the package."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fastload":
        frame, level = frame.f_back, level + 1
    return level


# ---- What a function of the library says while it works, on standard error, if there is one ---------


def say(text: str) -> None:
    """Write a text and a line's end. Where it cannot be written (a closed or full standard error) nobody
    reads it, and the work goes on."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(harmless(text) + "\n")
