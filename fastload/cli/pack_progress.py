"""The progress of a pack."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from fastload.cli.output import counted, human_bytes
from fastload.cli.progress import LOG_SECONDS, Bar
from fastload.packing.foreign import IndexObserver
from fastload.packing.packer import Observer
from fastload.packing.plan import PackPlan
from fastload.packing.result import Place

__all__ = ["PackProgress"]


class PackProgress(Observer, IndexObserver):
    """Files, MB/s and time left, on stderr. A context manager; ``quiet`` shows nothing."""

    def __init__(self, quiet: bool) -> None:
        self._bar = Bar() if not quiet and sys.stderr.isatty() else None
        self._log = not quiet and self._bar is None
        self._files = self._bytes = self._total_files = self._total_bytes = self._start_bytes = 0
        self._counts = False
        self._began = self._logged = time.monotonic()

    def __enter__(self) -> PackProgress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def scanning(self, output: Place, files: int) -> None:
        if self._bar is not None:
            self._bar.scanning(output.name, files)

    def started(self, output: Place, plan: PackPlan, files: int, size: int) -> None:
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

    def samples_started(self, output: Place, done: int, count: int | None) -> None:
        self._files, self._total_files, self._counts = done, count or 0, True
        self._began = time.monotonic()
        if self._bar is not None:
            self._bar.start(f"packing {output.name}", count or 0, done)
        elif self._log:
            before = f", {done} of them packed before" if done else ""
            self._line(f"packing {counted(count or 0, 'sample')} into {output}{before}")

    def recode_started(self, output: Path, samples: int, size: int, done: int, done_size: int) -> None:
        self._begin("recoding", "sample", output, (samples, size, done, done_size))

    def index_started(self, folder: Path, files: int, size: int, done: int, done_size: int) -> None:
        self._begin("indexing", "file", folder, (files, size, done, done_size), "into ")

    def _begin(self, doing: str, what: str, folder: Path, counts: tuple[int, ...], into: str = "") -> None:
        files, size, done, done_size = counts
        self._files, self._bytes, self._start_bytes = done, done_size, done_size
        self._total_files, self._total_bytes = files, size
        self._began = time.monotonic()
        if self._bar is not None:
            self._bar.start(f"{doing} {folder.name}", size, done_size)
        elif self._log:
            before = f", {done} of them before" if done else ""
            where = f"{into or 'of '}{folder}{before}"
            self._line(f"{doing} {counted(files, what)}, {human_bytes(size)}, {where}")

    def indexed(self, files: int, size: int) -> None:
        self.advanced(files, size)

    def advanced(self, files: int, size: int) -> None:
        if self._counts:  # nobody knows how many bytes there are
            self.entries_advanced(files)
            return
        self._files += files
        self._bytes += size
        if self._bar is not None:
            self._bar.update(self._bytes, f"{self._files}/{counted(self._total_files, 'file')}")
        elif self._log and time.monotonic() - self._logged > LOG_SECONDS:
            seconds = time.monotonic() - self._began
            rate = (self._bytes - self._start_bytes) / seconds
            left = (self._total_bytes - self._bytes) / max(rate, 1)
            done = f"{self._files}/{counted(self._total_files, 'file')}"
            self._line(f"{done}, {rate / 1e6:.0f} MB/s, {left:.0f} s left")

    def waits(self, output: Place, reason: str) -> None:
        line = f"{output.name}: {reason}; waiting for it"
        if self._bar is not None:
            self._bar.say(line)
        elif self._log:
            self._line(line)

    def entries_started(self, folder: Place, records: int) -> None:
        self._files, self._total_files, self._began = 0, records, time.monotonic()
        if self._bar is not None:
            self._bar.start(f"entry points of {folder.name}", records, 0)
        elif self._log:
            self._line(f"making the entry points of {counted(records, 'record')} of {folder}")

    def entries_advanced(self, records: int) -> None:
        self._files += records
        if self._bar is not None:
            self._bar.update(self._files, f"{self._files}/{counted(self._total_files, 'record')}")
        elif self._log and time.monotonic() - self._logged > LOG_SECONDS:
            rate = self._files / (time.monotonic() - self._began)
            left = (self._total_files - self._files) / max(rate, 1)
            done = f"{self._files}/{counted(self._total_files, 'record')}"
            self._line(f"{done}, {rate:.0f} a second, {left:.0f} s left")

    def _line(self, text: str) -> None:
        self._logged = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
