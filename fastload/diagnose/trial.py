"""Short runs of loaders in turns, with and without a step, and the loader that is examined."""

from __future__ import annotations

import os
import statistics
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.backends.callables import InlineStage
from fastload.backends.stats import batch_length
from fastload.backends.values import Ranks
from fastload.cache.settings import CacheSetting
from fastload.dataset.mixture import MixedFiles
from fastload.diagnose.facts import Stage
from fastload.diagnose.listening import ready_batches
from fastload.errors import ChecksumError
from fastload.loader.view import LoaderView, view_of
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.machine.paths import read_at, write_at
from fastload.shard.dataset import PackedFiles

# ---- A step as long as the user's -------------------------------------------------------------------

_BYTES = bytes(1 << 16)  # about 20 microseconds of work that does not hold Python's lock

_SLEEP, _SLEEPS = 0.0005, 9  # seconds of a sleep, and the number of sleeps


class PacedStep:
    """A step that computes in this thread as long as the user's does, and waits for the rest of its time.

    Args:
        step: the user's, alone. If it computes in several threads at once, this one computes in one.
    """

    def __init__(self, step: Stage) -> None:
        self._seconds = 1 / step.rate
        self._cpu = min(step.cpu, self._seconds)
        self._late = _lateness()

    def __call__(self, samples: int) -> None:
        """Take as long as a step on ``samples``."""
        began, end = time.perf_counter(), time.thread_time() + self._cpu * samples
        while time.thread_time() < end:
            zlib.crc32(_BYTES)
        rest = self._seconds * samples - (time.perf_counter() - began)
        if rest > self._late:
            time.sleep(rest - self._late)
        while time.perf_counter() - began < self._seconds * samples:
            pass


def _lateness() -> float:
    """Measure by how many seconds a sleep is too long; for steps of some 100 microseconds that is half."""
    times = []
    for _ in range(_SLEEPS):
        began = time.perf_counter()
        time.sleep(_SLEEP)
        times.append(time.perf_counter() - began - _SLEEP)
    return statistics.median(times)


# ---- Short runs of loaders, in turns ----------------------------------------------------------------

_ROUNDS = 3  # per loader; a disturbance would change the median of fewer
_WARM_SHARE = 0.25  # of a run, before it is measured
_LEAST_BATCHES = 3
_NEAR = 4.0  # a step this many times faster or slower than the loader does not change the loader's rate
_SETTLES, _LOOK = 3.0, 0.01  # seconds
_STEPS = 12  # per run; fewer mean nothing, and longer runs would take time from other trials


@dataclass(frozen=True)
class Trial:
    """What a loader reached when its batches were taken as fast as they came.

    Args:
        rate: samples per second.
        cpu: CPU seconds per sample, of this process and its workers.
        busy: share of the time for which the decoding threads had work; 0 if there are none.
        threads: decoding threads, or processes that make samples.
        stages: one thread's seconds per sample, by stage ("shard", "decode", "transform").
        gaps: seconds from batch to batch.
        samples: samples that were counted.
        serial: seconds per sample for which the thread that asks for batches made them itself.
        with_step: samples per second with a step after each batch; 0: not tried.
        rounds, rounds_with_step: the rates of all runs, in their order.
    """

    rate: float
    cpu: float
    busy: float = 0.0
    threads: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[float, ...] = ()
    samples: int = 0
    serial: float = 0.0
    with_step: float = 0.0
    rounds: tuple[float, ...] = ()
    rounds_with_step: tuple[float, ...] = ()

    @property
    def batch(self) -> float:
        """Samples per batch."""
        return self.samples / max(1, len(self.gaps))

    @property
    def seconds(self) -> float:
        """Seconds per sample in one thread."""
        return sum(self.stages.values())


