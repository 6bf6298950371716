"""A report from its parts: as a page of its own, or inside a notebook's."""

from __future__ import annotations

import os
from datetime import datetime
from html import escape
from pathlib import Path

from fastload._version import __version__
from fastload.diagnose.facts import Verdict
from fastload.diagnose.report.loop_part import loop_part
from fastload.diagnose.report.page import Part, document, fragment
from fastload.diagnose.report.verdict_part import fixes_part, machine_part, verdict_part

__all__ = ["Report", "render", "write_report"]


class Report:
    """What is known of a loop and its loader, to be looked at: the last value of a notebook's cell shows it.

    Args:
        verdict: the doctor's; on top.

    Raises:
        LibraryMissing: matplotlib is not installed.
    """

    def __init__(self, verdict: Verdict) -> None:
        found = [verdict_part(verdict), fixes_part(verdict)]
        if verdict.loop is not None:
            found.append(loop_part(verdict.loop))
        found.append(machine_part(verdict))
        self.parts = [part for part in found if part is not None]
        made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
        self.parts.append(Part("", f'<p class="foot">Made by fastload {escape(__version__)}, {made}.</p>'))

    @property
    def html(self) -> str:
        """A whole page that needs no other file."""
        return document("fastload: why the loop waits", self.parts)

    def _repr_html_(self) -> str:
        return fragment(self.parts)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; where it lies."""
        written = Path(path)
        written.write_text(self.html, encoding="utf-8")
        return written


def render(verdict: Verdict) -> str:
    """The report of a verdict: an HTML page in one file; see :class:`Report`."""
    return Report(verdict).html


def write_report(verdict: Verdict, path: str | os.PathLike[str]) -> Path:
    """Write :func:`render`'s page; where it lies."""
    return Report(verdict).save(path)
