"""What a rank of several does with a cache of coefficients: spawned, so in a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_cached_coefficients import epochs, loader

from fastload import Ranks

WORLD = 2


def ranks_epochs(folder: Path, rank: int, results: Any) -> None:
    """One rank's part of some epochs, and what the cache counted."""
    options: dict[str, Any] = {"ranks": Ranks(rank, WORLD, handshake="off"), "num_workers": 2}
    batches, stats = epochs(loader(folder, "20MB", **options), 4)
    results.put((rank, [(images.numpy(), labels.numpy()) for images, labels in batches], stats))
