"""Who called the package: the line of the user's program that a warning is about."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["stacklevel"]


def stacklevel() -> int:
    """For ``warnings.warn`` in the caller: the nearest frame outside of the package."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fastload":
        frame, level = frame.f_back, level + 1
    return level
