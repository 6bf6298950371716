"""`fastload pack` as the benchmarks call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["pack_folder"]


def pack_folder(source: Path, target: Path, *options: str) -> None:
    """Pack ``source`` into ``target`` by the command line, quietly; its exit status must be 0."""
    command = [sys.executable, "-m", "fastload", "pack", str(source), str(target), "--quiet", *options]
    subprocess.run(command, check=True, stdout=sys.stderr)
