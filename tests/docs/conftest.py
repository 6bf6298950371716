"""Lets the tests of this folder import what makes the site; the pages' world, once for all."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "tools" / "site"))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that CONTRIBUTING.md names; never written to."""
    from world import make_world

    folder = tmp_path_factory.mktemp("world") / "world"
    folder.mkdir()
    make_world(folder)
    return folder


@pytest.fixture
def workplace(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a copy of the world, and a node cache of its own."""
    place = tmp_path / "page"
    shutil.copytree(world, place)
    monkeypatch.chdir(place)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as cache:
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", cache)
        yield place
