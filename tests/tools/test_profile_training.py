"""tools/profile_training.py and timeline.py: a real trace, and the picture of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import profile_training
import pytest
import timeline
from PIL import Image


def test_a_trace_shows_the_loader_and_is_drawn(packed_sample: Path, tmp_path: Path) -> None:
    profile_training.main([
        str(packed_sample / "train"), "--output", str(tmp_path), "--picture", str(tmp_path / "trace.png"),
        "--batch-size", "8", "--size", "32", "--threads", "1", "--steps", "3", "--skip", "1",
        "--device", "cpu",
    ])  # fmt: skip
    (trace,) = tmp_path.glob("*.pt.trace.json")
    events = timeline.read_events(trace)
    rows = {row: [event for event in events if event.row == row] for row in timeline.ROWS}
    assert [event.name for event in rows["step"]] == [f"ProfilerStep#{n}" for n in (3, 4, 5)]
    assert {event.name for event in rows["data loader"]} == {
        "enumerate(DataLoader)#fastload.DataLoader.__next__"
    }
    for row in ("data loader", "forward", "backward", "optimizer"):
        assert len(rows[row]) == 3
        for event, step in zip(rows[row], rows["step"], strict=True):
            assert step.begin <= event.begin + 0.01
            assert event.begin + event.length <= step.begin + step.length + 0.01
    assert rows["operators"]
    with Image.open(tmp_path / "trace.png") as picture:
        assert picture.width > 500
    assert (tmp_path / "trace.png").stat().st_size < 100_000


def test_too_few_images_are_refused(packed_sample: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="fewer images than one batch of 100"):
        profile_training.main(
            [str(packed_sample / "train"), "--output", str(tmp_path), "--batch-size", "100"]
        )


def test_events_are_sorted_into_rows(tmp_path: Path) -> None:
    def event(name: str, kind: str, begin: float) -> dict[str, object]:
        return {"ph": "X", "name": name, "cat": kind, "ts": begin, "dur": 500.0}

    path = tmp_path / "trace.json"
    events = [
        event("kernel1", "kernel", 3000.0),
        event("ProfilerStep#1", "user_annotation", 2000.0),
        event("enumerate(DataLoader)#x.__next__", "user_annotation", 2500.0),
        event("fastload.prefetch.wait#7", "user_annotation", 2550.0),
        event("Memcpy HtoD", "gpu_memcpy", 2600.0),
        event("Optimizer.step#SGD.step", "user_annotation", 2700.0),
        {"ph": "M", "name": "process_name"},
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    found = timeline.read_events(path)
    assert [(e.row, e.begin, e.length) for e in found] == [
        ("step", 0.0, 0.5), ("data loader", 0.5, 0.5), ("its stages", 0.55, 0.5),
        ("copies", 0.6, 0.5), ("kernels", 1.0, 0.5),
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events[:1]}))
    with pytest.raises(ValueError, match="no ProfilerStep"):
        timeline.read_events(path)


def test_neighbours_are_joined() -> None:
    assert timeline.joined([(0, 2), (1, 3), (4.5, 1), (9, 1)], 0.5) == [(0, 5.5), (9, 1)]
    chance = random.Random(0)
    for _ in range(100):
        bars = [(chance.randrange(50), chance.randrange(1, 9)) for _ in range(8)]
        cells = {cell for begin, length in bars for cell in range(begin, begin + length)}
        joined = timeline.joined([(float(begin), float(length)) for begin, length in bars], 0.0)
        assert sum(length for _, length in joined) == len(cells)
