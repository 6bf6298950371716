"""A store of tests that tries again at once."""

from __future__ import annotations

from collections.abc import Callable

from fastload._native import _C

DATA = bytes(range(251)) * 4000  # about 1 MB, and no period of 2^n

MakeStore = Callable[..., _C.RemoteStore]


def quick(**changes: float) -> _C.Schedule:
    """The schedule, with pauses for a server that is near.

    Nothing else depends on how fast the machine is: no answer is so late that it is asked for twice or given
    up. Tests of that say when.
    """
    schedule = _C.Schedule()
    schedule.first_pause, schedule.longest_pause = 1, 20
    schedule.patience = schedule.stall = schedule.connect = schedule.hedge_floor = 100_000
    for name, value in changes.items():
        setattr(schedule, name, value)
    return schedule
