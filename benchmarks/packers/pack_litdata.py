"""litdata.optimize: bytes and label in chunks.

It deletes ``$TMPDIR/data`` and ``$TMPDIR/chunks`` when it starts: ``bench_pack.py`` gives it its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import litdata

assert "fastload-bench" in os.environ["TMPDIR"], "litdata.optimize deletes $TMPDIR/data; its own is needed"


def read(item: tuple[str, int]) -> dict[str, Any]:
    """One sample; a module-level function, as its processes import it."""
    return {"image": Path(item[0]).read_bytes(), "label": item[1]}


def pack(source: Path, target: Path, processes: int, shard_bytes: int = 256_000_000) -> None:
    """As many workers as asked."""
    classes = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
    items = [(str(p), label) for label, name in enumerate(classes) for p in sorted((source / name).iterdir())]
    litdata.optimize(
        fn=read,
        inputs=items,
        output_dir=str(target),
        chunk_bytes=shard_bytes,
        num_workers=processes,
        verbose=False,
    )