class Budget:
    """The time limit of an examination.

    Args:
        seconds: for all of it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()
        #: The names of fixes for which there was no time.
        self.left_out: list[str] = []
        #: The names of fixes that this machine could not try, and why.
        self.failed: list[tuple[str, str]] = []

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self._began)

    @property
    def run(self) -> float:
        """Seconds of one run."""
        return min(1.0, max(0.15, self.seconds / 60))

    def allows(self, runs: float, name: str) -> bool:
        """Whether there is time for ``runs`` runs; if not, ``name`` is noted."""
        if self.left > runs * self.run * (1 + _WARM_SHARE):
            return True
        self.left_out.append(name)
        return False


class Runner:
    """A consumer that takes a loader's batches, epoch after epoch.

    Args:
        loader: any DataLoader.
        batch_size: samples of batches that do not show their size.
    """

    def __init__(self, loader: Any, batch_size: int) -> None:
        self._view = view_of(loader)
        self._loader = self._view or loader
        self._batch_size = batch_size
        self._iterator: Any = None
        self._batches = self._endless()

    def _endless(self) -> Iterator[int]:
        while True:
            empty = True
            self._iterator = iter(self._loader)
            for batch in self._iterator:
                empty = False
                yield batch_length(batch, self._batch_size)
            if empty:
                raise ValueError("The loader gives no batches.")

    def run(self, seconds: float, step: Callable[[int], None] = lambda samples: None) -> Trial:
        """Take batches for ``seconds``, after a warm-up that takes those that are ready.

        Args:
            seconds: length of the run.
            step: called after each batch with its number of samples.
        """
        given = self._loader if self._view is None else self._view.arguments
        ahead = getattr(given, "prefetch_factor", None) or 2
        workers = max(1, getattr(self._loader, "num_workers", 1)) if self._view is None else 1
        begin, taken = time.perf_counter(), 0
        while taken <= ahead * workers or time.perf_counter() - begin < _WARM_SHARE * seconds:
            step(next(self._batches))
            taken += 1
        before, cpu, blocked, start = self._clocks(), cpu_seconds(), self._blocked(), time.perf_counter()
        gaps: list[float] = []
        samples, end = 0, start
        least = _LEAST_BATCHES * max(1, workers)  # workers' batches come in bunches
        while len(gaps) < least or end - start < seconds:
            size = next(self._batches)
            samples += size
            step(size)
            last, end = end, time.perf_counter()
            gaps.append(end - last)
        cpu = cpu_seconds() - cpu
        trial = self._trial(before, self._clocks(), samples, end - start, cpu, gaps, self._lanes())
        if blocked is None:
            return trial
        return replace(trial, serial=max(0.0, end - start - ((self._blocked() or 0.0) - blocked)) / samples)

    def settle(self) -> None:
        """Wait until a torch loader's workers have filled their queue, so that they do not disturb others."""
        wanted = int(getattr(self._iterator, "_prefetch_factor", 0) or 0)
        wanted *= int(getattr(self._iterator, "_num_workers", 0) or 0)
        end = time.perf_counter() + _SETTLES
        while wanted and time.perf_counter() < end:
            ready = ready_batches(self._iterator)
            outstanding = getattr(self._iterator, "_tasks_outstanding", 0)
            if ready is None or ready >= min(wanted, outstanding):
                break
            time.sleep(_LOOK)

    def _blocked(self) -> float | None:
        """Return for how long the thread that asks for batches waited for others; None: those do it all."""
        if self._view is None:
            return 0.0 if getattr(self._loader, "num_workers", 1) == 0 else None
        stages = [getattr(backend, "_stage", None) for backend in self._view.backends]
        inline = [stage for stage in stages if isinstance(stage, InlineStage)]
        return sum(stage.waited for stage in inline) if inline else None

    def _lanes(self) -> int:
        """Return how many processes of a torch loader make samples; 0 for ours."""
        return max(1, int(getattr(self._loader, "num_workers", 0) or 0)) if self._view is None else 0

    def _clocks(self) -> dict[str, Any]:
        return {} if self._view is None else self._view.stats()

    @staticmethod
    def _trial(
        before: dict[str, Any],
        after: dict[str, Any],
        samples: int,
        seconds: float,
        cpu: float,
        gaps: list[float],
        lanes: int,
    ) -> Trial:
        rate = samples / seconds
        if not after or not after["threads"]:
            return Trial(rate, cpu / samples, threads=lanes, gaps=tuple(gaps), samples=samples)
        stages = {}
        for name in ("shard", "decode", "transform"):
            then, now = before["stages"][name], after["stages"][name]
            stages[name] = (now["seconds"] - then["seconds"]) / max(1, now["count"] - then["count"])
        idle = after["stages"]["prefetch"]["seconds"] - before["stages"]["prefetch"]["seconds"]
        threads = after["threads"]
        busy = min(1.0, max(0.0, 1 - idle / (threads * seconds)))
        return Trial(rate, cpu / samples, busy, threads, stages, tuple(gaps), samples)

    def close(self) -> None:
        """End the loader's threads or workers."""
        self._batches.close()  # type: ignore[attr-defined]
        if hasattr(self._loader, "close"):
            self._loader.close()


