"""Fixtures of the doctor's tests."""

from __future__ import annotations

import pytest

from fastload.diagnose.trial import Budget


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds of an examination: its runs are short, and however slow the machine is none is left out."""
    monkeypatch.setattr(Budget, "run", 0.06)
    return 600.0
