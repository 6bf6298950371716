"""Lets the tests of this folder import pack_trees.py and the references."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "reference"))

from pack_fixtures import format_name, tmp_path, unsynced
from recode_sets import jpegs, plain

__all__ = ["format_name", "jpegs", "plain", "tmp_path", "unsynced"]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    if os.geteuid() != 0:
        pytest.skip(
            "mounting a small file system needs root; the limit on file sizes is tested for everybody"
        )
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
