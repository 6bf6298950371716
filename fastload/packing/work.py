"""The writing of shards by one process or a pool, and the part file of each finished shard."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.machine.threads import started_pool
from fastload.packing.coefficients import FACTS, RecodeCounts
from fastload.packing.files import failed_writes_reported, publish, remove, temporary_of
from fastload.packing.folders import GROUP_BYTES, Group, Listing, as_rows, read_groups
from fastload.packing.options import PackOptions
from fastload.packing.plan import WORK_NAME, PackPlan
from fastload.shard.columns import Chunk
from fastload.shard.formats import Format, ShardSpec, Writer, format_of
from fastload.shard.index import RECORD

if TYPE_CHECKING:
    from fastload.packing.source import StoreFiles


# ---- Part files: a finished shard's share of the index, until the manifest is published -------------

_AT_ONCE = 1 << 20
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def _damaged(path: Path, error: Exception) -> Exception:
    if isinstance(error.__context__, OSError):
        return error.__context__  # zipfile reports what the system could not read as damage
    return PackError(f"{path} is damaged ({error}); pack again with --restart.")


@dataclass(frozen=True)
class ShardPart:
    """Entries (offsets in the shard file; ``shard`` not yet set), keys and skipped files of one shard."""

    records: npt.NDArray[np.void]  # RECORD
    keys: list[bytes]
    skipped: list[tuple[str, str]]  # key, reason
    shard_bytes: int
    transcoded: int = 0  # progressive JPEGs that became baseline ones
    further: tuple[Chunk, ...] = ()  # the values of the schema's columns; not read by read()
    stop: int = 0  # one past the last sample position that the shard covers
    plan: str = ""  # PackPlan.digest of the plan that the shard was written by
    left_out: Sequence[tuple[str, str, str]] = ()  # annotations: key, which, reason
    facts: Mapping[str, Any] = field(default_factory=dict)  # of an indexed file, or of JPEGs; JSON

    def write(self, path: Path, spooled: Sequence[IO[bytes]] = ()) -> None:
        """Publish atomically; from then on the shard counts as finished.

        ``spooled``: files with the bytes of ``further``, which replace them; unused for columns with records.
        """
        ends = np.cumsum([len(key) for key in self.keys], dtype=np.uint64)
        facts = {"skipped": self.skipped, "shard_bytes": self.shard_bytes, "transcoded": self.transcoded}
        facts |= {"left_out": list(self.left_out), "facts": dict(self.facts)}
        texts = json.dumps({**facts, "stop": self.stop, "plan": self.plan}).encode()
        arrays: dict[str, npt.NDArray[Any] | IO[bytes]] = {
            "records": self.records.view(np.uint8),
            "ends": ends,
            "keys": np.frombuffer(b"".join(self.keys), np.uint8),
            "texts": np.frombuffer(texts, np.uint8),
        }
        for number, chunk in enumerate(self.further):
            arrays[f"data{number}"] = spooled[number] if spooled else chunk.data
            arrays[f"lengths{number}"] = chunk.lengths
            if chunk.records is not None:
                arrays[f"records{number}"] = chunk.records.view(np.uint8)
        temporary = temporary_of(path)
        with zipfile.ZipFile(temporary, "w") as archive:  # as np.savez writes it, but not held in memory
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                    _write(values, out)
        publish(temporary, path)

    @classmethod
    def read(cls, path: Path) -> ShardPart:
        """Read what :meth:`write` wrote.

        Raises:
            PackError: the part is damaged.
            OSError: it cannot be read, though it may be undamaged.
        """
        try:
            with np.load(path) as arrays:
                blob, ends = arrays["keys"].tobytes(), arrays["ends"].tolist()
                records = arrays["records"].view(RECORD)
                texts = json.loads(arrays["texts"].tobytes())
            starts: Sequence[int] = [0, *ends[:-1]]
            keys = [blob[begin:end] for begin, end in zip(starts, ends, strict=False)]
            skipped = [(str(key), str(reason)) for key, reason in texts["skipped"]]
            transcoded, stop = int(texts.get("transcoded", 0)), int(texts.get("stop", 0))
            plan = str(texts.get("plan", ""))
            left_out = [(str(key), str(which), str(why)) for key, which, why in texts.get("left_out", ())]
            size = int(texts["shard_bytes"])
            facts = dict(texts.get("facts", {}))
            return cls(records, keys, skipped, size, transcoded, (), stop, plan, left_out, facts)
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_column(path: Path, number: int) -> Chunk:
        """Read the values of one of the schema's columns that :meth:`write` wrote, without the others.

        Raises:
            PackError: the part is damaged.
        """
        try:
            with np.load(path) as arrays:
                name = f"records{number}"
                records = arrays[name].view(RECORD) if name in arrays else None
                if records is not None:
                    return Chunk(np.zeros(0, np.uint8), arrays[f"lengths{number}"], records)
                return Chunk(arrays[f"data{number}"], arrays[f"lengths{number}"])
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_lengths(path: Path, number: int) -> npt.NDArray[np.uint64]:
        """Read the lengths of a column's values.

        Raises:
            PackError: the part is damaged.
        """
        try:
            with np.load(path) as arrays:
                lengths: npt.NDArray[np.uint64] = arrays[f"lengths{number}"]
                return lengths
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def read_values(path: Path, number: int, width: int = 1) -> Iterator[bytes]:
        """Read the bytes of a column without records, in pieces whose length is a multiple of ``width``.

        Raises:
            PackError: the part is damaged.
        """
        most = max(_AT_ONCE // width, 1) * width
        try:
            with zipfile.ZipFile(path) as archive, archive.open(f"data{number}.npy") as file:
                np.lib.format.read_magic(file)
                (left,), _, _ = np.lib.format.read_array_header_1_0(file)
                while left:
                    data = file.read(min(most, left))
                    if not data:
                        raise EOFError(f"data{number} ends {left} bytes early")
                    left -= len(data)
                    yield data
        except _DAMAGE as error:
            raise _damaged(path, error) from None

    @staticmethod
    def finished(path: Path, data_file: Path) -> bool:
        """Whether this part and its whole shard exist."""
        if not exists(path) or not exists(data_file):
            return False
        return ShardPart.read(path).shard_bytes == os.stat(data_file).st_size


def _write(values: npt.NDArray[Any] | IO[bytes], out: IO[bytes]) -> None:
    """Write an array as np.save does; the bytes of a file as such an array."""
    if isinstance(values, np.ndarray):
        np.lib.format.write_array(out, values)
        return
    size = values.seek(0, os.SEEK_END)
    header = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(out, header)
    values.seek(0)
    shutil.copyfileobj(values, out, _AT_ONCE)


# ---- Writing one shard: read, describe, write, locate, check, publish -------------------------------

Advance = Callable[[int, int], None]  # files, bytes
_SPOT_CHECKS = 16  # records per shard whose bytes are read back


class BadFiles(PackError):
    """An error about files of a shard, or their annotations, that cannot be packed."""

    def __init__(self, failures: list[tuple[str, str]], annotations: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"{counted(len(failures), 'file')} cannot be packed")
        self.failures, self.annotations = failures, annotations


def part_path(output: Path, shard: str) -> Path:
    """Return where a finished shard's part of the index waits for the manifest."""
    return output / WORK_NAME / f"{shard}.part"


