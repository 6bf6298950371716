"""A report's sections on time: what loop and workers did, second by second, and the lines that took it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.diagnose.attribution import WORDS, Attribution, Place
from fastload.diagnose.pages.page import ReportPart, drawing, inline, new_figure, seconds, share, table, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- Kinds of work ----------------------------------------------------------------------------------


class Look(NamedTuple):
    """How a kind of work is shown: with a colour, and a hatch if others have the same colour."""

    colour: str
    hatch: str = ""


# Colours of Okabe and Ito, which colour-blind readers tell apart, too; there are fewer of them than kinds.
KINDS: Mapping[str, Look] = {
    "reading": Look("#0072b2"),
    "decode": Look("#e69f00"),
    "video": Look("#e69f00", "////"),
    "python": Look("#d55e00"),
    "transform": Look("#009e73"),
    "processor": Look("#009e73", "////"),
    "lock": Look("#cc79a7"),
    "sleep": Look("#cc79a7", "////"),
    "collate": Look("#f0e442"),
    "shared-memory": Look("#f0e442", "////"),
    "pickling": Look("#f0e442", "xxxx"),
    "starting": Look("#5c636e"),
    "step": Look("#56b4e9"),
    "sync": Look("#56b4e9", "////"),
    "logging": Look("#56b4e9", "xxxx"),
    "copies": Look("#0072b2", "////"),
    "feed": Look("#5c636e", "////"),
    "waiting": Look("#d3d6db"),
}
_OTHER = Look("#5c636e", "xxxx")
_HATCH = "#1d2126"  # dark in dark windows, too: it lies on a colour
_LEAST = 0.01  # share of time that is shown


def _look(kind: str) -> Look:
    return KINDS.get(kind, _OTHER)


# ---- Second by second -------------------------------------------------------------------------------

_WORKERS = 8  # rows
_COLUMNS = 72  # more could not be told apart, and each takes room in the page
_HEIGHT = 0.8  # of a row
_Bin = tuple[str, float, float, Mapping[str, float]]


def processes_part(attribution: Attribution | None) -> ReportPart | None:
    """Draw the kinds of work of the loop's thread and of each worker over time; None without a profile."""
    bins = [each for each in attribution.bins if each[2] > each[1]] if attribution is not None else []
    if not bins:
        return None
    rows, left = _rows(bins)
    begin = min(each[1] for row in rows.values() for each in row)
    end = max(each[2] for row in rows.values() for each in row)
    what = "the loop's thread and of each worker" if len(rows) > 1 else "the loop's thread"
    more = f" {left} more workers are not drawn." if left > 1 else " One more worker is not drawn." * left
    words = (
        f"What the main thread of each process did in {seconds(end - begin)}: the shares of time by kind of "
        f"work, of {what}. A worker waits if it has no batch to prepare; the loop, if its next one is not "
        f"there.{more}"
    )
    return ReportPart("Second by second", f"<p>{escape(words)}</p>" + _picture(rows, begin, end))


def _rows(bins: Sequence[_Bin]) -> tuple[dict[str, list[_Bin]], int]:
    """Return each row's bins by its name, and the number of workers without a row.

    A worker takes the row of one that has ended, since a loader without persistent_workers starts new ones
    with each epoch.
    """
    of: dict[str, list[_Bin]] = {}
    for each in sorted(bins, key=lambda each: each[1]):
        of.setdefault(each[0], []).append(each)
    rows: dict[str, list[_Bin]] = {"loop": of.pop("main")} if "main" in of else {}
    lanes: list[list[_Bin]] = []
    left = 0
    for own in of.values():  # by their first bin's begin
        free = next((lane for lane in lanes if max(each[2] for each in lane) <= own[0][1]), None)
        if free is not None:
            free.extend(own)
        elif len(lanes) < _WORKERS:
            lanes.append(own)
        else:
            left += 1
    rows.update({f"worker {number}": lane for number, lane in enumerate(lanes, 1)})
    return rows, left


