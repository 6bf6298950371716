"""mosaicml-streaming: its own shards, its StreamingDataset with a local folder, torch's loader.

Variant ``third``: cache_limit is a third of the set's bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.candidates.torch_pil import torchvision_or_none
from stores.reader_parts import Decoder, Source, epochs_of, loader_of

VARIANTS = ("third",)
CACHED = True


def versions() -> dict[str, str]:
    from importlib.metadata import version

    torchvision_or_none()  # it imports torchvision
    import streaming  # noqa: F401

    return {name: version(name) for name in ("mosaicml-streaming", "torch")}


def prepare(folder: Path, target: Path, shard_bytes: int) -> None:
    from packers import pack_mds

    pack_mds.pack(folder, target, 1, shard_bytes)


def epochs(source: Source, variant: str, workers: int) -> Iterator[Iterator[int]]:
    import streaming

    decode = Decoder()

    class Pictures(streaming.StreamingDataset):  # type: ignore[misc]
        """Its samples, decoded."""

        def __getitem__(self, at: Any) -> tuple[Any, int]:
            sample = super().__getitem__(at)
            return decode(sample["image"]), sample["label"]

    os.environ["S3_ENDPOINT_URL"] = source.endpoint
    dataset = Pictures(
        remote=source.url,
        local=str(source.cache / "mds"),
        shuffle=True,
        batch_size=source.batch,
        cache_limit=source.bytes // 3 if variant == "third" else None,
    )
    return epochs_of(loader_of(dataset, source, workers))
