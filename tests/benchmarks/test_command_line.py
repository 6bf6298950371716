"""The benchmarks in a checkout: the source folder in the current one does not hide the installed package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a package ``fastload`` that must not be imported, and ``photos``."""
    package = tmp_path / "fastload" / "__init__.py"
    package.parent.mkdir()
    package.write_text("raise ImportError('this is the source folder')\n")
    write_photos(tmp_path / "photos", 4)
    return tmp_path


def run(checkout: Path, script: str, *words: object) -> str:
    """What the script prints, started in the checkout."""
    line = [sys.executable, str(BENCHMARKS / script), *map(str, words)]
    done = subprocess.run(
        line, cwd=checkout, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_candidate_packs(checkout: Path) -> None:
    run(
        checkout,
        "child.py",
        "loaders.candidate",
        "fastload",
        "prepare",
        "--folder",
        "photos",
        "--workdir",
        "work",
    )
    assert (checkout / "work" / "packed" / "dataset.json").exists()


def test_the_command_is_the_installed_one(checkout: Path) -> None:
    assert "4 in 2 classes" in run(checkout, "harness/command_line.py", "pack", "photos", "packed")


def test_no_benchmark_starts_fastload_where_the_current_folder_comes_first() -> None:
    found = [
        path.name
        for path in BENCHMARKS.rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        if re.search(r'executable,\s*("-c"|"-m",\s*"fastload")', text)
    ]
    assert found == []
