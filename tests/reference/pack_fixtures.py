"""Fixtures of the folders that pack: tests/pack, tests/shard, tests/attacks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["format_name", "tmp_path", "unsynced"]

FORMATS = ("arrow", "lmdb", "hdf5")


@pytest.fixture(params=FORMATS)
def format_name(request: pytest.FixtureRequest) -> str:
    """Each shard format."""
    return str(request.param)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fsync in this process: it says nothing here and takes most of the time. The tests of what must
    survive a power cut put their own recorder in its place."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr("fastload.packing.files._sync_file_system", lambda folder: None)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room: packs are renames and unlinks, for which a busy disk takes seconds."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 256 << 20:
        yield tmp_path
        return
    folder = tempfile.mkdtemp(prefix="fastload-test-", dir=memory)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)
