"""Small and read-only file systems, and memory limits, where this process may make them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

__all__ = ["bound_read_only", "memory_group", "tmpfs"]

CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def _mounted(target: Path, *commands: tuple[object, ...]) -> Iterator[Path]:
    """``mount`` with each of the arguments, or the test skips; unmounted at the end."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    target.mkdir(parents=True, exist_ok=True)
    done = 0
    try:
        for arguments in commands:
            line = ["mount", *map(str, arguments), str(target)]
            result = subprocess.run(line, capture_output=True, text=True, check=False)
            if result.returncode:
                pytest.skip(f"this machine does not let root mount: {result.stderr.strip()}")
            done += 1
        yield target
    finally:
        if done:
            subprocess.run(["umount", "-l", target], check=True)


def tmpfs(target: Path, options: str) -> AbstractContextManager[Path]:
    """A tmpfs of its own at ``target``."""
    return _mounted(target, ("-t", "tmpfs", "-o", options, "tmpfs"))


def bound_read_only(source: Path, target: Path) -> AbstractContextManager[Path]:
    """``source`` as it is, at ``target``, where root may not write either."""
    return _mounted(target, ("--bind", source), ("-o", "remount,bind,ro"))


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A memory cgroup with a limit, v1 or v2; a process joins by its id in ``cgroup.procs``."""
    for parent, name in ((CGROUPS, "memory.max"), (CGROUPS / "memory", "memory.limit_in_bytes")):
        group = parent / f"fastload-test-{os.getpid()}"
        if not (parent / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():  # not in v2 where the parent does not hand the controller down
                (group / name).write_text(str(limit))
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no memory cgroup can be made here")
