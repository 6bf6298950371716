"""Groups of horizontal bars, each with its range and its words at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from charts.svg import WIDTH, Drawing, width_of

__all__ = ["Bar", "Group", "bars", "legend"]

HEIGHT = 13.0
STEP = 17.0  # from bar to bar
GAP = 8.0  # words and whisker


@dataclass(frozen=True)
class Bar:
    """One value; ``words`` stand at its end."""

    value: float
    low: float
    high: float
    words: str
    kind: str  # a colour of the theme


@dataclass(frozen=True)
class Group:
    """Bars below a label."""

    label: str
    bars: Sequence[Bar]
    bold: bool = False


def bars(drawing: Drawing, groups: Sequence[Group]) -> None:
    """Draw the groups, all on one scale, which leaves room for the words."""
    room = ((group.bold, bar) for group in groups for bar in group.bars)
    scale = min((WIDTH - GAP - width_of(bar.words, "value", bold)) / bar.high for bold, bar in room)
    for group in groups:
        drawing.y += 16
        drawing.text(0, drawing.y, group.label, bold=group.bold)
        drawing.y += 5
        for bar in group.bars:
            middle = drawing.y + HEIGHT / 2
            drawing.rectangle(0, drawing.y, max(1.0, bar.value * scale), HEIGHT, bar.kind)
            if bar.high > bar.low:
                low, high = bar.low * scale, bar.high * scale
                drawing.path([(low, middle), (high, middle)], "whisker")
                for end in (low, high):
                    drawing.path([(end, middle - 3), (end, middle + 3)], "whisker")
            drawing.text(bar.high * scale + GAP, drawing.y + 10.5, bar.words, "value", bold=group.bold)
            drawing.y += STEP
        drawing.y += 3


def legend(drawing: Drawing, entries: Sequence[tuple[str, str]]) -> None:
    """Coloured squares and what they are: (colours by comma, words)."""
    x = 0.0
    drawing.y += 12
    for kinds, words in entries:
        for kind in kinds.split(","):
            drawing.rectangle(x, drawing.y - 9, 11, 11, kind)
            x += 14
        drawing.text(x + 2, drawing.y, words, "value", fill="soft")
        x += width_of(words, "value") + 22
    drawing.y += 6