def in_turns(
    makers: Mapping[str, Callable[[], Any]],
    batch_size: int,
    seconds: float,
    rounds: int = _ROUNDS,
    step: Stage | None = None,
    pace: Callable[[int], None] = lambda samples: None,
) -> dict[str, Trial]:
    """Run loaders in turns, so that a disturbance hits all of them, and return the median run of each.

    Args:
        makers: make the loaders, by name.
        batch_size: samples of batches that do not show their size.
        seconds: length of each run.
        rounds: runs of each loader.
        step: if it is about as fast as a loader, all are also tried with its time after each batch: they
            then hold each other up, and no arithmetic says how much.
        pace: called after each batch with its number of samples.
    """
    runs: dict[str, list[Trial]] = {name: [] for name in makers}
    together: dict[str, list[float]] = {name: [] for name in makers}
    with quiet():
        runners: dict[str, Runner] = {}
        try:
            for name, make in makers.items():
                runners[name] = Runner(make(), batch_size)
            _run_alone(runners, runs, seconds, pace)
            first = [trials[0] for trials in runs.values()]
            if step is not None and _are_near(step, first, seconds):
                paced = PacedStep(step)
                for _ in range(rounds):
                    for name, runner in runners.items():
                        together[name].append(runner.run(seconds, paced).rate)
                        runner.settle()
            for _ in range(rounds - 1 if not any(together.values()) else 1):
                _run_alone(runners, runs, seconds, pace)
        finally:
            for runner in runners.values():
                with closing(runner):
                    pass
    return {
        name: replace(
            _median(trials),
            with_step=statistics.median(together[name] or [0.0]),
            rounds=tuple(trial.rate for trial in trials),
            rounds_with_step=tuple(together[name]),
        )
        for name, trials in runs.items()
    }


def _run_alone(
    runners: Mapping[str, Runner],
    runs: dict[str, list[Trial]],
    seconds: float,
    pace: Callable[[int], None],
) -> None:
    """Run each loader once, without the user's step."""
    for name, runner in runners.items():
        runs[name].append(runner.run(seconds, pace))
        runner.settle()


def _are_near(step: Stage, trials: Sequence[Trial], seconds: float) -> bool:
    """Whether a step is about as fast as one of the loaders, and a run has enough steps."""
    near = any(trial.rate / _NEAR < step.rate < trial.rate * _NEAR for trial in trials)
    return near and all(_STEPS * trial.batch <= step.rate * seconds for trial in trials)


def starting_seconds(make: Callable[[], Any]) -> float:
    """Measure the seconds to a second pass's first batch, less those of a later batch."""
    times = []
    with quiet():
        loader = make()
        for _ in range(2):
            began = time.perf_counter()
            iterator = iter(loader)
            next(iterator)
            first = time.perf_counter()
            next(iterator, None)
            times.append(max(0.0, 2 * first - began - time.perf_counter()))
            del iterator
    return times[-1]


def _median(trials: list[Trial]) -> Trial:
    middle = statistics.median_low([trial.rate for trial in trials])
    return next(trial for trial in trials if trial.rate == middle)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings: the user has already seen the loader's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, ended and running."""
    ended = os.times()
    children = sum(map(cpu_of, processes_below(os.getpid())))
    return time.process_time() + ended.children_user + ended.children_system + children


