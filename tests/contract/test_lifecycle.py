"""Threads, memory and signals: break, Ctrl-C, fork, exceptions, interpreter exit."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches
from pictures import encoded, picture
from plain_pack import plain_pack
from process import HANG, in_child, left_over, resident, settled, tasks

from fastload import DataLoader, errors
from fastload import transforms as T
from fastload.backends import native as engines

CROP = T.RandomResizedCrop(64)


def load(folder: Path, **options: Any) -> DataLoader:
    return DataLoader(
        folder,
        **{"batch_size": 4, "shuffle": True, "seed": 0, "num_workers": 3, "transform": CROP, **options},
    )


def test_break_two_hundred_times_leaves_no_thread_and_no_memory(folder: Path) -> None:
    gc.collect()
    before = tasks()
    loader = load(folder, batch_size=16, transform=T.Compose([CROP, T.Normalize((0.5,) * 3, (0.5,) * 3)]))
    sizes = []
    for turn in range(200):
        for step, _ in enumerate(loader):
            if step == 1:
                break
        assert len(tasks().keys() - before) == 3 + 1  # one looks whether records are in memory
        if turn % 20 == 19:
            gc.collect()
            sizes.append(resident())
    # What each turn left behind would make all windows of 60 turns grow. What a thread takes for its first
    # work, which comes late on a busy machine, makes one or two grow.
    assert min(later - earlier for earlier, later in zip(sizes, sizes[3:], strict=False)) < 1 << 20
    del loader, _
    gc.collect()
    assert left_over(before) == set()


@pytest.mark.usefixtures("no_leaks")
def test_many_loaders_one_after_the_other(folder: Path) -> None:
    for _ in range(30):
        loader = load(folder)
        next(iter(loader))
        del loader


def test_memory_is_reused_only_when_nobody_holds_it(folder: Path) -> None:
    loader = load(folder)
    kept = [images for images, _ in loader]
    copies = [images.clone() for images in kept]
    views = [images[0, 1] for images in kept]
    del kept
    all_batches(loader)
    for view, copy in zip(views, copies, strict=True):
        assert torch.equal(view, copy[0, 1])
    addresses = [images.data_ptr() for images, _ in loader]
    assert len(set(addresses)) < len(addresses)


def test_memory_outlives_the_loader(folder: Path) -> None:
    loader = load(folder)
    images, _ = next(iter(loader))
    copy = images.clone()
    array = images.numpy()
    del images
    loader.close()
    del loader
    gc.collect()
    _ = [np.ones(1 << 20) for _ in range(20)]
    assert np.array_equal(array, copy.numpy())


def test_close_is_final_and_idempotent(folder: Path) -> None:
    gc.collect()
    before = tasks()
    with load(folder) as loader:
        iterator = iter(loader)
        next(iterator)
    loader.close()
    assert left_over(before) == set()
    with pytest.raises(errors.StateError, match="closed"):
        next(iterator)
    with pytest.raises(errors.StateError, match="closed"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_after_use_raises_instead_of_hanging(folder: Path) -> None:
    loader = load(folder)
    iterator = iter(loader)
    next(iterator)

    def use() -> None:
        with pytest.raises(errors.StateError, match=r"before fork\(\)"):
            next(iterator)
        with pytest.raises(errors.StateError, match=r"before fork\(\)"):
            next(iter(loader))
        loader.close()
        with DataLoader(folder, 4, transform=CROP, seed=0) as fresh:
            assert len(next(iter(fresh))[1]) == 4

    for _ in range(20):
        assert in_child(use) == 0
    assert len(all_batches(iterator)) == 12


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_that_drops_the_loader_does_not_hang(folder: Path) -> None:
    holder = [load(folder)]
    iterators = [iter(holder[0])]
    next(iterators[0])

    def drop() -> None:
        iterators.clear()
        holder.clear()
        gc.collect()

    assert in_child(drop) == 0


# Forked before any thread begins, so that one interpreter imports torch for all.
LOOPS = """
    import json, os, sys, time
    from pathlib import Path
    from fastload import DataLoader, transforms as T

    data, out = sys.argv[1], Path(sys.argv[2])

    def slow(image):
        time.sleep(0.02)
        return image

    def train(name, sleeps):
        steps = [T.RandomResizedCrop(64)] + ([T.ToDtype("uint8"), slow] if sleeps else [])
        loader = DataLoader(data, 8, shuffle=True, transform=T.Compose(steps), num_workers=2)
        (out / name).touch()
        while True:
            for batch in loader:
                pass

    pids = []
    for number, sleeps in enumerate([False, True] * 3):
        pids.append(os.fork())
        if pids[-1] == 0:
            os.dup2(os.open(out / f"{number}.err", os.O_WRONLY | os.O_CREAT), 2)
            train(str(number), sleeps)
    print(json.dumps(pids), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""


def test_ctrl_c_leaves_at_once(folder: Path, tmp_path: Path) -> None:
    """At several moments of the first second, with and without Python callables."""
    delays = [delay for delay in (0.05, 0.3, 0.6) for _ in (False, True)]
    command = [sys.executable, "-c", textwrap.dedent(LOOPS), str(folder), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline())
        try:
            for number, pid in enumerate(pids):
                assert settled((tmp_path / str(number)).exists, True)
                time.sleep(delays[number])
                os.kill(pid, signal.SIGINT)
            output, _ = process.communicate(timeout=HANG)
        finally:
            for pid in pids if process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
    assert json.loads(output) == [-signal.SIGINT] * len(pids)
    for number in range(len(pids)):
        assert "KeyboardInterrupt" in (tmp_path / f"{number}.err").read_text()


def test_an_exception_in_the_training_step_lets_the_interpreter_exit(folder: Path) -> None:
    script = f"""
        from fastload import DataLoader, transforms as T
        iterator = iter(DataLoader({str(folder)!r}, 4, transform=T.RandomResizedCrop(64)))
        next(iterator)
        raise ValueError("the training step failed")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=HANG
    )
    assert run.returncode == 1
    assert run.stderr.rstrip().endswith("ValueError: the training step failed")


def test_timeout_is_an_error_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        time.sleep(0.3)
        return np.zeros((70, 70, 3), np.uint8)

    monkeypatch.setattr(engines, "decode_with_pil", slow)
    dataset = plain_pack(tmp_path, [encoded(picture(i, 70, 70), "GIF") for i in range(4)], range(4))
    with pytest.raises(RuntimeError, match="timed out after 0.2 seconds"):
        next(iter(DataLoader(dataset, 4, num_workers=1, transform=CROP, timeout=0.2, seed=0)))
    assert len(all_batches(DataLoader(dataset, 4, num_workers=1, transform=CROP, timeout=60, seed=0))) == 1
