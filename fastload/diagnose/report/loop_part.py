"""A watched loop through its time: how long each batch was waited for, and how long its step took."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from fastload.diagnose.facts import Loop
from fastload.diagnose.report.figures import COLOURS, drawing, inline, new_figure, tidy
from fastload.diagnose.report.page import Part, amount, seconds, table

__all__ = ["grouped", "loop_part"]

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
        _timeline(loop) + table(heads, rows, numbers=(1, 2, 3, 4)) + table(("Of the loop", ""), _facts(loop))
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
        rows.append(("read from storage", f"{amount(loop.read_bytes)}, {per_second} a second"))
    if loop.copied_bytes is not None:
        rows.append(("copied to the device", amount(loop.copied_bytes)))
    rows += [(escape(str(name)), escape(str(value))) for name, value in loop.notes.items()]
    return rows


def _timeline(loop: Loop) -> str:
    wait, step = grouped(loop.wait, _COLUMNS), grouped(loop.step, _COLUMNS)
    edges = np.concatenate(([0.0], np.cumsum(wait + step)))
    edges *= loop.seconds / edges[-1] if edges[-1] > 0 else 1.0
    with drawing():
        figure = new_figure(2.6)
        axes = figure.subplots()
        axes.stairs(1e3 * step, edges, fill=True, color=COLOURS["step"], label="step")
        both = 1e3 * (step + wait)
        axes.stairs(
            both, edges, baseline=1e3 * step, fill=True, color=COLOURS["wait"], label="waiting for data"
        )
        axes.set_xlim(0, edges[-1])
        axes.set_ylim(0, 1.08 * float(both.max()) or 1.0)
        axes.set_xlabel("seconds since the loop's second batch")
        axes.set_ylabel("ms a batch")
        figure.legend(loc="outside upper left", ncols=2)
        tidy(axes)
        return inline(figure, "loop", "Each batch's step, and the time waited for data before it")
