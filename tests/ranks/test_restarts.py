"""docs/guide/elastic.md under torchrun's agents, and loaders in torch.distributed.checkpoint."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
import torch
from launch import HANG, Job, finish, forked, results, started, torchrun
from page_blocks import python_of
from pictures import encoded, picture
from plain_pack import plain_pack
from ports import free_port

SAMPLES, GLOBAL_BATCH, EPOCHS = 120, 24, 12
STEPS = EPOCHS * SAMPLES // GLOBAL_BATCH

# Torchrun's agent keeps one store for all restarts otherwise (pytorch issue 135712).
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

# What the page's lines are in the middle of: the model's weights say how often it was trained on each sample.
PROGRAM = """
import os
import time

import torch
import torch.distributed as dist

from fastload import DataLoader, transforms as T

GLOBAL_BATCH, EPOCHS, EVERY = {global_batch}, {epochs}, 3
transform = T.Resize((8, 8))
model = torch.nn.Linear({samples}, 1, bias=False)
torch.nn.init.zeros_(model.weight)
batches_here = []


def train_step(images, labels):
    seen = torch.bincount(labels, minlength={samples})
    dist.all_reduce(seen)
    with torch.no_grad():
        model.weight += seen
    with open("trace.txt", "a") as trace:
        trace.write(f"{{os.getpid()}} {{dist.get_world_size()}}\\n")
    batches_here.append(len(labels))
    time.sleep(600 if dist.get_world_size() == 1 and len(batches_here) == 12 else 0.05)  # until another joins


{lines}
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's program and its set."""
    blobs = [encoded(picture(i, 24, 20)) for i in range(SAMPLES)]
    plain_pack(tmp_path / "imagenet/train", blobs, range(SAMPLES), [f"{i:03d}" for i in range(SAMPLES)])
    numbers = {"samples": SAMPLES, "global_batch": GLOBAL_BATCH, "epochs": EPOCHS}
    program = PROGRAM.format(lines=python_of("elastic.md", "torchrun"), **numbers)
    (tmp_path / "train.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def worlds(folder: Path) -> list[int]:
    """The world sizes of the steps so far, in order."""
    with contextlib.suppress(FileNotFoundError):
        return [int(line.split()[1]) for line in (folder / "trace.txt").read_text().splitlines()]
    return []


def wait_for(folder: Path, world: int, behind: int, process: Job) -> int:
    """Until ranks of such a world have made some steps behind the first lines; the lines until then."""
    end = time.monotonic() + HANG
    while worlds(folder)[behind:].count(world) < 8:
        if process.poll() is not None:
            pytest.fail(f"it ended: {process.communicate(timeout=HANG)[0]}")
        assert time.monotonic() < end, "hangs"
        time.sleep(0.01)
    return len(worlds(folder))


def test_the_guides_program_on_two_agents_one_and_two(folder: Path) -> None:
    port = free_port()

    def agent(is_host: bool) -> contextlib.AbstractContextManager[Job]:
        options = ["--nnodes", "1:2", "--max-restarts", "9", "--rdzv-backend", "c10d", "--rdzv-id", "page"]
        options += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
        options += ["--rdzv-conf", f"is_host={is_host},last_call_timeout=3"]
        return started(torchrun(1, folder / "train.py", options=options), **NEW_STORE)

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(agent(True))
        with agent(False) as second:
            lines = wait_for(folder, 2, 0, first)
            second.kill_all()
        lines = wait_for(folder, 1, lines, first)
        third = stack.enter_context(agent(False))
        wait_for(folder, 2, lines, first)
        finish(first)
        finish(third)
    kept = torch.load(folder / "last.pt")
    assert kept["step"] == STEPS
    assert kept["model"]["weight"].tolist() == [[EPOCHS] * SAMPLES]


def test_a_distributed_checkpoint_on_another_number_of_ranks(numbered: Path, tmp_path: Path) -> None:
    """Saved on 2 ranks in the middle of an epoch, loaded on 3 and on 1: together the rest of it."""
    checkpoint = str(tmp_path / "checkpoint")
    with started(forked("checkpointed", 2, numbered, tmp_path, checkpoint, "save", 4)) as process:
        finish(process)
    saved = results(tmp_path, 2)
    seen = [label for _, labels in saved for label in labels]
    assert len(seen) == 2 * 4 * 3
    for world in (3, 1):
        with started(forked("checkpointed", world, numbered, tmp_path, checkpoint, "load", -1)) as process:
            finish(process)
        found = results(tmp_path, world)
        assert [state for state, _ in found] == [saved[0][0]] * world
        rest = [label for _, labels in found for label in labels]
        assert sorted(seen + rest) == list(range(53))
        assert json.loads((tmp_path / "rank0.json").read_text())[1], "the first rank has had some"
