"""The progress line: a bar where the output is a terminal and rich is installed, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType

try:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
except ImportError:  # plain lines then
    RichProgress = None  # type: ignore[assignment,misc]

__all__ = ["Progress"]

LINE_EVERY = 5.0  # seconds, where there is no terminal


class Progress:
    """Shows how far an epoch is. A context manager; silent unless ``show``."""

    def __init__(self, title: str, steps: int, start: int, show: bool) -> None:
        self._title, self._steps, self._show = title, steps, show
        self._next_line = time.monotonic() + LINE_EVERY
        self._bar: RichProgress | None = None
        if show and RichProgress is not None and sys.stdout.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                transient=True,
            )
            self._task = self._bar.add_task(title, total=steps, completed=start, text="")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, text: str) -> None:
        """``done`` of the epoch's steps are done; ``text`` says how it goes."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, text=text)
        elif self._show and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            print(f"{self._title}  {done}/{self._steps}  {text}", flush=True)
