"""The doctor run on training programs: of frameworks, and under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from process import settled

import fastload

SECONDS = 0.004  # that a sample takes at least
SLOW = f"""
import time

import torch
from torch.utils.data import DataLoader, Dataset


def loss_of(layer, inputs, targets):
    return torch.nn.functional.mse_loss(layer(inputs), targets)


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep({SECONDS})
        return {{"inputs": torch.full((8,), float(index)), "labels": torch.zeros(1)}}

"""

# The command itself, with the numbers of what it found beside its words.
_COMMAND = """
import json
from fastload.cli import main
from fastload.diagnose import script

watch = script.watch_script

def watch_script(*arguments, **named):
    found = watch(*arguments, **named)
    numbers = [found.loop.rate, found.loop.batch_size, found.verdict.rate, found.verdict.step_rate]
    json.dump(numbers, open("numbers", "w"))
    return found

script._GRACE = 90.0  # a crowded machine
script.watch_script = watch_script
raise SystemExit(main(["doctor", "--seconds", "8", "train.py"]))
"""


@dataclass(frozen=True)
class Diagnosed:
    """What the command said, its numbers, and the names of what is left in its folder.

    Args:
        watched, judged: rate of the loop as it was watched, and in the verdict.
        step: rate of the step alone.
    """

    said: str
    watched: float
    batch_size: int
    judged: float
    step: float
    files: set[str]


def _environment(temporary: Path) -> dict[str, str]:
    source = str(Path(fastload.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}


def left_in(temporary: Path, *beginnings: str) -> list[Path]:
    """Return what is in a temporary folder, but for torch's; with ``beginnings``, names that begin so."""
    found = [path for path in temporary.iterdir() if not path.name.startswith("torch")]
    return [path for path in found if path.name.startswith(beginnings or "")]


def diagnosed(folder: Path, text: str) -> Diagnosed:
    """Run the doctor on :data:`SLOW` and ``text``, unchanged; it ends well, and nothing of it is left."""
    temporary, work = folder / "tmp", folder / "work"
    temporary.mkdir()
    work.mkdir()
    (work / "train.py").write_text(SLOW + text)
    run = subprocess.run(
        [sys.executable, "-c", _COMMAND],
        cwd=work,
        env=_environment(temporary),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert run.returncode == 0, run.stderr
    assert "was watched, and ended after" in run.stderr
    assert settled(lambda: left_in(temporary, "fl-", "pymp-", "fastload"), []) == []
    assert (work / "train.py").read_text() == SLOW + text
    watched, batch_size, judged, step = json.loads((work / "numbers").read_text())
    files = {path.name for path in work.iterdir()} - {"train.py", "numbers"}
    return Diagnosed(run.stdout, watched, batch_size, judged, step, files)


def check_slow_data(found: Diagnosed) -> None:
    """Check that the loop is seen to wait for its data, at a rate that the data allow."""
    assert found.batch_size == 8
    assert found.said.strip() != ""
    for rate in (found.watched, found.judged):
        assert 0 < rate <= 1 / SECONDS
    assert found.step > found.judged


# ---- Under torchrun ----

_RANK = """
import json, os, pathlib, sys
from dataclasses import asdict
from fastload.diagnose import script

script._GRACE = 90.0  # a crowded machine
found = script.watch_script("train.py", [], 6.0, quiet=True)
verdict = found.verdict
says = [found.words, [asdict(each) for each in found.ranks], verdict and [verdict.limit, str(verdict)]]
pathlib.Path("rank" + os.environ["RANK"]).write_text(json.dumps(says))
"""
Compared = tuple[str, list[dict[str, Any]], str, str]


# Ranks that do not find each other on a crowded machine: torch's words, before the script's loop begins.
_NO_GROUP = ("connectFullMesh", "EADDRINUSE", "client socket has failed to connect", "store->get")


def _own_errors(stderr: str) -> str:
    """Return what the ranks said, without the launcher's own traceback, which a log would keep instead."""
    return stderr.split("torch/distributed/elastic/multiprocessing/api.py:")[0]


def two_ranks(folder: Path, program: str) -> None:
    """Run a program in ``folder`` as two ranks; it ends well, and leaves nothing in the temporary folder."""
    temporary = folder / "tmp"
    temporary.mkdir()
    here = _environment(temporary)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program]
    for _ in range(3):
        run = subprocess.run(line, capture_output=True, text=True, env=here, cwd=folder)
        if not any(words in run.stderr for words in _NO_GROUP):
            break
    assert run.returncode == 0, _own_errors(run.stderr)
    assert settled(lambda: left_in(temporary), []) == []


def under_torchrun(folder: Path, text: str) -> Compared:
    """Return the first of two ranks' words, all facts, and the verdict (its limit and text).

    Nothing of the doctor's is left behind.
    """
    (folder / "train.py").write_text(text)
    (folder / "rank.py").write_text(_RANK)
    two_ranks(folder, "rank.py")
    other = json.loads((folder / "rank1").read_text())
    assert other == ["This rank ran along; the first one says what limits.", [], None]
    words, ranks, verdict = json.loads((folder / "rank0").read_text())
    assert "was watched, and ended after" in words
    assert verdict is not None, words
    return words, ranks, *verdict
