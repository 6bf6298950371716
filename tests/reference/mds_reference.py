"""MDS shards written by the rules of MosaicML Streaming's MDSWriter, and read back sample by sample."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["read_mds", "write_mds"]

SIZES = {"int": 8, "uint8": 1, "int16": 2, "float32": 4, "float64": 8, "ndarray:float32:2,3": 24}


def encode(encoding: str, value: Any) -> bytes:
    """The bytes of a value."""
    if encoding in ("bytes", "jpeg", "png", "pkl"):
        return bytes(value)
    if encoding == "json":
        return json.dumps(value).encode()
    if encoding in ("str", "str_int"):
        return str(value).encode()
    if encoding.startswith("ndarray"):
        return np.asarray(value, "float32").tobytes()
    return np.dtype("int64" if encoding == "int" else encoding).type(value).tobytes()


def write_mds(
    folder: Path, columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]], each: int = 1000
) -> Path:
    """A folder of shards of ``each`` samples, and their index.json."""
    folder.mkdir(parents=True)
    names = sorted(columns)
    shared = {
        "column_encodings": [columns[name] for name in names],
        "column_names": names,
        "column_sizes": [SIZES.get(columns[name]) for name in names],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    settings = json.dumps(shared, sort_keys=True).encode()
    shards = []
    for number, start in enumerate(range(0, len(samples), each)):
        blobs = []
        for sample in samples[start : start + each]:
            data = [encode(columns[name], sample[name]) for name in names]
            own = [len(d) for d, name in zip(data, names, strict=True) if columns[name] not in SIZES]
            blobs.append(struct.pack(f"<{len(own)}I", *own) + b"".join(data))
        first = 4 + 4 * (len(blobs) + 1) + len(settings)
        ends = first + np.cumsum([0, *map(len, blobs)])
        table = struct.pack(f"<I{len(ends)}I", len(blobs), *ends.tolist())
        body = table + settings + b"".join(blobs)
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(body)
        raw = {"basename": name, "bytes": len(body), "hashes": {}}
        shards.append({**shared, "raw_data": raw, "samples": len(blobs), "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


def read_mds(folder: Path) -> list[dict[str, bytes]]:
    """Each sample's columns as bytes, as MDSReader takes a sample apart."""
    samples = []
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        body = (folder / shard["raw_data"]["basename"]).read_bytes()
        for number in range(shard["samples"]):
            begin, end = struct.unpack_from("<2I", body, 4 * (1 + number))
            data, at, sizes = body[begin:end], 0, []
            for size in shard["column_sizes"]:
                sizes.append(size or struct.unpack_from("<I", data, at)[0])
                at += 0 if size else 4
            sample = {}
            for name, size in zip(shard["column_names"], sizes, strict=True):
                sample[name] = data[at : at + size]
                at += size
            samples.append(sample)
    return samples
