"""Lets the tests here import the modules beside them, the references, small packs; a folder for caches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "pack"))
sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "reference"))

from cache_folder import OpenFolder, memory_folder

from fastload._native import _C


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[OpenFolder]:
    """A folder in memory."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def root(memory: OpenFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root of its own in memory, which is the default one."""
    if not _C.file_system(str(memory.path))["in_memory"]:
        pytest.skip("no file system in memory has room")
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory.path))
    return memory.path


@pytest.fixture(autouse=True)
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node keeps the indexes of sets in stores: nobody's own are listed or removed."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
