"""Charts as SVG that stands inside a page: drawn by matplotlib, in the page's own colours and letters."""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fastload.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "INK", "WIDTH", "drawing", "inline", "logarithmic", "new_figure", "tidy"]

# Seen on white and on black alike, as neither is known when a chart is drawn.
COLOURS = {
    "storage": "#4a8fd1",
    "shard": "#4a8fd1",
    "read": "#4a8fd1",
    "decode": "#d9822b",
    "transform": "#3f9d66",
    "python": "#b0843c",
    "collate": "#a05fb4",
    "transfer": "#2f9ca3",
    "prefetch": "#8a8f98",
    "loader": "#6f86a8",
    "step": "#7c7fd1",
    "wait": "#d9534f",
}
INK = "#000001"  # stands for the page's colour of text until the chart is in it
WIDTH = 9.2  # inches, of 72 units of the SVG each; pages scale it

_SETTINGS = {
    "svg.fonttype": "none",  # letters stay letters: small, and of the page's font
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_FONT = re.compile(r"font: ([^;\"']*?)([\d.]+)px [^;\"]*")


def _matplotlib() -> Any:
    need("matplotlib.backends.backend_svg", "drawing the report's charts")
    import matplotlib.figure

    return matplotlib


def drawing() -> AbstractContextManager[None]:
    """The settings of our charts, for as long as one is drawn and written; matplotlib's own come back.

    Raises:
        LibraryMissing: matplotlib is not installed.
    """
    settings: AbstractContextManager[None] = _matplotlib().rc_context(_SETTINGS)
    return settings


def new_figure(height: float) -> Figure:
    """A figure of the page's width; pyplot, which a notebook may use, knows nothing of it."""
    figure: Figure = _matplotlib().figure.Figure(figsize=(WIDTH, height), layout="constrained")
    return figure


def tidy(axes: Axes, grid: str = "y") -> None:
    """Only the lines that are read: a light grid along ``grid``, no frame above and right."""
    axes.grid(visible=True, axis="x" if grid == "x" else "y")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, which="both")
    axes.tick_params(axis="x", which="both", pad=7)  # or the corner's two numbers meet


def logarithmic(axes: Axes) -> None:
    """A logarithmic x axis whose ticks at 1, 2 and 5 have plain numbers."""

    def label(value: float, _: object) -> str:
        first = f"{value:e}"[:3]
        return f"{value:,g}" if first in ("1.0", "2.0", "5.0") else ""

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(label)
    axes.xaxis.set_minor_formatter(label)


def inline(figure: Figure, name: str, words: str) -> str:
    """``figure`` as an ``<svg>`` element; inside of :func:`drawing`.

    Args:
        name: its own in the page: ids of its parts are made of it.
        words: what it shows, for who cannot see it.
    """
    matplotlib = _matplotlib()
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<style[^>]*>.*?</style>", "", text, count=1, flags=re.DOTALL)  # for all of the page
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nothing refers to these, and each chart has the same
    text = re.sub(r'( id="|"#|url\(#)', rf"\1{name}-", text)
    text = _FONT.sub(r"font-size: \2px", text).replace(INK, "currentColor")
    head, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    label = words.replace("&", "and").replace('"', "'").replace("<", "")
    return (
        '<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} '
        f'role="img" aria-label="{label}" stroke-linejoin="round" stroke-linecap="butt">{rest}</div>'
    )
