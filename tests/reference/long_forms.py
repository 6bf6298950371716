"""How far tests go whose cases are drawn at random: the tables of chains of transforms, of rows by rank,
of types of values, of pictures for vision-language models, and of chats.

``FASTLOAD_NIGHTLY=1`` takes the long form of each of them. ``FASTLOAD_SEED=7`` draws other cases than each
run does, whose seed is 0. Failures say both: :func:`as_drawn`.
"""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["NIGHTLY", "SEED", "as_drawn", "how_many"]

NIGHTLY = os.environ.get("FASTLOAD_NIGHTLY") == "1"
SEED = int(os.environ.get("FASTLOAD_SEED", "0"))
Number = TypeVar("Number", int, float)


def how_many(short: Number, long: Number) -> Number:
    """Of a test's cases, in this run."""
    return long if NIGHTLY else short


def as_drawn(case: object) -> str:
    """A case in a failure's words, with what draws it again."""
    return f"FASTLOAD_SEED={SEED}{' FASTLOAD_NIGHTLY=1' if NIGHTLY else ''}, {case}"
