"""A packed dataset of many records that all lie in one small shard: an index as large as one likes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard

__all__ = ["write_synthetic"]

CHUNK = 1 << 18  # records written at a time
PAGE = 4096  # records in a page of the index: equal pages are written as fast as the disk takes them
SHARD = "shard.bin"
JPEG = 1  # csrc/core/decode/decode.h, enum Codec
CLASSES = 1000


class _Keys:
    """Eight-digit keys, a chunk at a time; write_index goes through them twice."""

    def __init__(self, records: int) -> None:
        self._records = records

    def __iter__(self) -> Iterator[list[bytes]]:
        for begin in range(0, self._records, CHUNK):
            yield [b"%08d" % i for i in range(begin, min(begin + CHUNK, self._records))]


def _entries(images: list[bytes]) -> npt.NDArray[np.void]:
    entries = np.zeros(len(images), RECORD)
    entries["length"] = [len(image) for image in images]
    entries["offset"][1:] = np.cumsum(entries["length"], dtype=np.uint64)[:-1]
    entries["crc32c"] = [_C.crc32c(np.frombuffer(image, np.uint8)) for image in images]
    entries["codec"], entries["channels"] = JPEG, 3
    return entries


def write_synthetic(folder: Path, images: list[bytes], records: int, keyed: bool = True) -> None:
    """Make ``folder`` a dataset of ``records`` records; record i is ``images[i % len(images)]``.

    Its label is ``i % 1000``. The index is as that of a real dataset with so many records; the one
    shard holds each image once. With ``keyed`` false keys are empty and every 4096 records are alike, which
    takes seconds for 10^8 records; ``records`` must be a multiple of 4096.
    """
    folder.mkdir(parents=True)
    (folder / SHARD).write_bytes(b"".join(images))
    entries = _entries(images)

    def chunks() -> Iterator[npt.NDArray[np.void]]:
        for begin in range(0, records, CHUNK):
            ids = np.arange(begin, min(begin + CHUNK, records))
            chunk = entries[ids % len(images)]
            chunk["label"] = ids % CLASSES
            yield chunk

    keys: Iterable[list[bytes]] = _Keys(records)
    parts: Iterable[npt.NDArray[np.void]] = chunks()
    if not keyed:
        page = entries[np.arange(PAGE) % len(images)]
        page["label"] = np.arange(PAGE) % CLASSES
        parts, keys = repeat(page, records // PAGE), [[b""] * PAGE] * (records // PAGE)
    write_index(folder / INDEX_NAME, parts, keys)
    Manifest(
        format="arrow",
        num_records=records,
        data_bytes=int(entries["length"].sum(dtype=np.int64)) * records // len(images),
        classes=tuple(f"{label:04d}" for label in range(CLASSES)),
        shards=(Shard(SHARD, (folder / SHARD).stat().st_size, records),),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=_C.Index(str(folder / INDEX_NAME)).digest,
        codecs={"jpeg": records},
    ).write(folder)
