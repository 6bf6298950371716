"""mosaicml-streaming's MDSWriter: bytes and label, no compression, no hashes (its defaults)."""

from __future__ import annotations

from pathlib import Path

from streaming import MDSWriter


def pack(source: Path, target: Path, processes: int) -> None:
    """One process; several need a merge of their own."""
    classes = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=str(target), columns=columns, size_limit=256_000_000) as writer:
        for label, name in enumerate(classes):
            for path in sorted((source / name).iterdir()):
                writer.write({"image": path.read_bytes(), "label": label})
