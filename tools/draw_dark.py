"""Draw the dark form of each drawing of docs/images/how from its light one: ``python tools/draw_dark.py``.

Only colours differ, and each colour has one partner. A test compares the files.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "how"
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
PARTNERS = {
    "#1f2328": "#e6edf3",  # text
    "#57606a": "#a9b4c0",  # text beside it
    "#6e7781": "#8b98a5",  # lines
    "#eef1f4": "#2c323a",  # gray
    "#afb8c1": "#59636e",
    "#cfe4ff": "#16406f",  # blue
    "#1d6fd6": "#6cb0ff",
    "#ffe0c2": "#5c3310",  # orange
    "#bc5a0c": "#f5a15b",
    "#d2f0da": "#164a28",  # green
    "#1a7f37": "#56d364",
    "#e9dcfb": "#402866",  # violet
    "#7a3fc4": "#c8a4ff",
}


def light_drawings() -> list[Path]:
    """The drawings that are made by hand."""
    return sorted(FOLDER.glob("*-light.svg"))


def dark_path(light: Path) -> Path:
    """Where the dark form of a drawing lies."""
    return light.with_name(light.name.replace("-light.svg", "-dark.svg"))


def dark(text: str) -> str:
    """A light drawing in dark colours.

    Raises:
        KeyError: a colour has no partner.
    """
    return COLOUR.sub(lambda colour: PARTNERS[colour[0]], text)


if __name__ == "__main__":
    for light in light_drawings():
        dark_path(light).write_text(dark(light.read_text(encoding="utf-8")), encoding="utf-8")
