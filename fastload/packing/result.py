"""What a pack tells while it is at work, and what it comes to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fastload.packing.entries import EntriesObserver
from fastload.packing.entry_facts import EntryFacts
from fastload.packing.plan import PackPlan
from fastload.packing.publish import SKIPPED_NAME
from fastload.packing.summary import Summary
from fastload.remote.location import Location
from fastload.shard.manifest import Manifest

__all__ = ["Observer", "PackResult", "Place"]

Place = Path | Location  # where a dataset is made


class Observer(EntriesObserver):
    """Hears what a pack does; the command line's progress bar is one."""

    def scanning(self, output: Place, files: int) -> None:
        """So many files have been found."""

    def started(self, output: Place, plan: PackPlan, files: int, size: int) -> None:
        """Writing begins; ``files`` and ``size`` (bytes) of the plan were already done before."""

    def advanced(self, files: int, size: int) -> None:
        """So many more files (or samples) and bytes are written."""

    def samples_started(self, output: Place, done: int, count: int | None) -> None:
        """Writing samples begins; ``done`` of ``count`` (None: nobody knows) were written before."""

    def compared(self, output: Path, compared: int, count: int) -> None:
        """What is there is taken for a pack of these samples: ``compared`` of ``count`` are the same."""

    def recode_started(self, output: Path, samples: int, size: int, done: int, done_size: int) -> None:
        """Recoding of so many samples and bytes begins; ``done`` and ``done_size`` were done before."""

    def waits(self, output: Place, reason: str) -> None:
        """Another pack has what this one needs next; it goes on when that one has come to its end."""

    def begins_anew(self, output: Path) -> None:
        """A pack that was interrupted is thrown away: its samples cannot be asked by position."""


@dataclass(frozen=True)
class PackResult:
    """One packed dataset."""

    output: Place
    manifest: Manifest
    entries: EntryFacts
    summary: Summary | None  # None: it was complete before
    seconds: float  # without making entry points
    entries_seconds: float
    written_bytes: int  # source bytes packed by this run
    skipped_lines: tuple[str, ...] = ()  # of ``skipped.jsonl``, where it went into a store
    notes: tuple[
        str, ...
    ] = ()  # what became of a table's columns whose values are not in fields as they were

    @property
    def was_complete(self) -> bool:
        """The same pack was already there."""
        return self.summary is None

    def skip_reasons(self) -> list[tuple[str, int]]:
        """Why files were skipped and annotations left out, and how many for each reason; commonest first."""
        if not self.manifest.skipped and not self.manifest.left_out:
            return []
        if isinstance(self.output, Location):
            return Counter(json.loads(line)["reason"] for line in self.skipped_lines).most_common()
        with open(self.output / SKIPPED_NAME, encoding="utf-8") as lines:
            return Counter(json.loads(line)["reason"] for line in lines).most_common()
