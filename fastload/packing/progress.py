"""Progress of a pack, an index, a recoding or the making of entry points, as observers hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastload.remote.location import Location

Place = Path | Location  # where a dataset is created


@dataclass(frozen=True)
class Work:
    """A piece of work that progress is reported of.

    Args:
        doing: the verb, as "packing".
        place: the dataset.
        unit: what is counted, as "file".
        count: units in all; 0: unknown.
        size: bytes in all; None: bytes are not counted.
        done: units that were done before.
        done_size: bytes that were done before.
        where: the word before the place, as "into".
    """

    doing: str
    place: Place
    unit: str
    count: int
    size: int | None = None
    done: int = 0
    done_size: int = 0
    where: str = "of"


class Observer:
    """Receives the progress of a call's pieces of work, one after another, like the command line's bar."""

    def scanning(self, output: Place, files: int) -> None:
        """Hear how many files have been found so far."""

    def started(self, work: Work) -> None:
        """Hear that a piece of work begins."""

    def advanced(self, count: int, size: int = 0) -> None:
        """Hear that ``count`` more units and ``size`` more bytes are done."""

    def said(self, place: Place, text: str) -> None:
        """Hear what the caller should know, for example that the call waits for another process."""


def entries_work(place: Place, records: int) -> Work:
    """Return the work of making the entry points of this many records."""
    return Work("making the entry points of", place, "record", records)
