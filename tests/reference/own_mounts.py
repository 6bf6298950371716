"""Processes that see other file systems than this one: a full /dev/shm, no /proc."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

__all__ = ["with_mounts"]


@functools.cache
def _unshare() -> tuple[str, ...] | None:
    """The command that gives a process mounts of its own; None: this machine has none for this user."""
    for line in (("unshare", "-m"), ("unshare", "-rm")):
        try:
            test = subprocess.run(
                [*line, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
            )
        except FileNotFoundError:
            return None
        if test.returncode == 0:
            return line
    return None


def with_mounts(
    mounts: str, code: str, *arguments: object, timeout: float = 200
) -> subprocess.CompletedProcess[str]:
    """Run Python ``code`` with ``arguments`` in a process where the shell line ``mounts`` has been run; skips
    the test where that cannot be."""
    line = _unshare()
    if line is None:
        pytest.skip("this machine lets nobody mount in a namespace")
    python = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, arguments)]
    script = f'set -e; {mounts}; exec "$@"'
    return subprocess.run(
        [*line, "sh", "-c", script, "sh", *python],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=Path("/"),
    )
