"""Progress of a command: a bar on a terminal, or a line every few seconds in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TypeVar

from fastload.cli.output import one_line
from fastload.cli.streams import guard, raw
from fastload.errors import harmless
from fastload.machine.sizes import counted, human_bytes
from fastload.packing.progress import Observer, Place, Work

_MANY = 1_000_000  # index entries; fewer need no bar
_LOG_SECONDS = 10.0  # between two lines of a log
T = TypeVar("T", bound="_Shown")


class _Shown:
    """A context manager that shows progress on stderr; ``first`` starts the bar, ``quiet`` shows nothing."""

    def __init__(self, quiet: bool, first: str) -> None:
        self._bar = Bar(first) if not quiet and sys.stderr.isatty() else None
        self._log = not quiet and self._bar is None
        self._began = self._logged = time.monotonic()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def _is_due(self) -> bool:
        """Whether a log gets its next line."""
        return self._log and time.monotonic() - self._logged > _LOG_SECONDS

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.say(text)
        elif self._log:
            self._line(text)

    def _line(self, text: str) -> None:
        self._logged = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class PackProgress(_Shown, Observer):
    """Progress of a pack: files, MB/s and time left."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, "scanning")
        self._done = self._size = 0
        self._work: Work | None = None

    def scanning(self, output: Place, files: int) -> None:
        if self._bar is not None:
            self._bar.scanning(output.name, files)

    def started(self, work: Work) -> None:
        self._work, self._done, self._size, self._began = work, work.done, work.done_size, time.monotonic()
        if self._bar is not None:
            name = f"{work.doing.removeprefix('making the ')} {work.place.name}"
            total, done = (work.count, work.done) if work.size is None else (work.size, work.done_size)
            self._bar.start(name, total, done)
        elif self._log:
            size = f", {human_bytes(work.size)}," if work.size is not None else ""
            before = (
                f", {work.done} of them {'packed ' * (work.doing == 'packing')}before" if work.done else ""
            )
            self._line(
                f"{work.doing} {counted(work.count, work.unit)}{size} {work.where} {work.place}{before}"
            )

    def advanced(self, count: int, size: int = 0) -> None:
        work = self._work
        assert work is not None
        self._done += count
        self._size += size
        unit, seconds = "file" if work.size is not None else "record", time.monotonic() - self._began
        done = f"{self._done}/{counted(work.count, unit)}"
        if self._bar is not None:
            self._bar.update(self._done if work.size is None else self._size, done)
        elif self._is_due and work.size is None:
            rate = (self._done - work.done) / seconds
            self._line(
                f"{done}, {rate:.0f} per second, {(work.count - self._done) / max(rate, 1):.0f} s left"
            )
        elif self._is_due and work.size is not None:
            rate = (self._size - work.done_size) / seconds
            left = (work.size - self._size) / max(rate, 1)
            self._line(f"{done}, {rate / 1e6:.0f} MB/s, {left:.0f} s left")

    def said(self, place: Place, text: str) -> None:
        self._say(f"{place.name}: {text}")


class WarmProgress(_Shown):
    """Progress of warming: bytes, rate and time left."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, "warming")
        self._name = ""

    def started(self, name: str, total: int, line: str) -> None:
        """Begin a dataset of ``total`` bytes; ``line`` says what is done with it."""
        self._name, self._began = name, time.monotonic()
        self._say(line)
        if self._bar is not None:
            self._bar.start(name, total, 0)

    def advanced(self, counts: dict[str, int]) -> None:
        """Show ``counts``, which are those of ``_C.Filler.counts()``."""
        done, total = counts["there_bytes"] + counts["put_bytes"], counts["bytes"]
        if self._bar is not None:
            self._bar.update(done, f"{human_bytes(done)} of {human_bytes(total)}", total)
        elif self._is_due:
            rate = counts["put_bytes"] / (time.monotonic() - self._began)
            self._line(
                f"{self._name}: {human_bytes(done)} of {human_bytes(total)}, {rate / 1e6:.0f} MB/s from the "
                f"source, {(total - done) / max(rate, 1):.0f} s left"
            )


class LookProgress(_Shown):
    """Progress through the index: only a bar, and only if there are many entries."""

    def __init__(self, total: int, quiet: bool) -> None:
        super().__init__(True, "")
        self._total, self._done = total, 0
        self._shows = not quiet and sys.stderr.isatty() and total > _MANY

    def advanced(self, count: int) -> None:
        """Count more entries."""
        self._done += count
        if self._shows and self._done > _MANY:
            if self._bar is None:
                self._bar = Bar("looking at records")
                self._bar.start("looking at records", self._total, 0)
            self._bar.update(self._done, f"{self._done} of {self._total}")


class Bar:
    """A progress bar by rich, which is imported only on a terminal."""

    def __init__(self, first: str = "scanning") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        columns = [
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[files]}"),
            TransferSpeedColumn(), TimeRemainingColumn(),
        ]  # fmt: skip
        self._progress = Progress(*columns, console=Console(file=raw(sys.stderr)), transient=True)
        self._progress.start()
        guard()  # rich prints others' output above its bar, and lets terminal control characters through
        self._task = self._progress.add_task(first, total=None, files="")

    def scanning(self, name: str, files: int) -> None:
        doing = self._shown(f"scanning for {name}")
        self._progress.update(self._task, description=doing, files=counted(files, "file"))

    def start(self, name: str, total: int, done: int) -> None:
        self._progress.reset(self._task, total=total, completed=done, description=self._shown(name), files="")

    def update(self, done: int, files: str, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, files=files, total=total)

    def say(self, line: str) -> None:
        self._progress.console.print(harmless(line), markup=False, highlight=False)

    @staticmethod
    def _shown(name: str) -> str:
        from rich.markup import escape

        return escape(one_line(name))

    def stop(self) -> None:
        self._progress.stop()
