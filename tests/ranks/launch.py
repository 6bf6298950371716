"""Starting several ranks on one machine, and the end of all of them whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ports import free_port
from process import SLOWER

PROGRAMS = Path(__file__).with_name("programs.py")
REFERENCE = Path(__file__).resolve().parents[1] / "reference"
HANG = 240 * SLOWER  # seconds; a test that needs as many hangs, also on a busy machine


def environment(**more: str) -> dict[str, str]:
    """This process's, without launchers' variables, one thread a rank, and ``more``."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in launchers and not k.startswith("SLURM_")}
    path = os.pathsep.join([str(REFERENCE), *kept.get("PYTHONPATH", "").split(os.pathsep)])
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    # A rank that aborts says in which Python threads.
    return {**kept, **own, "PYTHONFAULTHANDLER": "1", **more}


class Job(subprocess.Popen[str]):
    """A command, and everything that it starts: known by a mark in their environments.

    torchrun's workers have sessions of their own, and outlive an agent that is killed.
    """

    def __init__(self, command: Sequence[str], **more: str) -> None:
        self.mark = uuid.uuid4().hex
        super().__init__(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(FASTLOAD_TEST_JOB=self.mark, **more),
        )

    def kill_all(self) -> None:
        """SIGKILL to all of it, until nothing is left."""
        found = True
        while found:
            found = False
            for path in Path("/proc").glob("[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    if self.mark.encode() in path.read_bytes():
                        os.kill(int(path.parent.name), signal.SIGKILL)
                        found = True
            time.sleep(0.02)


@contextlib.contextmanager
def started(command: Sequence[str], **more: str) -> Iterator[Job]:
    """A command; at the end nothing of it is left."""
    job = Job(command, **more)
    try:
        yield job
    finally:
        job.kill_all()
        job.communicate()


def finish(process: Job) -> str:
    """The output of a process that must end by itself, with status 0."""
    output, _ = process.communicate(timeout=HANG)
    assert process.returncode == 0, output
    return output


def forked(program: str, world: int, *arguments: object) -> list[str]:
    """The command for ``world`` ranks by fork: one interpreter imports torch for all of them."""
    port = str(free_port())
    return [sys.executable, str(PROGRAMS), "--fork", str(world), port, program, *map(str, arguments)]


def torchrun(ranks: int, program: Path, *arguments: object, options: Sequence[str] = ()) -> list[str]:
    """torchrun's command on one host."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return [*launcher, *(options or ("--standalone",)), str(program), *map(str, arguments)]


def results(folder: Path, world: int) -> list[Any]:
    """What each rank wrote."""
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]
