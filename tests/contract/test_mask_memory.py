"""Masks of a large picture's objects never exist at its size: only what the sample shows is drawn."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PilImage

import fastload
from fastload import Boxes, DataLoader, Fields, Image, Of, Polygons
from fastload import transforms as T

WIDTH, HEIGHT, OBJECTS, SIZE = 4000, 3000, 50, 128
MIB = 1 << 20


def peak() -> int:
    """The process's largest resident memory since clear_peak(), in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def clear_peak() -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pictures; every second object an area, which are the longest of all values."""
    out = tmp_path_factory.mktemp("large")
    PilImage.new("RGB", (WIDTH, HEIGHT), (90, 120, 40)).save(out / "one.jpg")
    around = np.array([[0.1, 0.1], [0.9, 0.2], [0.8, 0.9], [0.2, 0.8]]) * [WIDTH, HEIGHT]
    runs = [HEIGHT] * 2 + [HEIGHT // 2] * (2 * (WIDTH - 2))
    area = {"size": [HEIGHT, WIDTH], "counts": runs}
    boxes = np.tile(np.array([[400, 300, 3600, 2700]], np.float32), (OBJECTS, 1))
    objects = [area if i % 2 else [around + i] for i in range(OBJECTS)]
    samples = [{"image": out / "one.jpg", "boxes": boxes, "masks": objects} for _ in range(4)]
    schema = {"image": Image(), "boxes": Boxes(), "masks": Of("boxes", Polygons("mixed"))}
    fastload.pack(samples, out / "set", schema=schema)
    return out / "set"


@pytest.mark.parametrize(
    "chain",
    [T.Compose([T.Resize((SIZE, SIZE)), T.SanitizeBoundingBoxes()]), T.Mosaic(SIZE, degrees=10)],
    ids=["resized", "mosaic"],
)
def test_memory_is_that_of_the_sample(folder: Path, chain: object) -> None:
    at_full_size = OBJECTS * WIDTH * HEIGHT
    clear_peak()
    before = peak()
    with DataLoader(
        folder, batch_size=1, seed=1, transform=chain, num_workers=1, fields=Fields(masks="dense")
    ) as loader:
        drawn = sum(int(batch["masks"].values.sum()) for batch in loader)
        grown = peak() - before
    assert drawn > SIZE * SIZE  # they are there
    assert grown < at_full_size / 4, f"{grown / MIB:.0f} MiB, for masks of {at_full_size / MIB:.0f} MiB"
