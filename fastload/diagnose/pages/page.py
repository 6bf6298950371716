"""A report's page: its HTML and style, and charts as inline SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from fastload.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ---- HTML -------------------------------------------------------------------------------------------

# Scoped, so that it can be used in a notebook, whose colours it takes; only a separate page sets colours.
_STYLE = """
.fastload-report { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  max-width: 62rem; margin: 0 auto; color: inherit; }
.fastload-report h1 { font-size: 1.5rem; line-height: 1.3; margin: .2rem 0 .6rem; font-weight: 650; }
.fastload-report h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; font-weight: 650; }
.fastload-report p { margin: .4rem 0; }
.fastload-report .kicker, .fastload-report small, .fastload-report .foot { opacity: .72; }
.fastload-report .kicker { font-size: .85rem; }
.fastload-report .foot { font-size: .82rem; margin-top: 2.5rem; }
.fastload-report svg { display: block; width: 100%; min-width: 34rem; height: auto; margin: .6rem 0; }
.fastload-report .tiles { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1rem 0; }
.fastload-report .tile { flex: 1 1 9rem; padding: .6rem .8rem; border-radius: .5rem;
  background: color-mix(in srgb, currentColor 6%, transparent); }
.fastload-report .tile b { display: block; font-size: 1.35rem; line-height: 1.3; font-weight: 620; }
.fastload-report .tile span { font-size: .85rem; opacity: .78; }
.fastload-report .scroll { overflow-x: auto; }
.fastload-report table { border-collapse: collapse; width: 100%; font-size: .92rem; margin: .5rem 0; }
.fastload-report th, .fastload-report td { text-align: left; vertical-align: top;
  padding: .35rem .7rem .35rem 0;
  border: 0; border-bottom: 1px solid color-mix(in srgb, currentColor 16%, transparent);
  background: none; color: inherit; overflow-wrap: break-word; }
.fastload-report td small, .fastload-report td code { overflow-wrap: anywhere; }
.fastload-report th { font-weight: 600; white-space: nowrap; }
.fastload-report .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.fastload-report .n { padding-right: 1.4rem; }
.fastload-report code { font-size: .93em; }
.fastload-report details { margin: .15rem 0; }
.fastload-report summary { cursor: pointer; }
.fastload-report details p { margin: .1rem 0 .5rem 1.1rem; opacity: .78; font-size: .92rem; }
"""
_PAGE_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; padding: 1.6rem 1.2rem 3rem; background: #fff; color: #1d2126; }
@media (prefers-color-scheme: dark) { body { background: #15181c; color: #e3e6ea; } }
@media print { body { background: #fff; color: #000; } }
"""


@dataclass(frozen=True)
class ReportPart:
    """A section of the page: its heading, and its HTML."""

    heading: str
    body: str


def document(title: str, parts: Sequence[ReportPart]) -> str:
    """Make an HTML page that needs no other file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
        f"{fragment(parts)}</body>\n</html>\n"
    )


def fragment(parts: Sequence[ReportPart]) -> str:
    """Make the HTML of a report inside another page, such as a notebook."""
    sections = "".join(
        f"<section>\n{f'<h2>{escape(part.heading)}</h2>' if part.heading else ''}\n{part.body}\n</section>\n"
        for part in parts
    )
    return f'<style>{_STYLE}</style>\n<div class="fastload-report">\n{sections}</div>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Make a table of HTML cells; the columns in ``numbers`` are aligned to the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        written = (
            f"<{tag}{' class=n' if at in numbers else ''}>{cell}</{tag}>" for at, cell in enumerate(cells)
        )
        return f"<tr>{''.join(written)}</tr>"

    body = "\n".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table>\n{row(heads, "th")}\n{body}\n</table></div>'


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Make big numbers side by side, from (number, description) pairs."""
    cells = "".join(
        f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
        for number, what in values
    )
    return f'<div class="tiles">{cells}</div>'


def words(text: str) -> str:
    """Write a sentence as HTML; text in `these` is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def rate(value: float) -> str:
    """Write samples per second with three digits; "-" if not known."""
    if value <= 0 or math.isnan(value):
        return "-"
    return "no bound" if math.isinf(value) else f"{_three(value)}/s"


def seconds(value: float) -> str:
    """Write a time in a fitting unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} µs" if value else "0 s"


def amount(count: float) -> str:
    """Write bytes in a fitting decimal unit."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{_three(count / size)} {unit}"
    return f"{count:.0f} bytes"


def share(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.{1 if 0 < value < 0.1 else 0}f}%"


def _three(value: float) -> str:
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, digits):,.{max(0, digits)}f}"


# ---- Charts as inline SVG ---------------------------------------------------------------------------

# Visible on white and on black, because the background is not known when a chart is drawn.
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
INK = "#000001"  # stands for the page's text colour until the chart is in the page
WIDTH = 9.2  # inches, each of 72 SVG units; pages scale it

_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small files, and the page's font
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
_PATH = re.compile(r' d="[^"]*"')  # a hundredth of 1/72 inch is enough
_FONT = re.compile(r"font: ([^;\"']*?)([\d.]+)px [^;\"]*")


def _matplotlib() -> Any:
    need("matplotlib.backends.backend_svg", "drawing the report's charts")
    import matplotlib.figure

    return matplotlib


def drawing() -> AbstractContextManager[None]:
    """Set matplotlib for our charts inside the context; afterwards its own settings are back.

    Raises:
        LibraryMissing: matplotlib is not installed.
    """
    settings: AbstractContextManager[None] = _matplotlib().rc_context(_SETTINGS)
    return settings


def new_figure(height: float) -> Figure:
    """Make a figure of the page's width, unknown to pyplot, which a notebook may use."""
    figure: Figure = _matplotlib().figure.Figure(figsize=(WIDTH, height), layout="constrained")
    return figure


def tidy(axes: Axes, grid: str = "y") -> None:
    """Draw a light grid along ``grid``, and no frame above and on the right."""
    axes.grid(visible=True, axis="x" if grid == "x" else "y")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, which="both")
    axes.tick_params(axis="x", which="both", pad=7)  # or the two numbers at the corner touch


def logarithmic(axes: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2 and 5 times powers of ten."""

    def label(value: float, _: object) -> str:
        first = f"{value:e}"[:3]
        return f"{value:,g}" if first in ("1.0", "2.0", "5.0") else ""

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(label)
    axes.xaxis.set_minor_formatter(label)


def inline(figure: Figure, name: str, words: str) -> str:
    """Write ``figure`` as an ``<svg>`` element; call it inside :func:`drawing`.

    Args:
        name: unique in the page, for the ids of its elements.
        words: a description for readers who cannot see it.
    """
    matplotlib = _matplotlib()
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<style[^>]*>.*?</style>", "", text, count=1, flags=re.DOTALL)  # affects all the page
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # unused, and the same in each chart
    text = re.sub(r'( id="|href="#|url\(#)', rf"\1{name}-", text)
    text = _PATH.sub(lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
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
