"""examples/detr.py: DETR of a small configuration trains on our padded batches."""

from __future__ import annotations

from pathlib import Path

from example_programs import pack_objects, train


def test_it_trains(tmp_path: Path) -> None:
    packed, _ = pack_objects(tmp_path)
    losses, printed = train("detr", packed)
    assert all(0 < loss < 100 for loss in losses)
    assert printed.count("Python, in") == 1, "nothing but collate"