def processes_below(process: int) -> Iterator[int]:
    """Yield the ids of a process's children, and of theirs."""
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from processes_below(child)


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process and its ended children; 0 if it has ended."""
    try:
        numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")


# ---- A sampler for trials ---------------------------------------------------------------------------

_PASSES = 64  # over the ids, in one epoch


class FixedOrder(Sequence[int]):
    """A sampler that gives the same ids again and again, each time in another order."""

    def __init__(self, ids: Any) -> None:
        self._ids = np.asarray(ids, np.int64)

    def __len__(self) -> int:
        return _PASSES * len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return int(self._ids[index % len(self._ids)])

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng(0)
        for _ in range(_PASSES):
            yield from random.permutation(self._ids).tolist()


# ---- Local copies of some records -------------------------------------------------------------------

_READERS = 32
_LEAST = 32  # records, however long they take


def can_be_replicated(dataset: Any) -> bool:
    """Whether each sample is one record, and the dataset is not a view (a Subset)."""
    parts = getattr(dataset, "parts", ())
    known = isinstance(dataset, (PackedFiles, MixedFiles))
    return known and all(isinstance(part, PackedFiles) and part.is_plain for part in parts)


class LocalCopy:
    """Sparse files as large as the shards, with some records at their places.

    Args:
        dataset: one for which :func:`can_be_replicated` is true.
        folder: the folder for the files.
    """

    def __init__(self, dataset: Any, folder: Path) -> None:
        self._of = dataset
        self._paths: list[list[Path]] = []
        for number, part in enumerate(dataset.parts):
            place = folder / f"part{number}"
            place.mkdir(parents=True)
            paths = [place / f"{at}" for at in range(len(part.manifest.shards))]
            for path, shard in zip(paths, part.manifest.shards, strict=True):
                with open(path, "wb") as file:
                    file.truncate(shard.size)
            self._paths.append(paths)
        self._ends = np.cumsum([part.num_ids for part in dataset.parts])

    def place(self, sample: int) -> tuple[Path, int, int]:
        """Return file, offset and bytes of a sample's record."""
        part, number = self._of.locate(sample)
        record = part.record(number)
        at = int(np.searchsorted(self._ends, sample, "right"))  # a dataset may be mixed with itself
        return self._paths[at][int(record["shard"])], int(record["offset"]), int(record["length"])

    def fill(self, ids: npt.NDArray[np.int64], seconds: float, most: int) -> npt.NDArray[np.int64]:
        """Fetch records for ``seconds``, or until they have ``most`` bytes; return the fetched ids.

        Raises:
            RemoteError: the store does not send them.
        """
        end, taken, come = time.monotonic() + seconds, 0, []
        with ThreadPoolExecutor(_READERS) as pool:
            for begin in range(0, len(ids), _READERS):
                wave = ids[begin : begin + _READERS]
                sizes = list(pool.map(self._bring, wave.tolist()))
                come.append(wave[np.array(sizes) > 0])
                taken += sum(sizes)
                if taken > most or (begin + len(wave) >= _LEAST and time.monotonic() > end):
                    break
        return np.concatenate(come) if come else ids[:0]

    def _bring(self, sample: int) -> int:
        """Fetch a sample's record, and return its bytes; 0: it is damaged."""
        part, number = self._of.locate(sample)
        try:
            data = part.reader.read(number)
        except ChecksumError:
            return 0
        path, offset, _ = self.place(sample)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_at(descriptor, data, offset)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}, for records of trials", str(path)) from error
        finally:
            os.close(descriptor)
        return len(data)

    def sync(self) -> None:
        """Write everything to disk, so that its pages can be dropped."""
        for path in (path for paths in self._paths for path in paths):
            with open(path, "rb") as file:
                os.fsync(file.fileno())

    def dataset(self) -> Any:
        """Return the dataset with its records read from here; those not fetched are damaged."""
        parts = [_read_from(part, paths) for part, paths in zip(self._of.parts, self._paths, strict=True)]
        if isinstance(self._of, PackedFiles):
            return parts[0]
        other = object.__new__(type(self._of))
        other.__dict__ |= self._of.__dict__ | {"parts": tuple(parts)}
        return other


def _read_from(part: PackedFiles, paths: Sequence[Path]) -> PackedFiles:
    other = object.__new__(type(part))
    other.__dict__ |= part.__dict__
    shards = zip(paths, part.manifest.shards, strict=True)
    other.reader = _C.Reader(part.index, [(str(path), shard.size) for path, shard in shards])
    other.reader.show(part.shown)
    return other


# ---- The loader under test --------------------------------------------------------------------------

_MOST_BYTES = 512 << 20  # of records that are read into memory for trials
_MOST_SAMPLES = 4096
_READING = 4.0  # seconds for reading them
_MOST_FETCHED = 128 << 20  # bytes of records fetched from a store, which stay in memory meanwhile
_BATCH_SECONDS = 0.2  # slower batches are made smaller, or trials would have too few

# Trials do not share these with the job: its ranks, its random state, its files, its cache.
_ALONE: dict[str, Any] = {
    "ranks": Ranks(0, 1, handshake="off"),
    "generator": None,
    "drop_last": True,
    "padding": None,
    "autotune": False,
    "timeout": 0,
}


