"""hostile_files.py in its smallest form: no damaged JPEG ends the process, and one that ends is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INSTRUMENT = Path(__file__).with_name("hostile_files.py")
pytestmark = pytest.mark.dali


def found(**options: Any) -> tuple[int, dict[str, Any]]:
    """Exit status and last line."""
    words = [
        sys.executable,
        str(INSTRUMENT),
        json.dumps({"seconds": 200, "children": 1, "sets": 1, **options}),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, env=environment, check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, last


@pytest.mark.parametrize("way", ["loader", "bare"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_process_lives(device: str, way: str) -> None:
    status, counts = found(device=device, way=way, files=24)
    assert (status, counts["fallen"], counts["sets"]) == (0, [], 1)
    assert counts["dali"] >= 3  # those as they were


def test_a_process_that_falls_is_counted() -> None:
    status, counts = found(device="abort", way="bare", files=2)
    assert status == 1
    assert len(counts["fallen"]) == 1
    assert counts["fallen"][0].startswith("set 0, seed 1: exit status -6")
