"""examples/detection.py: torchvision's Faster R-CNN trains on our lists of pictures and targets."""

from __future__ import annotations

from pathlib import Path

from example_programs import pack_objects, train


def test_it_trains(tmp_path: Path) -> None:
    packed, _ = pack_objects(tmp_path)
    losses, printed = train("detection", packed)
    assert all(0 < loss < 100 for loss in losses)
    assert printed.count("Python, in") == 1, "nothing but collate"
