"""A dataset on a network file system, a real one (FUSE): nothing is mapped, and what happens is an error."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload.errors import FastloadError

SERVER = Path(__file__).parents[1] / "reference" / "fuse_server.py"
SIDE, COUNT = 64, 200
DETACH = 2  # MNT_DETACH of umount2


class Mounted:
    """A folder seen through FUSE."""

    def __init__(self, backing: Path, place: Path) -> None:
        self.backing, self.place = backing, place
        place.mkdir()
        command = [sys.executable, str(SERVER), str(backing), str(place)]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stderr is not None
        if self._server.stdout.readline() != "ready\n":
            reason = self._server.stderr.read().strip().splitlines()[-1:]
            self.close()
            pytest.skip(f"no FUSE here: {reason}")

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        ctypes.CDLL(None).umount2(str(self.place).encode(), DETACH)
        self.kill()
        for pipe in (self._server.stdout, self._server.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 3 * SIDE * SIDE, np.uint8).tobytes() for _ in range(COUNT)]


@pytest.fixture
def mounted(tmp_path: Path, blobs: list[bytes]) -> Iterator[Mounted]:
    plain_pack(tmp_path / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))
    mounted = Mounted(tmp_path / "set", tmp_path / "mounted")
    yield mounted
    mounted.close()


def read_on(loader: DataLoader, batches: Iterator[Any]) -> None:
    """To the epoch's end, and through another: what was read ahead comes first."""
    for _ in batches:
        pass
    for _ in loader:
        pass


def test_an_epoch_maps_nothing_and_gives_the_same_pixels(mounted: Mounted, blobs: list[bytes]) -> None:
    with DataLoader(PackedDataset(mounted.place), 16, shuffle=True, num_workers=2, seed=0) as loader:
        seen = []
        for images, labels in loader:
            for image, label in zip(images, labels.tolist(), strict=True):
                assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
                seen.append(label)
        assert sorted(seen) == list(range(COUNT))
        assert str(mounted.place) not in Path("/proc/self/maps").read_text()


def test_a_server_that_dies_is_an_error(mounted: Mounted) -> None:
    with DataLoader(PackedDataset(mounted.place), 4, num_workers=2, prefetch_factor=1) as loader:
        batches = iter(loader)
        next(batches)
        mounted.kill()
        with pytest.raises((FastloadError, OSError), match="not connected"):
            read_on(loader, batches)
    with pytest.raises((FastloadError, OSError), match="not connected"):
        PackedDataset(mounted.place)


def test_a_shard_cut_while_it_is_read_is_an_error(mounted: Mounted) -> None:
    with DataLoader(PackedDataset(mounted.place), 4, num_workers=2, prefetch_factor=1) as loader:
        batches = iter(loader)
        next(batches)
        with (mounted.backing / "data.bin").open("r+b") as file:
            file.truncate(4096)
        # A kernel that still has the old size gives zeros for the rest of the page it reads.
        with pytest.raises(FastloadError, match="ends at byte|have CRC-32C"):
            read_on(loader, batches)
