"""A report from its parts: as a page of its own, or inside a notebook's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload._version import __version__
from fastload.diagnose.facts import Verdict
from fastload.diagnose.report.loop_part import loop_part
from fastload.diagnose.report.page import Part, document, fragment
from fastload.diagnose.report.verdict_part import fixes_part, machine_part, verdict_part

if TYPE_CHECKING:
    from fastload.diagnose.gathered import Gathered
    from fastload.diagnose.report.history import History
    from fastload.loader.data_loader import DataLoader

__all__ = ["Report", "render", "write_report"]


class Report:
    """What is known of a loop and its loader, to be looked at: the last value of a notebook's cell shows it.

    Args:
        verdict: the doctor's, on top; None: what the loader's clocks can say.
        loader: is looked at, which takes some ten seconds: its clocks so far; a second loader of the same
            arguments, run for ``seconds`` without a step; some hundred samples one by one; its order.
            It goes on afterwards as if nothing had been.
        ranks: of :func:`fastload.diagnose.gathered.gathered_stats`, which rank is slow.
        history: the loader from moment to moment while the loop ran, if it was watched.
        seconds: of the second loader.

    Raises:
        LibraryMissing: matplotlib is not installed.
        ValueError: neither a verdict nor a loader.
    """

    def __init__(
        self,
        verdict: Verdict | None = None,
        loader: DataLoader[Any] | None = None,
        *,
        ranks: Gathered | None = None,
        history: History | None = None,
        seconds: float = 3.0,
    ) -> None:
        by, of_loader = "", list[Part | None]()
        if loader is not None:
            from fastload.diagnose.report.looking import look_at

            own, of_loader = look_at(loader, history, seconds)
            by, verdict = ("", verdict) if verdict is not None else ("By the loader's own clocks", own)
        if verdict is None:
            raise ValueError("A report needs a verdict or a loader. Found: neither.")
        self.verdict = verdict
        of_ranks = []
        if ranks is not None:
            from fastload.diagnose.report.ranks_part import ranks_part

            of_ranks.append(ranks_part(ranks))
        found = [*_of_verdict(verdict, by), *of_ranks, *of_loader, machine_part(verdict)]
        self.parts = [part for part in found if part is not None]
        made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
        self.parts.append(Part("", f'<p class="foot">Made by fastload {escape(__version__)}, {made}.</p>'))

    @property
    def html(self) -> str:
        """A whole page that needs no other file."""
        return document("fastload: why the loop waits", self.parts)

    def __repr__(self) -> str:
        return f"fastload report: {self.verdict} (.save(PATH) writes it, a notebook shows it)"

    def _repr_html_(self) -> str:
        return fragment(self.parts)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; where it lies."""
        written = Path(path)
        written.write_text(self.html, encoding="utf-8")
        return written


def _of_verdict(verdict: Verdict, by: str) -> Iterator[Part | None]:
    yield verdict_part(verdict, by)
    yield fixes_part(verdict)
    if verdict.loop is not None:
        yield loop_part(verdict.loop)


def render(verdict: Verdict | None = None, loader: DataLoader[Any] | None = None, **more: Any) -> str:
    """The report as an HTML page in one file; see :class:`Report`."""
    return Report(verdict, loader, **more).html


def write_report(
    verdict: Verdict | None,
    path: str | os.PathLike[str],
    loader: DataLoader[Any] | None = None,
    **more: Any,
) -> Path:
    """Write :func:`render`'s page; where it lies."""
    return Report(verdict, loader, **more).save(path)
