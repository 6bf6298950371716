"""Which rows each rank gets: fastload's loader beside torch's, for every form of dataset, sampler and world.

``differences`` runs in each rank. Rows are told by their labels, which are the samples' numbers. Orders that
are drawn from a seed are compared as sets, because the numbers drawn are fastload's own; all else in order.
"""

from __future__ import annotations

import itertools
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils.data as torchs
from torch.utils.data.dataloader import DataLoader as TorchLoader

import fastload
from fastload import transforms as T

COUNT = 30
SHRINK = T.CenterCrop(4)
MOST = 64  # batches of an epoch that are looked at: samplers may be infinite
EPOCHS = 3


# Documented: an epoch that nobody sets advances by itself, where torch's first one comes again.
ADVANCING = ("distributed, shuffled", "distributed, dropping", "distributed batches")


class Wrapped(torchs.Dataset[Any]):
    """A Dataset with code of its own around a packed one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


class Stream(torchs.IterableDataset[Any]):
    """A stream that divides itself, as streams do."""

    def __init__(self, rank: int, world: int) -> None:
        self.rows = range(rank, COUNT, world)

    def __iter__(self) -> Iterator[Any]:
        return ((torch.zeros(1), row) for row in self.rows)


class Kept(torchs.Dataset[Any]):
    """A list of rows: what Hugging Face's ``split_dataset_by_node`` leaves of a set on a rank."""

    def __init__(self, rows: range) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(1), self.rows[index]


def datasets(folder: str, rank: int, world: int) -> dict[str, Callable[[], Any]]:
    """Forms of datasets; those of packed data are the engine's."""

    def packed() -> Any:
        return fastload.PackedDataset(folder, transform=SHRINK)

    own = range(rank, COUNT, world)
    return {
        "tensors": lambda: torchs.TensorDataset(torch.zeros(COUNT, 1), torch.arange(COUNT)),
        "packed": packed,
        "subset of packed": lambda: torchs.Subset(packed(), range(3, 28)),
        "own share of packed": lambda: torchs.Subset(packed(), own),
        "two of packed": lambda: torchs.ConcatDataset([torchs.Subset(packed(), own), packed()]),
        "around packed": lambda: Wrapped(packed()),
        "own share": lambda: Kept(own),
        "own stream": lambda: Stream(rank, world),
    }


class Strided(torchs.Sampler[int]):
    """This rank's rows, without torch's attributes: mmengine's DefaultSampler, detectron2's, Megatron's."""

    def __init__(self, count: int, rank: int, world: int) -> None:
        self.rows = range(rank, count, world)
        self.round = 0

    def set_epoch(self, epoch: int) -> None:
        self.round = epoch

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter([*self.rows[self.round % 2 :], *self.rows[: self.round % 2]])


class Infinite(Strided):
    """The same for ever: dinov2's InfiniteSampler, detectron2's TrainingSampler."""

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(self.rows)


class Unsized:
    """Batches of this rank for ever, which say nothing of their number."""

    def __init__(self, count: int, rank: int, world: int) -> None:
        self.rows = list(range(rank, count, world))

    def __iter__(self) -> Iterator[list[int]]:
        for turn in itertools.count():
            yield [self.rows[(turn + k) % len(self.rows)] for k in range(1 + turn % 3)]


