"""An engine with a decoded tier, and cache files for it, without a DataLoader."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cache_folder import OpenFolder
from geometry_uses import crop, spec_of
from plain_engine import PlainSlot, plain_engine

from fastload import PackedDataset
from fastload.cache.files import attach, create
from fastload.cache.layout import plan
from fastload.cache.tiers import decoded, decoded_side
from fastload.dataset.decoding import decode_with_pil

__all__ = ["EPOCHS", "epochs_of", "make_cache", "put_epochs"]

SIZE = 20  # pixels, of samples
EPOCHS = 3


def make_cache(root: Path, dataset: PackedDataset, side: Any, share: float = 1.0) -> OpenFolder:
    """A folder with one cache file, of the name "x", with room for about ``share`` of the pictures."""
    folder = OpenFolder(root)
    contents = decoded(dataset, side)
    whole = plan(contents, 1 << 40)
    limit = whole.data_offset + int(share * whole.data_size)
    create(folder, "x", contents, limit)
    return folder


def epochs_of(
    dataset: PackedDataset,
    side: Any,
    folder: OpenFolder | None = None,
    ids: Any = None,
    write: bool = True,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """What an engine gives in EPOCHS epochs: images and labels, faults as (sample, message), and counts."""
    cache = attach(folder, "x", write=write) if folder is not None else None
    order = np.arange(len(dataset)) if ids is None else np.asarray(ids)
    settings = {"max_pixels": 1 << 20, "fallback": partial(decode_with_pil, max_pixels=1 << 20), **options}
    engine = plain_engine(
        dataset.sources, SIZE, SIZE, spec_of(crop(SIZE, SIZE)), seed=5, threads=2,
        decoded_side=decoded_side(side), pixels=[cache], read_ahead=1 << 20, **settings,
    )  # fmt: skip
    images = np.empty((EPOCHS, len(order), SIZE, SIZE, 3), np.uint8)
    labels = np.empty((EPOCHS, len(order)), np.int64)
    faults = []
    slot = PlainSlot(len(order), 3 * SIZE * SIZE)
    for epoch in range(EPOCHS):
        ticket = slot.submit(engine, order, epoch)
        assert engine.wait(ticket, 60.0)
        faults += [(sample, message) for _, sample, _, message in engine.collect(ticket)]
        images[epoch], labels[epoch] = slot.images.reshape(images.shape[1:]), slot.labels
    engine.close()
    return (images, labels), faults, cache.counts() if cache is not None else {}


def put_epochs(folder: Path, root: Path, start: int, results: Any) -> None:
    """Put epochs that begin at sample ``start`` on a queue: what a process of its own runs."""
    data = PackedDataset(folder)
    ids = np.roll(np.arange(len(data)), start)
    (images, _), faults, counts = epochs_of(data, 48, OpenFolder(root), ids)
    results.put((start, np.roll(images, -start, axis=1).tobytes(), faults, counts["damaged"]))
