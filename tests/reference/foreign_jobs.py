"""Running a framework's job in processes of its own, and reading what its ranks found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foreign_runs import BATCH, COUNT, EPOCHS, make_set

REFERENCE = Path(__file__).resolve().parent
CHECKOUT = REFERENCE.parents[1]
NO_GPU = {
    "DS_ACCELERATOR": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}  # the runs are compared bit for bit, on the CPU
HANG = 600  # seconds; a job that needs as many hangs, also on a busy machine


def environment() -> dict[str, str]:
    """This process's, without launchers' variables; what tests import is found."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in launchers and not k.startswith("SLURM_")}
    # The source folder hides the installed package, where that is to be tested.
    own = [] if kept.get("FASTLOAD_TEST_INSTALLED") == "1" else [str(CHECKOUT)]
    path = os.pathsep.join([str(REFERENCE), *own, kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **NO_GPU}


def torchrun(ranks: int) -> list[str]:
    """torchrun on this host."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


class Runs:
    """What the ranks of a job found in each of its scenarios."""

    def __init__(self, folder: Path, world: int) -> None:
        self._folder = folder
        self.world = world

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        ranks = [json.loads((self._folder / name / f"rank{i}.json").read_text()) for i in range(self.world)]
        for rank, found in enumerate(ranks):
            assert "error" not in found, f"{name}, rank {rank}: {found['error']}"
        return ranks


def run_job(
    job: Path,
    folder: Path,
    world: int,
    scenarios: dict[str, dict[str, Any]],
    launcher: Sequence[str] | None = None,
) -> Runs:
    """Run ``job`` once, on a new tiny set in ``folder``; its argument is a JSON object with the scenarios."""
    given = {"set": str(make_set(folder / "set")), "out": str(folder), "world": world, "scenarios": scenarios}
    run_to_end([*(launcher or [sys.executable]), str(job), json.dumps(given)])
    return Runs(folder, world)


def run_to_end(command: Sequence[str], limit: float = HANG) -> None:
    """Run a command, which must end well within ``limit`` seconds; nothing of its process group is left."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nIt did not end within {limit} s."
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, output[-8000:]


def check_epochs(results: Sequence[dict[str, Any]], epochs: int = EPOCHS) -> None:
    """Every sample came once an epoch over all ranks, and our engine delivered every batch."""
    steps = COUNT // BATCH // len(results)
    orders = []
    for epoch in range(epochs):
        seen = [
            label for found in results for step in found["labels"][epoch * steps :][:steps] for label in step
        ]
        assert sorted(seen) == list(range(COUNT)), f"epoch {epoch}"
        orders.append(seen)
    assert epochs == 1 or orders[0] != orders[1]
    for found in results:
        assert found["steps"] == len(found["labels"]) == epochs * steps
        assert found["engine"] == len(found["labels"])


def check_equal(results: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> None:
    """The same batches and optimizer steps on each rank, and in the end the same weights, bit for bit."""
    for found, other in zip(results, others, strict=True):
        assert found["labels"] == other["labels"]
        assert found["steps"] == other["steps"]
        assert found["weights"] == other["weights"]
    assert len({found["weights"] for found in results}) == 1, "ranks differ"


def check_resumed(
    whole: Sequence[dict[str, Any]], first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]
) -> None:
    """An interrupted run and its continuation are together what the uninterrupted one was."""
    assert whole
    for full, begun, rest in zip(whole, first, second, strict=True):
        assert begun["labels"]
        assert rest["labels"]
        assert begun["labels"] + rest["labels"] == full["labels"]
        assert begun["weights"] != full["weights"]
        assert rest["weights"] == full["weights"]
        assert rest["engine"] >= len(rest["labels"])
