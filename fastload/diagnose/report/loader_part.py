"""What a loader's own clocks say: threads through the time, where a sample's time goes, what was read."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from fastload.diagnose.report.figures import COLOURS, drawing, inline, new_figure, tidy
from fastload.diagnose.report.history import STAGES, Moments
from fastload.diagnose.report.page import Part, amount, rate, seconds, share, table

__all__ = ["read_part", "timeline_part", "waterfall_part"]

_SPAN = 0.1  # seconds of a column: many samples
_COLUMNS = 90
_WORDS = {"shard": "read", "decode": "decode", "transform": "transform"}


def timeline_part(moments: Moments, what: str) -> Part | None:
    """Busy threads by stage, and the queue's depth; None where too little was seen.

    Args:
        what: when it was looked at, in words.
    """
    if len(moments) < 3 or moments.threads < 1 or moments.times[-1] <= 0:
        return None
    edges, busy = moments.busy(max(1, min(_COLUMNS, int(moments.times[-1] / _SPAN))))
    with drawing():
        figure = new_figure(3.9)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        base = np.zeros(busy.shape[1])
        for name, threads in zip(STAGES, busy, strict=True):
            top = base + threads
            above.stairs(top, edges, baseline=base, fill=True, color=COLOURS[name], label=_WORDS[name])
            base = top
        above.axhline(moments.threads, color=COLOURS["prefetch"], linewidth=1, linestyle=(0, (4, 3)))
        above.set_ylim(0, 1.1 * max(moments.threads, float(base.max())))
        above.set_ylabel("busy threads")
        below.plot(moments.times, moments.ahead, color=COLOURS["loader"], linewidth=1.4)
        below.fill_between(moments.times, moments.ahead, color=COLOURS["loader"], alpha=0.25, linewidth=0)
        below.set_ylim(0, 1.1 * max(1.0, float(moments.ahead.max())))
        below.set_ylabel("batches ahead")
        below.set_xlabel("seconds")
        below.set_xlim(0, float(moments.times[-1]))
        figure.legend(loc="outside upper left", ncols=3)
        tidy(above)
        tidy(below)
        drawn = inline(figure, "threads", "Threads busy with each stage, and batches that are decoded ahead")
    used = float(busy.sum(axis=0) @ np.diff(edges)) / float(edges[-1])
    words = (
        f"{what} {used:.2f} of {moments.threads} threads were busy (the dashed line), and "
        f"{moments.ahead.mean():.1f} batches lay decoded ahead of the consumer, on average. No batch ahead: "
        "the loader limits. Always the most that it may have: the consumer does."
    )
    return Part("Threads and queue", f"<p>{escape(words)}</p>" + drawn)


def waterfall_part(stats: Mapping[str, Any], what: str) -> Part | None:
    """Where a sample's time goes, stage by stage; None where nothing was decoded by our threads.

    Args:
        what: whose clocks these are, in words.
    """
    stages, threads = stats["stages"], max(1, int(stats["threads"]))
    count = stages["decode"]["count"]
    spent = {name: stages[name]["seconds"] / count for name in STAGES} if count else {}
    total = sum(spent.values())
    if total <= 0:
        return None
    bars = [(_WORDS[name], value, COLOURS[name], True) for name, value in spent.items()]
    bars.append((f"of {threads} at once", total / threads, COLOURS["loader"], False))
    rows = [
        (_WORDS[name], seconds(value), share(value / total), "a thread's time")
        for name, value in spent.items()
    ]
    rows.append(
        ("all of them", seconds(total), "", f"at most {rate(threads / total)} with {threads} at once")
    )
    transfer = stages.get("transfer", {})
    if transfer.get("seconds") and stats["samples"]:
        copied = transfer["seconds"] / stats["samples"]
        bars.append(("to the device", copied, COLOURS["transfer"], False))
        rows.append(("to the device", seconds(copied), "", "the copy engine's time"))
    whole = 1 / stats["images_per_second"] if stats["images_per_second"] > 0 else 0.0
    if whole:
        wait = whole * stats["data_wait"]["share"]
        bars += [("step", whole - wait, COLOURS["step"], False), ("waiting", wait, COLOURS["wait"], True)]
        rows.append(("step", seconds(whole - wait), share(1 - wait / whole), "of the loop, a sample"))
        rows.append(("waiting for data", seconds(wait), share(wait / whole), "of the loop, a sample"))
    heads = ("Where", "A sample", "Share", "")
    body = f"<p>{escape(what)}</p>" + _waterfall(bars) + table(heads, rows, numbers=(1, 2))
    return Part("Where a sample's time goes", body)


def _waterfall(bars: list[tuple[str, float, str, bool]]) -> str:
    """A bar each of (name, seconds, colour, whether it begins where the one before ended)."""
    with drawing():
        figure = new_figure(0.75 + 0.34 * len(bars))
        axes = figure.subplots()
        begin = end = 0.0
        for at, (_, value, colour, goes_on) in enumerate(bars):
            begin = end if goes_on else 0.0
            end = begin + value
            axes.barh(at, 1e3 * value, left=1e3 * begin, color=colour, height=0.62)
            axes.annotate(seconds(value), (1e3 * end, at), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
        axes.set_xlim(0, 1.13 * axes.get_xlim()[1])
        axes.set_xlabel("ms a sample")
        axes.invert_yaxis()
        tidy(axes, "x")
        return inline(figure, "waterfall", "Bars, one after the other: where a sample's time goes")


def read_part(stats: Mapping[str, Any]) -> Part | None:
    """What was read, from where, and by which decoder; None where our threads decoded nothing."""
    count = stats["stages"]["decode"]["count"]
    if not count:
        return None
    ahead, cache = stats["read_ahead"], stats["cache"]
    paths = {name: n for name, n in stats["decoded"].items() if n and name != "warnings"}
    rows = [
        ("samples decoded", f"{count:,}, of which {stats['samples']:,} were delivered"),
        ("encoded bytes", f"{amount(stats['bytes'])}, {amount(stats['bytes'] / count)} a sample"),
        ("decoded by", ", ".join(f"{escape(name)}: {n:,}" for name, n in paths.items()) or "-"),
        ("bad samples", f"{stats['faults']:,}"),
    ]
    if stats["first_batch_seconds"] is not None:
        rows.append(("first batch after", seconds(stats["first_batch_seconds"])))
    if ahead:
        storage = f"{ahead['requests']:,} requests, {amount(ahead['bytes'])}"
        found = f"{ahead['resident']:,} in memory, {ahead['ahead']:,} read ahead, {ahead['late']:,} too late"
        rows += [("read from storage", storage), ("records looked for", found)]
    asked = cache.get("hits", 0) + cache.get("misses", 0)
    if asked:
        hits = (
            f"{share(cache['hits'] / asked)} of {asked:,} records were found ({escape(str(cache['tier']))})"
        )
        rows.append(("node cache", f"{hits}; {amount(cache['bytes'])} of memory"))
    elif cache.get("reason"):
        rows.append(("node cache", escape(str(cache["reason"]))))
    return Part("What was read", table(("Since the loader was made", ""), rows))
