"""Ranks and fillers killed at any moment: the next start finds right records, and leaves nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cache_sets import raw_set
from mounts import tmpfs
from process import HANG

DRIVER = Path(__file__).with_name("cache_kills.py")
KILLS = int(os.environ.get("FASTLOAD_KILLS", "50"))
SHARED = Path("/dev/shm")


@pytest.fixture
def own_memory(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of its own, whose every byte is known; where none can be mounted, a folder in /dev/shm."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(tmpfs(tmp_path / "memory", "size=64m"))
        except pytest.skip.Exception:
            if not SHARED.is_dir() or shutil.disk_usage(SHARED).free < 48 << 20:
                pytest.skip("no tmpfs with 48 MB of room")
            yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastload-test-", dir=SHARED)))


def used(folder: Path) -> int:
    """Bytes of the file system that are taken."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def kill(dataset: Path, memory: Path, *how: object) -> list[dict[str, Any]]:
    """What cache_kills.py prints; nothing went wrong."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, DRIVER, dataset, memory, *map(str, how)],
        capture_output=True, text=True, timeout=HANG + 5 * KILLS, env=env, check=False,
    )  # fmt: skip
    sys.stdout.write(f"{how}\n{done.stdout}")
    assert done.returncode == 0, f"{how}: {done.stderr}"
    lanes = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [problem for lane in lanes for problem in lane["problems"]]
    assert not problems, "\n".join([f"{how}", *problems, done.stderr])
    return lanes


def test_killed_at_random(tmp_path: Path, own_memory: Path) -> None:
    """Fifty times; FASTLOAD_KILLS=1000 for more, FASTLOAD_KILL_SEED for the same choices again."""
    seed = int(os.environ.get("FASTLOAD_KILL_SEED") or random.SystemRandom().randrange(10**9))
    dataset, before = raw_set(tmp_path / "set").folder, used(own_memory)
    lanes = kill(dataset, own_memory, "random", seed, KILLS)
    assert sum(lane["killed"] for lane in lanes) >= KILLS // 2 * 2
    if own_memory.parent == tmp_path:
        assert used(own_memory) - before < 1 << 16  # folders and locks


def test_killed_around_every_call(tmp_path: Path, own_memory: Path) -> None:
    dataset, before = raw_set(tmp_path / "set", 100).folder, used(own_memory)
    for lane in kill(dataset, own_memory, "calls"):
        assert lane["killed"] >= 20
    if own_memory.parent == tmp_path:
        assert used(own_memory) - before < 1 << 16
