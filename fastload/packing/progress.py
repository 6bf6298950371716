"""What a pack, an index, a recoding or the making of entry points tells while it is at work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastload.remote.location import Location

Place = Path | Location  # where a dataset is made


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Args:
        doing: the verb, as "packing".
        place: the dataset.
        unit: what is counted, as "file".
        count: how many; 0: nobody knows.
        size: their bytes; None: bytes are not counted.
        done: how many were done before.
        done_size: their bytes.
        where: stands before the place, as "into".
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
    """Hears of the works that a call does, one behind the other; the command line's progress bar is one."""

    def scanning(self, output: Place, files: int) -> None:
        """So many files have been found."""

    def started(self, work: Work) -> None:
        """A work begins."""

    def advanced(self, count: int, size: int = 0) -> None:
        """So many more of it, and so many more bytes, are done."""

    def said(self, place: Place, text: str) -> None:
        """What who called should know, as that it waits for another process."""


def entries_work(place: Place, records: int) -> Work:
    """The making of the entry points of so many records."""
    return Work("making the entry points of", place, "record", records)
