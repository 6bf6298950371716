"""What single samples cost: their spread, the slowest by name, and the codecs."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastload.diagnose.report.figures import COLOURS, drawing, inline, logarithmic, new_figure, tidy
from fastload.diagnose.report.page import Part, amount, seconds, share, table
from fastload.diagnose.report.sample_costs import Costs, SampleCost

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["costs_part"]

_SLOWEST = 12
_BAD = 5  # named; the others are counted
_QUANTILES = ((0.5, "median"), (0.95, "95 of 100"), (0.99, "99 of 100"))


def costs_part(costs: Costs) -> Part | None:
    """A histogram and two tables; None where no sample could be looked at."""
    if not costs.samples and not costs.bad:
        return None
    body = ""
    if costs.samples:
        times = np.array([sample.decode for sample in costs.samples])
        body = f"<p>{escape(_words(costs, times))}</p>{_histogram(times)}"
        slowest = sorted(costs.samples, key=lambda sample: -sample.decode)[:_SLOWEST]
        heads = ("The slowest", "Decode", "Median ×", "Read", "Pixels", "Bytes", "Codec")
        rows = [_row(sample, float(np.median(times))) for sample in slowest]
        body += table(heads, rows, numbers=(1, 2, 3, 4, 5)) + _codecs(costs)
    if costs.bad:
        named = "".join(
            f"<li>{escape(key)}: <small>{escape(error)}</small></li>" for key, error in costs.bad[:_BAD]
        )
        more = f"<li>and {len(costs.bad) - _BAD:,} more</li>" if len(costs.bad) > _BAD else ""
        body += f"<p>Could not be decoded: {len(costs.bad):,}.</p><ul>{named}{more}</ul>"
    return Part("What single samples cost", body)


def _words(costs: Costs, times: NDArray[np.float64]) -> str:
    top = max(1, len(times) // 100)
    of_slowest = float(np.sort(times)[-top:].sum() / times.sum())
    field = f" (field {costs.field!r})" if costs.field else ""
    return (
        f"{len(times):,} of {costs.of:,} samples{field} were read and decoded one by one, whole, on one "
        f"thread. The median takes {seconds(float(np.median(times)))} of CPU time, the slowest "
        f"{seconds(float(times.max()))}. "
        f"The slowest {share(top / len(times))} take {share(of_slowest)} of the time."
    )


def _row(sample: SampleCost, median: float) -> tuple[str, ...]:
    pixels = f"{sample.width}×{sample.height}" if sample.width else "-"
    name = f"{escape(sample.key)}<br><small>sample {sample.sample:,}, {escape(sample.shard)}</small>"
    relative = f"{sample.decode / median:.1f}" if median > 0 else "-"
    read, decode = seconds(sample.read), seconds(sample.decode)
    return name, decode, relative, read, pixels, amount(sample.length), escape(sample.codec)


def _codecs(costs: Costs) -> str:
    """A row for each codec: how many, and their share of the time."""
    names = sorted({sample.codec for sample in costs.samples})
    total = sum(sample.decode for sample in costs.samples)
    rows = []
    for name in names:
        own = [sample for sample in costs.samples if sample.codec == name]
        spent = sum(sample.decode for sample in own)
        pixels = sum(sample.width * sample.height for sample in own)
        speed = f"{pixels / spent / 1e6:.0f} MP/s" if pixels and spent else "-"
        rows.append((escape(name), f"{len(own):,}", seconds(spent / len(own)), speed, share(spent / total)))
    return table(("Codec", "Samples", "Mean", "Pixels per second", "Of the time"), rows, numbers=(1, 2, 3, 4))


def _histogram(times: NDArray[np.float64]) -> str:
    ms = 1e3 * times
    spreads = ms.min() > 0 and ms.max() / ms.min() > 12
    edges = np.geomspace(ms.min(), ms.max(), 41) if spreads else np.linspace(0, 1.02 * ms.max(), 41)
    edges[-1] = math.nextafter(float(edges[-1]), math.inf)  # or the largest may lie above it
    with drawing():
        figure = new_figure(2.5)
        axes = figure.subplots()
        counts, _, _ = axes.hist(ms, bins=edges.tolist(), color=COLOURS["decode"])
        axes.set_ylim(0, 1.32 * float(np.max(counts)))  # room for the marks' names
        if spreads:
            logarithmic(axes)
        axes.set_xlim(float(edges[0]), float(edges[-1]))
        _marks(axes, ms, float(np.max(counts)), math.sqrt(edges[0] * edges[-1]) if spreads else edges[-1] / 2)
        axes.set_xlabel("ms of CPU time to decode a sample" + (" (logarithmic)" if spreads else ""))
        axes.set_ylabel("samples")
        tidy(axes)
        return inline(figure, "costs", "A histogram of the time that single samples take to decode")


def _marks(axes: Axes, values: NDArray[np.float64], top: float, middle: float) -> None:
    """Lines at the quantiles, as high as their names, which go to where there is room and cross no line."""
    found = [(float(np.quantile(values, part)), name) for part, name in _QUANTILES]
    right = [(value, name, 5, "left") for value, name in found if value <= middle]
    left = [(value, name, -5, "right") for value, name in reversed(found) if value > middle]
    for at, (value, name, aside, side) in enumerate([*right, *left]):
        height = top * (1.25 - 0.11 * at)
        axes.vlines(value, 0, height, color=COLOURS["wait"], linewidth=1, linestyle=(0, (4, 3)))
        words = f"{name}: {seconds(value / 1e3)}"
        axes.annotate(words, (value, height), (aside, 0), textcoords="offset points", ha=side, va="center")
