"""A program's own code, over torch's DataLoader or fastload's: what each rank was given, and what it lost.

    python training_job.py FOLDER DATA OUT PROGRAM:RANKS...

It runs in these ways, each in forks of this process:

- "import": the program's files through fastload.DataLoader, which stands in torch's place.
- "torch": the program as it is.
- "packed": packed pictures through fastload.DataLoader; augmentations do the same at each draw
  (``fixed_steps``).
- "files": the program as it is, with the same augmentations.

Three things are set from outside, alike in all ways. The global generators are seeded before a batch is made
and after it, since fastload's loader draws from torch's once, torch's in each epoch. Where a loader shuffles,
torch's gets the order that fastload drew. Loaders have no worker processes: each draw can be repeated.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data.dataloader
from fixed_steps import fix_steps
from on_cpu import let_be_absent, without_gpu
from ports import free_port
from torch.utils.data._utils import fetch
from trainings import TRAININGS, Enough, Place, Training, show_pictures, without_devices

import fastload
from fastload.backends.tail import _GLOBALS, SampleKey
from fastload.machine.generators import set_generators

#: Each way, and the one that comes before it and gives the orders.
WAYS = {"import": None, "torch": "import", "packed": None, "files": "packed"}
LIMIT = 280  # seconds for a way of a program


class Given(list[Any]):
    """What one pass over a loader gave, batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] | None = None  # what fastload drew, where the loader shuffles
        self.draws: list[int] = []  # which of a sample's draws each is, as fastload counts them
        self.seed: int | None = None
        self.length: int | None = None
        self.engine = False


class Watch:
    """All passes of a run, and its losses.

    Args:
        way: of ``WAYS``.
        before: the passes of the run that gives the orders.
    """

    def __init__(self, way: str, rank: int, program: Training, before: list[dict[str, Any]] | None) -> None:
        self.way, self.rank, self.before = way, rank, before
        self.passes: list[Given] = []
        self.most, self.batch = program.most, program.batch
        self.losses: list[float] = []
        self.seen: dict[int, tuple[Any, int]] = {}
        #: Seed, epoch and draws of the samples that are made now.
        self.replayed: tuple[int, int, Iterator[int]] | None = None
        self.is_inside = False
        self.now = -1, -1  # the pass that is asked for a batch, and which

    def settle(self, *key: int) -> None:
        """Seed all generators."""
        seed = hash((self.rank, *key)) % 2**31
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)

    def begin(self, loader: Any, inner: Any) -> Iterator[Any]:
        """A pass over a loader whose own iterator ``inner`` makes."""
        number = len(self.passes)
        given = Given()
        self.passes.append(given)
        _, epoch = self.seen.get(id(loader), (loader, -1))
        self.seen[id(loader)] = loader, epoch + 1
        given.length = _length(loader)
        is_random = isinstance(getattr(loader, "sampler", None), torch.utils.data.RandomSampler)
        if self.before is not None and number < len(self.before):
            told = self.before[number]
            if is_random and told["order"] is not None and loader.batch_size is not None:
                loader.sampler.replayed = told["order"]
            keys = (told["seed"], epoch + 1, iter(told["draws"]))
            self.replayed = None if told["seed"] is None else keys
        self.settle(number, -1)
        return Pass(self, loader, inner(loader), number, epoch + 1)


