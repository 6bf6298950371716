"""Packs slow samples until it is interrupted: ``interrupted_samples.py OUTPUT FORMAT PROCESSES``.

Writes ``begun`` into the standard output when it has packed some.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from field_samples import SCHEMA, Samples

import fastload
from fastload.packing import Observer

COUNT = 400  # two batches


class Slow(Samples):
    """The last ones take so long that it is interrupted before its end, however busy the machine is."""

    def __getitem__(self, i: int) -> dict[str, Any]:
        time.sleep(0.002 if i < COUNT - 100 else 0.3)
        return super().__getitem__(i)


class Spoken(Observer):
    """Says when some samples are in shards."""

    def advanced(self, count: int, size: int = 0) -> None:
        sys.stdout.write("begun\n")
        sys.stdout.flush()


if __name__ == "__main__":
    output, format_name, processes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    fastload.pack(
        Slow(COUNT), output, SCHEMA, format=format_name, num_proc=processes, shard_size=200_000, entries=None,
        observer=Spoken(),
    )  # fmt: skip
