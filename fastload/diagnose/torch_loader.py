"""The examination of a torch DataLoader: more workers, its Python functions, and fastload, tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

import fastload
from fastload.dataset.packed import PackedDataset
from fastload.dataset.views import TorchDataLoader
from fastload.diagnose.examination import Examined, cpus_here, digits, proposals
from fastload.diagnose.facts import Fix, Loop, Sentence, Stage, Verdict
from fastload.diagnose.fixes.loader import MACHINE
from fastload.diagnose.fixes.step import of_the_step, pinned
from fastload.diagnose.trial import Budget, FixedOrder, Trial, in_turns, starting_seconds
from fastload.diagnose.verdict import (
    CLEAR,
    STEP_WORDS,
    copies_sentence,
    fix_sentences,
    left_out,
    machine_limit,
    machine_sentence,
    rate_sentence,
    step_or_copies,
    worth_saying,
)
from fastload.loader.view import view_of

# ---- The torch loader under test --------------------------------------------------------------------

_SAMPLES = 300  # files in a sample of them
_MOST_BYTES = 256 << 20
_BATCH_SECONDS = 0.2  # slower batches are made smaller, or trials would have too few
_KEPT = (
    "batch_size",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


@dataclass(frozen=True)
class Files:
    """A sample of the picture files of torchvision's ImageFolder or a similar dataset.

    Args:
        paths, labels: of the sample.
        indices: their indices in the dataset.
        root: the folder of all files; "": not known.
        transform: of the pictures, or None.
        load: loads a picture from a path; None: not known.
    """

    paths: list[str]
    labels: list[int]
    indices: list[int]
    root: str
    transform: Any
    load: Any


@dataclass(frozen=True)
class TorchPart:
    """A part of making a sample: its stage, its name, and its seconds per sample in one process."""

    name: str
    words: str
    seconds: float


class TorchLoaderUnderTest:
    """A torch DataLoader, from which loaders with other arguments are made.

    Args:
        loader: the user's; never iterated.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        view = view_of(loader)
        self._arguments = None if view is None else view.arguments  # of fastload's over a torch Dataset
        self.dataset = loader.dataset
        self.batch_size = _batch_size(loader)
        self.workers = int(self.of("num_workers") or 0)
        #: Batch size in trials, unless a batch sampler makes the batches.
        self.trial_batch = self.batch_size

    def suit(self, rate: float) -> None:
        """Choose the trials' batch size by the rate of one worker."""
        fitting = max(1, int(rate * max(1, self.workers) * _BATCH_SECONDS))
        self.trial_batch = max(1, min(self.batch_size, fitting))

    def of(self, name: str) -> Any:
        """Return an argument of the loader by its name; None if it has none."""
        return getattr(self._arguments or self.loader, name, None)

    @property
    def is_stream(self) -> bool:
        """Whether samples have no indices."""
        return isinstance(self.dataset, IterableDataset)

    def make(self, indices: Sequence[int] | None = None, **changes: Any) -> Any:
        """Make the same loader with changed arguments, over ``indices`` only, if given."""
        arguments = {name: self.of(name) for name in _KEPT} | {"num_workers": self.workers}
        arguments |= self._order() if indices is None else {"sampler": FixedOrder(indices), "drop_last": True}
        if indices is not None or arguments["batch_size"] not in (None, 1):
            arguments["batch_size"] = self.trial_batch
        arguments |= changes
        if not arguments["num_workers"]:
            arguments |= {"prefetch_factor": None, "multiprocessing_context": None}
        else:
            arguments["persistent_workers"] = True  # so that a new pass does not start new processes
        return TorchDataLoader(self.dataset, **arguments)

    def _order(self) -> dict[str, Any]:
        if self.is_stream:
            return {}
        if self._arguments is not None:
            own = {name: self.of(name) for name in ("shuffle", "sampler", "batch_sampler")}
            return {name: value for name, value in own.items() if value is not None}
        batches = self.loader.batch_sampler
        if self.of("batch_size") is None and batches is not None:
            return {"batch_sampler": batches, "batch_size": 1, "drop_last": False}
        return {"sampler": self.loader.sampler}

    def parts(self, seconds: float) -> list[TorchPart]:
        """Time the parts of making a sample, in this process."""
        if self.is_stream:
            return []
        files = self.files()
        if files is None or files.load is None:
            return [TorchPart("python", f"{type(self.dataset).__name__}[i]", self._item_seconds(seconds))]
        pictures, load = _timed_calls(files.load, files.paths, seconds / 2)
        parts = [TorchPart("decode", f"{type(self.dataset).__name__}'s loader", load)]
        for step in _steps(files.transform):
            pictures, taken = _timed_calls(step, pictures, seconds / 4)
            module = type(step).__module__.partition(".")[0]
            known = module in ("torchvision", "torch", "timm", "fastload")
            name = getattr(step, "__qualname__", type(step).__qualname__)
            parts.append(TorchPart("transform" if known else "python", name, taken))
        return parts

    def _item_seconds(self, seconds: float) -> float:
        count = len(self.dataset)
        places = [(7919 * step) % count for step in range(64)]
        return _timed_calls(self.dataset.__getitem__, places, seconds)[1]

    def collate_seconds(self, seconds: float) -> float:
        """Time the collate function; seconds per sample."""
        collate, size = self.of("collate_fn"), min(self.batch_size, 64)
        if self.is_stream or collate is None:
            return 0.0
        samples = [self.dataset[step % len(self.dataset)] for step in range(size)]
        return _timed_calls(lambda _: collate(list(samples)), [0] * 50, seconds)[1] / size

    def files(self) -> Files | None:
        """Return a sample of the picture files; None if the dataset does not list them."""
        dataset, places = self.dataset, None
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
            places = [dataset.indices[place] for place in places] if places else list(dataset.indices)
            dataset = dataset.dataset
        listed = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
        if not isinstance(listed, (list, tuple)) or not listed:
            return None
        places = list(range(len(listed))) if places is None else places
        chosen = list(range(0, len(places), max(1, len(places) // _SAMPLES)))[:_SAMPLES]
        files: list[tuple[str, int, int]] = []
        room = _MOST_BYTES
        for place in chosen:
            item = listed[places[place]]
            if not (isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], (str, Path))):
                return None
            path, label = str(item[0]), item[1]
            if not Path(path).is_file() or not isinstance(label, int):
                return None
            room -= Path(path).stat().st_size
            files.append((path, label, place))
            if room < 0:
                break
        paths, labels, indices = ([file[part] for file in files] for part in range(3))
        of = (getattr(dataset, name, None) for name in ("root", "transform", "loader"))
        root, transform, load = of
        return Files(paths, labels, indices, str(root or ""), transform, load)  # type: ignore[arg-type]


def _batch_size(loader: Any) -> int:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(size, int):
        return size
    for batch in loader.batch_sampler or ():
        return len(batch)
    return 1


def _steps(transform: Any) -> Iterator[Any]:
    if transform is None:
        return
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, (list, tuple)) and "Compose" in type(transform).__name__:
        for step in inner:
            yield from _steps(step)
        return
    yield transform


