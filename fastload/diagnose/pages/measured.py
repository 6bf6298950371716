"""A report's measurements: a loader's clocks over time, a run without a step, costs of samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastload import errors
from fastload.dataset.decoding import decode_field, decode_record
from fastload.diagnose.facts import Sentence, Stage, Verdict
from fastload.diagnose.pages.page import rate, seconds, share
from fastload.machine.threads import start_beside
from fastload.shard.codecs import CODECS, NEEDS_FALLBACK, PROGRESSIVE

if TYPE_CHECKING:
    from fastload.dataset.mixture import Packed
    from fastload.loader.view import LoaderView
    from fastload.shard.dataset import PackedFiles


# ---- A loader's clocks over time --------------------------------------------------------------------

STAGES = ("shard", "decode", "transform")


class Timeline:
    """A loader's clocks at several moments.

    Args:
        rows: per moment: time, samples decoded, samples delivered, threads at once, and each stage's seconds,
            summed over threads.
        batch_size: samples per batch.
    """

    def __init__(self, rows: list[tuple[float, ...]], batch_size: int) -> None:
        self._rows: NDArray[np.float64] = np.array(rows, np.float64).reshape(-1, 4 + len(STAGES))
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def times(self) -> NDArray[np.float64]:
        """Seconds since the first moment."""
        times: NDArray[np.float64] = self._rows[:, 0] - self._rows[0, 0]
        return times

    @property
    def ahead(self) -> NDArray[np.float64]:
        """The queue's depth: samples that are decoded but not yet delivered, in batches."""
        return (self._rows[:, 1] - self._rows[:, 2]) / self.batch_size

    @property
    def threads(self) -> int:
        """The largest number of threads at once."""
        return int(self._rows[:, 3].max())

    def busy(self, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how many threads were busy with each stage.

        A clock advances only when a sample is done, so moments closer than that show nothing. They are merged
        until there are at most ``columns`` intervals.

        Returns:
            Edges in seconds, shape (n + 1,), and threads, shape (stages, n).
        """
        last = len(self._rows) - 1
        picked = np.unique(np.linspace(0, last, min(columns, last) + 1).astype(np.int64))
        rows = self._rows[picked]
        spans = np.maximum(np.diff(rows[:, 0]), 1e-9)
        return self.times[picked], (np.diff(rows[:, 4:], axis=0) / spans[:, None]).T


class History:
    """A thread that reads a loader's clocks again and again while the loader is used.

    Put ``with History(loader) as history: ...`` around a part of the training loop. A reading takes 0.15 ms.

    Args:
        every: seconds between two readings.
        most: readings that are kept; then every second one is dropped, and ``every`` is doubled.
    """

    def __init__(self, loader: Any, every: float = 0.025, most: int = 4096) -> None:
        if every <= 0 or most < 16:
            raise ValueError(f"every must be > 0 seconds and most >= 16. Found: every={every}, most={most}.")
        from fastload.loader.view import viewed  # imports torch, of which a page has no need

        self._loader = viewed(loader, "History")
        self._every, self._most = every, most
        self._rows: list[tuple[float, ...]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> History:
        self._look()
        self._thread = start_beside(self._run, "fastload-history", self._ended.set)
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._look()

    @property
    def moments(self) -> Timeline:
        """The readings so far."""
        return Timeline(list(self._rows), self._loader.options.batch_size)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._look()
            if len(self._rows) >= self._most:
                self._rows = self._rows[::2]
                self._every *= 2

    def _look(self) -> None:
        now, stats = time.perf_counter(), self._loader.stats()
        stages = stats["stages"]
        counts = (stages["decode"]["count"], stats["samples"], stats["threads"])
        self._rows.append((now, *counts, *(stages[name]["seconds"] for name in STAGES)))


# ---- A second loader, run without a step ------------------------------------------------------------


@dataclass(frozen=True)
class Alone:
    """What a loader did without a step.

    Args:
        rate: samples per second, from the first batch on.
        batches: number of batches taken.
        stats: its clocks, from :meth:`fastload.DataLoader.stats`.
        moments: its clocks over time.
    """

    rate: float
    batches: int
    stats: dict[str, Any]
    moments: Timeline


def run_alone(loader: LoaderView, seconds: float) -> Alone:
    """Run a second loader with ``loader``'s arguments for ``seconds``.

    ``loader``, its position and torch's generators stay as they are. In place of a user's sampler, which
    perhaps may not be asked twice, the second loader has a uniform order. It writes no error log.
    """
    import torch

    first, before, batches = 0.0, 0, 0
    # Worker processes of Python callables are seeded from torch's generator.
    with torch.random.fork_rng(devices=[]), closing(_alone(loader)) as copy:
        with History(copy) as history:
            for _ in _epochs(copy):
                now = time.perf_counter()
                batches += 1
                if batches == 1:
                    first, before = now, copy.stats()["samples"]
                elif now - first >= seconds:
                    break
            spent = time.perf_counter() - first
        stats = copy.stats()
    rate = (stats["samples"] - before) / spent if batches > 1 else 0.0
    return Alone(rate, batches, stats, history.moments)


def _epochs(loader: LoaderView) -> Iterator[Any]:
    """Yield the batches of one epoch after the other; end after an empty one."""
    batch = empty = object()
    while True:
        for batch in loader:
            yield batch
        if batch is empty:
            return


def _alone(loader: LoaderView) -> LoaderView:
    """Make the second loader."""
    from fastload.backends.values import Ranks

    world, seed = loader.place_of_rank()
    changes: dict[str, Any] = {
        "ranks": Ranks(world.rank, world.size, handshake="off"),
        "seed": seed or 0,
        "generator": None,
        "on_error": replace(loader.options.errors, log=None),
    }
    if loader.order.is_given:
        changes |= {"sampler": None, "batch_sampler": None, "shuffle": True}
        changes |= {"batch_size": loader.options.batch_size}
    return loader.again(**changes)


# ---- A verdict without the doctor -------------------------------------------------------------------

_FEW = 10  # batches, before which the share of waiting means little
_KEEPS_UP = 0.05  # share of the time for which the loop may wait for a loader that keeps up


def own_verdict(stats: Mapping[str, Any], alone: Alone | None) -> Verdict:
    """Say what the clocks show: whether the loop waits, and where the threads' time goes.

    Args:
        stats: of the loader so far.
        alone: of a second loader without a step; None: there was none.
    """
    used, wait = stats["data_wait"]["count"], stats["data_wait"]["share"]
    reached = stats["images_per_second"] if used >= _FEW else 0.0
    own = alone.rate if alone is not None else 0.0
    clocks = stats if used >= _FEW or alone is None else alone.stats
    stages = _stages(clocks, own, alone)
    sentences, limit = [], "unknown"
    if reached and wait <= _KEEPS_UP:
        limit = "step"
        words = (
            f"The data pipeline is not the bottleneck: the loop waited for data {share(wait)} of its time, "
            f"at {rate(reached)}."
        )
    elif reached:
        words = f"The loop got {rate(reached)} and waited for data {share(wait)} of its time."
    else:
        unused = "The loader has not been used yet."
        words = f"The loader delivers {rate(own)} without a step." if own else unused
    evidence = f"{used:,} batches, by the loader's clocks." if reached else ""
    sentences.append(Sentence(words, evidence))
    if reached and own:
        sentences.append(
            Sentence(
                f"Without a step the loader delivers {rate(own)}.",
                f"A second loader with the same arguments: {alone.batches if alone else 0} batches.",
            )
        )
    slowest = min(stages[: len(STAGES)], key=lambda stage: stage.rate, default=None)
    if slowest is not None and limit != "step":
        total = sum(stage.cpu for stage in stages[: len(STAGES)])
        text = (
            f"Of a thread's {seconds(total)} for a sample, {slowest.name} takes {share(slowest.cpu / total)}."
        )
        sentences.append(Sentence(text, slowest.evidence))
    return Verdict(limit, reached, own, 0.0, tuple(sentences), (), tuple(stages))


def _stages(stats: Mapping[str, Any], own: float, alone: Alone | None) -> list[Stage]:
    """Return what the threads could do of each stage if they did nothing else, and the loader alone."""
    count, threads = stats["stages"]["decode"]["count"], max(1, int(stats["threads"]))
    stages = []
    for name, word in zip(STAGES, ("read", "decode", "transform"), strict=True):
        spent = stats["stages"][name]["seconds"]
        if count and spent > 0:
            evidence = f"the clocks of {threads} threads over {count:,} samples, if they did nothing else"
            stages.append(Stage(word, threads * count / spent, spent / count, evidence))
    if alone is not None and own > 0:
        stages.append(Stage("loader", own, 0.0, f"{alone.batches} batches without a step"))
    return stages


# ---- Costs of single samples ------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleCost:
    """What it takes to read and decode one sample.

    Args:
        sample: its id.
        key: its path in the source.
        shard: the shard's path.
        codec: of its picture, for example "JPEG, progressive".
        width, height: in pixels; 0 if only Pillow knows them.
        length: encoded bytes.
        read: seconds for reading its bytes, from wherever they were.
        decode: CPU seconds for decoding the whole picture from memory.
    """

    sample: int
    key: str
    shard: str
    codec: str
    width: int
    height: int
    length: int
    read: float
    decode: float


@dataclass(frozen=True)
class Costs:
    """The costs of single samples.

    Args:
        samples: those that could be decoded.
        bad: key and error of each other one.
        of: samples in the set.
        field: the field whose pictures were decoded; "" if the set has only one.
    """

    samples: tuple[SampleCost, ...]
    bad: tuple[tuple[str, str], ...]
    of: int
    field: str = ""


def measure_costs(dataset: Packed, count: int = 384, seconds: float = 4.0, seed: int = 0) -> Costs:
    """Read and decode samples one by one in this thread, drawn without repetition.

    The engine's decoders decode whole pictures here; its threads decode only what a crop needs.

    Args:
        count: most samples to decode.
        seconds: time after which no further sample is begun.
    """
    field = _field(dataset)
    ids = np.random.Generator(np.random.Philox(seed)).permutation(len(dataset))[:count]
    places = getattr(dataset, "sample_ids", None)
    ids = ids if places is None else places[ids]
    costs, bad, end = [], [], time.perf_counter() + seconds
    for sample in ids.tolist():
        part, own = dataset.locate(sample)
        try:
            costs.append(_cost(part, own, sample, field))
        except (errors.DecodeError, errors.ChecksumError, errors.ShardError) as error:
            bad.append((part.key(own), str(error)))
        if time.perf_counter() > end:
            break
    return Costs(tuple(costs), tuple(bad), len(dataset), field)


def _field(dataset: Packed) -> str:
    """Return the first field of pictures; "" for sets of an image and a label."""
    if dataset.is_plain:
        return ""
    from fastload.sample.fields import Image, Mask

    return next(field.name for field in dataset.schema if isinstance(field.kind, Image | Mask))


def _cost(part: PackedFiles, own: int, sample: int, field: str) -> SampleCost:
    record = part.record(own, field or None)
    began = time.perf_counter()
    data = part.stored(own, field or None)
    read, busy = time.perf_counter() - began, time.thread_time()
    if field:
        decode_field(part, field, own)
    else:
        decode_record(part, own)
    busy = time.thread_time() - busy
    return SampleCost(
        sample,
        part.key(own),
        str(part.reader.shard_path(own)),
        _codec(record),
        int(record["width"]),
        int(record["height"]),
        len(data),
        read,
        busy,
    )


def _codec(record: Any) -> str:
    flags, name = int(record["flags"]), CODECS[int(record["codec"])].title
    words = [
        name,
        *["progressive"] * bool(flags & PROGRESSIVE),
        *["by Pillow"] * bool(flags & NEEDS_FALLBACK),
    ]
    return ", ".join(words)
