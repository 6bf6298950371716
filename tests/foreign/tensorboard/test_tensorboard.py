"""Scalars through torch's own SummaryWriter, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from numbered_set import make_numbered_set
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from fastload import DataLoader
from fastload import transforms as T
from fastload.integrations.tensorboard import Scalars


def test_tensorboard_shows_what_was_written(tmp_path: Path) -> None:
    packed = make_numbered_set(tmp_path / "packed")
    told: list[tuple[str, float, int | None]] = []
    loader = DataLoader(packed, batch_size=2, transform=T.RandomResizedCrop(16))
    with SummaryWriter(str(tmp_path / "runs")) as writer, loader:
        write = writer.add_scalar
        writer.add_scalar = lambda *values: (told.append(values), write(*values))[1]  # type: ignore[method-assign]
        scalars = Scalars(loader, writer, every=4)
        for _ in range(3):
            for _ in loader:
                scalars.step()
    steps = sorted({step for _, _, step in told})
    assert len(steps) >= 2
    assert steps == list(range(4, steps[-1] + 1, 4))
    found = EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {name for name, _, _ in told}
    rates = found.Scalars("fastload/images_per_second")
    assert [event.step for event in rates] == steps
    expected = [value for name, value, _ in told if name == "fastload/images_per_second"]
    assert [event.value for event in rates] == pytest.approx(expected, rel=1e-6)