class Claim(Protocol):
    """The right to do a piece of work, for as long as it is held."""

    def close(self) -> None:
        """Release it."""


class NoClaim:
    """A claim for a process that has all shards to itself."""

    def close(self) -> None:
        """Do nothing, as nothing is held."""


class Work(Protocol):
    """Work that processes share out by number: shards to write, files to index. It pickles."""

    def claim(self, number: int) -> Claim | None:
        """Claim the right to do one; None: another process does it, or has just done so."""

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Do it."""

    def publish(self, number: int, part: ShardPart) -> None:
        """Make it durable; from now on it counts as finished."""

    def discard(self, number: int) -> None:
        """Remove what was written and not published."""


@dataclass(frozen=True)
class Job:
    """Everything that a process needs to write any shard of a pack."""

    output: Path
    root: bytes
    options: PackOptions
    plan: PackPlan
    store: StoreFiles | None = None  # where the source's files are, if not below ``root``

    @property
    def format(self) -> Format:
        """The format's module."""
        return format_of(self.options.format)

    def is_finished(self, number: int) -> bool:
        """Whether shard ``number`` already exists, with its part of the index."""
        final = self.output / self.plan.shards[number].name
        return ShardPart.finished(part_path(self.output, final.name), self.format.data_file(final))

    def claim(self, number: int) -> Claim | None:
        """Claim the right to write shard ``number``; None: another process writes it, or has just done so.

        Everybody has it here: a process that packs alone holds the whole folder.
        """
        return NoClaim()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write shard ``number`` under its temporary name.

        Raises:
            BadFiles: some files cannot be packed and are not to be skipped.
            PackError: there is no room, or what was written does not read back.
        """
        final = self.output / self.plan.shards[number].name
        temporary = temporary_of(final)
        remove(temporary)
        try:
            return self._write(number, temporary, final, advance)
        except BaseException:
            remove(temporary)
            raise

    def publish(self, number: int, part: ShardPart) -> None:
        """Make a written shard durable, give it its name, then write its part: now it counts as finished."""
        final = self.output / self.plan.shards[number].name
        try:
            publish(temporary_of(final), final)
        except BaseException:
            self.discard(number)
            raise
        self._accompany(number, part)
        part.write(part_path(self.output, final.name))

    def _accompany(self, number: int, part: ShardPart) -> None:
        """Write what goes beside a published shard before it counts as finished."""

    def discard(self, number: int) -> None:
        """Remove what was written of shard ``number`` and not published."""
        remove(temporary_of(self.output / self.plan.shards[number].name))

    def _write(self, number: int, temporary: Path, final: Path, advance: Advance) -> ShardPart:
        shard = self.plan.shards[number]
        listing = Listing(self.output / WORK_NAME)
        needed = self._needed(listing, number)
        spec = ShardSpec(
            self.plan.classes, shard.stop - shard.start, shard.bytes, self.options.raw, self.options.size
        )
        with failed_writes_reported(final, needed):
            writer = self.format.Writer(temporary, spec)
            data_file = self.format.data_file(temporary)
            try:
                _C.reserve(os.fsencode(data_file), needed)
                with self._files(listing, number) as root:
                    part = self._fill(writer, self._groups(root, listing, number), advance)
                if part.skipped and self.options.on_error == "raise":
                    raise BadFiles(part.skipped)
                writer.close()
            except BaseException:
                writer.abort()
                raise
            _C.trim(os.fsencode(data_file))
        self._locate(temporary, part.records)
        return replace(part, shard_bytes=os.stat(data_file).st_size, plan=self.plan.digest)

    def _needed(self, listing: Listing, number: int) -> int:
        shard = self.plan.shards[number]
        lengths = listing.read(shard.start, shard.stop)[1]["size"]
        if self.options.size is not None:
            lengths = np.full(len(lengths), shard.bytes // max(len(lengths), 1), np.uint64)
        return self.format.shard_bytes(lengths)

    @contextmanager
    def _files(self, listing: Listing, number: int) -> Iterator[bytes]:
        """Yield the folder with the shard's files; those of a store are fetched, and removed afterwards."""
        if self.store is None:
            yield self.root
            return
        shard = self.plan.shards[number]
        folder = self.output / WORK_NAME / f".tmp-files-{shard.name}"
        remove(folder)
        try:
            folder.mkdir(parents=True)
            rows = listing.rows(shard.start, shard.stop)
            self.store.fetch([(path, size) for path, size, _, _ in rows], folder)
            yield os.fsencode(folder)
        finally:
            remove(folder)

    def _groups(self, root: bytes, listing: Listing, number: int) -> Iterator[Group]:
        shard = self.plan.shards[number]
        room = GROUP_BYTES // 8 if self.options.raw else GROUP_BYTES  # pixels are about 8 times the file
        groups = read_groups(root, listing, shard.start, shard.stop, room)
        if not self.options.transcodes:
            return groups
        from fastload.packing.recoding import transcoder

        return map(transcoder(self.options), groups)

    def _fill(self, writer: Writer, groups: Iterator[Group], advance: Advance) -> ShardPart:
        chunks: list[npt.NDArray[np.void]] = []
        keys: list[bytes] = []
        failures: list[tuple[str, str]] = []
        transcoded, tally = 0, RecodeCounts()
        for group in groups:
            if len(group.records):
                writer.append(group.data, group.records, group.keys)
            chunks.append(group.records)
            keys += group.keys
            failures += [(key.decode(), reason) for key, reason in group.failures]
            transcoded += group.transcoded
            if group.coefficients is not None:
                tally.merge(group.coefficients)
            advance(group.files, group.source_bytes)
        records = np.concatenate([*chunks, np.zeros(0, RECORD)])
        facts = {FACTS: tally.to_json()} if self.options.coefficients else {}
        return ShardPart(records, keys, failures, 0, transcoded, facts=facts)

    def _locate(self, temporary: Path, records: npt.NDArray[np.void]) -> None:
        """Set the records' offsets to where the format's library put them, and check some of them."""
        [located] = self.format.locate(temporary)
        if not np.array_equal(located.lengths, records["length"]):
            raise PackError(
                f"{temporary} does not read back: {len(located.lengths)} records, {len(records)} written, or "
                f"other lengths. Either this program or the format's library is at fault; please report it."
            )
        records["offset"] = located.offsets
        sample = np.ascontiguousarray(records[:: max(1, len(records) // _SPOT_CHECKS)])
        failures = _C.verify_file(os.fsencode(self.format.data_file(temporary)), as_rows(sample))
        if failures:
            raise PackError(f"{temporary} does not read back: {failures[0][1].decode()}. Check the disk.")


# ---- Writing the shards of a job, in one process or several -----------------------------------------

_PR_SET_PDEATHSIG = 1


def write_shards(job: Work, numbers: list[int], processes: int, advance: Advance) -> list[int]:
    """Write and publish the shards ``numbers``; return those that other packs had claimed.

    Raises:
        BadFiles: with the bad files of all shards in work.
        FastloadError: as ``job`` raises it; PackError: anything else that stops a process.
    """
    if processes == 1 or len(numbers) <= 1:
        runner = _Runner(job, advance)
        try:
            left = [number for number in numbers if not runner.write(number)]
            runner.drain()
        finally:
            runner.close()
        return left
    pool = _Pool(job, min(processes, len(numbers)), advance)
    pool.run(numbers)
    return sorted(pool.left)


class _Runner:
    """Writes shards one after another; each is synced and published while the next is written."""

    def __init__(self, job: Work, advance: Advance) -> None:
        self._job, self._advance = job, advance
        self._thread = started_pool(1, "publish")
        self._pending: Future[None] | None = None

    def write(self, number: int) -> bool:
        """Write one shard, with its predecessor published on return; False: it is another pack's."""
        claim = self._job.claim(number)
        if claim is None:
            return False
        try:
            self._write(number, claim)
        except BaseException:
            claim.close()
            raise
        return True

    def _write(self, number: int, claim: Claim) -> None:
        part: ShardPart = self._job.write(number, self._advance)
        try:
            self.drain()
        except BaseException:
            self._job.discard(number)
            raise
        self._pending = self._thread.submit(self._publish, number, part, claim)

    def _publish(self, number: int, part: ShardPart, claim: Claim) -> None:
        try:
            self._job.publish(number, part)
        finally:
            claim.close()

    def drain(self) -> None:
        """Wait until all that was written is published."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _serve(job: Work, pipe: Connection, parent: int) -> None:
    """Run a process's main loop: shard numbers come in, progress and results go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    die_with(parent)
    runner = _Runner(job, lambda files, size: pipe.send(("advance", (files, size))))
    last: tuple[str, Any]
    try:
        try:
            while (number := pipe.recv()) is not None:
                pipe.send(("ready", None if runner.write(number) else number))
            runner.drain()
        finally:
            runner.close()  # before the last message, at which the parent may end this process
        last = ("end", None)
    except BadFiles as error:
        last = ("bad", error.failures)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except Exception as error:
        ours = isinstance(error, FastloadError)
        last = (
            "error",
            (type(error), str(error)) if ours else (PackError, f"{type(error).__name__}: {error}"),
        )
    with contextlib.suppress(BrokenPipeError):
        pipe.send(last)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Hide SIGINT from what this thread starts meanwhile: a new process inherits blocked signals."""
    resource_tracker.ensure_running()  # now: its start unblocks SIGINT, whoever blocked it
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def die_with(parent: int) -> None:
    """Ask to be killed when the parent dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@dataclass
class _Pool:
    """Processes that take shard numbers from this one. They are spawned, so that nothing of a program
    with threads (torch, a notebook) is forked."""

    job: Work
    size: int
    advance: Advance
    failures: list[tuple[str, str]] = field(default_factory=list)
    error: FastloadError | None = None
    left: list[int] = field(default_factory=list)  # claimed by other packs

    def run(self, numbers: list[int]) -> None:
        """Write all shards.

        Raises:
            BadFiles, PackError: see :func:`write_shards`.
        """
        context = multiprocessing.get_context("spawn")
        workers: dict[Connection, BaseProcess] = {}
        try:
            for _ in range(self.size):
                here, theirs = context.Pipe()
                process: BaseProcess = context.Process(
                    target=_serve, args=(self.job, theirs, os.getpid()), daemon=True
                )
                with interrupts_blocked():  # otherwise Ctrl-C during its imports would be a traceback
                    process.start()
                theirs.close()
                workers[here] = process
            self._distribute(workers, numbers)
        finally:
            for pipe, process in workers.items():
                process.terminate()
                process.join()
                pipe.close()
        if self.error is not None:
            raise self.error
        if self.failures:
            raise BadFiles(sorted(self.failures))

    def _distribute(self, workers: dict[Connection, BaseProcess], numbers: list[int]) -> None:
        waiting = list(reversed(numbers))
        running = dict(workers)
        for pipe in running:
            self._give(pipe, waiting)
        while running:
            for ready in wait(list(running)):
                pipe = cast("Connection", ready)
                if not self._handle(pipe, waiting, running[pipe]):
                    del running[pipe]

    def _give(self, pipe: Connection, waiting: list[int]) -> None:
        stop = self.error is not None or self.failures or not waiting
        with contextlib.suppress(BrokenPipeError):
            pipe.send(None if stop else waiting.pop())

    def _handle(self, pipe: Connection, waiting: list[int], process: BaseProcess) -> bool:
        """Handle one message; return False when its process has no more to say."""
        try:
            kind, value = pipe.recv()
        except EOFError:
            process.join()
            self.error = self.error or PackError(
                f"a packing process ended with code {process.exitcode} (killed? out of memory?). "
                f"Run the same command again: finished shards are kept."
            )
            return False
        handlers: dict[str, Callable[[Any], None]] = {
            "advance": lambda counts: self.advance(*counts),
            "ready": lambda number: self._ready(pipe, waiting, number),
            "bad": self.failures.extend,
            "error": self._fail,
        }
        if kind in handlers:
            handlers[kind](value)
        return kind in ("advance", "ready")

    def _ready(self, pipe: Connection, waiting: list[int], number: int | None) -> None:
        self.left += [] if number is None else [number]
        self._give(pipe, waiting)

    def _fail(self, failure: tuple[type[FastloadError], str]) -> None:
        kind, text = failure
        self.error = self.error or kind(text)