class Pass:
    """An iterator of a loader, whose batches are kept."""

    def __init__(self, watch: Watch, loader: Any, inner: Iterator[Any], number: int, epoch: int) -> None:
        self._watch, self._loader, self._inner, self._number, self._epoch = (
            watch,
            loader,
            inner,
            number,
            epoch,
        )

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        watch, given = self._watch, self._watch.passes[self._number]
        if sum(map(len, watch.passes)) >= watch.most:
            raise Enough
        watch.now = self._number, len(given)
        try:
            batch = next(self._inner)
        finally:
            watch.settle(self._number, len(given), 1)
        given.append(list(leaves(batch)))
        if watch.before is None and len(given) == 1:
            self._ask(given)
        return batch

    def _ask(self, given: Given) -> None:
        """What fastload's loader drew."""
        loader = self._loader
        given.seed = loader.state_dict()["seed"]
        given.engine = "engine" in repr(loader)
        is_random = type(loader.sampler).__name__ == "_Random"
        if not is_random and self._watch.way != "packed":
            return
        core, order = loader._sampler.core, []
        for step in count():
            if not core.has_batch(self._epoch, 0, step):
                break
            batch = core.batch(self._epoch, 0, step)
            order += batch.ids.tolist()
            given.draws += [0] * len(batch.ids) if batch.draws is None else batch.draws.tolist()
        given.order = order if is_random else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def leaves(batch: Any) -> Iterator[Any]:
    """The values of a batch of any form."""
    if isinstance(batch, torch.Tensor):
        yield batch.detach().clone().contiguous()
    elif isinstance(batch, dict):
        for key in sorted(batch, key=str):
            yield from leaves(batch[key])
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from leaves(value)
    elif isinstance(batch, (bool, int, float, str)):
        yield batch
    elif hasattr(batch, "tensors"):  # DETR's NestedTensor
        yield from leaves([batch.tensors, batch.mask])


def watch_loaders(kind: Any, watch: Watch) -> None:
    """Let loaders of a class be watched, and have no worker processes (packed pictures: two threads)."""
    make = kind.__init__

    def made(self: Any, *given: Any, **more: Any) -> None:
        if watch.is_inside:
            make(self, *given, **more)
            return
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            more.pop(name, None)
        if watch.batch and more.get("batch_size") is not None:
            more["batch_size"] = watch.batch
        dataset = given[0] if given else more["dataset"]
        workers = 2 if watch.way == "packed" and is_packed(dataset) else 0
        if len(given) > 5:
            given = (*given[:5], workers, *given[6:])
        else:
            more["num_workers"] = workers
        watch.is_inside = True
        try:
            make(self, *given, **more)
        finally:
            watch.is_inside = False

    def watched(inner: Any) -> Any:
        def begin(self: Any) -> Any:
            if watch.is_inside:
                return inner(self)
            watch.is_inside = True
            try:
                return watch.begin(self, inner)
            finally:
                watch.is_inside = False

        return begin

    kind.__init__ = made
    for name in ("__iter__", "_get_iterator"):
        setattr(kind, name, watched(getattr(kind, name)))


def is_packed(dataset: Any) -> bool:
    """Whether the engine reads it."""
    while isinstance(dataset, torch.utils.data.Subset):
        dataset = dataset.dataset
    return isinstance(dataset, fastload.PackedDataset)


def watch_losses(watch: Watch) -> None:
    """Keep the value of each tensor from which gradients begin."""
    backward = torch.Tensor.backward

    def watched(self: torch.Tensor, *given: Any, **more: Any) -> None:
        watch.losses.append(float(self.detach().double().sum()))
        backward(self, *given, **more)

    torch.Tensor.backward = watched  # type: ignore[assignment]


def replay(watch: Watch) -> None:
    """Let torch's RandomSampler give the order that it is told, and seed each sample as fastload does.

    A sampler that nobody tells an order has the same draws in each way.
    """
    draw = torch.utils.data.RandomSampler.__iter__
    make = fetch._MapDatasetFetcher.fetch

    def told(self: Any) -> Iterator[int]:
        order = self.__dict__.pop("replayed", None)
        if order is None:
            self.passes = self.__dict__.get("passes", 0) + 1
            torch.manual_seed(self.passes)
            yield from draw(self)
        else:
            rest = set(range(len(self.data_source))) - set(order)  # fastload has left it out: drop_last=True
            assert len(order) + len(rest) == len(self.data_source), "not each sample once"
            yield from [*order, *sorted(rest)]

    class Seeded:
        """A dataset whose samples draw what fastload's callables draw."""

        def __init__(self, dataset: Any) -> None:
            self.dataset = dataset

        def __getitem__(self, sample: int) -> Any:
            assert watch.replayed is not None
            seed, epoch, draws = watch.replayed
            key = SampleKey(seed, epoch, _whole(self.dataset, sample), next(draws))
            set_generators(key.words(_GLOBALS))
            return self.dataset[sample]

    def seeded(self: Any, ids: Any) -> Any:
        if watch.way != "files" or watch.replayed is None:
            watch.settle(*watch.now, 0)
            return make(self, ids)
        own, self.dataset = self.dataset, Seeded(self.dataset)
        try:
            return make(self, ids)
        finally:
            self.dataset = own

    torch.utils.data.RandomSampler.__iter__ = told  # type: ignore[method-assign]
    fetch._MapDatasetFetcher.fetch = seeded  # type: ignore[method-assign]


