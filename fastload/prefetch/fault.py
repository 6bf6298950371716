"""Bad samples, as whoever decodes them reports them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fastload._native import ERROR_CLASSES

__all__ = ["Fault", "faults_of_core"]


class Fault(NamedTuple):
    """A bad sample of a batch, and what was done about it if that is done where it was decoded."""

    position: int  # in the batch
    sample: int  # sample id
    kind: type[Exception]
    message: str
    substitute: int | None = None  # sample id that took its place
    fatal: bool = False  # the policy made an error of it already


def faults_of_core(found: Iterable[tuple[int, int, int, str]]) -> list[Fault]:
    """The faults that ``_C.Engine.collect()`` gives, with exception classes for the numbers of kinds."""
    return [
        Fault(position, sample, ERROR_CLASSES[kind], message) for position, sample, kind, message in found
    ]
