"""A program's own code on two ranks, over torch's DataLoader or fastload's, and the rows that each rank got.

    python job.py PROGRAM torch|fastload CHECKOUT DATA OUT

The ranks are forks of this process. Each writes to OUT what its loaders gave, in the order of their first
batches: ``len()``, the labels of each batch, which are the samples' numbers, the sampler's class, and whether
the engine made the batches.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils.data.dataloader
from on_cpu import let_be_absent, packed_folders
from ports import free_port
from programs import PROGRAMS, RANKS, Place

import fastload


class Batches:
    """What a loader gave in all its passes."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.labels: list[list[int]] = []

    def found(self) -> dict[str, Any]:
        """What is compared."""
        try:
            length = len(self.loader)
        except TypeError:
            length = None
        return {
            "len": length,
            "batches": self.labels,
            "sampler": type(self.loader.sampler).__name__,
            "engine": "engine" in repr(self.loader),
        }


class Pass:
    """An iterator of a loader, whose batches are written down."""

    def __init__(self, inner: Iterator[Any], loader: Any, given: dict[int, Batches]) -> None:
        self._inner = inner
        self._loader = loader
        self._given = given

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        batch = next(self._inner)
        batches = self._given.setdefault(id(self._loader), Batches(self._loader))
        batches.labels.append(list(integers_in(batch)))
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def integers_in(batch: Any) -> Iterator[int]:
    """The labels in a batch of any form: pictures are floating or have more dimensions."""
    if isinstance(batch, torch.Tensor):
        if not batch.is_floating_point() and batch.ndim <= 1:
            yield from batch.reshape(-1).tolist()
    elif isinstance(batch, dict):
        yield from integers_in(list(batch.values()))
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from integers_in(value)
    elif isinstance(batch, int):
        yield batch


def watch(kind: Any) -> dict[int, Batches]:
    """What the loaders of a class give from now on.

    Subclasses call torch's ``__iter__`` or ``_get_iterator``, of which one may call the other.
    """
    given: dict[int, Batches] = {}
    is_inside = False

    def watched(inner: Any) -> Any:
        def begin(self: Any) -> Any:
            nonlocal is_inside
            if is_inside:
                return inner(self)
            is_inside = True
            try:
                return Pass(inner(self), self, given)
            finally:
                is_inside = False

        return begin

    for name in ("__iter__", "_get_iterator"):
        setattr(kind, name, watched(getattr(kind, name)))
    return given


def run(name: str, loader: str, checkout: Path, data: Path, out: Path) -> None:
    """The program on this rank."""
    rank = int(os.environ["RANK"])
    kind: Any = torch.utils.data.DataLoader if loader == "torch" else fastload.DataLoader
    given = watch(kind)
    torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = kind  # type: ignore[misc]
    let_be_absent(PROGRAMS[name].absent)
    packed_folders()
    torch.manual_seed(rank)  # as programs do, for other crops on each rank
    own = out / f"folder{rank}"  # for checkpoints
    own.mkdir()
    os.chdir(own)
    PROGRAMS[name].run(Place(checkout, data, loader))
    (out / f"rank{rank}.json").write_text(json.dumps([batches.found() for batches in given.values()]))


def main(name: str, loader: str, *folders: str) -> int:
    port, pids = free_port(), set()
    for rank in range(RANKS):
        pid = os.fork()
        if pid:
            pids.add(pid)
            continue
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({variable: str(value) for variable, value in own.items()})
        try:
            run(name, loader, *map(Path, folders))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status:
            for other in pids:  # which may wait for the one that failed
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
