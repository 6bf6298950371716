"""An SVG drawing in a light and a dark theme: the same bytes for the same content, and text that stays text.

Drawings are WIDTH units wide, so that their text can be read where a phone makes them narrower than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

__all__ = ["THEMES", "WIDTH", "Drawing", "number", "wrapped"]

WIDTH = 440
NATURAL = 1.3  # as large as this where there is room
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
LETTER = 0.56  # of the font's size: the mean width of a character
BOLD = 1.12  # times as wide
THEMES = {
    "light": {
        "text": "#1f2328", "soft": "#57606a", "line": "#d0d7de", "whisker": "#1f2328",
        "ours": "#0f8072", "ours2": "#7cc4b8", "rival": "#8c959f", "rival2": "#c8d0d8",
    },
    "dark": {
        "text": "#e6edf3", "soft": "#a3adb8", "line": "#3a424b", "whisker": "#e6edf3",
        "ours": "#2dd4bf", "ours2": "#1b7f74", "rival": "#7d8894", "rival2": "#4a535d",
    },
}  # fmt: skip
SIZES = {"title": 17.0, "label": 14.0, "value": 12.5, "small": 11.5}


def number(value: float) -> str:
    """Thousands with a comma, and small ones with a digit more: 4,897, 8.4."""
    return f"{value:,.0f}" if value >= 20 or value == round(value) else f"{value:.1f}"


def units(value: float) -> str:
    """A length or place in the drawing."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def wrapped(text: str, size: str, width: float = WIDTH) -> list[str]:
    """Lines of words that fit in a width."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def width_of(text: str, size: str, bold: bool = False) -> float:
    """About how wide a text is."""
    return len(text) * SIZES[size] * LETTER * (BOLD if bold else 1.0)


class Drawing:
    """Shapes one below the other; ``y`` is where the next one goes."""

    def __init__(self, name: str, title: str, description: str) -> None:
        self.name, self.title, self.description = name, title, description
        self.y = 0.0
        self._body: list[str] = []

    def text(
        self, x: float, y: float, words: str, size: str = "label", *, fill: str = "text", bold: bool = False,
        anchor: str = "start",
    ) -> None:  # fmt: skip
        """A line of text on the base line ``y``."""
        style = [size, f"f-{fill}"] + (["bold"] if bold else []) + ([anchor] if anchor != "start" else [])
        place = f'x="{units(x)}" y="{units(y)}"'
        self._body.append(f'<text class="{" ".join(style)}" {place}>{escape(words)}</text>')

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A filled rectangle."""
        size = f'width="{units(width)}" height="{units(height)}"'
        self._body.append(f'<rect class="f-{fill}" x="{units(x)}" y="{units(y)}" {size} rx="2"/>')

    def path(self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1.0) -> None:
        """Connected lines."""
        steps = "L".join(f"{units(x)} {units(y)}" for x, y in points)
        self._body.append(f'<path class="s-{stroke}" stroke-width="{units(width)}" d="M{steps}"/>')

    def dot(self, x: float, y: float, fill: str) -> None:
        """A point of a chart."""
        self._body.append(f'<circle class="f-{fill}" cx="{units(x)}" cy="{units(y)}" r="5"/>')

    def heading(self, subtitle: str) -> None:
        """The title, and what is shown."""
        for line in wrapped(self.title, "title"):
            self.y += 21
            self.text(0, self.y, line, "title", bold=True)
        for line in wrapped(subtitle, "value"):
            self.y += 17
            self.text(0, self.y, line, "value", fill="soft")
        self.y += 8

    def footer(self, words: str) -> None:
        """Where the figures come from."""
        self.y += 6
        for line in wrapped(words, "small"):
            self.y += 15
            self.text(0, self.y, line, "small", fill="soft")

    def render(self, theme: str) -> str:
        """The file's text."""
        colours = THEMES[theme]
        fills = "".join(f".f-{name}{{fill:{colour}}}" for name, colour in colours.items())
        strokes = "".join(f".s-{name}{{stroke:{colour};fill:none}}" for name, colour in colours.items())
        sizes = "".join(f".{name}{{font-size:{units(size)}px}}" for name, size in SIZES.items())
        height = self.y + 8
        shape = f'viewBox="0 0 {WIDTH} {units(height)}"'
        shape += f' width="{units(WIDTH * NATURAL)}" height="{units(height * NATURAL)}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {shape} role="img" aria-labelledby="t-{self.name} '
            f'd-{self.name}">\n<title id="t-{self.name}">{escape(self.title)}</title>\n'
            f'<desc id="d-{self.name}">{escape(self.description)}</desc>\n'
            f"<style>text{{font-family:{FONT}}}.bold{{font-weight:600}}.middle{{text-anchor:middle}}"
            f".end{{text-anchor:end}}{sizes}{fills}{strokes}</style>\n"
        )
        return head + "\n".join(self._body) + "\n</svg>\n"