class LoaderUnderTest:
    """A fastload DataLoader over packed data, from which loaders with other arguments are made.

    Args:
        loader: the user's; never iterated.
        folder: a folder in memory for records of a store; None: they are fetched each time.
    """

    def __init__(self, loader: LoaderView, folder: Path | None = None) -> None:
        self.loader = loader
        self.arguments, self.options, self.plan = loader.arguments, loader.options, loader.plan
        #: The user's dataset, and the one for trials, which reads from memory.
        self.given = self.dataset = loader.opened
        self.threads = loader.threads.threads
        self.parts = self.dataset.parts
        self.core = loader.core
        self.batch_size = max(1, len(self.core.batch(0, 0, 0).ids)) if self.core.has_batch(0, 0, 0) else 1
        self.records: int = sum(part.num_ids for part in self.parts)
        self.data_bytes: int = sum(part.manifest.data_bytes for part in self.parts)
        #: Samples whose records are in memory: all, or some in the job's order.
        self.ids, self.reading_seconds = self._in_memory(self._drawn(), folder)
        #: Batch size in trials.
        self.trial_batch = min(self.batch_size, len(self.ids))

    @property
    def record_bytes(self) -> float:
        """Average bytes per record."""
        return max(1.0, self.data_bytes / max(1, self.records))

    @property
    def fits_memory(self) -> bool:
        """Whether the set stays in the page cache once it has been read."""
        return self.data_bytes <= PAGE_CACHE_SHARE * available_memory()

    @property
    def in_store(self) -> bool:
        """Whether any part of the set is in an object store."""
        return any(part.location is not None for part in self.parts)

    def suit(self, rate: float) -> None:
        """Choose the trials' batch size by the loader's rate."""
        fitting = max(1, int(rate * _BATCH_SECONDS))
        self.trial_batch = max(1, min(self.batch_size, fitting, len(self.ids)))

    def make(self, **changes: Any) -> LoaderView:
        """Make the same loader over :attr:`ids` (or ``ids=``), with changed arguments."""
        ids, workers = changes.pop("ids", self.ids), self.options.num_workers
        errors = replace(self.options.errors, action="skip", log=None)
        order = {"shuffle": None, "sampler": FixedOrder(ids), "batch_sampler": None}
        own = {"dataset": self.dataset, "batch_size": self.trial_batch, "on_error": errors, **order}
        own["num_workers"] = self.threads if workers is None else workers
        cache = self.options.cache
        if cache.mode == "auto" or self.in_store:
            own["cache"] = CacheSetting("off", decoded=cache.decoded)
        return self.loader.again(**_ALONE | own | changes)

    def _drawn(self) -> npt.NDArray[np.int64]:
        """Return samples in the job's order, spread over an epoch, each once."""
        wanted = min(_MOST_SAMPLES, max(64, int(_MOST_BYTES / self.record_bytes)))
        most = wanted // self.batch_size + 1
        try:
            batches = self.core.num_batches(0)
        except TypeError:  # a sampler without a length
            batches = most
        steps = np.unique(np.linspace(0, batches - 1, max(1, min(batches, most)))).astype(int).tolist()
        batch_ids = [self.core.batch(0, 0, step).ids for step in steps if self.core.has_batch(0, 0, step)]
        ids = np.concatenate(batch_ids) if batch_ids else np.zeros(0, np.int64)
        ids = ids[ids >= 0]
        first = np.sort(np.unique(ids, return_index=True)[1])
        return ids[first][:wanted].astype(np.int64)

    def _in_memory(
        self, ids: npt.NDArray[np.int64], folder: Path | None
    ) -> tuple[npt.NDArray[np.int64], float]:
        """Read records into memory; return the samples read in time, and the seconds it took."""
        if len(ids) == 0:
            raise ValueError("The loader has no samples to examine.")
        began = time.monotonic()
        if self.in_store and folder is not None and can_be_replicated(self.given):
            replica = LocalCopy(self.given, folder / "records")
            ids = replica.fill(ids, _READING, min(_MOST_FETCHED, _room(folder)))
            self.dataset = replica.dataset()
            self.parts = self.dataset.parts
            return ids, time.monotonic() - began
        readers = _Files()
        try:
            for count, sample in enumerate(ids.tolist(), 1):
                part, number = self.dataset.locate(sample)
                readers.read(part, number)
                if count >= 32 and time.monotonic() - began > _READING:
                    ids = ids[:count]
                    break
        finally:
            readers.close()
        return ids, time.monotonic() - began


def _room(folder: Path) -> int:
    """Return the bytes that may be used there: a quarter of the free ones."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize // 4


class _Files:
    """A reader that brings records of local files into the page cache, and ignores those of stores."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}

    def read(self, part: Any, number: int) -> None:
        """Read a record into the page cache."""
        if part.location is not None:
            return
        record = part.record(number)
        path = part.folder / part.manifest.shards[int(record["shard"])].file
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        read_at(self._open[path], int(record["length"]), int(record["offset"]))

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            os.close(descriptor)
