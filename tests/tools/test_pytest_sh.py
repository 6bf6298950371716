"""tools/pytest.sh: a few that fail in the crowd get a second chance, alone; all else is an error at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({failing}))
def test_fails(number):
    mark = pathlib.Path(__file__).with_name("met-" + str(number))
    met = mark.exists()
    mark.touch()
    assert met and not {again}

def test_passes():
    with open(pathlib.Path(__file__).with_name("passes"), "a") as passes:
        passes.write("x")
"""


def run(tmp_path: Path, failing: int, again: bool = False) -> tuple[int, str]:
    """Exit status and output; ``failing`` tests fail the first time, and the second if ``again``."""
    (tmp_path / "test_it.py").write_text(TESTS.format(failing=failing, again=again))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    name = f"of-{os.getpid()}"
    command = [str(ROOT / "tools/pytest.sh"), name, "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "BIN": str(Path(sys.executable).parent)},
            capture_output=True,
            text=True,
            timeout=200,
        )
    finally:
        shutil.rmtree(ROOT / "build/pytest" / name, ignore_errors=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("failing", "again", "status", "turns"),
    [(0, False, 0, 1), (2, False, 0, 2), (2, True, 1, 2), (6, False, 1, 1)],
)
def test_a_second_chance(tmp_path: Path, failing: int, again: bool, status: int, turns: int) -> None:
    found, output = run(tmp_path, failing, again)
    assert found == status, output
    assert output.count("test session starts") == turns, output
    assert output.count("Once more, by themselves") == turns - 1
    assert (tmp_path / "passes").read_text() == "x"  # what passed is not run again


def test_what_is_no_failure_of_a_test_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import no_such_module\n")
    status, output = run(tmp_path, 0)
    assert status not in (0, 1)
    assert "no_such_module" in output
    assert "Once more" not in output
