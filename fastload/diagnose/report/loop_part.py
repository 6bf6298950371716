"""A watched loop through its time: how long each batch was waited for, and how long its step took."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from fastload.diagnose.facts import Loop
from fastload.diagnose.report.figures import COLOURS, drawing, inline, new_figure, tidy
from fastload.diagnose.report.page import Part, amount, seconds, table

__all__ = ["grouped", "loop_part"]

_LISTED = 6  # values of a list
_COLUMNS = 160  # more would be finer than the picture


def grouped(values: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """The means of at most ``columns`` runs of consecutive values, as even as they can be."""
    if len(values) <= columns:
        return values
    begins = np.linspace(0, len(values), columns + 1).astype(np.int64)
    sums: NDArray[np.float64] = np.add.reduceat(values, begins[:-1])
    return sums / np.diff(begins)


def loop_part(loop: Loop) -> Part | None:
    """Waiting and steps over the time, and their spread; None for a loop without batches."""
    if len(loop.wait) == 0:
        return None
    heads = ("Of a batch", "mean", "median", "95 of 100 below", "longest")
    rows = [_spread("waiting for data", loop.wait), _spread("the step", loop.step)]
    body = (
        _timeline(loop)
        + table(heads, rows, numbers=(1, 2, 3, 4))
        + table(("Of the loop", ""), _facts(loop))
        + _notes(loop)
    )
    return Part("Batch by batch", body)


def _spread(name: str, values: NDArray[np.float64]) -> tuple[str, ...]:
    low, high = (float(q) for q in np.quantile(values, (0.5, 0.95)))
    return (name, *(seconds(v) for v in (float(values.mean()), low, high, float(values.max()))))


def _facts(loop: Loop) -> list[tuple[str, str]]:
    busy = loop.loader_cpu / loop.seconds if loop.seconds > 0 else 0.0
    rows = [
        ("batches watched", f"{len(loop.wait):,} of {loop.batch_size} samples, {seconds(loop.seconds)}"),
        (
            "CPUs",
            f"{loop.cpus:g} may be used; {busy:.2f} busy with loading ({loop.threads} threads or workers), "
            f"{loop.loop_cpu / max(loop.seconds, 1e-9):.2f} with the loop itself",
        ),
    ]
    if loop.read_bytes is not None:
        per_second = amount(loop.read_bytes / max(loop.seconds, 1e-9))
        rows.append(("read from storage", f"{amount(loop.read_bytes)}, {per_second} per second"))
    if loop.copied_bytes is not None:
        rows.append(("copied to the device", amount(loop.copied_bytes)))
    return rows


def _notes(loop: Loop) -> str:
    """What else was seen, to unfold."""
    rows = [
        (escape(name.replace("_", " ")), escape(_plain(name, value))) for name, value in loop.notes.items()
    ]
    if not rows:
        return ""
    return f"<details><summary>What else was seen</summary>{table(('', ''), rows)}</details>"


def _plain(name: str, value: object) -> str:
    """A note's value in the unit that its name says."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_seconds"):
            return seconds(value)
        return amount(value) if name.endswith(("_bytes", "_free")) else f"{value:,g}"
    if isinstance(value, list | tuple):
        first = ", ".join(_plain(name, each) for each in value[:_LISTED])
        return f"{first}, ... ({len(value):,} in all)" if len(value) > _LISTED else first
    return str(value)


def _ready(loop: Loop) -> NDArray[np.float64] | None:
    """How many batches were ready whenever one was asked for, where that is known."""
    found = loop.notes.get("ready_batches")
    if not isinstance(found, list | tuple) or len(found) != len(loop.wait) or None in found:
        return None
    return np.array(found, np.float64)


def _timeline(loop: Loop) -> str:
    wait, step = grouped(loop.wait, _COLUMNS), grouped(loop.step, _COLUMNS)
    edges = np.concatenate(([0.0], np.cumsum(wait + step)))
    edges *= loop.seconds / edges[-1] if edges[-1] > 0 else 1.0
    ready = _ready(loop)
    with drawing():
        figure = new_figure(2.6 if ready is None else 3.6)
        below = None
        if ready is None:
            axes = figure.subplots()
        else:
            axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
            depths = grouped(ready, _COLUMNS)
            below.stairs(depths, edges, fill=True, color=COLOURS["loader"])
            below.set_ylim(0, 1.15 * max(1.0, float(depths.max())))
            below.set_ylabel("ready")
            tidy(below)
        axes.stairs(1e3 * step, edges, fill=True, color=COLOURS["step"], label="step")
        both = 1e3 * (step + wait)
        axes.stairs(
            both, edges, baseline=1e3 * step, fill=True, color=COLOURS["wait"], label="waiting for data"
        )
        axes.set_xlim(0, edges[-1])
        axes.set_ylim(0, 1.08 * float(both.max()) or 1.0)
        also = "" if below is None else "; below: batches that were ready when one was asked for"
        (below or axes).set_xlabel(f"seconds since the loop's second batch{also}")
        axes.set_ylabel("ms a batch")
        figure.legend(loc="outside upper left", ncols=2)
        tidy(axes)
        return inline(figure, "loop", "Each batch's step, and the time waited for data before it")
