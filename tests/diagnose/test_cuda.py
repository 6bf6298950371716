"""What the doctor finds out about a step on a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fastload.diagnose.step import SyncWatch, is_in_use, synchronise

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


def test_lines_that_wait_for_the_device_are_named() -> None:
    values = torch.arange(100.0, device="cuda")
    torch.cuda.synchronize()
    assert is_in_use()
    before = torch.cuda.get_sync_debug_mode()
    watch, seen = SyncWatch(), []  # type: ignore[var-annotated]
    watch.begin()
    doubled = values * 2
    for _ in range(2):
        seen.append(doubled.sum().item())
    host: Any = doubled.cpu()
    found = watch.end()
    assert found is not None
    assert set(found) == {f"test_cuda.py:{line_of('seen.append')}", f"test_cuda.py:{line_of('host: Any')}"}
    assert torch.cuda.get_sync_debug_mode() == before
    assert host.sum().item() == seen[0]


def test_a_device_that_is_busy_is_waited_for() -> None:
    event = torch.cuda.Event()
    torch.cuda._sleep(100_000_000)
    event.record()
    assert not event.query()
    synchronise()
    assert event.query()