def _whole(dataset: Any, sample: int) -> int:
    """A sample's number in the whole set."""
    while isinstance(dataset, torch.utils.data.Subset):
        dataset, sample = dataset.dataset, int(dataset.indices[sample])
    return sample


def run(name: str, way: str, checkout: Path, data: Path, out: Path) -> None:
    """The program on this rank."""
    program = TRAININGS[name]
    rank, own = int(os.environ["RANK"]), out / way
    came = WAYS[way]
    before = None if came is None else torch.load(out / came / f"rank{rank}.pt", weights_only=False)["passes"]
    ours = came is None
    kind: Any = fastload.DataLoader if ours else torch.utils.data.DataLoader
    watch = Watch(way, rank, program, before)
    replay(watch)
    watch_loaders(kind, watch)
    watch_losses(watch)
    torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = kind  # type: ignore[misc]
    let_be_absent(program.absent)
    without_gpu()
    without_devices()
    fixed = way in ("packed", "files") and not program.draws
    if fixed:
        fix_steps()
    place = Place(checkout, data / ("packed" if way == "packed" else "files"), own / f"folder{rank}", fixed)
    place.own.mkdir(parents=True)
    os.chdir(place.own)
    show_pictures(place)
    watch.settle(-1)
    try:
        program.run(place)
    except Enough:
        pass
    except SystemExit as end:
        if end.code:
            raise
    passes = [
        {
            "batches": list(p),
            "order": p.order,
            "draws": p.draws,
            "seed": p.seed,
            "len": p.length,
            "engine": p.engine,
        }
        for p in watch.passes
    ]
    torch.save({"passes": passes, "losses": watch.losses}, own / f"rank{rank}.pt")
    shutil.rmtree(place.own)


def fork(ranks: int, log: Path, job: Callable[[], None]) -> bool:
    """Run ``job()`` in each rank's fork, which write to ``log``; whether all ended well, and in time."""
    port, pids, end = free_port(), set(), time.monotonic() + LIMIT
    for rank in range(ranks):
        pid = os.fork()
        if pid:
            pids.add(pid)
            continue
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({variable: str(value) for variable, value in own.items()})
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            job()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    well = True
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        pids.discard(pid)
        if status or time.monotonic() > end:
            well = False
            for other in pids:  # which may wait for the one that failed
                os.kill(other, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.02)
    return well


def main(folder: str, data: str, out: str, *jobs: str) -> int:
    """Each of ``jobs`` is NAME:RANKS; what it found is in OUT/NAME:RANKS, whose "log" says why it failed."""
    for module in ("timm.data", "timm.models", "torch.utils.tensorboard"):
        with suppress(ImportError):  # before the forks, which need not do it again
            importlib.import_module(module)
    for job in jobs:
        name, _, ranks = job.rpartition(":")
        program, own = TRAININGS[name], Path(out) / job
        checkout = Path(folder) / "pinned" / program.of.rpartition("/")[2]
        own.mkdir()
        for way in WAYS if program.packs else ("import", "torch"):
            log = own / f"{way}.log"
            if not fork(int(ranks), log, partial(run, name, way, checkout, Path(data), own)):
                (own / "failed").write_text(f"{way}: {log.read_text(errors='replace')[-6000:]}")
                break
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
