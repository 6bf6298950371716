"""A store of tests whose failures are over in a second."""

from __future__ import annotations

from collections.abc import Callable

from fastload._native import _C

DATA = bytes(range(251)) * 4000  # about 1 MB, and no period of 2^n

MakeStore = Callable[..., _C.RemoteStore]


def quick(**changes: float) -> _C.Schedule:
    """The schedule, with times for a server that is near."""
    schedule = _C.Schedule()
    schedule.first_pause, schedule.longest_pause = 1, 20
    schedule.patience, schedule.stall, schedule.connect = 300, 200, 200
    for name, value in changes.items():
        setattr(schedule, name, value)
    return schedule
