"""Messages to the user: the line of the program that a warning names, and text on standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from fastload.errors import harmless

# ---- The caller of the package ----


def stacklevel() -> int:
    """Return the stack level for ``warnings.warn`` in the caller: the nearest frame outside the package."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fastload":
        frame, level = frame.f_back, level + 1
    return level


# ---- Standard error ----


def say(text: str) -> None:
    """Write a line. If it cannot be written (standard error is closed or full), nobody reads it, and the work
    continues."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(harmless(text) + "\n")
