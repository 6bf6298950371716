"""How long tests last, by tests/slow.txt, which tools/mark_slow.py writes from recorded runs.

A line names one case of a test, a test with all its cases, a file or a folder, below tests/, and says how
many seconds it lasted at least. The longest line that fits a test counts; a test that no line fits is quick.
Two signs stand in lines that are written by hand: with ``-`` all of it is slow, with ``+`` nothing of it,
however long it lasts, as for a guard that has no quicker form.

A test is slow from ``FASTLOAD_SLOW_FROM`` seconds on; ``make check`` sets it lower for rooms with many tests.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FILE", "LIMIT", "SIGNS", "SLOW_FROM", "SlowList", "case_of", "unknown_cases"]

FILE = Path(__file__).resolve().parents[1] / "slow.txt"
LIMIT = 0.5  # seconds on a quiet machine; tools/mark_slow.py prints what other limits would give
SIGNS = {"-": math.inf, "+": -math.inf}
SLOW_FROM = float(os.environ.get("FASTLOAD_SLOW_FROM") or LIMIT)


def case_of(nodeid: str) -> str:
    """A test's name as lines have it: pytest's, from tests/ on."""
    return nodeid.removeprefix("tests/")


def _wider(name: str) -> Iterable[str]:
    """The name, and those of all that it belongs to: the case, its test, its file, the folders around."""
    yield name
    path, _, test = name.partition("::")
    if "[" in test:
        yield f"{path}::{test.partition('[')[0]}"
    if test:
        yield path
    parts = path.split("/")
    for count in range(len(parts) - 1, 0, -1):
        yield "/".join(parts[:count]) + "/"


class SlowList:
    """The lines of the list."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.seconds: dict[str, float] = {}
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            seconds, _, name = line.rstrip("\n").partition(" ")
            self.seconds[name] = SIGNS[seconds] if seconds in SIGNS else float(seconds)

    @classmethod
    def read(cls, path: Path = FILE) -> SlowList:
        """The list of this checkout."""
        return cls(path.read_text(encoding="utf-8").splitlines() if path.exists() else [])

    def seconds_of(self, nodeid: str) -> float:
        """How long a test lasts at least, or what a sign says of it; 0 where nothing is known."""
        found = [self.seconds[name] for name in _wider(case_of(nodeid)) if name in self.seconds]
        return SIGNS["+"] if SIGNS["+"] in found else (found or [0.0])[0]

    def is_slow(self, nodeid: str, slow_from: float = SLOW_FROM) -> bool:
        """Whether it has the marker ``slow``."""
        return self.seconds_of(nodeid) >= slow_from

    def is_unknown(self, nodeid: str) -> bool:
        """Whether it counts as quick, and no sign says that it shall."""
        return SIGNS["+"] < self.seconds_of(nodeid) < SLOW_FROM


def unknown_cases(slow: SlowList, nodeids: Iterable[str]) -> list[str]:
    """Lines of cases that none of these tests is, though their test is among them."""
    cases = {case_of(nodeid) for nodeid in nodeids}
    tests = {case.partition("[")[0] for case in cases}
    return sorted(
        name for name in slow.seconds if "[" in name and name.partition("[")[0] in tests and name not in cases
    )
