"""torch's DataLoader and fastload side by side on a sample of the user's own pictures, in turns."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastload.diagnose.trial import cpu_of, processes_below
from fastload.errors import PackError, ScriptError
from fastload.extras import need
from fastload.machine.cpu import find_budget
from fastload.machine.sizes import counted
from fastload.packing.cut import plan_of
from fastload.packing.listing import Listing
from fastload.packing.opened import Split, opened
from fastload.packing.options import PackOptions
from fastload.packing.packer import pack
from fastload.packing.rows import Rows
from fastload.packing.set_rows import SetRows
from fastload.shard.codecs import CODECS, RAW, suffix_of
from fastload.shard.dataset import PackedFiles

# ---- A sample of the pictures -----------------------------------------------------------------------

_MOST, _MOST_BYTES = 1024, 256 << 20
_PIXELS = CODECS[RAW].name
_RUN = 8  # pictures that lie one after another: tables are read by the block
_TIMED = 8  # pictures that are decoded once, to know how long a batch may take
_BATCHES, _BATCH_SECONDS = (64, 32, 16, 8), 0.5  # of one process


@dataclass(frozen=True)
class PictureSample:
    """Some pictures of a source, as files and as a packed set.

    Args:
        files: the folder with the files; torch's side reads them.
        packed: the packed set; fastload's side reads it.
        ids: the samples of the set that are the files.
        sizes: bytes of each file.
        sides: width and height of each picture, in pixels.
        codecs: how many files have which codec, by its title.
        total: pictures of the source.
        split: which one of the source's splits; "" if it has none.
        batch: pictures in a batch: fewer of those that take long to decode.
        left_out: drawn pictures that neither side could read.
        is_own: whether the packed set is the user's own; else the files were packed for this.
    """

    files: Path
    packed: Path
    ids: tuple[int, ...]
    sizes: tuple[int, ...]
    sides: tuple[tuple[int, int], ...]
    codecs: Mapping[str, int]
    total: int
    split: str
    batch: int
    left_out: int
    is_own: bool


def draw_sample(source: str | os.PathLike[str], folder: Path) -> PictureSample:
    """Write pictures, spread over a source, as files and as a packed set below an empty folder.

    Args:
        source: what ``fastload pack`` takes: a folder of images, an annotated set, a table, a packed set.
        folder: where the files and the set go.

    Raises:
        LibraryMissing: Pillow is not installed.
        PackError: the source has no pictures, or is a set of decoded pixels, which have no files.
    """
    need("PIL", "torch's side of the comparison")
    options = PackOptions(exif="ignore", on_error="skip", num_proc=1)
    split = max(opened(source, options), key=lambda one: one.name == "train")  # else the first
    own = _own_set(split.rows)
    if own is not None and _PIXELS in own.manifest.codecs:
        raise PackError(
            f"{source} holds decoded pixels, which torch's DataLoader would read from other files. Give the "
            "pictures that it was packed from."
        )
    total, drawn = _drawn(split, options, folder / "listing")
    files, packed = folder / "files", folder / "packed"
    (files / "pictures").mkdir(parents=True)
    kept: list[tuple[int, int, tuple[int, int]]] = []
    codecs: Counter[str] = Counter()
    left_out = 0
    for position, codec, data in drawn:
        sides = _sides(data)
        if sides is None:
            left_out += 1
            continue
        kept.append((position, len(data), sides))
        codecs[CODECS[codec].title] += 1
        (files / "pictures" / f"{len(kept):06}{suffix_of(codec)}").write_bytes(data)
        if sum(size for _, size, _ in kept) > _MOST_BYTES:
            break
    if not kept:
        raise PackError(f"{source}: {_nothing(left_out)}")
    places, sizes, sides_of = zip(*kept, strict=True)
    if own is None:
        pack(files, packed, replace(options, layout="classes"))
    ids = range(len(kept)) if own is None else own.ids_at(np.array(places)).tolist()
    folder_of = packed if own is None else own.folder
    return PictureSample(
        files, folder_of, tuple(ids), sizes, sides_of, codecs, total, split.name, _batch_of(files), left_out,
        own is not None,
    )  # fmt: skip


def _own_set(rows: Rows) -> PackedFiles | None:
    """Return the user's packed set, if fastload's side can read just its pictures from this machine."""
    if type(rows) is not SetRows or not rows.dataset.is_plain or rows.dataset.location is not None:
        return None
    return rows.dataset


def _drawn(split: Split, options: PackOptions, work: Path) -> tuple[int, Iterator[tuple[int, int, bytes]]]:
    """Return how many rows there are; and position, codec and file of pictures in short runs of them.

    Args:
        work: the folder for a listing, which files need.
    """
    rows, listing = split.rows, None
    try:
        total = len(rows)
    except TypeError:  # files, which only a walk counts
        work.mkdir()
        plan_of(rows, options, "sample", work)
        listing = Listing(work)
        total = len(listing)
    index = rows.schema.index_field
    if index is None:
        raise PackError("Its samples have no picture each, so there is nothing to compare.")
    at = [field.name for field in rows.schema].index(index.name)

    def pictures() -> Iterator[tuple[int, int, bytes]]:
        all_of_them = total <= _MOST
        spread = np.linspace(0, total - _RUN, _MOST // _RUN).astype(int).tolist()
        for start in range(0, total, _RUN) if all_of_them else spread:
            for batch in rows.batches(start, min(start + _RUN, total), options, listing):
                chunk = batch.fields[at]
                assert chunk.records is not None
                for position, entry in zip(batch.positions.tolist(), chunk.records, strict=True):
                    begin = int(entry["offset"])
                    data = chunk.data[begin : begin + int(entry["length"])]
                    yield position, int(entry["codec"]), data.tobytes()

    return total, pictures()


def _nothing(left_out: int) -> str:
    if left_out:
        return f"Pillow can read none of {counted(left_out, 'picture')}, so there is nothing to compare."
    return "There are no pictures that can be read. 'fastload pack SOURCE SET --dry-run' says what is there."


def _sides(data: bytes) -> tuple[int, int] | None:
    """Return a picture's width and height; None: Pillow does not know it."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return int(picture.width), int(picture.height)
    except OSError:
        return None


