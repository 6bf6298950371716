"""Draw a torch.profiler trace by matplotlib: what happened when, with a row for each kind of event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Event", "draw", "read_events", "row_of"]

LOADER = "enumerate(DataLoader)#"
STAGES = "fastload."  # fastload.prefetch.wait#17 and the like, inside next()
ROWS = (
    "step",
    "data loader",
    "its stages",
    "forward",
    "backward",
    "optimizer",
    "operators",
    "copies",
    "kernels",
)
CROWDED = ("operators", "copies", "kernels")  # thousands of bars: neighbours are drawn as one
COLORS = ("#bbbbbb", "#d62728", "#e7969c", "#1f77b4", "#2ca02c", "#9467bd", "#8c9aa8", "#ff7f0e", "#17becf")


@dataclass(frozen=True)
class Event:
    """One bar; times in milliseconds from the trace's first event."""

    row: str
    name: str
    begin: float
    length: float


def row_of(name: str, category: str) -> str:
    """The row that an event belongs to; empty for those that are not drawn."""
    if name.startswith("ProfilerStep#") and category == "user_annotation":
        return "step"
    if name.startswith(LOADER) and category == "user_annotation":
        return "data loader"
    if name.startswith(STAGES) and category == "user_annotation":
        return "its stages"
    if category == "user_annotation" and name in ROWS:
        return name
    return {"cpu_op": "operators", "gpu_memcpy": "copies", "kernel": "kernels"}.get(category, "")


def read_events(path: Path) -> list[Event]:
    """The events to draw from a Chrome trace, in order of time.

    Raises:
        ValueError: it has no ProfilerStep, so it is no trace of a schedule.
    """
    raw = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    kept = [(row_of(event["name"], event.get("cat", "")), event) for event in raw]
    kept = [(row, event) for row, event in kept if row]
    if not any(row == "step" for row, _ in kept):
        raise ValueError(f"{path} has no ProfilerStep events: profile with a schedule and profiler.step().")
    start = min(float(event["ts"]) for _, event in kept)
    events = [
        Event(row, event["name"], (float(event["ts"]) - start) / 1000, float(event["dur"]) / 1000)
        for row, event in kept
    ]
    return sorted(events, key=lambda event: event.begin)


def draw(events: list[Event], path: Path, title: str) -> None:
    """Write the picture; its kind follows from the suffix. Bars too thin to be seen are widened a little."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in ROWS if any(event.row == row for event in events)]
    end = max(event.begin + event.length for event in events)
    figure, axes = pyplot.subplots(figsize=(10, 0.5 * len(rows) + 1.2), layout="constrained")
    for number, row in enumerate(rows):
        bars = [(e.begin, e.length) for e in events if e.row == row]
        if row in CROWDED:
            bars = joined(bars, end / 1000)
        bars = [(begin, max(length, end / 1000)) for begin, length in bars]
        edge = "white" if row == "step" else "none"
        axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=COLORS[ROWS.index(row)], edgecolors=edge)
    for event in events:
        if event.row == "step":
            axes.text(
                event.begin + event.length / 2, 0, event.name, ha="center", va="center", fontsize="small"
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlim(0, end)
    axes.set_xlabel("milliseconds")
    waited = sum(event.length for event in events if event.row == "data loader")
    steps = sum(event.length for event in events if event.row == "step")
    axes.set_title(f"{title}: {waited / steps:.1%} of the steps in the loader's next()", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def joined(bars: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Bars (begin, length), those united that overlap or lie at most ``gap`` apart."""
    kept: list[tuple[float, float]] = []
    for begin, length in sorted(bars):
        if kept and begin <= sum(kept[-1]) + gap:
            first = kept[-1][0]
            kept[-1] = (first, max(sum(kept[-1]), begin + length) - first)
        else:
            kept.append((begin, length))
    return kept
