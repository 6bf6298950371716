"""Marks what docs/guide/drop-in.md lists with a reason: ``known_failures.txt``, a test's name and why."""

from __future__ import annotations

from pathlib import Path

import pytest

_LIST = Path(__file__).parent.parent / "known_failures.txt"


def _reasons() -> dict[str, str]:
    lines = [line.partition(":") for line in _LIST.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {name.strip(): reason.strip() for name, _, reason in lines if not name.startswith("#")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expected to fail, but no error where they pass: some fail on a busy machine only."""
    reasons = _reasons()
    for item in items:
        for name in (item.name, "::".join(item.nodeid.split("::")[-2:])):
            if name in reasons:
                item.add_marker(pytest.mark.xfail(reason=reasons[name], strict=False))
