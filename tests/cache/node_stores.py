"""Nodes that cache a part of a set in a store, in one process: a folder for each one's disk tier, and a
server for what it asks for. Labels are sample ids, and no record is small enough to be read along."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from disk_sets import bytes_for
from fault_server import FaultServer
from plain_pack import plain_pack

from fastload import Cache, DataLoader, PackedDataset, transforms

__all__ = ["RECORD", "Cluster", "numbered_set"]

SIDE = 152
RECORD = 3 * SIDE * SIDE  # bytes: more than the 64 KiB over which neighbours in a store are read at once
_TABLES = 1 << 16  # bytes: more than a cache's tables take
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def numbered_set(folder: Path, count: int) -> PackedDataset:
    """Raw pictures whose labels are their sample ids."""
    blobs = [np.full(RECORD, number % 251, np.uint8).tobytes() for number in range(count)]
    return plain_pack(folder, blobs, range(count), raw_size=(SIDE, SIDE))


@contextmanager
def _launched(sets: Path, rank: int, world: int, local: int, locals_: int) -> Iterator[None]:
    """As torchrun starts a rank."""
    values = dict(zip(_LAUNCHER, map(str, (rank, world, local, locals_)), strict=True))
    values["FASTLOAD_SETS_DIR"] = str(sets)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass
class Cluster:
    """Nodes with ``own`` ranks each, before one store; their ranks run one after the other.

    Args:
        room: records that have room on a node.
        memory: the roots of the nodes' caches in memory, instead of a tier on disk.
    """

    dataset: PackedDataset
    root: Path
    nodes: int
    shuffle: Any
    room: int
    own: int = 1
    batch: int = 4
    memory: Path | None = None

    def __post_init__(self) -> None:
        files = [path for path in self.dataset.folder.rglob("*") if path.is_file()]
        self._objects = {f"/set/{path.name}": path.read_bytes() for path in files}
        self.limit = bytes_for([RECORD] * len(self.dataset), self.room)

    def folder(self, node: int) -> Path:
        """The root of a node's disk tier."""
        return self.root / f"node {node}"

    def run(self, epochs: Sequence[int]) -> list[tuple[list[int], list[int], int]]:
        """Each rank's sample ids in these epochs, the samples that it asked for at the store, and bytes."""
        return [self._rank(rank, epochs) for rank in range(self.nodes * self.own)]

    def _rank(self, rank: int, epochs: Sequence[int]) -> tuple[list[int], list[int], int]:
        node, local = divmod(rank, self.own)
        cache: Any = ["off", f"{self.folder(node)}:{self.limit}B"]
        if self.memory is not None:
            (self.memory / f"node {node}").mkdir(exist_ok=True)
            cache = Cache(f"{self.room * RECORD + _TABLES}B", folder=self.memory / f"node {node}")
        given: dict[str, Any] = {"shuffle": self.shuffle, "cache": cache, "seed": 1, "num_workers": 1}
        given["transform"] = transforms.Resize((16, 16))
        sets = self.root / f"sets of {node}"
        with (
            _launched(sets, rank, self.nodes * self.own, local, self.own),
            FaultServer(self._objects) as server,
        ):
            ids = []
            with DataLoader(f"{server.url}/set", self.batch, **given) as loader:
                for epoch in epochs:
                    loader.sampler.set_epoch(epoch)
                    ids += [int(label) for _, labels in loader for label in labels]
            asked = [each.headers["range"] for each in server.requests if "/data.bin" in each.path]
        spans = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked]
        samples = {at // RECORD for begin, end in spans for at in range(begin, end + 1, RECORD)}
        return ids, sorted(samples), sum(end - begin + 1 for begin, end in spans)