def samplers(count: int, rank: int, world: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """Forms of samplers: the loader's arguments. "~" marks those whose orders are drawn."""
    everything = range(count)

    def distributed(**options: Any) -> Any:
        return torchs.DistributedSampler(everything, world, rank, **options)  # type: ignore[arg-type]

    def seeded() -> Any:
        return torchs.RandomSampler(everything, generator=torch.Generator().manual_seed(5))  # type: ignore

    return {
        "none": lambda: {},
        "~shuffle": lambda: {"shuffle": True},
        "sequential": lambda: {"sampler": torchs.SequentialSampler(everything)},  # type: ignore[arg-type]
        "~random": lambda: {"sampler": torchs.RandomSampler(everything)},  # type: ignore[arg-type]
        "~random, own generator": lambda: {"sampler": seeded()},
        "~own indices": lambda: {"sampler": torchs.SubsetRandomSampler(everything[rank::world])},
        "list": lambda: {"sampler": list(everything[::-1])},
        "distributed": lambda: {"sampler": distributed(shuffle=False)},
        "distributed, shuffled": lambda: {"sampler": distributed(shuffle=True, seed=3)},
        "distributed, dropping": lambda: {"sampler": distributed(shuffle=True, drop_last=True)},
        "rank-aware": lambda: {"sampler": Strided(count, rank, world)},
        "infinite": lambda: {"sampler": Infinite(count, rank, world)},
        "batches": lambda: {
            "batch_sampler": torchs.BatchSampler(torchs.SequentialSampler(everything), 4, False)  # type: ignore
        },
        "~random batches": lambda: {
            "batch_sampler": torchs.BatchSampler(torchs.RandomSampler(everything), 4, True)  # type: ignore
        },
        "distributed batches": lambda: {
            "batch_sampler": torchs.BatchSampler(distributed(shuffle=True), 4, False)
        },
        "rank-aware batches": lambda: {
            "batch_sampler": torchs.BatchSampler(Strided(count, rank, world), 4, False)
        },
        "infinite batches": lambda: {"batch_sampler": Unsized(count, rank, world)},
    }


TOLD = ("alone", "set_epoch", "a look, set_epoch")  # what a program does before an epoch


def rows_of(loader: Any, told: str) -> list[list[list[int]]]:
    """The labels of each batch of each epoch; ``told`` is of ``TOLD``."""
    found = []
    inner = getattr(loader.batch_sampler, "sampler", None)
    setters = [one.set_epoch for one in (loader.sampler, inner) if hasattr(one, "set_epoch")]
    for epoch in range(EPOCHS):
        if told.startswith("a look"):  # at a batch's size, as in PyTorch's tutorial of DDP
            next(iter(loader))
        if told != "alone":
            assert setters
            setters[-1](epoch)
        batches = itertools.islice(loader, MOST)
        found.append([torch.as_tensor(labels).reshape(-1).tolist() for _, labels in batches])
    return found


def shown(name: str, rows: list[list[list[int]]], drops: bool) -> Any:
    """What must be equal: rows in order, or where they are drawn the batches' sizes, and which rows come.

    Which rows are dropped is drawn, too: then that none comes more often than the dataset has it.
    """
    if not name.startswith("~"):
        return rows
    found = []
    for epoch in rows:
        flat = sorted(row for batch in epoch for row in batch)
        most = max(flat.count(row) for row in flat)
        found.append(([len(batch) for batch in epoch], most if drops else flat))
    return found


def cases(folder: str, rank: int, world: int) -> Iterator[tuple[str, Callable[[], Any], str, dict[str, Any]]]:
    """Each combination: in words, the dataset, the sampler's name, and what the loader is given."""
    for name, dataset in datasets(folder, rank, world).items():
        count = COUNT if name == "own stream" else len(dataset())
        for order, given in samplers(count, rank, world).items():
            for batch_size, drop_last in ((4, False), (4, True), (None, False)):
                if order.endswith("batches") and (batch_size is None or drop_last):
                    continue
                if name == "own stream" and order != "none":
                    continue
                if batch_size is None and name == "around packed":
                    continue  # the same code as for any Dataset
                words = f"{name} | {order} | batch_size={batch_size}, drop_last={drop_last}"
                options = {} if order.endswith("batches") else {"batch_size": batch_size}
                yield (
                    words,
                    dataset,
                    order,
                    {**options, **({"drop_last": True} if drop_last else {}), **given()},
                )


def differences(folder: str, rank: int, world: int, share: float, seed: int) -> tuple[int, list[str]]:
    """How many combinations were looked at, and where the rows are not torch's.

    Args:
        share: of the combinations, drawn by ``seed``; the same on all ranks, because loaders that talk to
            each other must be made by all.
    """
    looked_at, found = 0, []
    warnings.simplefilter("ignore")
    chosen = random.Random(seed)
    for words, dataset, order, given in cases(folder, rank, world):
        for told in TOLD:
            others = ("rank-aware", "infinite") if told == "set_epoch" else ()
            if told != "alone" and "distributed" not in order and order not in others:
                continue
            if chosen.random() >= share:
                continue
            again = next(one[3] for one in cases(folder, rank, world) if one[0] == words)
            torch.manual_seed(rank)
            theirs = rows_of(TorchLoader(dataset(), **given), told)
            torch.manual_seed(rank)
            with fastload.DataLoader(dataset(), **again, num_workers=0) as loader:
                ours = rows_of(loader, told)
                length = length_of(loader)
            expected = length_of(TorchLoader(dataset(), **given))
            looked_at += 1
            if told == "alone" and order in ADVANCING:
                ours, theirs = ours[:1], theirs[:1]
            drops = "drop_last" in given or order == "~random batches"
            if shown(order, ours, drops) != shown(order, theirs, drops):
                found.append(f"{words} | {told}: {ours} where torch gives {theirs}")
            if length != expected:
                found.append(f"{words} | {told}: len() is {length} where torch's is {expected}")
    return looked_at, found


def length_of(loader: Any) -> int | None:
    """``len(loader)``; None: it has none."""
    try:
        return len(loader)
    except TypeError:
        return None


def rank_of_spawn(rank: int, store: str, folder: str, found: str, share: float, seed: int) -> None:
    """A rank that knows nothing but its process group."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    Path(f"{found}{rank}").write_text(json.dumps(differences(folder, rank, 2, share, seed)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