def _timed_calls(function: Any, values: Sequence[Any], seconds: float) -> tuple[list[Any], float]:
    """Call the function on values until time is over (at least four); return results and seconds per call."""
    with torch.random.fork_rng(devices=[]):
        began, results = time.perf_counter(), []
        for value in values:
            results.append(function(value))
            if len(results) >= 4 and time.perf_counter() - began > seconds:
                break
        return results, (time.perf_counter() - began) / max(1, len(results))


# ---- Fixes for torch loaders ------------------------------------------------------------------------

_ROUNDS = 2
_STARTS = 0.03  # share of an epoch's time; workers that start faster need not be kept


@dataclass
class TorchExamination(Examined):
    """The examination of a torch loader.

    Args:
        subject: the loader.
        parts: the parts of making a sample.
        collate: seconds per sample of the collate function.
    """

    subject: TorchLoaderUnderTest
    parts: tuple[TorchPart, ...]
    collate: float


def more_workers(case: TorchExamination) -> Iterator[Fix]:
    """Try one worker per CPU, or two if samples wait for something other than CPUs."""
    subject, cpus = case.subject, max(1, int(case.cpus))
    waits = sum(part.seconds for part in case.parts) > 2 * case.base.cpu > 0
    wanted = 2 * cpus if waits else cpus
    if subject.workers >= wanted or not case.budget.allows(8, "more workers"):
        return
    trials = in_turns(
        {"now": subject.make, "more": lambda: subject.make(num_workers=wanted)},
        subject.trial_batch,
        2 * case.budget.run,
        _ROUNDS,
        case.step,
    )
    now, more = trials["now"], trials["more"]
    yield case.fix(
        "workers",
        f"num_workers={wanted}",
        more,
        f"num_workers={subject.workers} gave {digits(now.rate)} samples/s and num_workers={wanted} "
        f"{digits(more.rate)}, in turns, without a step.",
        "memory of the processes",
        now,
    )


