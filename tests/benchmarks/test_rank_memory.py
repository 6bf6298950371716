"""runs/rank_memory.py: what two ranks of each loader hold, the cache counted once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness.children import child
from sets.images import repeat_images
from small_photos import environment, write_photos

from fastload.packing import PackOptions, pack


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``images``, two batches of them, and ``packed``."""
    place = tmp_path_factory.mktemp("ranks")
    write_photos(place / "photos", 4)
    repeat_images(place / "photos", place / "images", 256)
    pack(place / "images", place / "packed", PackOptions(num_proc=1))
    return place


@pytest.mark.parametrize(("loader", "processes"), [("fastload", 2), ("torch", 4)])
def test_two_ranks(place: Path, loader: str, processes: int) -> None:
    places = ("--images", place / "images", "--packed", place / "packed")
    line = child("runs.rank_memory", loader, "--ranks", 2, "--workers", 1, *places)
    done = subprocess.run(
        line,
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["processes"] == processes
    assert found["held"] > 50
    packed = sum(path.stat().st_size for path in (place / "packed").glob("*.arrow")) / 1e6
    assert found["cache"] == pytest.approx(packed if loader == "fastload" else 0.0, rel=0.5)
