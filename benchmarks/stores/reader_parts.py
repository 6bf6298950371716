"""What the readers of bench_stores share: where their set lies, and the picture that Pillow makes of bytes.

Standard library only when it is loaded, as readers/ are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaders.candidates.torch_pil import Decoder

__all__ = ["REGION", "Decoder", "Source", "epochs_of", "loader_of"]

REGION = "us-east-1"


@dataclass(frozen=True)
class Source:
    """A set in a store, and an empty folder on the local disk for what is to be kept of it."""

    url: str  # s3://BUCKET/PREFIX
    endpoint: str
    packed: Path  # the same files on the disk
    addresses: tuple[str, ...]  # of its objects by plain HTTP, in order
    cache: Path
    batch: int
    bytes: int  # of all its objects


def loader_of(dataset: Any, source: Source, workers: int, **more: Any) -> Any:
    """torch's DataLoader with its usual fast settings."""
    import torch

    return torch.utils.data.DataLoader(
        dataset, batch_size=source.batch, num_workers=workers, persistent_workers=True, **more
    )


def epochs_of(loader: Any) -> Iterator[Iterator[int]]:
    """Epoch after epoch the sizes of a loader's batches."""
    while True:
        yield (len(labels) for _, labels in loader)
