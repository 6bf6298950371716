"""Runs an instrument as `make faults` does, and gives what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import failing_calls
from judged import SMALL_POOLS

__all__ = ["driven", "shimmed"]


def driven(
    program: str, given: dict[str, Any], seconds: float = 280, first: Path | None = None, **variables: str
) -> dict[str, Any]:
    """The JSON object that an instrument ends with; ``first``: where it looks for the package before all."""
    folders = [*([first] if first else []), *sys.path, Path(__file__).parent]
    path = os.pathsep.join(str(each) for each in folders if str(each))
    command = [sys.executable, Path(__file__).with_name(program), json.dumps(given)]
    variables = {**os.environ, **SMALL_POOLS, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, env=variables, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def shimmed(program: str, library_folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The same with ``failing_calls.so`` preloaded."""
    library = failing_calls.build(library_folder)
    return driven(program, given, LD_PRELOAD=str(library))
