"""The command line of a module that runs in a process of its own, in this interpreter or another one.

Standard library only, as other loaders' environments import it.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["BENCHMARKS", "child"]

BENCHMARKS = Path(__file__).resolve().parents[1]


def child(module: str, *words: object, python: str | Path = sys.executable) -> list[str]:
    """``python benchmarks/child.py MODULE WORDS``."""
    return [str(python), str(BENCHMARKS / "child.py"), module, *map(str, words)]
