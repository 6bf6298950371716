"""Processes that fill a cache of coefficients killed at any moment, several of them at once, and in part."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from coefficient_ranks import WORLD, ranks_epochs
from epochs import joined, same
from pictures import jpegs
from plain_pack import plain_pack
from process import HANG
from test_cached_coefficients import epochs, fill, loader

DRIVER = Path(__file__).with_name("coefficient_kills.py")
KILLS = int(os.environ.get("FASTLOAD_KILLS", "50")) // 5
COUNT = 64


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_pack(tmp_path_factory.mktemp("jpegs"), jpegs(COUNT), range(COUNT)).folder


def test_killed_at_random(root: Path, dataset: Path) -> None:
    """FASTLOAD_KILLS=1000 for more, FASTLOAD_KILL_SEED for the same choices again."""
    seed = int(os.environ.get("FASTLOAD_KILL_SEED") or random.SystemRandom().randrange(10**9))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, DRIVER, dataset, root, str(seed), str(KILLS)],
        capture_output=True, text=True, timeout=HANG + 20 * KILLS, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert sum(json.loads(done.stdout).values()) == KILLS


def test_ranks_and_a_later_job(root: Path, dataset: Path) -> None:
    """Two at once fill one file; then each finds all of it. Together they have the batches of one alone."""
    expected, _ = epochs(loader(dataset, "off", "jpeg", batch_size=8 * WORLD), 4)
    context = multiprocessing.get_context("spawn")
    for job in range(2):
        results = context.Queue()
        each = [context.Process(target=ranks_epochs, args=(dataset, rank, results)) for rank in range(WORLD)]
        for process in each:
            process.start()
        found = sorted((results.get(timeout=HANG) for _ in each), key=lambda one: one[0])
        for process in each:
            process.join()
        parts = [[(torch.from_numpy(i), torch.from_numpy(n)) for i, n in batches] for _, batches, _ in found]
        assert same(joined(parts), expected)
        for _, _, stats in found:
            assert stats["format"] == "coefficients"
            assert stats["damaged"] == stats["failed"] == 0
            assert job == 0 or stats["misses"] == stats["stored"] == 0
        fill(dataset, "20MB")
