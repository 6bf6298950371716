"""What a pack comes to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from fastload.packing.entry_facts import EntryFacts
from fastload.packing.progress import Place
from fastload.packing.publish import SKIPPED_NAME
from fastload.packing.summary import Summary
from fastload.remote.location import Location
from fastload.shard.manifest import Manifest

__all__ = ["PackResult"]


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
