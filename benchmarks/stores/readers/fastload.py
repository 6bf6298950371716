"""fastload: the folder packed with its defaults, opened by URL, with a tier on disk for the whole set.

Variants: ``block`` is shuffle="block"; ``local`` reads the packed folder from the disk, for comparison;
``third`` has a tier for a third of the set's bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.command_line import pack_folder
from stores.reader_parts import Source

VARIANTS = ("block", "local", "third")
CACHED = True


def versions() -> dict[str, str]:
    import torch

    import fastload
    import fastload.remote.http  # as everything else: what is imported is no round trip

    fastload.DataLoader  # noqa: B018 (what it imports on first use is an import, too)
    return {"fastload": fastload.__version__, "torch": torch.__version__}


def prepare(folder: Path, target: Path, shard_bytes: int) -> None:
    """Its shards have the size that is its default."""
    pack_folder(folder, target)


def loader_of(source: Source, variant: str, threads: int, disk: str, **more: Any) -> Any:
    """A loader of the job with a tier ``disk`` (FOLDER:SIZE)."""
    from fastload import DataLoader
    from fastload import transforms as t

    os.environ["FASTLOAD_SETS_DIR"] = str(source.cache / "sets")
    local = variant == "local"
    return DataLoader(
        str(source.packed) if local else source.url,
        batch_size=source.batch,
        shuffle="block" if variant == "block" else True,
        num_workers=threads,
        seed=0,
        cache="off" if local else ["off", disk],
        transform=t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip()]),
        **more,
    )


def epochs(source: Source, variant: str, threads: int) -> Iterator[Iterator[int]]:
    size = source.bytes // 3 if variant == "third" else 64 * 10**9
    loader = loader_of(source, variant, threads, f"{source.cache / 'tier'}:{size}B")
    while True:
        yield (len(labels) for _, labels in loader)
