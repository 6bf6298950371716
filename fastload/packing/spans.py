"""Samples of a packed dataset, divided for processes that work on them."""

from __future__ import annotations

import functools
from pathlib import Path

from fastload.errors import PackError
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

__all__ = ["opened_once", "spans_of"]

_BYTES = 64 << 20  # of records in a span


def spans_of(manifest: Manifest) -> list[tuple[int, int]]:
    """All samples in spans [first, behind the last) of about as many bytes."""
    mean = max(1, manifest.data_bytes // max(1, manifest.num_records))
    step = max(1, _BYTES // mean)
    count = manifest.num_records
    return [(at, min(at + step, count)) for at in range(0, count, step)]


@functools.lru_cache(maxsize=1)
def opened_once(folder: Path, packed_as: str) -> PackedFiles:
    """A process's dataset, as another process knows it.

    Raises:
        PackError: it is another one here.
    """
    dataset = PackedFiles(folder, entries=False)
    if dataset.id != packed_as:
        raise PackError(
            f"{folder} has dataset id {dataset.id} on this worker's machine, and {packed_as} where the "
            "command runs: all must see the same folder."
        )
    return dataset