def _batch_of(files: Path) -> int:
    """Return the pictures of a batch, fewer of large ones, by decoding some with Pillow."""
    from PIL import Image

    paths = sorted((files / "pictures").iterdir())
    some = paths[:: max(1, len(paths) // _TIMED)][:_TIMED]
    began = time.thread_time()
    for path in some:
        with contextlib.suppress(OSError), Image.open(path) as picture:
            picture.convert("RGB")
    seconds = (time.thread_time() - began) / len(some)
    return next((batch for batch in _BATCHES if batch * seconds <= _BATCH_SECONDS), _BATCHES[-1])


# ---- A side: a process with one loader --------------------------------------------------------------

_START, _LATE = 300.0, 60.0  # seconds for a first batch; and for a run beyond its own
_LOOK, _LOOK_SHARE = 0.1, 50  # seconds between looks at memory, and how many times a look's own at least
_SETTLES, _QUIET = 5.0, 0.1  # seconds until a queue is full, and between looks
_IDLE = 0.2  # cores that count as none
_TAIL = 2000  # bytes of a process's words in an error
_CHILD = """\
import sys
sys.path.insert(0, sys.argv.pop())
from fastload.diagnose.comparison_child import main
del sys.path[0]
main()
"""


@dataclass
class Side:
    """What a loader reached.

    Args:
        name: "torch" or "fastload".
        workers: processes of torch's loader, threads of fastload's.
        first: seconds from the start of the process to its first batch, imports included.
        versions: of the libraries.
        rates: images per second, by round.
        cpu: CPU seconds per image, by round; 0: not known, without /proc.
        memory: the most bytes of all its processes (PSS: shared pages count once); 0: not known.
    """

    name: str
    workers: int
    first: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int = 0

    @property
    def rate(self) -> float:
        """The median round's images per second."""
        return statistics.median(self.rates)

    @property
    def core_rates(self) -> list[float]:
        """Images per CPU second, by round, which others' work does not change; per second, if not known."""
        return [1 / cpu for cpu in self.cpu] if all(self.cpu) else self.rates


class SideProcess:
    """A process with a loader that runs when it is told to, and ends with the context.

    Args:
        name, workers: see :class:`Side`.
        sample: the pictures.
        cpus: the CPUs that it may run on.
    """

    def __init__(self, name: str, workers: int, sample: PictureSample, cpus: Sequence[int]) -> None:
        self.side = Side(name, workers)
        order = {
            "side": name, "workers": workers, "batch": sample.batch, "cpus": list(cpus),
            "files": str(sample.files), "packed": str(sample.packed), "ids": sample.ids,
            "temporary": str(sample.files.parent), "started": time.monotonic(),
        }  # fmt: skip
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        root = str(Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(order), root],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> SideProcess:
        try:
            said = self._hear(_START)
        except BaseException:
            self.close()
            raise
        self.side.first, self.side.versions = said["first"], said["versions"]
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._words.close()

    def run(self, seconds: float) -> None:
        """Run for a while, and note what it reached."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        self._process.stdin.flush()
        with _MemoryPeak(self._pids) as memory:
            self._hear(seconds + _LATE)
            before = self._cpu()
            said = self._hear(seconds + _LATE)
            cpu = self._cpu() - before
        self.side.rates.append(said["images"] / said["seconds"])
        self.side.cpu.append(cpu / said["images"])
        self.side.memory = max(self.side.memory, memory.peak)
        self._settle()

    def _settle(self) -> None:
        """Wait until the loader has filled its queue, so that it leaves the CPUs to the other side."""
        end, used = time.monotonic() + _SETTLES, self._cpu()
        while time.monotonic() < end:
            time.sleep(_QUIET)
            last, used = used, self._cpu()
            if used - last <= _IDLE * _QUIET:
                return

    def _pids(self) -> Iterator[int]:
        yield self._process.pid
        yield from processes_below(self._process.pid)

    def _cpu(self) -> float:
        return sum(map(cpu_of, self._pids()))

    def _hear(self, seconds: float) -> dict[str, Any]:
        """Return the process's next message.

        Raises:
            ScriptError: it has ended, or says nothing in time.
        """
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], seconds)
        line = out.readline() if ready else b""
        if line:
            message: dict[str, Any] = json.loads(line)
            return message
        title = "torch's DataLoader" if self.side.name == "torch" else "fastload's DataLoader"
        if not ready:
            raise ScriptError(
                f"{title} gave no batch within {seconds:g} s, and was ended. The machine may be too busy, or "
                "its pictures very large."
            )
        self._process.wait(_LATE)
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _TAIL))
        lines = self._words.read().decode(errors="replace").strip().splitlines()[-8:]
        raise ScriptError(f"{title} failed: " + ("".join(f"\n    {line}" for line in lines) or "no words."))


class _MemoryPeak:
    """A thread that looks at the memory of processes now and then, and keeps the most that it saw.

    Args:
        processes: yields their ids; a page that several share counts once, as each one's share of it.
    """

    def __init__(self, processes: Callable[[], Iterator[int]]) -> None:
        self.peak = 0
        self._processes = processes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            began = time.thread_time()
            self.peak = max(self.peak, sum(map(_shared_out, self._processes())))
            # A look holds up the processes' own calls for memory, and takes time.
            if self._stop.wait(max(_LOOK, _LOOK_SHARE * (time.thread_time() - began))):
                return


def _shared_out(process: int) -> int:
    """Return a process's proportional set size in bytes; 0 if it has ended, or is another user's."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


# ---- The comparison ---------------------------------------------------------------------------------

ROUNDS = 5
_MANY = 8  # cores, with which one worker each may be too many for the process that collects
_SWEEP, _LEAST = 0.05, 0.3  # share of the time for a try of a number of workers; seconds of a run


@dataclass(frozen=True)
class Comparison:
    """Two loaders on the same pictures.

    Args:
        sample: the pictures.
        torch, fastload: what each reached, in the same rounds.
        tried: images per second of torch's loader by its number of workers, tried once each.
        cores: how many each could use.
    """

    sample: PictureSample
    torch: Side
    fastload: Side
    tried: dict[int, float]
    cores: int

    @property
    def ratios(self) -> list[float]:
        """How many times as fast as torch's loader fastload was, by round."""
        return [ours / theirs for ours, theirs in zip(self.fastload.rates, self.torch.rates, strict=True)]


def compare(
    sample: PictureSample, seconds: float, workers: int | None = None, cores: int | None = None
) -> Comparison:
    """Run torch's DataLoader and fastload on a sample, in turns.

    Args:
        sample: the pictures.
        seconds: for all of it, about.
        workers: of torch's loader; None: the best of as many as cores, twice as many, and half as many (one
            and a half times as many on small machines).
        cores: for each; None: all that this process may use.

    Raises:
        ScriptError: a loader failed, or was too slow.
    """
    end = time.monotonic() + seconds
    cpus, allowed = sorted(os.sched_getaffinity(0)), find_budget(gpus=[]).threads
    cores = min(cores or allowed, allowed)
    cpus = cpus if cores == allowed else cpus[:cores]
    other = cores // 2 if cores >= _MANY else 3 * cores // 2
    counts = [workers] if workers else sorted({cores, other, 2 * cores})
    tried: dict[int, float] = {}
    with ExitStack() as torchs, ExitStack() as ours:
        theirs: SideProcess | None = None
        for count in counts:
            with ExitStack() as started:
                process = started.enter_context(SideProcess("torch", count, sample, cpus))
                process.run(_SWEEP * seconds)
                tried[count] = process.side.rate
                if tried[count] == max(tried.values()):
                    torchs.close()
                    theirs = process
                    torchs.enter_context(started.pop_all())
        assert theirs is not None
        fastload = ours.enter_context(SideProcess("fastload", cores, sample, cpus))
        theirs.side.rates.clear()
        theirs.side.cpu.clear()
        for left in range(ROUNDS, 0, -1):
            for turn, process in enumerate((theirs, fastload) if left % 2 else (fastload, theirs)):
                process.run(max(_LEAST, (end - time.monotonic()) / (2 * left - turn) - _QUIET))
        return Comparison(sample, theirs.side, fastload.side, tried, cores)
