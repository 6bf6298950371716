"""What ``fastload verify`` has found: the first problems of each kind one by one, the others counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LISTED", "Problem", "Problems"]

LISTED = 100  # problems of one kind that are listed


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or ``count`` of one kind; the other fields say where, as far as is known."""

    reason: str
    shard: str = ""
    key: str = ""
    sample: int | None = None
    offset: int | None = None
    count: int = 1


class Problems:
    """Collects problems; the memory does not grow with their number.

    Args:
        most: how many of each kind are kept.
    """

    def __init__(self, most: int = LISTED) -> None:
        self._most = most
        self._kept: list[Problem] = []
        self._counts: Counter[str] = Counter()

    def room(self, kind: str) -> int:
        """How many more of this kind are kept; beyond them a number is enough, see :meth:`count`."""
        return max(0, self._most - self._counts[kind])

    def add(self, kind: str, problems: Iterable[Problem]) -> None:
        """Problems of one kind; ``kind`` completes "100 more: "."""
        for problem in problems:
            if self.room(kind):
                self._kept.append(problem)
            self._counts[kind] += 1

    def count(self, kind: str, more: int) -> None:
        """So many more that are not kept; :meth:`room` has been used up before."""
        self._counts[kind] += more

    def listed(self) -> list[Problem]:
        """Those that were kept, then one for each kind that has more."""
        rest = [(kind, count - self._most) for kind, count in self._counts.items() if count > self._most]
        return self._kept + [
            Problem(f"{more} more, not listed: {kind}", count=more) for kind, more in rest if more > 0
        ]
