"""The report of a loader, as a page or in a notebook, and what it measures for that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload._version import __version__
from fastload.diagnose.facts import Verdict
from fastload.diagnose.pages.measured import History, measure_costs, own_verdict, run_alone
from fastload.diagnose.pages.page import ReportPart, document, fragment
from fastload.diagnose.pages.parts import (
    costs_part,
    fixes_part,
    loop_part,
    machine_part,
    measure_mixing,
    mixing_part,
    read_part,
    timeline_part,
    verdict_part,
    waterfall_part,
)
from fastload.diagnose.pages.time import lines_part, processes_part
from fastload.machine.paths import is_dir

if TYPE_CHECKING:
    from fastload.diagnose.ranks import Gathered
    from fastload.loader.view import LoaderView


# ---- The report -------------------------------------------------------------------------------------


class Report:
    """What :func:`fastload.diagnose.report` returns; a notebook shows it if it is a cell's last value."""

    def __init__(
        self,
        loader: Any,
        verdict: Verdict | None,
        ranks: Gathered | None,
        history: History | None,
        seconds: float,
    ) -> None:
        if verdict is not None and not isinstance(verdict, Verdict):
            raise TypeError(
                f"verdict must be the one of `with fastload.diagnose(loader) as d`. Found: {verdict!r:.200}."
            )
        if history is not None and not isinstance(history, History):
            raise TypeError(f"history must be a fastload.diagnose.pages.History. Found: {history!r:.200}.")
        by, of_loader = "", list[ReportPart | None]()
        if loader is not None:
            own, of_loader = look_at(_viewed(loader), history, seconds)
            by, verdict = ("", verdict) if verdict is not None else ("By the loader's own clocks", own)
        if verdict is None:
            raise ValueError("A report needs a verdict or a loader. Found: neither.")
        self.verdict = verdict
        of_ranks = []
        if ranks is not None:
            from fastload.diagnose.pages.parts import ranks_part

            of_ranks.append(ranks_part(ranks))
        parts = [*_of_verdict(verdict, by), *of_ranks, *of_loader, machine_part(verdict)]
        self.parts = [part for part in parts if part is not None]
        now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
        foot = f'<p class="foot">Made by fastload {escape(__version__)}, {now}.</p>'
        self.parts.append(ReportPart("", foot))

    @property
    def html(self) -> str:
        """The report as an HTML page that needs no other file."""
        return document("fastload: why the loop waits", self.parts)

    def __repr__(self) -> str:
        return f"fastload report: {self.verdict} (.save(PATH) writes it, a notebook shows it)"

    def _repr_html_(self) -> str:
        return fragment(self.parts)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to ``path``; return the path."""
        written = Path(path)
        if not is_dir(written.absolute().parent):
            raise FileNotFoundError(
                f"{written} needs a folder that is not there: {written.parent}. Make it first."
            )
        written.write_text(self.html, encoding="utf-8")
        return written


def _of_verdict(verdict: Verdict, by: str) -> Iterator[ReportPart | None]:
    yield verdict_part(verdict, by)
    yield lines_part(verdict.attribution)
    yield processes_part(verdict.attribution)
    yield fixes_part(verdict)
    if verdict.loop is not None:
        yield loop_part(verdict.loop)


def _viewed(loader: Any) -> LoaderView:
    from fastload.loader.view import view_of  # imports torch, of which a verdict alone has no need

    view = view_of(loader)
    if view is None:
        raise TypeError(
            f"A report shows the clocks of a fastload.DataLoader. Found: {loader!r:.200}. Pass "
            "verdict=, of `with fastload.diagnose(loader) as d`, alone."
        )
    return view


# ---- The loader's sections --------------------------------------------------------------------------


def look_at(
    loader: LoaderView, history: History | None, seconds: float
) -> tuple[Verdict, list[ReportPart | None]]:
    """Return a verdict from the loader's clocks, and the loader's parts of the page.

    For a loader over a torch Dataset there is only the consumer's clock: it has no threads of ours, and a
    report does not run the user's code.
    """
    from fastload.dataset.views import SourceKind

    stats = loader.stats()
    if loader.kind is not SourceKind.PACKED:
        return own_verdict(stats, None), []
    alone = run_alone(loader, seconds)
    used = bool(stats["stages"]["decode"]["count"])
    clocks, whose = (stats, "Since the loader was made.") if used else (alone.stats, _WITHOUT_STEP)
    if history is not None:
        timeline = timeline_part(history.moments, "While the loop ran,")
    else:
        timeline = timeline_part(alone.moments, "In a second loader with the same arguments, without a step,")
    dataset = loader.opened
    mixing, costs = measure_mixing(loader), measure_costs(dataset)
    has_classes = bool(dataset.classes) and dataset.schema.label_field is not None
    return own_verdict(stats, alone), [
        timeline,
        waterfall_part(clocks, whose),
        costs_part(costs),
        None if mixing is None else mixing_part(mixing, has_classes),
        read_part(clocks),
    ]


_WITHOUT_STEP = "The loader has not been used yet: these are the clocks of a second one, without a step."
