"""Which shards of a plan one of several packs writes, as the command line says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fastload.errors import PackError

__all__ = ["Shares", "ranges"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Shares:
    """Shards by number, counted from 0 through all splits: some ranges, or one of so many equal shares.

    Args:
        ranges: first and last of each; both belong to it.
        share: this one, counted from 0, of so many; None: the ranges count.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    share: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> Shares:
        """Shares as ``0-99``, ``7``, ``0-9,40-49`` or ``3/16`` (the fourth of sixteen).

        Raises:
            PackError: anything else.
        """
        number, slash, count = text.partition("/")
        if slash:
            if not (number.isdigit() and count.isdigit() and int(number) < int(count)):
                raise PackError(
                    f"--shards {text}: share I of N is written I/N, with I from 0 to N - 1, as 0/16 to 15/16."
                )
            return cls(share=(int(number), int(count)))
        found = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
        pairs = [(int(match[1]), int(match[2] or match[1])) for match in found if match]
        if len(pairs) < len(found) or any(first > last for first, last in pairs):
            raise PackError(
                f"--shards {text}: write ranges of shards, counted from 0, with their last (0-99, or "
                "0-9,40-49), or one share (3/16: the fourth of sixteen)."
            )
        return cls(tuple(pairs))

    def numbers(self, count: int) -> list[int]:
        """Those of ``count`` shards that are meant, ascending; a range may reach beyond the last.

        Raises:
            PackError: a range begins beyond it.
        """
        if self.share is not None:
            number, of = self.share
            return list(range(count * number // of, count * (number + 1) // of))
        for first, last in self.ranges:
            if first >= count:
                raise PackError(
                    f"--shards {first}-{last}: the plan has {count} shards; legal are 0 to {count - 1}."
                )
        return sorted({n for first, last in self.ranges for n in range(first, min(last + 1, count))})


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as :meth:`Shares.parse` takes them: ``3,7-12``."""
    pairs: list[list[int]] = []
    for number in numbers:
        if pairs and pairs[-1][1] == number - 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)
