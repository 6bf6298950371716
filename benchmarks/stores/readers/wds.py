"""WebDataset: tar shards over HTTP from a public bucket, shuffled by shard and in a buffer of 1,000.

It fetches with the program curl, into its cache, and reads a shard when it is there whole. Variant ``stream``
has no cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stores.reader_parts import Decoder, Source, epochs_of, loader_of

VARIANTS = ("stream",)
CACHED = True
BUFFER = 1000  # as its documentation has it


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import webdataset  # noqa: F401

    return {name: version(name) for name in ("webdataset", "torch")}


def prepare(folder: Path, target: Path, shard_bytes: int) -> None:
    from packers import pack_webdataset

    pack_webdataset.pack(folder, target, 1, shard_bytes)


def epochs(source: Source, variant: str, workers: int) -> Iterator[Iterator[int]]:
    import webdataset

    (source.cache / "wds").mkdir()
    dataset = (
        webdataset.WebDataset(
            list(source.addresses),
            shardshuffle=100,
            cache_dir=None if variant == "stream" else str(source.cache / "wds"),
        )
        .shuffle(BUFFER)
        .to_tuple("jpg", "cls")
        .map_tuple(Decoder(), int)
    )
    return epochs_of(loader_of(dataset, source, workers))
