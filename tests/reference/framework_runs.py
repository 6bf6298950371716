"""Runs a program of a foreign framework on one rank and on two gloo ranks, and reads what each rank wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from numbered_set import read_results

REFERENCE = Path(__file__).resolve().parent
HANG = 500  # seconds; a program that needs as many hangs, also on a busy machine


def environment() -> dict[str, str]:
    """This process's without launchers' variables; one thread a rank, no network."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in launchers and not k.startswith("SLURM_")}
    path = os.pathsep.join([str(REFERENCE), kept.get("PYTHONPATH", "")])
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled"}
    # Older frameworks read their own checkpoints with torch.load's former default.
    whole = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    ours = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "FASTLOAD_CACHE_DIR": "/proc/none"}
    return {**kept, **offline, **whole, **ours}


def run_program(
    program: Path, out: Path, *arguments: object, ranks: int = 1, world: int | None = None
) -> list[Any]:
    """Run ``program ARGUMENTS... OUT`` and return what each rank wrote into ``out``.

    Args:
        program: the script.
        out: the folder for results, made here.
        ranks: processes that torchrun starts; 1: the script itself is started, without a launcher.
        world: ranks that write results, where the program starts them itself.
    """
    out.mkdir(parents=True)
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(program), *map(str, arguments), str(out)]
    done = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return read_results(out, world or ranks)
