"""A set of images and labels is written as version 1.0 ever was: byte for byte."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path

import h5py
import lmdb
import pyarrow as pa
import pytest
from pack_trees import make_tree, snapshot

from fastload.packing import PackOptions, pack

#: What the files were before samples could have other fields, as these versions of the libraries write them.
VERSIONS = {"arrow": "26", "lmdb": "3", "hdf5": "3"}
GOLDEN = {
    "arrow": "c392794c2cec6acb2084ca2615957ea8",
    "lmdb": "79a9170d3cd59200b54f40893eb4985e",
    "hdf5": "b23cf5f25c4af4740e0d585047abac19",
}
CONTENT = "926ff4d358dcb162cf3dc540e23b5542"


def stored_png(seed: int) -> bytes:
    """A PNG whose bytes no library's version changes: its pixels are not compressed."""
    side = 3 + seed % 5
    rows = b"".join(
        b"\0" + bytes((seed * 31 + y * side + x) % 256 for x in range(3 * side)) for y in range(side)
    )
    parts = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))]
    parts += [(b"IDAT", zlib.compress(rows, 0)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def test_the_bytes_of_a_plain_set(tmp_path: Path, format_name: str) -> None:
    library = {"arrow": pa.__version__, "lmdb": lmdb.__version__, "hdf5": h5py.__version__}[format_name]
    if library.split(".")[0] != VERSIONS[format_name]:
        pytest.skip(f"the hash is of files that version {VERSIONS[format_name]} of the library writes")
    files = {f"class {c}/{i:03d}.png": stored_png(100 * c + i) for c in range(3) for i in range(40)}
    source = make_tree(tmp_path / "source", files)
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=4096, num_proc=1))
    found = snapshot(tmp_path / "set")
    assert len([name for name in found if name.endswith((".arrow", ".mdb", ".h5"))]) > 2
    manifest = json.loads(found.pop("dataset.json"))
    assert manifest.pop("writer").startswith("fastload ")  # and its version
    assert manifest.pop("content") == CONTENT  # earlier versions did not say it
    found["dataset.json"] = json.dumps(manifest).encode()
    hashed = hashlib.blake2b(digest_size=16)
    for name, data in sorted(found.items()):
        hashed.update(f"{name} {len(data)} ".encode() + data)
    assert hashed.hexdigest() == GOLDEN[format_name]
