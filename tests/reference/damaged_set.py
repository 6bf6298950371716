"""A packed set of which some records' bytes are others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import fastload


def damaged(folder: Path, copy: Path, numbers: Sequence[int]) -> Path:
    """A copy of the set in which eight bytes in the middle of these records are 0."""
    shutil.copytree(folder, copy)
    dataset = fastload.PackedDataset(copy)
    for number in numbers:
        path = Path(dataset.reader.shard_path(number))
        record = dataset.record(number)
        data = bytearray(path.read_bytes())
        begin = int(record["offset"]) + int(record["length"]) // 2
        data[begin : begin + 8] = bytes(8)
        path.write_bytes(bytes(data))
    return copy
