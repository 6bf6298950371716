"""``index.fli``: one 32-byte entry a record, and its key. The layout is normative in FORMAT.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload.shard.paged import write_paged

__all__ = ["RECORD", "write_index"]

MAGIC = b"FLINDEX1"

RECORD = np.dtype(
    [
        ("offset", "<u8"),  # first byte in the shard file
        ("length", "<u4"),  # bytes, >= 1
        ("crc32c", "<u4"),  # of those bytes
        ("label", "<i4"),  # class index, -1: none
        ("shard", "<u4"),  # index into the manifest's shards
        ("width", "<u2"),  # pixels, 0: not known
        ("height", "<u2"),  # pixels, 0: not known
        ("codec", "u1"),  # fastload.shard.codecs
        ("channels", "u1"),  # as stored
        ("flags", "u1"),  # ImageInfo flags
        ("reserved", "u1"),  # 0
    ]
)
assert RECORD.itemsize == 32


def write_index(
    path: Path,
    records: Iterable[npt.NDArray[np.void]],
    keys: Iterable[list[bytes]],
    fields_digest: bytes = b"",
) -> None:
    """Write ``index.fli`` at ``path`` (not atomically: give it a temporary name).

    Args:
        path: the file to write.
        records: chunks of :data:`RECORD` arrays, in sample-id order.
        keys: lists of UTF-8 keys, in the same order; iterated twice, so pass a re-iterable.
        fields_digest: of the manifest's fields; see :func:`fastload.shard.fields.fields_digest`.
    """
    write_paged(
        path,
        MAGIC,
        (np.ascontiguousarray(chunk, RECORD) for chunk in records),
        (np.array([len(name) for name in names], np.uint64) for names in keys),
        (b"".join(names) for names in keys),
        fields_digest=fields_digest,
    )
