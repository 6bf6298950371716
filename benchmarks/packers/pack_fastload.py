"""fastload: every shard is synced to the device and read back before it is published.

``arrow-unsynced`` is the same without the syncing, as ``cp`` and the other packers do it: not a feature
of fastload, the calls are replaced here. Entry points, which ``fastload pack`` makes by default after the
shards, decode every image; ``bench_entries.py`` times them, here they are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fastload.packing
from fastload.shard.formats import format_of


def packer(variant: str) -> Callable[[Path, Path, int], None]:
    """The packer of one format."""
    format_name, _, unsynced = variant.partition("-")
    format_of(format_name)

    def pack(source: Path, target: Path, processes: int) -> None:
        if unsynced:
            assert processes == 1, "the calls are replaced in this process only"
            os.fsync = lambda descriptor: None  # type: ignore[assignment]
        options = fastload.packing.PackOptions(format=format_name, num_proc=processes, entries=None)
        fastload.packing.pack(source, target, options)

    return pack
