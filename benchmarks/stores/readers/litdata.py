"""litdata: its own chunks, its StreamingDataset with its cache, its own loader.

Variant ``third``: max_cache_size is a third of the set's bytes. Where obstore is installed it fetches by
that, which refuses http; else by boto3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stores.reader_parts import REGION, Decoder, Source

VARIANTS = ("third",)
CACHED = True


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import litdata  # noqa: F401

    return {name: version(name) for name in ("litdata", "torch")}


def prepare(folder: Path, target: Path, shard_bytes: int) -> None:
    from packers import pack_litdata

    pack_litdata.pack(folder, target, 1, shard_bytes)


def epochs(source: Source, variant: str, workers: int) -> Iterator[Iterator[int]]:
    import litdata

    decode = Decoder()

    class Pictures(litdata.StreamingDataset):  # type: ignore[misc]
        """Its items, decoded."""

        def __getitem__(self, index: Any) -> tuple[Any, int]:
            item = super().__getitem__(index)
            return decode(item["image"]), item["label"]

    dataset = Pictures(
        source.url,
        cache_dir=str(source.cache / "litdata"),
        shuffle=True,
        max_cache_size=source.bytes // 3 if variant == "third" else "100GB",
        storage_options={"endpoint_url": source.endpoint, "region_name": REGION},
    )
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=source.batch, num_workers=workers, persistent_workers=True
    )
    while True:
        yield (len(labels) for _, labels in loader)
