"""Packed datasets whose index and manifest lie, with all checksums right: what an attacker would send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.shard.index import HEADER, PAGE_BYTES, RECORD
from fastload.shard.manifest import Manifest, Shard

DATA_OFFSET = 4096


def crc(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8))) if data else 0


def entries(blobs: list[bytes]) -> np.ndarray:
    """Honest index entries of blobs that lie back to back."""
    records = np.zeros(len(blobs), RECORD)
    records["length"] = [len(blob) for blob in blobs]
    records["offset"] = np.cumsum(records["length"], dtype=np.uint64) - records["length"]
    records["crc32c"] = [crc(blob) for blob in blobs]
    records["label"], records["codec"] = -1, 1
    return records


def index_bytes(
    records: np.ndarray, keys: list[bytes], key_table: list[int] | None = None, **header: int
) -> bytes:
    """An index file; ``key_table`` and any header field may be replaced, CRCs are made to fit."""
    ends = [0, *np.cumsum([len(key) for key in keys]).tolist()]
    table = np.array(key_table if key_table is not None else ends, np.uint64).tobytes()
    data = records.tobytes()
    data += bytes(-len(data) % 64)
    offsets_at = DATA_OFFSET + len(data)
    data += table
    data += bytes(-len(data) % 64)
    bytes_at = DATA_OFFSET + len(data)
    data += b"".join(keys)
    data += bytes(-len(data) % 64)
    pages = b"".join(
        crc(data[i : i + PAGE_BYTES]).to_bytes(4, "little") for i in range(0, len(data), PAGE_BYTES)
    )
    fields: dict[str, Any] = {
        "magic": b"FLINDEX1", "major": 1, "minor": 0, "header_bytes": 128, "num_records": len(records),
        "data_offset": DATA_OFFSET, "data_size": len(data), "page_bytes": PAGE_BYTES,
        "table_offset": offsets_at, "bytes_offset": bytes_at, "pages_offset": DATA_OFFSET + len(data),
        "file_size": DATA_OFFSET + len(data) + len(pages), "pages_crc": crc(pages),
    } | header  # fmt: skip
    head = np.zeros((), HEADER)
    for name, value in fields.items():
        head[name] = value
    if "header_crc" not in header:
        head["header_crc"] = crc(head.tobytes()[:-4])
    return head.tobytes() + bytes(DATA_OFFSET - 128) + data + pages


def write_dataset(folder: Path, blobs: list[bytes], index: bytes, **manifest: Any) -> Path:
    """A dataset of one shard; fields of the manifest may be replaced, its id is made to fit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shard.bin").write_bytes(b"".join(blobs))
    (folder / "index.fli").write_bytes(index)
    size = int(np.frombuffer(index, "<u8", 1, 32)[0])
    table = index[DATA_OFFSET + min(size, len(index)) :]
    fields: dict[str, Any] = {
        "format": "arrow", "num_records": len(blobs), "data_bytes": sum(map(len, blobs)), "classes": (),
        "shards": (Shard("shard.bin", sum(map(len, blobs)), len(blobs)),), "index_size": len(index),
        "index_crc": crc(index[:128] + table),
    } | manifest  # fmt: skip
    Manifest(**fields).write(folder)
    return folder
