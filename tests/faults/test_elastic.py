"""A short elastic soak, and that the soak finds what is wrong: samples lost, repeated, or of other pixels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from elastic import Ledger

HERE = Path(__file__).resolve().parent
SECONDS = 10


def soak(folder: Path, **more: str) -> tuple[int, dict[str, Any], str]:
    """The soak's status, its result, and its errors."""
    path = os.pathsep.join(map(str, (*filter(None, sys.path), HERE.parent / "reference", HERE)))
    seed = int(os.environ.get("FASTLOAD_FAULTS_SEED", "1"))
    given = {"seconds": SECONDS, "seed": seed, "folder": str(folder)}
    ended = subprocess.run(
        [sys.executable, str(HERE / "elastic.py"), json.dumps(given)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more},
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1]), ended.stderr


@pytest.mark.timeout(900)  # what hangs is found by the soak itself
def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    status, found, errors = soak(tmp_path / "soak")
    assert found["bad"] == [], errors
    assert status == 0
    assert found["points"]["worlds"] > 0
    assert found["points"]["samples"] > 0
    assert not (tmp_path / "soak").exists()


@pytest.mark.timeout(900)
def test_a_lost_sample_is_found(tmp_path: Path) -> None:
    status, found, _ = soak(tmp_path / "soak", FASTLOAD_ELASTIC_DEFECT="lost")
    assert status == 1
    assert any("counted" in bad for bad in found["bad"])


def test_the_ledger_finds_each_kind() -> None:
    truth = {(0, row): row + 100 for row in range(3)}
    ledger = Ledger()
    ledger.begin(0, 3)
    for row in (2, 0, 1, 1, 2, 0, 2):
        ledger.add((0, row, row + 100), truth)
    ledger.judge()
    assert ledger.bad == []
    assert ledger.points["passes"] == 2
    wrong: list[tuple[tuple[int, int, int], str]] = [
        ((0, 1, 7), "other pixels"),
        ((0, 3, 103), "no such row"),
        ((1, 0, 100), "is not in the mix"),
    ]
    for sample, words in wrong:
        other = Ledger()
        other.begin(0, 3)
        other.add(sample, truth)
        assert any(words in bad for bad in other.bad)
    ledger.add((0, 2, 102), truth)  # again in the same pass
    ledger.judge()
    assert ledger.bad == ["source 0: pass 2 over 3 rows repeats some"]