def kept_workers(case: TorchExamination) -> Iterator[Fix]:
    """Try ``persistent_workers=True`` if epochs are short."""
    subject = case.subject
    if not subject.workers or subject.of("persistent_workers") or subject.is_stream:
        return
    if not case.budget.allows(3, "persistent_workers"):
        return
    start = starting_seconds(lambda: subject.make(persistent_workers=False))
    epoch = len(subject.dataset) / case.now
    if start < _STARTS * epoch:
        return
    faster = Trial(case.base.rate * (1 + start / epoch), case.base.cpu, serial=case.base.serial)
    yield case.fix(
        "persistent-workers",
        "persistent_workers=True",
        faster,
        f"{subject.workers} workers take {start:.1f} s to start, and an epoch takes about {epoch:.1f} s.",
    )


def without_collate(case: TorchExamination) -> Iterator[Fix]:
    """Try the loader without the user's collate function, if that is slow."""
    collate = case.subject.of("collate_fn")
    sample = sum(part.seconds for part in case.parts)
    if case.collate < 0.1 * sample or getattr(collate, "__module__", "").startswith("torch."):
        return
    name = getattr(collate, "__qualname__", type(collate).__qualname__)
    times = f"{name} takes {1000 * case.collate:.2f} ms of a sample's {1000 * (sample + case.collate):.2f}."
    words = f"Without the collate_fn {name}"
    if not case.budget.allows(6, "without the collate_fn"):
        return
    makers: dict[str, Any] = {
        "now": case.subject.make,
        "without": lambda: case.subject.make(collate_fn=None),
    }
    try:
        trials = in_turns(makers, case.subject.trial_batch, case.budget.run, _ROUNDS, case.step)
    except Exception as error:  # torch's default_collate may not accept these samples
        yield Fix(
            "collate_fn",
            f"{words} the loader would be faster",
            0.0,
            0.0,
            f"{times} {type(error).__name__}: {error}",
        )
        return
    now, then = trials["now"], trials["without"]
    evidence = f"{times} {digits(now.rate)} samples/s with it, {digits(then.rate)} without, in turns."
    yield case.fix("collate_fn", words, then, evidence, "its work has to be done elsewhere", now)


def by_fastload(case: TorchExamination) -> Iterator[Fix]:
    """Pack a sample of the files, and try fastload's DataLoader on it with the same transform."""
    from fastload.packing.from_python import pack
    from fastload.sample.fields import Image, Label

    files = case.subject.files()
    if files is None or len(files.paths) < 8 or not case.budget.allows(10, "fastload"):
        return
    folder = case.folder / "as-fastload"
    pack(_samples(files), folder, {"image": Image(), "label": Label()}, on_error="skip")
    packed: PackedDataset[Any] = PackedDataset(folder)
    threads = max(1, int(case.cpus))

    def ours() -> Any:
        order: Any = FixedOrder(np.arange(len(packed)))
        return fastload.DataLoader(
            packed,
            case.subject.trial_batch,
            sampler=order,
            num_workers=threads,
            transform=files.transform,
            drop_last=True,
            cache="off",
            ranks=fastload.Ranks(0, 1),
        )

    makers = {"now": lambda: case.subject.make(files.indices), "fastload": ours}
    trials = in_turns(makers, case.subject.trial_batch, 2 * case.budget.run, _ROUNDS, case.step)
    now, then = trials["now"], trials["fastload"]
    yield case.fix(
        "fastload",
        f'`fastload pack {files.root or "IMAGES"} SET` and `fastload.DataLoader("SET", ...)` with the same '
        "transform",
        then,
        f"{len(packed)} of its files, packed into a temporary folder, the same transform, {threads} threads: "
        f"{digits(then.rate)} images/s, and {digits(now.rate)} by this loader, in turns, without a step.",
        "a second copy of the files on disk",
        now,
    )


def _samples(files: Files) -> Iterator[dict[str, Any]]:
    for path, label in zip(files.paths, files.labels, strict=True):
        yield {"image": path, "label": label}


TORCH_REGISTRY: tuple[Callable[[TorchExamination], Iterator[Fix]], ...] = (
    more_workers,
    by_fastload,
    without_collate,
    kept_workers,
    *MACHINE,
    pinned,
    of_the_step,
)


# ---- The verdict ------------------------------------------------------------------------------------


