"""Lets the tests of this folder import tools/ as its scripts do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.append(str(TOOLS))


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sample folder: 12 classes, 4 training and 2 validation images each."""
    import make_sample

    folder = tmp_path_factory.mktemp("sample") / "images"
    make_sample.main([str(folder), "--train", "4", "--val", "2"])
    return folder


@pytest.fixture(scope="session")
def packed_sample(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, packed."""
    from fastload.cli import main

    folder = tmp_path_factory.mktemp("sample") / "packed"
    assert main(["pack", str(sample), str(folder), "--num-proc", "1", "--quiet"]) == 0
    return folder
