"""The slow, obvious pack: records back to back in one file, an index and a manifest beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastload import PackedDataset
from fastload._native import _C
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard


def plain_pack(
    folder: Path,
    blobs: Sequence[bytes],
    labels: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    raw_size: tuple[int, int] | None = None,
    probe: bool = True,
) -> PackedDataset:
    """Pack ``blobs`` (encoded images, or raw pixels of ``raw_size`` = (height, width)) into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(blobs)
    (folder / "data.bin").write_bytes(data)
    records = np.zeros(len(blobs), RECORD)
    records["length"] = [len(blob) for blob in blobs]
    records["offset"] = np.cumsum(records["length"], dtype=np.uint64) - records["length"]
    records["label"] = -1 if labels is None else labels
    names = list(_C.CODECS)
    for i, blob in enumerate(blobs):
        array = np.frombuffer(blob, np.uint8)
        records[i]["crc32c"] = _C.crc32c(array)
        if raw_size is not None:
            records[i]["codec"] = names.index("raw")
            records[i]["height"], records[i]["width"] = raw_size
        elif probe:
            codec, width, height, channels, flags = _C.probe(array)
            records[i]["codec"] = names.index(codec)
            records[i]["width"], records[i]["height"] = width, height
            records[i]["channels"], records[i]["flags"] = channels, flags
    write_index(folder / INDEX_NAME, [records], [[b"%d.img" % i for i in range(len(blobs))]])
    index = _C.Index(str(folder / INDEX_NAME))
    Manifest(
        format="plain",
        num_records=len(blobs),
        data_bytes=len(data),
        classes=tuple(classes),
        shards=(Shard("data.bin", len(data), len(blobs)),),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=index.digest,
    ).write(folder)
    return PackedDataset(folder)