def examine_torch(
    loader: Any, loop: Loop | None, step: Stage | None, budget: Budget, folder: Path
) -> Verdict:
    """Do what :func:`fastload.diagnose.doctor.examine` does, for a torch loader."""
    subject = TorchLoaderUnderTest(loader)
    parts = tuple(subject.parts(budget.run))
    collate = subject.collate_seconds(budget.run / 2)
    if parts:
        subject.suit(1 / max(1e-6, sum(part.seconds for part in parts)))
    base = in_turns({"base": subject.make}, subject.trial_batch, 2 * budget.run, 2)["base"]
    if loop is not None and loop.rate > base.rate:  # the machine is busier now than it was then
        base = replace(base, rate=loop.rate)
    case = TorchExamination(budget, folder, *cpus_here(budget), base, loop, step, subject, parts, collate)
    stages = tuple(_stages(case))
    fixes = proposals(TORCH_REGISTRY, case)
    limit = _limit(case, fixes)
    worth = worth_saying(fixes, limit)
    cause = copies_sentence(worth) if limit == "transfer" else _cause(case, limit)
    sentences = (rate_sentence(case, limit), cause, *fix_sentences(worth), *left_out(case))
    rate = step.rate if step is not None else 0.0
    return Verdict(limit, case.now, case.loader_rate, rate, sentences, worth, stages, loop)


def _stages(case: TorchExamination) -> Iterator[Stage]:
    workers = min(max(1, case.subject.workers), max(1.0, case.cpus))
    names = dict.fromkeys(part.name for part in case.parts)
    for name in names:
        each = [part for part in case.parts if part.name == name]
        seconds = sum(part.seconds for part in each)
        evidence = "; ".join(f"{part.words}: {1000 * part.seconds:.2f} ms" for part in each)
        yield Stage(
            name, workers / max(1e-9, seconds), seconds, f"A sample, alone in this process: {evidence}."
        )
    if case.collate > 0:
        evidence = f"{1000 * case.collate:.3f} ms per sample, alone in this process."
        yield Stage("collate", workers / case.collate, case.collate, evidence)
    yield Stage(
        "loader",
        case.base.rate,
        case.base.cpu,
        f"Without a step, {case.subject.workers} workers: {digits(case.base.rate)} samples/s, "
        f"{1000 * case.base.cpu:.2f} ms of CPU time per sample.",
    )
    if case.step is not None:
        yield case.step


def _limit(case: TorchExamination, fixes: Sequence[Fix]) -> str:
    if limit := step_or_copies(case, fixes):
        return limit
    seconds = dict.fromkeys(("decode", "transform", "python"), 0.0)
    for part in case.parts:
        seconds[part.name] += part.seconds
    slowest = max(seconds, key=lambda name: seconds[name])
    total = sum(seconds.values())
    if case.collate > total / 2:
        return "collate"
    if slowest == "python" and seconds["python"] > total / 2 and len(case.parts) > 1:
        return "python"
    if limit := machine_limit(fixes):
        return limit
    if any(fix.name == "workers" and fix.gain >= CLEAR for fix in fixes):
        return "threads"
    return slowest if total > 0 else "unknown"


def _cause(case: TorchExamination, limit: str) -> Sentence:
    workers = case.subject.workers
    count = f"{workers} worker{'s' if workers != 1 else ''}" if workers else "the loop's own thread"
    total = sum(part.seconds for part in case.parts) + case.collate
    evidence = "; ".join(f"{part.words}: {1000 * part.seconds:.2f} ms" for part in case.parts)
    if limit == "step":
        return Sentence(STEP_WORDS, f"The loop reached {digits(case.now)} samples/s.")
    if limit in ("quota", "neighbour"):
        return machine_sentence(case, limit)
    if limit == "threads":
        return Sentence(f"Too few workers: with {count}, {case.cpus:g} CPUs are not kept busy.", evidence)
    if limit == "collate":
        share = case.collate / total
        text = f"The collate function is the bottleneck: it takes {share:.0%} of a sample's time."
        return Sentence(text, evidence)
    if limit == "unknown":
        return Sentence("The bottleneck was not found.")
    of = [part for part in case.parts if part.name == limit]
    slowest = max(of, key=lambda part: part.seconds)
    what = {"decode": "Decoding", "transform": "The transform", "python": "Python code"}[limit]
    within = f"{sum(part.seconds for part in of) / total:.0%} of that in this stage ({slowest.words})"
    text = f"{what} is the bottleneck: {count} at {1000 * total:.2f} ms per sample, {within}."
    return Sentence(text, evidence)
