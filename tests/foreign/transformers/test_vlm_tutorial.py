"""The tutorial of vision-language models runs, learns, and resumes exactly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from framework_runs import environment

TUTORIAL = Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "vision-language.py"


@pytest.mark.timeout(600)
def test_it_runs_and_its_losses_fall(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TUTORIAL],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.findall(r"^losses: (.+)$", done.stdout, re.MULTILINE)
    whole, stopped = ([float(loss) for loss in line.split()] for line in found)
    assert len(whole) == 7
    assert whole[-1] < 0.7 * whole[0]
    assert stopped == whole
    assert "the same: True" in done.stdout