def _picture(rows: Mapping[str, Sequence[_Bin]], begin: float, end: float) -> str:
    kinds = _kinds(shares for row in rows.values() for *_, shares in row)
    with drawing():
        figure = new_figure(1.15 + 0.3 * -(-len(kinds) // 5) + 0.42 * len(rows))
        axes = figure.subplots()
        for at, row in enumerate(rows.values()):
            _stack(axes, row, begin, end, kinds, len(rows) - 1 - at)
        axes.set_yticks([len(rows) - 1 - at + _HEIGHT / 2 for at in range(len(rows))], list(rows))
        axes.set_ylim(-0.1, len(rows) - 0.1)
        axes.set_xlim(0, end - begin)
        axes.set_xlabel("seconds")
        rectangle: Any = type(axes.patch)
        looks = {_look(kind): WORDS.get(kind, "other") for kind in kinds}
        shown = [rectangle((0, 0), 1, 1, label=words, **_style(look)) for look, words in looks.items()]
        figure.legend(handles=shown, loc="outside upper left", ncols=5)
        tidy(axes, "x")
        return inline(figure, "processes", "Stacked bars over time: what the loop and each worker did")


def _kinds(shares: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the kinds that are there, in the order of the legend."""
    there = {kind for each in shares for kind, value in each.items() if value > 0}
    return [kind for kind in KINDS if kind in there] + sorted(there - KINDS.keys())


def _stack(
    axes: Axes, row: Sequence[_Bin], begin: float, end: float, kinds: Sequence[str], bottom: int
) -> None:
    """Draw a row's bars, the highest first, so that the next one covers what is not its own."""
    own = sorted({time - begin for _, first, last, _ in row for time in (first, last)})
    edges = np.array(own) if len(own) <= _COLUMNS + 1 else np.linspace(0, end - begin, _COLUMNS + 1)
    heights = heights_of(
        [(first - begin, last - begin, shares) for _, first, last, shares in row], edges, kinds
    )
    tops = bottom + _HEIGHT * np.cumsum(heights, axis=0)
    for kind, height, top in reversed(list(zip(kinds, heights, tops, strict=True))):
        if height.any():
            axes.stairs(top, edges, baseline=bottom, fill=True, **_style(_look(kind)))


def heights_of(
    row: Sequence[tuple[float, float, Mapping[str, float]]], edges: NDArray[np.float64], kinds: Sequence[str]
) -> NDArray[np.float64]:
    """Return shares of time of shape (kinds, columns): means over the bins that lie in a column.

    What was seen in a bin may come in several parts, which have the same time.
    """
    heights = np.zeros((len(kinds), len(edges) - 1))
    covered = np.zeros(len(edges) - 1)
    for first, last, shares in row:
        inside = np.clip(np.minimum(last, edges[1:]) - np.maximum(first, edges[:-1]), 0, None) / np.diff(
            edges
        )
        covered += inside
        for at, kind in enumerate(kinds):
            heights[at] += shares.get(kind, 0.0) * inside
    return heights / np.maximum(covered, 1.0)


def _style(look: Look) -> dict[str, Any]:
    return {"facecolor": look.colour, "hatch": look.hatch or None, "edgecolor": _HATCH, "linewidth": 0}


# ---- Line by line -----------------------------------------------------------------------------------

_LINES = 10


def lines_part(attribution: Attribution | None) -> ReportPart | None:
    """Show shares of time by kind and by line, of those who make samples and of the loop; None without."""
    if attribution is None or not (attribution.makers or attribution.loop):
        return None
    at_work = f" They have work {share(attribution.busy)} of their time." if attribution.workers else ""
    who = "the worker processes" if attribution.workers else "the loop's thread, while it makes samples"
    words = (
        f"By looking at the stacks fifty times per second, for {seconds(attribution.seconds)}. Samples "
        f"are made by {who}.{at_work}"
    )
    body = f"<p>{escape(words)}</p>" + _bars(attribution)
    for head, places in (("Making samples", attribution.places), ("The step", attribution.steps)):
        rows = [_line(place) for place in places[:_LINES] if place.share >= _LEAST]
        if rows:
            body += table((head, "Work", "Line", "Expression", "Function"), rows, numbers=(0,))
    return ReportPart("Where the time goes", body)


def _line(place: Place) -> tuple[str, ...]:
    spot = place.spot
    is_cell = not spot.line or "ipykernel" in spot.file or spot.file.startswith("<ipython")
    where = place.where if is_cell else f"{os.path.basename(spot.file)}:{spot.line}"
    full = f' title="{escape(spot.file)}"' if spot.file else ""
    function = escape(spot.function or "-")
    if spot.library:
        function += f"<br><small>in {escape(spot.library)}</small>"
    return (
        share(place.share),
        escape(WORDS.get(place.kind, place.kind)),
        f"<span{full}>{escape(where)}</span>",
        f"<code>{escape(spot.text)}</code>" if spot.text else "-",
        function,
    )


def _bars(attribution: Attribution) -> str:
    """Draw a bar for each kind of work: of those who make samples, and of the loop."""
    both = [("making samples", attribution.makers), ("the loop", attribution.loop)]
    shown = [
        (name, [(kind, value) for kind, value in _sorted(shares) if value >= _LEAST]) for name, shares in both
    ]
    shown = [(name, rows) for name, rows in shown if rows]
    if not shown:
        return ""
    most = max(len(rows) for _, rows in shown)
    with drawing():
        figure = new_figure(0.85 + 0.27 * most)
        for axes, (name, rows) in zip(figure.subplots(1, 2), shown, strict=False):
            for at, (kind, value) in enumerate(rows):
                bar = axes.barh(at, 100 * value, height=0.66, **_style(_look(kind)))
                axes.bar_label(bar, [share(value)], padding=4)
            axes.set_yticks(range(len(rows)), [WORDS.get(kind, kind) for kind, _ in rows])
            axes.set_xlim(0, 119 * max(value for _, value in rows))
            axes.set_ylim(most - 0.5, -0.5)
            axes.set_xlabel("% of the time")
            axes.set_title(name)
            tidy(axes, "x")
        for axes in figure.axes[len(shown) :]:
            axes.set_visible(False)
        return inline(
            figure, "kinds", "Bars: shares of time by kind of work, of those who make samples and the loop"
        )


def _sorted(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])
