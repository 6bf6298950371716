"""Charts of the tables, by matplotlib where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from articles.setting import Chart

__all__ = ["draw", "has_matplotlib"]


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(chart: Chart, path: Path) -> list[Path]:
    """``path`` with .png and .svg: medians, with their range as a line; the files written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    {"bars": _bars, "stacked": _stacked, "lines": _lines}[chart.kind](axes, chart)
    axes.set_title(chart.title)
    axes.set_ylabel(chart.unit)
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart.series) > 1:
        axes.legend(frameon=False, fontsize="small")
    files = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    for file in files:
        figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return files


def _places(chart: Chart) -> list[str]:
    return list(dict.fromkeys(x for values in chart.series.values() for x in values))


def _label(axes: Any, places: list[str]) -> None:
    turn = {"rotation": 20, "ha": "right"} if max(map(len, places), default=0) > 12 else {}
    axes.set_xticks(range(len(places)), places, **turn)


def _bars(axes: Any, chart: Chart) -> None:
    places, width = _places(chart), 0.8 / max(1, len(chart.series))
    for number, (name, values) in enumerate(chart.series.items()):
        for x, summary in values.items():
            at = places.index(x) + (number - (len(chart.series) - 1) / 2) * width
            bar = axes.bar(at, summary.median, 0.9 * width, color=f"C{number}")
            axes.vlines(at, summary.low, summary.high, color="black", linewidth=1)
            bar.set_label(name if x == next(iter(values)) else "_")
    _label(axes, places)


def _stacked(axes: Any, chart: Chart) -> None:
    places = _places(chart)
    bottom = dict.fromkeys(places, 0.0)
    for number, (name, values) in enumerate(chart.series.items()):
        heights = [values[x].median if x in values else 0.0 for x in places]
        axes.bar(
            range(len(places)), heights, 0.6, [bottom[x] for x in places], label=name, color=f"C{number}"
        )
        bottom = {x: bottom[x] + height for x, height in zip(places, heights, strict=True)}
    _label(axes, places)


def _lines(axes: Any, chart: Chart) -> None:
    for number, (name, values) in enumerate(chart.series.items()):
        points = [int(x) for x in values]
        axes.plot(points, [s.median for s in values.values()], marker="o", label=name, color=f"C{number}")
        axes.vlines(points, [s.low for s in values.values()], [s.high for s in values.values()], f"C{number}")
    places = [int(x) for x in _places(chart)]
    axes.set_xticks(places)
    axes.set_ylim(bottom=0)
