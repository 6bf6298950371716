"""The progress of packs, entry points and warming: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from fastload.cli.output import counted, human_bytes
from fastload.pack.packer import Observer
from fastload.pack.plan import Plan

__all__ = ["PackProgress", "WarmProgress"]

_LOG_SECONDS = 10.0  # between two lines where there is no terminal


class PackProgress(Observer):
    """Files, MB/s and time left, on stderr. A context manager; ``quiet`` shows nothing."""

    def __init__(self, quiet: bool) -> None:
        self._bar = _Bar() if not quiet and sys.stderr.isatty() else None
        self._log = not quiet and self._bar is None
        self._files = self._bytes = self._total_files = self._total_bytes = self._start_bytes = 0
        self._began = self._logged = time.monotonic()

    def __enter__(self) -> PackProgress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def scanning(self, output: Path, files: int) -> None:
        if self._bar is not None:
            self._bar.scanning(output.name, files)

    def started(self, output: Path, plan: Plan, files: int, size: int) -> None:
        self._files, self._bytes, self._start_bytes = files, size, size
        self._total_files, self._total_bytes = plan.totals.files, plan.totals.bytes
        self._began = time.monotonic()
        if self._bar is not None:
            self._bar.start(f"packing {output.name}", self._total_bytes, size)
        elif self._log:
            done = f", {files} of them packed before" if files else ""
            self._line(
                f"packing {counted(self._total_files, 'file')}, {human_bytes(self._total_bytes)}, "
                f"into {counted(len(plan.shards), 'shard')} of {output}{done}"
            )

    def advanced(self, files: int, size: int) -> None:
        self._files += files
        self._bytes += size
        if self._bar is not None:
            self._bar.update(self._bytes, f"{self._files}/{self._total_files} files")
        elif self._log and time.monotonic() - self._logged > _LOG_SECONDS:
            seconds = time.monotonic() - self._began
            rate = (self._bytes - self._start_bytes) / seconds
            left = (self._total_bytes - self._bytes) / max(rate, 1)
            self._line(f"{self._files}/{self._total_files} files, {rate / 1e6:.0f} MB/s, {left:.0f} s left")

    def entries_started(self, folder: Path, records: int) -> None:
        self._files, self._total_files, self._began = 0, records, time.monotonic()
        if self._bar is not None:
            self._bar.start(f"entry points of {folder.name}", records, 0)
        elif self._log:
            self._line(f"making the entry points of {counted(records, 'record')} of {folder}")

    def entries_advanced(self, records: int) -> None:
        self._files += records
        if self._bar is not None:
            self._bar.update(self._files, f"{self._files}/{self._total_files} records")
        elif self._log and time.monotonic() - self._logged > _LOG_SECONDS:
            rate = self._files / (time.monotonic() - self._began)
            left = (self._total_files - self._files) / max(rate, 1)
            self._line(f"{self._files}/{self._total_files} records, {rate:.0f} a second, {left:.0f} s left")

    def _line(self, text: str) -> None:
        self._logged = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class WarmProgress:
    """Bytes, rate and time left, on stderr. A context manager; ``quiet`` shows nothing."""

    def __init__(self, quiet: bool) -> None:
        self._bar = _Bar("warming") if not quiet and sys.stderr.isatty() else None
        self._log = not quiet and self._bar is None
        self._name = ""
        self._began = self._logged = time.monotonic()

    def __enter__(self) -> WarmProgress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, name: str, total: int, line: str) -> None:
        """A dataset of ``total`` bytes; ``line`` says what is done with it."""
        self._name, self._began = name, time.monotonic()
        if self._bar is not None:
            self._bar.say(line)
            self._bar.start(name, total, 0)
        elif self._log:
            self._line(line)

    def advanced(self, counts: dict[str, int]) -> None:
        """``counts``: as ``_C.Filler.counts()`` gives them."""
        done, total = counts["there_bytes"] + counts["put_bytes"], counts["bytes"]
        if self._bar is not None:
            self._bar.update(done, f"{human_bytes(done)} of {human_bytes(total)}", total)
        elif self._log and time.monotonic() - self._logged > _LOG_SECONDS:
            rate = counts["put_bytes"] / (time.monotonic() - self._began)
            self._line(
                f"{self._name}: {human_bytes(done)} of {human_bytes(total)}, {rate / 1e6:.0f} MB/s from the "
                f"source, {(total - done) / max(rate, 1):.0f} s left"
            )

    def _line(self, text: str) -> None:
        self._logged = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class _Bar:
    """rich's bar; imported only where there is a terminal."""

    def __init__(self, first: str = "scanning") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        columns = [
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[files]}"),
            TransferSpeedColumn(), TimeRemainingColumn(),
        ]  # fmt: skip
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.start()
        self._task = self._progress.add_task(first, total=None, files="")

    def scanning(self, name: str, files: int) -> None:
        self._progress.update(self._task, description=f"scanning for {name}", files=counted(files, "file"))

    def start(self, name: str, total: int, done: int) -> None:
        self._progress.reset(self._task, total=total, completed=done, description=name, files="")

    def update(self, done: int, files: str, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, files=files, total=total)

    def say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)

    def stop(self) -> None:
        self._progress.stop()
