"""A packed dataset of random bytes: raw pictures that cost nothing to decode, in any shard format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastload._native import _C
from fastload.shard.formats import FORMATS, ShardSpec, format_of
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard

__all__ = ["SIDE", "write_random"]

SIDE = 192  # pixels: 3 * 192 * 192 = 110,592 bytes a record
RAW = _C.CODECS["raw"][0]
CLASSES = 1000
CHUNK = 256  # records made at a time
SHARD_BYTES = 1 << 29


def _records(count: int, first: int, total: int) -> np.ndarray:
    records = np.zeros(count, RECORD)
    records["length"] = 3 * SIDE * SIDE
    records["offset"] = np.arange(count, dtype=np.uint64) * (3 * SIDE * SIDE)
    records["label"] = (first + np.arange(count)) * CLASSES // total  # sorted by class, as packed folders are
    records["width"] = records["height"] = SIDE
    records["codec"], records["channels"] = RAW, 3
    return records


def _write_shard(path: Path, name: str, first: int, count: int, total: int) -> tuple[np.ndarray, int]:
    """One shard's index entries and the size of its file."""
    shard_format, rng, parts = format_of(name), np.random.default_rng(first), []
    classes = [f"{label:04d}" for label in range(CLASSES)]
    writer = shard_format.Writer(
        path, ShardSpec(classes, count, count * 3 * SIDE * SIDE, raw=True, size=(SIDE, SIDE))
    )
    for begin in range(first, first + count, CHUNK):
        some = min(CHUNK, first + count - begin)
        data = rng.integers(0, 256, (some, 3 * SIDE * SIDE), np.uint8)
        records = _records(some, begin, total)
        records["crc32c"] = [_C.crc32c(row) for row in data]
        writer.append(data.reshape(-1), records, [b"%08d" % i for i in range(begin, begin + some)])
        parts.append(records)
    writer.close()
    records = np.concatenate(parts)
    records["offset"] = shard_format.locate(path)[0].offsets
    return records, shard_format.data_file(path).stat().st_size


def write_random(folder: Path, name: str, total: int, shard_bytes: int = SHARD_BYTES) -> None:
    """Make ``folder`` a dataset of ``total`` records of 110,592 random bytes in shards of format ``name``."""
    folder.mkdir(parents=True)
    shard_format = format_of(name)
    per_shard = max(1, shard_bytes // (3 * SIDE * SIDE))
    parts, shards = [], []
    for number, first in enumerate(range(0, total, per_shard)):
        path = folder / f"random-{number:05d}{FORMATS[name].suffix}"
        records, size = _write_shard(path, name, first, min(per_shard, total - first), total)
        records["shard"] = number
        parts.append(records)
        file = shard_format.data_file(path).relative_to(folder)
        shards.append(Shard(str(file), size, len(records)))
    keys = [[b"%08d" % i for i in range(total)]]
    write_index(folder / INDEX_NAME, parts, keys)
    Manifest(
        format=name,
        num_records=total,
        data_bytes=total * 3 * SIDE * SIDE,
        classes=tuple(f"{label:04d}" for label in range(CLASSES)),
        shards=tuple(shards),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=_C.Index(str(folder / INDEX_NAME)).digest,
        codecs={"raw": total},
    ).write(folder)
