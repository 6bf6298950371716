"""webdataset's ShardWriter: tar shards of bytes and label, nothing decoded."""

from __future__ import annotations

from pathlib import Path

import webdataset


def pack(source: Path, target: Path, processes: int, shard_bytes: int = 256_000_000) -> None:
    """One process; the writer has no other way."""
    target.mkdir(parents=True)
    classes = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
    with webdataset.ShardWriter(str(target / "%06d.tar"), maxsize=shard_bytes, verbose=0) as writer:
        number = 0
        for label, name in enumerate(classes):
            for path in sorted((source / name).iterdir()):
                writer.write({"__key__": f"{number:09d}", "jpg": path.read_bytes(), "cls": label})
                number += 1
