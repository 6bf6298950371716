"""A field with axes: curves over a count, and points of which both places mean something."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from charts.svg import WIDTH, Drawing, number, width_of

__all__ = ["Curve", "Field", "Point", "curves", "points"]

LABEL_LINES = 30.0  # a label of two lines


@dataclass(frozen=True)
class Point:
    """A value at a place, with its range."""

    x: float
    y: float
    low: float
    high: float
    label: str = ""
    kind: str = "ours"


@dataclass(frozen=True)
class Curve:
    """Points that belong together."""

    label: str
    points: Sequence[Point]
    kind: str


@dataclass(frozen=True)
class Field:
    """Where the axes are, and how values become places."""

    left: float
    right: float
    top: float
    bottom: float
    x: Callable[[float], float]
    highest: float

    def y(self, value: float) -> float:
        """The place of a value."""
        return self.bottom - (self.bottom - self.top) * value / self.highest


def ticks(highest: float) -> list[float]:
    """Round values from 0 on, at most seven."""
    step = 10 ** math.floor(math.log10(highest / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if highest / (step * factor) <= 6)
    return [step * count for count in range(int(highest / step) + 1)]


def frame(
    drawing: Drawing, field: Field, x_ticks: Sequence[tuple[float, str]], y_name: str, x_name: str
) -> None:
    """Grid lines, ticks and the names of the axes."""
    drawing.text(0, field.top - 8, y_name, "value", fill="soft")
    for value in ticks(field.highest):
        drawing.path([(field.left, field.y(value)), (field.right, field.y(value))], "line")
        drawing.text(field.left - 6, field.y(value) + 4, number(value), "small", fill="soft", anchor="end")
    for place, words in x_ticks:
        drawing.text(field.x(place), field.bottom + 17, words, "small", fill="soft", anchor="middle")
    drawing.text(field.right, field.bottom + 34, x_name, "value", fill="soft", anchor="end")
    drawing.y = field.bottom + 38


def whisker(drawing: Drawing, field: Field, point: Point) -> None:
    """The range of a point, and the point."""
    x = field.x(point.x)
    if point.high > point.low:
        drawing.path([(x, field.y(point.low)), (x, field.y(point.high))], "whisker")
        for end in (point.low, point.high):
            drawing.path([(x - 3, field.y(end)), (x + 3, field.y(end))], "whisker")
    drawing.dot(x, field.y(point.y), point.kind)


def spread(places: Sequence[float], distance: float, bottom: float) -> list[float]:
    """The places, moved apart to at least ``distance``, and up where they would end below ``bottom``."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    found = list(places)
    for before, after in itertools.pairwise(order):
        found[after] = max(found[after], found[before] + distance)
    over = max(0.0, max(found, default=0.0) - bottom)
    return [place - over for place in found]


def curves(drawing: Drawing, lines: Sequence[Curve], x_name: str, y_name: str) -> None:
    """Each curve with its words at its last point."""
    counts = sorted({point.x for line in lines for point in line.points})
    ends_in = [width_of(line.label.partition("\n")[0], "value", line.kind == "ours") for line in lines]
    left, right = 52.0, WIDTH - 4.0 - max(100.0, *ends_in)
    inset = 14.0

    def place(value: float) -> float:
        span = counts[-1] - counts[0] or 1.0
        return left + inset + (right - left - 2 * inset) * (value - counts[0]) / span

    highest = max(point.high for line in lines for point in line.points) * 1.04
    field = Field(left, right, drawing.y + 28, drawing.y + 238, place, highest)
    frame(drawing, field, [(count, f"{count:.0f}") for count in counts], y_name, x_name)
    ends = [field.y(line.points[-1].y) for line in lines]
    for line, label_y in zip(lines, spread(ends, LABEL_LINES, field.bottom), strict=True):
        drawing.path([(field.x(point.x), field.y(point.y)) for point in line.points], line.kind, 2.5)
        for point in line.points:
            whisker(drawing, field, point)
        words, _, more = line.label.partition("\n")
        drawing.text(right + 4, label_y, words, "value", bold=line.kind == "ours")
        drawing.text(right + 4, label_y + 14, more, "value", fill="soft")


def points(drawing: Drawing, found: Sequence[Point], x_name: str, y_name: str) -> None:
    """Points over a logarithmic axis; a line leads from each to its words."""
    left, right = 52.0, WIDTH - 166.0
    lowest, most = min(point.x for point in found) / 1.2, max(point.x for point in found) * 1.2

    def place(value: float) -> float:
        return left + (right - left) * math.log(value / lowest) / math.log(most / lowest)

    highest = max(point.high for point in found) * 1.04
    field = Field(left, right, drawing.y + 28, drawing.y + 268, place, highest)
    marks = [value for value in (10, 20, 50, 100, 200, 500, 1000, 2000) if lowest <= value <= most]
    frame(drawing, field, [(value, str(value)) for value in marks], y_name, x_name)
    wanted = [field.y(point.y) for point in found]
    for point, y in zip(found, spread(wanted, LABEL_LINES + 4, field.bottom - 16), strict=True):
        drawing.path([(field.x(point.x), field.y(point.y)), (right + 2, y), (right + 8, y)], "soft", 0.6)
        whisker(drawing, field, point)
        words, _, more = point.label.partition("\n")
        drawing.text(right + 12, y + 4, words, "value", bold=True)
        drawing.text(right + 12, y + 18, more, "value", fill="soft")
