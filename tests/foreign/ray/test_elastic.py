"""Ray Train with one or two workers (``num_workers=(1, 2)``), by the lines of docs/guide/elastic.md."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import ray
import torch
from foreign_jobs import run_to_end
from numbered_set import make_numbered_set

VERSION = tuple(map(int, ray.__version__.split(".")[:2]))
ROWS, EPOCHS = 48, 4  # of elastic_job.py; no batch is filled up


@pytest.mark.skipif(VERSION < (2, 51), reason="older releases have no elastic workers")
def test_a_node_comes(tmp_path: Path) -> None:
    make_numbered_set(tmp_path / "imagenet/train", ROWS)
    run_to_end([sys.executable, str(Path(__file__).with_name("elastic_job.py")), str(tmp_path)])
    worlds = (tmp_path / "trace.txt").read_text().split()
    assert [world for world, _ in itertools.groupby(worlds)] == ["1", "2"]
    kept = torch.load(tmp_path / "end.pt")
    assert kept["weight"].tolist() == [[EPOCHS] * ROWS]
